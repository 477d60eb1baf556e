"""Random numbers that a layer draws by NumPy or by Python itself, of which no framework knows: a second run draws others."""

import random
from collections.abc import Iterable
from typing import Any

from legroom.changes.own_code import code_of


def generators_of(layers: Iterable[Any]) -> list[Any]:
    """Those that the code of these layers refers to; the two that NumPy and Python have for everybody where it refers to their modules."""
    import numpy

    kinds = (numpy.random.Generator, numpy.random.RandomState, random.Random)
    shared = (random, numpy.random)
    found: dict[int, Any] = {}
    for layer in layers:
        for value in (*vars(layer).values(), *code_of(layer).values):
            owner = getattr(value, "__self__", None)  # of `from random import gauss`
            if isinstance(value, kinds):
                found[id(value)] = value
            elif isinstance(owner, kinds):
                found[id(owner)] = owner
            elif value is numpy:
                found[id(numpy.random)] = numpy.random
            elif any(value is module for module in shared):
                found[id(value)] = value
    return list(found.values())


def states_of(generators: Iterable[Any]) -> list[str]:
    """What changes when one of them draws a number."""
    return [state_of(one) for one in generators]


def state_of(generator: Any) -> str:
    import numpy

    if isinstance(generator, numpy.random.Generator):
        return repr(generator.bit_generator.state)
    if hasattr(generator, "getstate"):
        return repr(generator.getstate())
    _, words, *rest = generator.get_state()
    return f"{words.tobytes()!r} {rest}"
