"""The kernel's OOM killer and those who pass it on: dmesg, the journal, cgroups, Slurm, Kubernetes, the shell's `Killed`."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

ENDS = (b"xit", b"eturn code", b"eturncode", b"eturn status", b"with code", b"with status", b"rror code")
STRONG = (
    *(
        b"oom-kill",
        b"Out of memory: Kill",
        b"out of memory: Kill",
        b"Killed process",
        b"OOMKilled",
        b"oom_kill",
        b"memory limit",
        b"low on resource: memory",
        b"memory usage threshold",
    ),
    *(
        b"Killed",
        b" killed",
        b"to kill the worker",
        "已杀死".encode(),
        "杀死".encode(),
        b"SIGKILL",
        *(b"ignal 9", b"ignal: 9", b"IGNAL: 9", b"Signal 9"),
        *(
            name.encode()
            for name in (
                "Убито",
                "Matado",
                "Ucciso",
                "Morto",
                "Tué",
                "強制終了",
                "죽었음",
                "Getötet",
                "Zabity",
                "Terminé",
            )
        ),
        b"was killed",
        b"oom_reaper",
        b"being killed",
    ),
    *ENDS,
)
WEAK = (b"memory: usage", b"memory+swap: usage", b"anon-rss", b"Tasks state", b"Limits:", b"  memory: ")
PROCESS = re.compile(r"[Kk]ill(?:ed)? process (\d{1,10}),?(?: \(([^)]{1,60})\))?")
RSS = re.compile(r"anon-rss:\s{0,4}(\d{1,15}) ?kB")
CGROUP = re.compile(r"memory: usage (\d{1,18})kB, limit (\d{1,18})kB")
SLURM = re.compile(r"memory limit \((\d{1,15}) > (\d{1,15})\)")
KILLED = "Killed|已杀死|Getötet|Zabity|Terminé|Убито|Matado|Ucciso|Morto|Tué|強制終了|죽었음"  # as shells say it
SHELL = re.compile(
    rf"^\W{{0,8}}(?:{KILLED})\W{{0,8}}$|^\W{{0,8}}Killed: 9\b|[\"'`*]Killed[\"'`*!.]|: line \d{{1,6}}:\s{{1,4}}\d{{1,8}} (?:{KILLED})"
    r"|: {1,4}\d{1,6}: {1,4}\d{1,8} [Kk]illed |^\s{0,8}\[\d{1,4}\]\s{0,4}[+-]?\s{1,8}\d{0,8}\s{0,8}[Kk]illed\b|\d{1,9} Killed {2,40}\S|^.{0,40}zsh: killed "
    r"|[\d.\])]Killed\s{0,4}$|\]\s{0,4}(?:Killed|已杀死)$"
)
SIGNAL_9 = re.compile(
    r"(?i:\bsignal:? 9\b)|\(SIGKILL\)|SIGKILL: 9|SIGKILL received|by signal:? (?:SIGKILL|KILL\b)|Killed signal|Killed \(program|\[Killed\]"
)
EXIT = re.compile(  # 128 + 9, or -9: both say SIGKILL
    r"(?:exit\w{0,6}|return(?:ed)?|finished|terminated|non-zero|error)\b[^\n]{0,60}\b(?:code|status)[ :=]{1,8}(?:137|-9)\b"
    r"|exit_?(?:code|status)['\"]?[ :=]{1,8}(?:137|-9)\b|SIGKILL: 9",
    re.IGNORECASE,
)
POD_LIMITS = re.compile(r"\s{0,40}Limits:\s{0,8}$")
POD_MEMORY = re.compile(r"\s{0,40}memory:\s{1,40}(\d{1,12})([KMGT]i)\s{0,8}$")
RAY = re.compile(rf"was {SIZE} / {SIZE} \([\d.]{{1,12}}\), which exceeds the memory usage threshold")
NOT_FOR_MEMORY = re.compile(r"OOMKilled['\"]?[:=]\s{0,4}[Ff]alse")
SAYS_IT_ALL = (
    *("oom-kill", "OOMKilled", "oom_kill event", "killed by signal: Killed", "Operating System to kill the worker"),
    "low on resource: memory",
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
    elif ray := RAY.search(text):
        yield "oom", "killed"
        yield "in_use_bytes", size_of(ray[1], ray[2])
        yield "limit_bytes", size_of(ray[3], ray[4])
    elif NOT_FOR_MEMORY.search(text):
        yield "not_for_memory", None
    elif is_kill(text):
        yield "oom", "killed"
    elif (rss := RSS.search(text)) and "reaped" not in text:
        yield "in_use_bytes", 1024 * int(rss[1])
    elif POD_LIMITS.match(text):
        yield "pod_limits", None
    elif pod := POD_MEMORY.match(text):
        yield "pod_memory", size_of(pod[1], f"{pod[2]}B")


def is_kill(text: str) -> bool:
    """Whether the line says that a process was ended for its memory, without numbers."""
    if any(word in text for word in SAYS_IT_ALL):
        return True
    if "emory limit" in text and ("kill" in text.lower() or "xceeded" in text):
        return True
    if SHELL.search(text) or EXIT.search(text) or SIGNAL_9.search(text):
        return True
    if "killed after reaching" in text and "memory" in text:
        return True
    return "SIGKILL" in text and (
        "memory" in text or "out-of-memory" in text or "signal 9" in text or "terminated" in text
    )
