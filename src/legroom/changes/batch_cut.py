"""A batch on TensorFlow that is cut into slices."""

from dataclasses import dataclass
from typing import Any

from legroom.errors import InputError


@dataclass(frozen=True)
class Cut:
    """A batch to be cut into `count` slices. Sizes are integers, or scalar tensors where the batch is not known yet."""

    data: Any
    count: int
    batch: Any
    size: Any

    @property
    def static(self) -> bool:
        return isinstance(self.batch, int)

    @property
    def single(self) -> bool:
        """Whether one slice is all there is."""
        return self.static and bool(self.size == self.batch)

    def piece(self, start: Any, size: Any) -> tuple[Any, Any]:
        """The slice from `start`, and its fraction of the batch."""
        import keras
        import tensorflow as tf

        def cut(leaf: Any) -> Any:
            if leaf is None:
                return None
            inner = [tf.shape(leaf)[axis] if n is None else n for axis, n in enumerate(leaf.shape)][1:]
            part = tf.slice(leaf, [start] + [0] * len(inner), [size, *inner])
            part.set_shape([size if isinstance(size, int) else None, *leaf.shape[1:]])
            return part

        floatx = keras.config.floatx()
        return keras.tree.map_structure(cut, self.data), tf.cast(size, floatx) / tf.cast(self.batch, floatx)


def cut_batch(data: Any, count: int) -> Cut:
    """Every array of a batch has its samples in the first dimension; anything else cannot be cut."""
    import keras
    import tensorflow as tf

    def tensor(leaf: Any) -> Any:
        if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
            raise InputError(
                f"A {type(leaf).__name__} in the batch cannot be cut into slices.", "Pass a dense tensor, padded."
            )
        leaf = None if leaf is None else tf.convert_to_tensor(leaf)
        if leaf is not None and not leaf.shape.rank:
            raise InputError(
                f"A tensor of shape {leaf.shape} in the batch has no first dimension of samples to be cut.",
                "Give every array of the batch a first dimension of the batch's size.",
            )
        return leaf

    data = keras.tree.map_structure(tensor, data)
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
    sizes = {leaf.shape[0] for leaf in leaves}
    known = sorted(sizes - {None})
    if len(known) > 1 or (len(sizes) > 1 and known == [1]):
        raise InputError(
            f"The arrays of the batch have different first dimensions: {', '.join(map(str, [*known, *(['any'] if None in sizes else [])]))}.",
            "Give every array of the batch a first dimension of the batch's size.",
        )
    if None not in sizes:
        return Cut(data, count, known[0], -(-known[0] // count))
    batch = tf.shape(next(leaf for leaf in leaves if leaf.shape[0] is None))[0]
    return Cut(keras.tree.map_structure(lambda leaf: as_long(leaf, batch), data), count, batch, -(-batch // count))


def as_long(leaf: Any, batch: Any) -> Any:
    """The same array, if it has so many rows: the step fails, and this name is in its error, if it has not."""
    import tensorflow as tf

    if leaf is None:
        return None
    shape = tf.concat([[batch], tf.shape(leaf)[1:]], 0)
    made = tf.reshape(leaf, shape, name="legroom_each_array_needs_a_row_for_every_sample")
    made.set_shape([None, *leaf.shape[1:]])
    return made
