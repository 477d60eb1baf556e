"""Whether a script that has a budget has come to a first training step: a file says that it has not.

What crashes before, crashes with its data and weights alone, and would in any number of micro-batches.
"""

import os
from contextlib import suppress
from pathlib import Path

from legroom.running.settings import Settings
from legroom.units import format_bytes

NAME = "untrained"


def expect_training(settings: Settings) -> None:
    """TensorFlow is there, and nothing has been done with it yet. Loops on JAX are not seen."""
    if settings.budget_bytes is None or os.environ.get("KERAS_BACKEND") == "jax":
        return
    with suppress(OSError):
        (settings.home / NAME).touch()


def begun(home: Path) -> None:
    """Something is trained now, or evaluated, which can be done in smaller parts."""
    with suppress(OSError):
        (home / NAME).unlink(missing_ok=True)


def has_not_trained(settings: Settings) -> bool:
    return settings.budget_bytes is not None and (settings.home / NAME).exists()


def too_small(settings: Settings) -> str:
    """What to say of its crash."""
    budget = format_bytes(settings.budget_bytes or 0)
    return (
        f"It had not come to its first training step: the budget of {budget} is most likely smaller than what it holds before, "
        "its weights and the data that it makes tensors of. It is not started again: micro-batches would take nothing off that. "
        "Give it a larger --budget, a smaller model, or its data batch by batch (legroom.stream)."
    )
