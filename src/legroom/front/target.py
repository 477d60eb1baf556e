"""What the question is about: which card, and how much of it may be used."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace

from legroom.engines.host.limits import read_limits
from legroom.errors import InputError
from legroom.gpus import Gpu, find, usable_bytes
from legroom.records import Framework
from legroom.records.estimate import CPU
from legroom.units import format_bytes, parse_bytes

STAND_IN = "a100-40gb"  # the architecture that a bare --budget is compiled for


def cores_here() -> int:
    """The cores that this process may use: so many threads does TensorFlow start."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def grows_here() -> bool:
    """Whether TensorFlow is told by the environment to take a GPU's memory bit by bit."""
    return os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() in ("1", "true")


def pages_here() -> bool:
    """Whether TensorFlow is told by the environment to take a GPU's memory from CUDA's own pool, which does not tear."""
    return os.environ.get("TF_GPU_ALLOCATOR", "") == "cuda_malloc_async"


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or this machine's CPU; `budget_bytes` replaces what a framework can use of it.

    For the CPU, `gpu` is a stand-in: what a compiled step is compiled for.
    """

    gpu: Gpu
    label: str
    budget_bytes: int | None = None
    notes: tuple[str, ...] = ()
    is_cpu: bool = False
    cores: int = field(default_factory=cores_here)
    growth: bool = field(default_factory=grows_here)
    pages: bool = field(default_factory=pages_here)

    def usable_bytes(self, framework: Framework) -> int:
        if self.budget_bytes is not None:
            return self.budget_bytes
        return read_limits().tightest.limit_bytes if self.is_cpu else usable_bytes(self.gpu, framework)


def choose_card(name: str | None, budget: str | int | None) -> Card:
    """The card that was named, else this machine's, else its CPU."""
    budget_bytes = None if budget is None else parse_bytes(budget)
    gpu = find(name) if name is not None else gpu_of_this_machine()
    if gpu is None:
        return Card(find(STAND_IN), CPU, budget_bytes, is_cpu=True)
    assumed = (f"{gpu.name}: {', '.join(gpu.assumed)} assumed from the nearest known card",) if gpu.assumed else ()
    return Card(gpu, gpu.name, budget_bytes, assumed)


def require_gpu(card: Card) -> Card:
    """A card to compile for: where there is only a CPU, a stand-in with the budget's memory."""
    if not card.is_cpu:
        return card
    if card.budget_bytes is None:
        raise InputError(
            "This step is compiled, no GPU was named, and this machine has none that Legroom knows.",
            "Name the one to train on, e.g. --gpu t4 (`legroom gpus` lists them), or say how much there is: --budget 8GiB.",
        )
    size = format_bytes(card.budget_bytes)
    note = f"compiled as for an A100 (compute capability 8.0) with {size}; name the card with --gpu"
    gpu = replace(card.gpu, memory_bytes=card.budget_bytes)
    return Card(gpu, f"a card with {size}", card.budget_bytes, (*card.notes, note))


def gpu_of_this_machine() -> Gpu | None:
    """The first NVIDIA GPU here that programs may see, as the driver names it; None if there is none or it is not in the catalogue."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--query-gpu=name,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    name = first_visible(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        return None if name is None else find(name)
    except InputError:
        return None


def first_visible(listed: str, visible: str | None) -> str | None:
    """Of lines `NAME, UUID` the name that CUDA_VISIBLE_DEVICES puts first: by number or by the beginning of its UUID."""
    cards = [[part.strip() for part in line.rsplit(",", 1)] for line in listed.strip().splitlines()]
    if visible is None:
        return cards[0][0] if cards else None
    first = visible.split(",")[0].strip()
    if first.isdigit():
        return cards[int(first)][0] if int(first) < len(cards) else None
    return next((card[0] for card in cards if first and len(card) > 1 and card[1].startswith(first)), None)
