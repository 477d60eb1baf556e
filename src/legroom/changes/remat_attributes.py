"""Numbers, texts and tensors in the attributes of the user's layers: a second run finds them as the first one did.

A model may set them before each call of a layer; the second run comes when the whole model has been called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

PLAIN = bool | int | float | complex | str | None
LONGEST = 64
Attributes = list[tuple[dict[str, Any], dict[str, Any]]]


def attributes_of(layers: Sequence[Any]) -> Attributes:
    """For each layer whose class is not Keras' own: where its attributes are, and what they are now; without Keras' own attributes."""
    inner = {id(sub): sub for layer in layers for sub in layer._flatten_layers()}
    own = [sub.__dict__ for sub in inner.values() if not type(sub).__module__.startswith("keras.")]
    return [
        (held, {name: value for name, value in held.items() if name not in keras_own() and is_plain(value)})
        for held in own
    ]


@cache
def keras_own() -> frozenset[str]:
    import keras

    return frozenset(vars(keras.Layer(name="bare")))


@contextmanager
def as_they_were(attributes: Attributes) -> Iterator[None]:
    later = []
    for held, then in attributes:
        changed = {name for name, value in then.items() if name in held and held[name] is not value}
        now = {name: held[name] for name in changed if is_plain(held[name])}
        later.append((held, now))
        held.update((name, then[name]) for name in now)
    try:
        yield
    finally:
        for held, now in later:
            held.update(now)


def is_plain(value: Any) -> bool:
    import keras

    if isinstance(value, list | tuple):
        return len(value) <= LONGEST and all(is_plain(one) for one in value)
    return isinstance(value, PLAIN) or bool(keras.ops.is_tensor(value))
