"""How far a script has come: to a framework's import, and, where it has a budget, to a first training step. Files say that it has not.

What crashes before any framework is imported has nothing to do with training, and would crash again. What crashes before the first step crashes
with its data and weights alone, and would in any number of micro-batches.
"""

import os
from contextlib import suppress
from pathlib import Path

from legroom.running.settings import Settings
from legroom.units import format_bytes

NAME = "untrained"
BEFORE_IMPORT = "unimported"
FRAMEWORKS = ("keras", "tensorflow", "jax")


def expect_import(home: Path) -> None:
    """The script's process has begun, and nothing is imported yet."""
    with suppress(OSError):
        (home / BEFORE_IMPORT).touch()


def imported(home: Path) -> None:
    """One of the frameworks is there."""
    with suppress(OSError):
        (home / BEFORE_IMPORT).unlink(missing_ok=True)


def is_before_import(home: Path) -> bool:
    return (home / BEFORE_IMPORT).exists()


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


def too_early() -> str:
    """What to say of a crash before any framework was imported."""
    return "Neither Keras nor TensorFlow nor JAX had been imported by then: it is not started again, since it would crash in the same way."


def too_small(settings: Settings) -> str:
    """What to say of its crash."""
    budget = format_bytes(settings.budget_bytes or 0)
    return (
        f"It had not come to its first training step: the budget of {budget} is most likely smaller than what it holds before, "
        "its weights and the data that it makes tensors of. It is not started again: micro-batches would take nothing off that. "
        "Give it a larger --budget, a smaller model, or its data batch by batch (legroom.stream)."
    )
