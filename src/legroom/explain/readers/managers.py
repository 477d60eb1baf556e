"""Those who end a process for its memory and say by how much: PBS, YARN, Dask, Ray, clouds; and languages that say what they could not get."""

from collections.abc import Iterator
from typing import Any

from legroom.explain.readers.messages import message, phrases, read_messages, sized

KILLED = ("oom", "killed")
HOST = ("oom", "host")
DATASET = ("dataset", "HDF5")
MESSAGES = (
    message("PBS: job killed", KILLED, pattern=rf"mem {sized('in_use_bytes')} exceeded limit {sized('limit_bytes')}"),
    message(
        "physical memory used",
        KILLED,
        pattern=rf"{sized('in_use_bytes')} of {sized('limit_bytes')} physical memory used",
    ),
    message(
        "over memory limit of",
        KILLED,
        pattern=rf"over memory limit of {sized('limit_bytes')}\. Peak usage: {sized('in_use_bytes')}",
    ),
    message("over memory limit of", KILLED),
    message("h_vmem", KILLED, pattern="exceeds job (?:hard|soft) limit"),
    message(
        "Worker memory limit:",
        KILLED,
        pattern=rf"Process memory: {sized('in_use_bytes')} -- Worker memory limit: {sized('limit_bytes')}",
    ),
    message("of the memory on node", KILLED, pattern=rf"is used \({sized('in_use_bytes')} ?/ {sized('limit_bytes')}\)"),
    message("in object store because it is full", HOST, pattern=rf"Object size is {sized('failed_bytes')}"),
    message(
        "Memory limit of",
        KILLED,
        pattern=rf"Memory limit of {sized('limit_bytes')} exceeded with {sized('in_use_bytes')} used",
    ),
    message("Exited (137)", KILLED),
    message("signal: killed", KILLED),
    message("OUT_OF_ME+", KILLED),
    message("TaskOOM", KILLED),
    message("MemoryPressure", KILLED),
    message("killing_specific_process", KILLED),
    message("memory pressure for", KILLED),
    message("low memory! at or below", KILLED),
    message("0xC0000017", HOST),
    message("0xC000012D", HOST),
    message("-1073741801", HOST),
    message("-1073741523", HOST),
    message("页面文件太小", HOST),
    message("WinError 8]", HOST),
    message("WinError 14]", HOST),
    message("WinError 1450]", HOST),
    message("failed to map", HOST, pattern=rf"failed to map {sized('failed_bytes')}"),
    message("memory allocation of", HOST, pattern=rf"memory allocation of {sized('failed_bytes')} failed"),
    message("cannot allocate vector", HOST, pattern=rf"vector of size {sized('failed_bytes')}"),
    message("bytes exhausted", HOST, pattern=rf"exhausted \(tried to allocate {sized('failed_bytes')}"),
    message("alloc of size", HOST, pattern=rf"alloc of size {sized('failed_bytes')} failed"),
    message("for raw data chunk", HOST, DATASET, pattern="allocation failed"),
    message("Torch: not enough memory", HOST, pattern=rf"tried to allocate {sized('failed_bytes')}"),
    message("could not create a primitive", HOST, pattern="Status: 1\\b"),
    message("could not create a memory object", HOST, pattern="Status: 1\\b"),
    message("pinned host memory of size", HOST, pattern=rf"memory of size:? {sized('failed_bytes')}"),
    message("mach_vm_map(size=", HOST, pattern=rf"size={sized('failed_bytes')}\) failed"),
    message("unable to mmap", HOST, pattern=rf"unable to mmap {sized('failed_bytes')}"),
    message("insufficient shared memory", HOST),
    message("out of shared memory", HOST, pattern="[Bb]us error|worker"),
    message("creating shared memory segment", HOST, pattern="No space left"),
    message("after a total of", HOST, pattern=rf"out of memory allocating {sized('failed_bytes')}"),
    message("unable to write to file </torch_", HOST),
    message("killed by YARN", KILLED),
    message("tried to allocate more memory than is available", HOST),
)
STRONG = phrases(MESSAGES)


def read(text: str) -> Iterator[tuple[str, Any]]:
    yield from read_messages(MESSAGES, text)
