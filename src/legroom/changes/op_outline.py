"""What a step computes, told by its operations: which kinds of them there are, and what each is computed from, three deep.

What a step has been found out to be holds for as long as it computes the same. Whatever decides that in Python, an attribute of any object, a counter, a word,
a function that is replaced: another way through the code is made of other operations. They are heard while the first slice runs, or is traced.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.hearing import hearing

OVER_AN_AXIS = frozenset(("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin", "Cumsum"))
CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
MOST = 32  # ways through a step that are told apart as a whole; of more, whether there is anything new in them

Labels = frozenset[int]


class Outline:
    """Hears operations: those that are run, or those that are traced into a graph."""

    def __init__(self, *, traced: bool) -> None:
        self.traced = traced
        self.made: dict[int, tuple[Any, int, int]] = {}
        self.labels: set[int] = set()

    def heard(self, op: str | bytes, inputs: Any, attributes: Any, outputs: Any, *_: Any, **about: Any) -> None:
        if (about.get("graph") is not None) != self.traced:
            return
        op = op.decode() if isinstance(op, bytes) else op
        near = far = 0
        for tensor in inputs:
            known = self.made.get(id(tensor))
            one, two = known[1:] if known is not None and known[0]() is tensor else (1, 1)
            near, far = hash((near, one)), hash((far, two))
        own = hash((op, *self.about(op, inputs, attributes)))
        outer = hash((own, near))
        self.labels.add(hash((own, far)))
        for tensor in outputs or ():
            self.made[id(tensor)] = weakref.ref(tensor), own, outer

    def about(self, op: str, inputs: Any, attributes: Any) -> tuple[Any, ...]:
        """Along which axis, or by which function."""
        import tensorflow as tf

        if op in OVER_AN_AXIS and len(inputs) > 1:
            axis = tf.get_static_value(inputs[1]) if self.traced else inputs[1].numpy()
            return () if axis is None else (axis.tobytes(),)
        if op in CALLS and not self.traced and attributes:
            named = dict(zip(attributes[::2], attributes[1::2], strict=False))
            return (str(named.get("f", "")),)
        return ()


@contextmanager
def outlined(*, traced: bool) -> Iterator[Outline]:
    """What is run, or traced, meanwhile."""
    outline = Outline(traced=traced)
    with hearing(outline.heard):
        yield outline
    outline.made.clear()


@dataclass
class Outlines:
    """Those that a step had when it had been found out what it is."""

    known: set[Labels] = field(default_factory=set)
    labels: set[int] = field(default_factory=set)

    def has(self, outline: Outline) -> bool:
        return outline.labels in self.known or (len(self.known) >= MOST and outline.labels <= self.labels)

    def add(self, outline: Outline) -> None:
        if len(self.known) < MOST:
            self.known.add(frozenset(outline.labels))
        self.labels |= outline.labels

    def clear(self) -> None:
        self.known.clear()
        self.labels.clear()
