"""Legroom: train any Keras or TensorFlow model in the memory you have."""

import importlib
from typing import TYPE_CHECKING, Any

from legroom.errors import LegroomError

if TYPE_CHECKING:
    from legroom.data.stream import stream
    from legroom.explain.diagnose import explain
    from legroom.front.applying import apply, load_plan, plan, save_plan, undo
    from legroom.front.decorating import train_step
    from legroom.front.estimating import estimate
    from legroom.front.fitting import fit
    from legroom.front.rehearsing import rehearse
    from legroom.guard.callback import Guard
    from legroom.records import Estimate
    from legroom.records.plan import Plan, Planning
    from legroom.records.rehearsal import Rehearsal
    from legroom.running.loops import Checkpoint
    from legroom.watch.callback import Monitor
    from legroom.watch.watching import Watch

__version__ = "0.1.0"
__all__ = [
    "Checkpoint",
    "Estimate",
    "Guard",
    "LegroomError",
    "Monitor",
    "Plan",
    "Planning",
    "Rehearsal",
    "Watch",
    "__version__",
    "apply",
    "estimate",
    "explain",
    "fit",
    "load_plan",
    "plan",
    "rehearse",
    "save_plan",
    "stream",
    "train_step",
    "undo",
]
ROOMS = {
    "legroom.data.stream": ("stream",),
    "legroom.explain.diagnose": ("explain",),
    "legroom.front.applying": ("apply", "load_plan", "plan", "save_plan", "undo"),
    "legroom.front.decorating": ("train_step",),
    "legroom.front.estimating": ("estimate",),
    "legroom.front.fitting": ("fit",),
    "legroom.front.rehearsing": ("rehearse",),
    "legroom.guard.callback": ("Guard",),
    "legroom.records": ("Estimate",),
    "legroom.records.plan": ("Plan", "Planning"),
    "legroom.records.rehearsal": ("Rehearsal",),
    "legroom.running.loops": ("Checkpoint",),
    "legroom.watch.callback": ("Monitor",),
    "legroom.watch.watching": ("Watch",),
}


def __getattr__(name: str) -> Any:
    """The front door opens when it is used: `import legroom` itself stays light."""
    for room, names in ROOMS.items():
        if name in names:
            return getattr(importlib.import_module(room), name)
    raise AttributeError(f"module 'legroom' has no attribute {name!r}")
