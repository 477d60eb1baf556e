"""Which arguments of a training step are its batch: the arrays with the batch's size in front; all others stay as they are."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.errors import InputError

MADE_UP = 1  # the value of an argument that is not known while a function is traced: a learning rate, a flag


@dataclass(frozen=True)
class Arguments:
    """A call's arguments, flat, and the places of the arrays that are cut."""

    structure: Any
    leaves: tuple[Any, ...]
    places: tuple[int, ...]

    @property
    def batch(self) -> list[Any]:
        return [self.leaves[place] for place in self.places]

    def filled(self, parts: Sequence[Any], others: Callable[[Any], Any] = lambda leaf: leaf) -> tuple[Any, Any]:
        """Arguments and keyword arguments with these arrays in place of the batch's."""
        import tensorflow as tf

        given = dict(zip(self.places, parts, strict=True))
        leaves = [given[i] if i in given else others(leaf) for i, leaf in enumerate(self.leaves)]
        args, kwargs = tf.nest.pack_sequence_as(self.structure, leaves)
        return args, kwargs

    def key(self, counters: Collection[int] = ()) -> tuple[Any, ...]:
        """What a step may do something else for: flags and shapes, not the sizes of the batch, nor numbers that are tried as others are, or at the places of `counters`."""
        return tuple(
            type(leaf).__name__ if place in counters else signature(leaf, place in self.places)
            for place, leaf in enumerate(self.leaves)
        )

    def others(self) -> dict[int, Any]:
        """What is none of the batch, by its place."""
        return {place: leaf for place, leaf in enumerate(self.leaves) if place not in self.places}


def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any], before: Sequence[int] = ()) -> Arguments:
    """The batch is the first dimension that most arrays have; the first array decides where two are as frequent. In a later call it is what it was `before`: an
    array that is as long as the last batch is none of it."""
    import tensorflow as tf

    structure = (args, kwargs)
    leaves = tuple(tf.nest.flatten(structure))
    fronts = {place: front_of(leaf) for place, leaf in enumerate(leaves) if is_array(leaf)}
    if not fronts:
        raise InputError(
            "This training step takes no batch: none of its arguments is an array with samples in its first dimension.",
            "Pass the batch to the function, as step(x, y), instead of fetching it inside.",
        )
    if before and len({fronts.get(place, place) for place in before}) == 1 and set(before) <= set(fronts):
        return Arguments(structure, leaves, tuple(before))
    size = Counter(fronts.values()).most_common(1)[0][0]
    return Arguments(structure, leaves, tuple(place for place, front in fronts.items() if front == size))


def is_array(leaf: Any) -> bool:
    import numpy as np
    import tensorflow as tf

    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
        return True
    return isinstance(leaf, np.ndarray | tf.Tensor | tf.TensorSpec) and tf.TensorShape(leaf.shape).rank != 0


def front_of(leaf: Any) -> int | None:
    import tensorflow as tf

    shape = tf.TensorShape(leaf.shape)
    return None if shape.rank is None else shape[0]


def signature(leaf: Any, cut: bool) -> Any:
    import tensorflow as tf

    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is not None and dtype is not None:
        sizes = None if tf.TensorShape(shape).rank is None else tuple(tf.TensorShape(shape).as_list())
        return (sizes if sizes is None or not cut else sizes[1:], tf.as_dtype(dtype).name)
    if isinstance(leaf, float):
        return float.__name__  # tried as others, too
    return leaf if isinstance(leaf, bool | int | str | type(None)) else id(leaf)


def concrete(leaf: Any) -> Any:
    """An argument that can be computed with now; a tensor that is only being traced is made up."""
    import tensorflow as tf

    if not isinstance(leaf, tf.Tensor | tf.TensorSpec) or hasattr(leaf, "numpy"):
        return leaf
    known = None if isinstance(leaf, tf.TensorSpec) else tf.get_static_value(leaf)
    if known is not None:
        return tf.constant(known, leaf.dtype)
    shape = [MADE_UP if size is None else size for size in leaf.shape] if leaf.shape.rank else []
    return tf.cast(tf.fill(shape, MADE_UP), leaf.dtype)
