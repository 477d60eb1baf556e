"""Processes that the kernel really ends, in a cgroup of their own; needs root and cgroup v1's memory controller.

.venv/bin/python tests/explain/make_logs/record_kills.py
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOGS = HERE.parents[1] / "data" / "logs"
MANIFEST = LOGS / "manifest.json"
CONTROLLER = Path("/sys/fs/cgroup/memory")
CASES = {
    # name: (program, function, limit, cause)
    "killed_process": ("elsewhere", "hold_until_killed", 300 * 1024**2, "host_ram_other"),
    "killed_images": ("tensorflow", "images_until_killed", 1200 * 1024**2, "host_ram_dataset"),
}


def run(program, function, limit):
    """What the shell printed, and what the kernel wrote."""
    group = CONTROLLER / f"legroom_explain_{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        script = f"echo $$ > {group}/cgroup.procs; '{sys.executable}' '{HERE}/run_out_{program}.py' {function}; echo exit status $?"
        env = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
        before = kernel()
        done = subprocess.run(
            ["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, check=False, timeout=200
        )
        return done.stdout.decode("utf-8", "replace").replace(str(HERE.parents[2]), "/home/user/project"), kernel()[
            len(before) :
        ]
    finally:
        group.rmdir()


def kernel():
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout


def main():
    entries = {entry["file"]: entry for entry in json.loads(MANIFEST.read_text())} if MANIFEST.exists() else {}
    for name, (program, function, limit, cause) in CASES.items():
        printed, kernel_log = run(program, function, limit)
        (LOGS / f"{name}.log").write_text(printed)
        entries[f"{name}.log"] = {"file": f"{name}.log", "cause": cause, "made": "run"}
        if program == "elsewhere" and "Killed process" in kernel_log:
            (LOGS / f"{name}_dmesg.log").write_text(kernel_log)
            usage = re.search(r"memory: usage (\d+)kB, limit (\d+)kB", kernel_log)
            numbers = {"in_use_bytes": int(usage[1]) * 1024, "limit_bytes": int(usage[2]) * 1024} if usage else {}
            entries[f"{name}_dmesg.log"] = {"file": f"{name}_dmesg.log", "cause": cause, "made": "run"} | numbers
        print(name, len(printed), len(kernel_log))
    MANIFEST.write_text("[\n" + ",\n".join(json.dumps(entry) for _, entry in sorted(entries.items())) + "\n]\n")


if __name__ == "__main__":
    main()
