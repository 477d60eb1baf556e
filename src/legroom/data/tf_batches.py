"""A stream as a `tf.data.Dataset`."""

from typing import Any

from legroom.data.groups import Reader, batches_of
from legroom.data.stream import Run, Stream
from legroom.data.structure import leaves, mapped, rebuilt


def dataset_of(stream: Stream) -> Any:
    """Each iteration is an epoch, beginning where the stream stands then."""
    import tensorflow as tf

    specs = [tf.TensorSpec(leaf.shape, tf_dtype(tf, leaf.dtype)) for _, leaf in leaves(stream.element.signature)]
    if stream.serial:
        signature = rebuilt(stream.element.signature, iter(specs))
        return tf.data.Dataset.from_generator(lambda: iter(stream), output_signature=signature)
    structure = mapped(stream.element.signature, lambda _: None)
    epochs = Epochs(stream)
    reader = Reader(epochs.begin, epochs.read, lambda arrays: rebuilt(structure, iter(arrays)))
    return batches_of(tf.data.Dataset.from_tensors(0), reader, specs, stream.plan.batch_size, stream.sizes)


class Epochs:
    """A stream's epochs in groups of batches."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.run: Run | None = None

    def begin(self, _: Any) -> int:
        self.run = self.stream.begin()
        return self.stream.group_count(self.run)

    def read(self, number: int) -> list[Any]:
        assert self.run is not None
        run = self.run
        arrays = [array.reshape((-1, *array.shape[2:])) for _, array in leaves(self.stream.read(run, number))]
        if number == self.stream.group_count(run) - 1:
            self.stream.finish(run)
        return arrays


def tf_dtype(tf: Any, dtype: Any) -> Any:
    return tf.string if dtype.kind in "OUS" else tf.as_dtype(dtype)
