"""The kernel's OOM killer and those who pass it on: dmesg, the journal, cgroups, Slurm, Kubernetes, the shell's `Killed`."""

import re
from collections.abc import Iterator
from typing import Any

STRONG = (
    *(
        b"oom-kill",
        b"Out of memory: Kill",
        b"out of memory: Kill",
        b"Killed process",
        b"OOMKilled",
        b"oom_kill",
        b"memory limit",
    ),
    *(
        b"Killed",
        b" killed",
        b"to kill the worker",
        "已杀死".encode(),
        "杀死".encode(),
        b"code 137",
        b"status 137",
        b"SIGKILL",
        b"was killed",
        b"oom_reaper",
        b"being killed",
    ),
)
WEAK = (b"memory: usage", b"memory+swap: usage", b"anon-rss", b"Tasks state")
PROCESS = re.compile(r"[Kk]ill(?:ed)? process (\d{1,10}),?(?: \(([^)]{1,60})\))?")
RSS = re.compile(r"anon-rss:\s{0,4}(\d{1,15}) ?kB")
CGROUP = re.compile(r"memory: usage (\d{1,18})kB, limit (\d{1,18})kB")
SLURM = re.compile(r"memory limit \((\d{1,15}) > (\d{1,15})\)")
SHELL = re.compile(
    r"^\s{0,8}(?:Killed|已杀死|Getötet|Zabity|Terminé)\s{0,8}$|^[\w./ -]{0,80}: line \d{1,6}:\s{1,4}\d{1,8} (?:Killed|已杀死)|: {1,4}\d{1,6}: {1,4}\d{1,8} [Kk]illed "
    r"|^\s{0,8}\[\d{1,4}\][+-]? {1,8}\d{0,8} {0,8}Killed\b|\d{1,9} Killed {2,40}\S|^.{0,40}zsh: killed |[\d.\])]Killed\s{0,4}$|\]\s{0,4}(?:Killed|已杀死)$"
)
EXIT = re.compile(
    r"(?:exit(?:ed)?|return(?:ed)?|finished|terminated|non-zero)\b[^\n]{0,60}\b(?:code|status)[ :=]{1,3}137\b",
    re.IGNORECASE,
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    if cgroup := CGROUP.search(text):
        yield "cgroup", (int(cgroup[1]) * 1024, int(cgroup[2]) * 1024)
        return
    process = PROCESS.search(text)
    if process and ("memory" in text or "anon-rss" in text or "oom" in text):
        yield "oom", "killed"
        if rss := RSS.search(text):
            yield "in_use_bytes", 1024 * int(rss[1])
    elif slurm := SLURM.search(text):
        yield "oom", "killed"
        yield "in_use_bytes", int(slurm[1]) * 1024
        yield "limit_bytes", int(slurm[2]) * 1024
    elif is_kill(text):
        yield "oom", "killed"


def is_kill(text: str) -> bool:
    """Whether the line says that a process was ended for its memory, without numbers."""
    if "oom-kill" in text or "OOMKilled" in text or "oom_kill event" in text or "oom-killer" in text:
        return True
    if "emory limit" in text and ("kill" in text.lower() or "xceeded" in text):
        return True
    if SHELL.search(text) or EXIT.search(text):
        return True
    if "killed by signal: Killed" in text or "Operating System to kill the worker" in text:
        return True
    if "killed after reaching" in text and "memory" in text:
        return True
    return "SIGKILL" in text and (
        "memory" in text or "out-of-memory" in text or "signal 9" in text or "terminated" in text
    )
