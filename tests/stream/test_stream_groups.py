"""Groups of batches that TensorFlow cuts: the same samples whatever the sizes, and no iterator made for nothing."""

import gc

import numpy as np
import pytest
from made_sources import COUNT, X, Y

import legroom
from legroom.data.sizing import array_sizes

pytestmark = pytest.mark.tensorflow


def dataset_of(source, **arguments):
    return legroom.stream(source, **{"batch_size": 8, "ram": "16MiB", "verbose": False, **arguments}).get_tf_dataset()


@pytest.mark.parametrize(
    ("rows", "width", "batch"), [(203, 5, 3), (203, 16, 7), (64, 1, 64), (65, 33, 64), (10, 3, 11)]
)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
def test_rows_of_odd_sizes(rows, width, batch, dtype):
    """Slices of a group need not begin where TensorFlow's kernels want their memory to begin."""
    import tensorflow as tf

    data = np.arange(rows * width).reshape(rows, width).astype(dtype)
    stream = legroom.stream(data, batch_size=batch, ram="16MiB", shuffle=False, verbose=False)
    batches = [tf.cast(found, tf.float64) * 2 for found in stream.get_tf_dataset()]
    assert [len(found) for found in batches] == [batch] * (rows // batch) + [rows % batch] * bool(rows % batch)
    assert np.array_equal(np.concatenate([found.numpy() for found in batches]), data.astype("float64") * 2)


def test_the_dataset_has_the_batches_of_the_loop():
    arguments = {"batch_size": 7, "ram": "16MiB", "seed": 3, "verbose": False}
    loop = [labels.copy() for _, labels in legroom.stream((X, Y), **arguments)]
    cut = [labels.numpy() for _, labels in dataset_of((X, Y), batch_size=7, seed=3)]
    assert all(np.array_equal(*pair) for pair in zip(loop, cut, strict=True))


def test_an_iterator_that_nothing_was_taken_from_is_handed_out_again():
    """Keras makes two for each epoch, and making one costs milliseconds."""
    dataset = dataset_of((X, Y))
    first = iter(dataset)
    assert iter(dataset) is first
    assert sorted(int(n) for _, labels in first for n in labels.numpy()) == list(range(COUNT))
    second = iter(dataset)
    assert second is not first
    assert sum(len(labels) for _, labels in second) == COUNT


def test_an_iterator_is_not_kept():
    import weakref

    dataset = dataset_of((X, Y))
    iterator = iter(dataset)
    next(iterator)
    seen = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert seen() is None


def test_an_epoch_that_could_not_begin_is_begun_anew():
    import tensorflow as tf

    stream = legroom.stream((X, Y), batch_size=8, ram="16MiB", verbose=False)
    dataset, begin = stream.get_tf_dataset(), stream.begin

    def fail():
        raise OSError("no")

    stream.begin = fail
    with pytest.raises(tf.errors.UnknownError, match="no"):
        next(iter(dataset))
    stream.begin = begin
    assert sum(len(labels) for _, labels in dataset) == COUNT


def test_arrays_are_read_in_groups_within_the_budget():
    sizes = array_sizes(row_bytes=4096, rows=100_000, batch_size=64, budget_bytes=64 * 2**20)
    assert sizes.group == 4
    assert sizes.held_bytes <= 64 * 2**20
    assert array_sizes(2**20, 1000, 64, 2**20).ahead == 0  # the script's batch is what it is
