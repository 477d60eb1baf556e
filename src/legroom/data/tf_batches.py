"""A stream as a `tf.data.Dataset`: TensorFlow's threads call back to read groups of batches, which are then cut natively.

The arrays that are read are aligned, and TensorFlow takes them as they are (tensorflow/python/lib/core/py_func.cc): no copy.
"""

from typing import Any

import numpy as np

from legroom.data.stream import Run, Stream
from legroom.data.structure import leaves, mapped, rebuilt


def dataset_of(stream: Stream) -> Any:
    """Each iteration is an epoch, beginning where the stream stands then."""
    import tensorflow as tf

    specs = [tf.TensorSpec(leaf.shape, tf_dtype(tf, leaf.dtype)) for _, leaf in leaves(stream.element.signature)]
    if stream.serial:
        signature = rebuilt(stream.element.signature, iter(specs))
        return tf.data.Dataset.from_generator(lambda: iter(stream), output_signature=signature)
    runs: dict[int, Run] = {}

    def begin() -> tuple[Any, Any]:
        run = stream.begin()
        runs.clear()
        runs[id(run)] = run
        return np.int64(id(run)), np.int64(stream.group_count(run))

    def read(key: Any, number: Any) -> list[Any]:
        run = runs.get(int(key))
        if run is None:  # of an iteration that was given up
            raise StopIteration
        arrays = [array for _, array in leaves(stream.read(run, int(number)))]
        if int(number) == stream.group_count(run) - 1:
            stream.finish(run)
        return arrays

    def groups(key: Any, count: Any) -> Any:
        def group(number: Any) -> tuple[Any, ...]:
            arrays = tf.numpy_function(read, [key, number], [spec.dtype for spec in specs])
            for array, spec in zip(arrays, specs, strict=True):
                array.set_shape((None, *spec.shape))
            return tuple(arrays)

        return tf.data.Dataset.range(count).map(group, num_parallel_calls=stream.sizes.threads, deterministic=True)

    started = tf.data.Dataset.from_tensors(0).map(lambda _: tuple(tf.numpy_function(begin, [], [tf.int64, tf.int64])))
    dataset = started.flat_map(groups)
    if stream.sizes.ahead:
        dataset = dataset.prefetch(stream.sizes.ahead)
    structure = mapped(stream.element.signature, lambda _: None)
    dataset = dataset.flat_map(lambda *arrays: tf.data.Dataset.from_tensor_slices(rebuilt(structure, iter(arrays))))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return dataset.with_options(options)


def tf_dtype(tf: Any, dtype: Any) -> Any:
    return tf.string if dtype.kind in "OUS" else tf.as_dtype(dtype)
