"""The memory limit that really holds for this process: the smallest of its control groups', its ulimits' and the machine's.

A container sees the machine's RAM in /proc/meminfo and is killed at its control group's limit. Control groups of version 2
are limited by `memory.max` anywhere up the hierarchy (and slowed down from `memory.high`), those of version 1 by
`memory.limit_in_bytes`, where a huge number means none (kernel, Documentation/admin-guide/cgroup-v2.rst). Everything is
read under a root path, so that tests can make up a machine.
"""

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legroom.units import format_bytes

UNLIMITED = 2**60  # cgroup v1 writes 2**63 rounded down to a page for "no limit"
NO_LIMIT_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit and where it comes from."""

    limit_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits found, the tightest first; `notes` are what slows a process down without stopping it."""

    found: tuple[Limit, ...]
    notes: tuple[str, ...] = ()

    @property
    def tightest(self) -> Limit:
        return self.found[0] if self.found else Limit(NO_LIMIT_BYTES, "no limit found")


def read_limits(root: str | Path = "/", pid: str = "self") -> Limits:
    """The limits of process `pid` on the machine whose files are under `root`."""
    place = Path(root)
    found = [*physical_limits(place), *cgroup_limits(place, pid), *process_limits(place, pid)]
    if not found and str(root) == "/":
        found = list(psutil_limits())
    notes = tuple(high_notes(place, pid))
    return Limits(tuple(sorted(found, key=lambda limit: limit.limit_bytes)), notes)


def psutil_limits() -> Iterator[Limit]:
    """The machine's RAM where there is no /proc."""
    import psutil

    yield Limit(int(psutil.virtual_memory().total), f"the RAM of this {platform.system()} machine")


def physical_limits(root: Path) -> Iterator[Limit]:
    match = re.search(r"^MemTotal:\s*(\d+) kB", read_text(root / "proc/meminfo"), re.MULTILINE)
    if match:
        yield Limit(int(match[1]) * 1024, "the machine's RAM (/proc/meminfo)")


def groups(root: Path, pid: str) -> tuple[str | None, str | None]:
    """The process's control groups: its path in version 2's hierarchy and in version 1's memory hierarchy."""
    unified = memory = None
    for line in read_text(root / f"proc/{pid}/cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            unified = path
        elif "memory" in controllers.split(","):
            memory = path
    return unified, memory


def up_the_tree(mount: Path, group: str) -> Iterator[Path]:
    """The folders of a group and of every group above it. Inside a container the own group may be mounted as the root."""
    inner = mount / group.strip("/")
    if not inner.is_dir():
        inner = mount
    while True:
        yield inner
        if inner == mount or mount not in inner.parents:
            return
        inner = inner.parent


def unified_mounts(root: Path) -> tuple[Path, ...]:
    return (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified")


def cgroup_limits(root: Path, pid: str) -> Iterator[Limit]:
    unified, memory = groups(root, pid)
    if unified is not None:
        for mount in unified_mounts(root):
            yield from file_limits(root, up_the_tree(mount, unified), "memory.max")
    if memory is not None:
        yield from file_limits(root, up_the_tree(root / "sys/fs/cgroup/memory", memory), "memory.limit_in_bytes")


def file_limits(root: Path, folders: Iterator[Path], name: str) -> Iterator[Limit]:
    for folder in folders:
        text = read_text(folder / name).strip()
        if text.isdecimal() and int(text) < UNLIMITED:
            shown = "/" + (folder / name).relative_to(root).as_posix()
            yield Limit(int(text), f"the control group's limit ({shown})")


def high_notes(root: Path, pid: str) -> Iterator[str]:
    unified, _ = groups(root, pid)
    for mount in unified_mounts(root) if unified is not None else ():
        for folder in up_the_tree(mount, unified or "/"):
            text = read_text(folder / "memory.high").strip()
            if text.isdecimal() and int(text) < UNLIMITED:
                yield (
                    f"From {format_bytes(int(text))} on, the control group's memory.high slows this process down "
                    "before its limit stops it."
                )


def process_limits(root: Path, pid: str) -> Iterator[Limit]:
    """The soft ulimits. An address space is larger than what is resident, so `ulimit -v` may bite even earlier."""
    text = read_text(root / f"proc/{pid}/limits")
    for title, reason in (
        ("Max address space", "ulimit -v (RLIMIT_AS)"),
        ("Max data size", "ulimit -d (RLIMIT_DATA)"),
    ):
        match = re.search(rf"^{title}\s+(\d+)\s", text, re.MULTILINE)
        if match and int(match[1]) < UNLIMITED:
            yield Limit(int(match[1]), reason)


def read_text(path: Path) -> str:
    """A file's text; nothing where there is no such file, or none that may be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
