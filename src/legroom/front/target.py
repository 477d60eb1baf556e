"""What the question is about: which card, and how much of it may be used."""

import shutil
import subprocess
from dataclasses import dataclass, replace

from legroom.errors import InputError
from legroom.gpus import Gpu, find, usable_bytes
from legroom.records import Framework
from legroom.units import format_bytes, parse_bytes

STAND_IN = "a100-40gb"  # the architecture that a bare --budget is compiled for


@dataclass(frozen=True, slots=True)
class Card:
    """A card to compile for; `budget_bytes` replaces what a framework can use of it."""

    gpu: Gpu
    label: str
    budget_bytes: int | None = None
    notes: tuple[str, ...] = ()

    def usable_bytes(self, framework: Framework) -> int:
        return self.budget_bytes if self.budget_bytes is not None else usable_bytes(self.gpu, framework)


def choose_card(name: str | None, budget: str | int | None) -> Card:
    """The card that was named, else this machine's, else a stand-in with the budget's memory."""
    budget_bytes = None if budget is None else parse_bytes(budget)
    if name is not None:
        gpu = find(name)
    else:
        here = gpu_of_this_machine()
        if here is None and budget_bytes is None:
            raise InputError(
                "No GPU was named, and this machine has none that Legroom knows.",
                "Name the one to train on, e.g. --gpu t4 (`legroom gpus` lists them), or say how much there is: --budget 8GiB.",
            )
        if here is None:
            assert budget_bytes is not None
            gpu = replace(find(STAND_IN), memory_bytes=budget_bytes)
            note = f"compiled as for an A100 (compute capability 8.0) with {format_bytes(budget_bytes)}; name the card with --gpu"
            return Card(gpu, f"a card with {format_bytes(budget_bytes)}", budget_bytes, (note,))
        gpu = here
    assumed = (f"{gpu.name}: {', '.join(gpu.assumed)} assumed from the nearest known card",) if gpu.assumed else ()
    return Card(gpu, gpu.name, budget_bytes, assumed)


def gpu_of_this_machine() -> Gpu | None:
    """The first NVIDIA GPU here, as the driver names it; None if there is none or it is not in the catalogue."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    names = done.stdout.strip().splitlines()
    try:
        return find(names[0]) if names else None
    except InputError:
        return None
