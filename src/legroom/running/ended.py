"""Why a script's process ended, as far as its supervisor can see: the signal, the kernel's own count of kills, its memory."""

import re
from dataclasses import dataclass
from pathlib import Path

from legroom.engines.host.limits import groups, read_limits, read_text, up_the_tree
from legroom.engines.out_of_memory import crash_line, signal_name
from legroom.units import format_bytes

RESTARTED = ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS")
NEAR = 0.9  # of a limit: a process that held so much when it was killed was killed for it
EVENTS = re.compile(r"^oom_kill (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """What the supervisor saw of the machine and of the process."""

    used_bytes: int = 0  # by the process and its own, at the last look
    peak_bytes: int = 0
    available_bytes: int | None = None
    oom_kills: int = 0  # of the control group, since the process began


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. `signal` is empty where it ended by itself; `memory` says whether memory was the cause, None if unknown."""

    code: int
    signal: str = ""
    memory: bool | None = None
    message: str = ""

    @property
    def can_go_on(self) -> bool:
        return self.signal in RESTARTED


def read_oom_kills(root: Path = Path("/")) -> int:
    """How often the kernel has killed a process of this control group for memory, whosever limit it was."""
    unified, memory = groups(root, "self")
    for mount, group, name in (
        ("sys/fs/cgroup", unified, "memory.events"),
        ("sys/fs/cgroup/memory", memory, "memory.oom_control"),
    ):
        if group is not None:
            found = EVENTS.search(read_text(next(up_the_tree(root / mount, group)) / name))
            if found:
                return int(found[1])
    return 0


def why(code: int, seen: Memory, crash: str) -> Ended:
    """From a process's return code, as Python gives it: negative where a signal has ended it."""
    if code >= 0:
        return Ended(code)
    name = signal_name(-code)
    if name == "SIGKILL":
        return killed(code, seen)
    line = crash_line(crash)
    where = f", at {line}" if line else ""
    if name in RESTARTED:
        message = f"The script's process crashed in native code ({name}{where}), as TensorFlow and XLA do where memory runs out and no error can be raised."
        return Ended(code, name, None, message)
    return Ended(code, name, False, f"The script's process was ended by {name}.")


def killed(code: int, seen: Memory) -> Ended:
    held = f"It held {format_bytes(seen.peak_bytes)} of RAM at its fullest" if seen.peak_bytes else ""
    limit = read_limits().tightest
    if seen.oom_kills:
        message = f"The kernel killed the script's process: memory ran out. {held}; the limit is {format_bytes(limit.limit_bytes)} ({limit.reason})."
        return Ended(code, "SIGKILL", True, message)
    if seen.used_bytes >= NEAR * limit.limit_bytes:
        message = f"The script's process was killed (SIGKILL), most likely for its memory. {held}, of {format_bytes(limit.limit_bytes)} ({limit.reason})."
        return Ended(code, "SIGKILL", True, message)
    message = "The script's process was killed (SIGKILL)."
    if held:
        message += f" {held}, and nothing says that memory was short: {format_bytes(limit.limit_bytes)} is the limit."
    return Ended(code, "SIGKILL", False, message)
