"""Weights while a training step is tried out: others for a while, and in the end those that it had."""

from collections.abc import Iterator
from contextlib import contextmanager

from legroom.changes.custom_seen import Known


@contextmanager
def other_weights(known: Known, scale: float = 1.0) -> Iterator[None]:
    """Trained variables moved by about half their size, or, where they are all alike, to what layers begin with; and so many times larger."""
    import numpy as np

    random = np.random.default_rng(0)
    try:
        for variable, value in known.before.values():
            if value.dtype.kind == "f" and value.size:
                spread = (
                    float(np.std(value)) or 1.0 / max(value.size / value.shape[-1] if value.ndim else 1.0, 1.0) ** 0.5
                )
                noise = random.normal(0.0, 0.5 * spread, value.shape)
                variable.assign((scale * (value + noise)).astype(value.dtype))
        yield
    finally:
        for variable, value in known.before.values():
            variable.assign(value)


def restore(known: Known) -> str | None:
    """The name of a trained variable that has changed all the same; all are put back."""
    import numpy as np

    changed = None
    for variable, value in known.before.values():
        if not np.array_equal(variable.numpy(), value, equal_nan=True):
            changed = str(variable.name)
            variable.assign(value)
    return changed
