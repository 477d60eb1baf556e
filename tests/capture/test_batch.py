"""Batches read as shapes, without loading what need not be loaded."""

import numpy as np
import pytest
import tensorflow as tf

from legroom.capture.batch import (
    ArraySpec,
    batch_of,
    require_static,
    specs_of,
    specs_of_dataset,
    with_batch,
)
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow


def never(*_):
    raise AssertionError("the pipeline was run")


def lazy_images():
    """A pipeline whose elements must not be made."""

    def load(index):
        image = tf.numpy_function(never, [index], tf.float32)
        return tf.ensure_shape(image, (32, 32, 3)), index

    return tf.data.Dataset.range(1000).map(load)


def test_nested_arrays_keep_their_structure():
    tree = specs_of(({"a": np.zeros((4, 2)), "b": np.zeros((4,), "int32")}, np.zeros((4, 1), "float16"), None))
    assert tree == (
        {"a": ArraySpec((4, 2), "float64"), "b": ArraySpec((4,), "int32")},
        ArraySpec((4, 1), "float16"),
        None,
    )


def test_another_batch_size_resizes_what_had_the_old_one():
    tree = (ArraySpec((4, 2), "float32"), {"table": ArraySpec((9, 2), "float32"), "y": ArraySpec((4,), "int32")})
    assert with_batch(tree, 7) == (
        ArraySpec((7, 2), "float32"),
        {"table": ArraySpec((9, 2), "float32"), "y": ArraySpec((7,), "int32")},
    )
    assert batch_of(tree) == 4


def test_a_lazy_pipeline_is_not_run():
    tree = specs_of_dataset(lazy_images().shuffle(10).batch(16).prefetch(2))
    assert tree == (ArraySpec((16, 32, 32, 3), "float32"), ArraySpec((16,), "int64"))


@pytest.mark.parametrize(
    ("after", "batch"),
    [
        (lambda d: d.cache().repeat().take(3).prefetch(1), 25),
        (lambda d: d.map(lambda x: x * 2), 25),
        (lambda d: d.map(lambda x: tf.reshape(x, (-1, 5))), 5),
        (lambda d: d.rebatch(50), 50),
        (lambda d: d.unbatch().batch(10), 10),
        (lambda d: d.flat_map(lambda x: tf.data.Dataset.from_tensors(x[:7])), 7),
    ],
)
def test_the_batch_size_is_right_behind_other_stages(after, batch):
    assert specs_of_dataset(after(tf.data.Dataset.range(100).batch(25))).shape[0] == batch


def test_a_mapped_batch_is_not_run():
    tree = specs_of_dataset(lazy_images().batch(16).map(lambda image, index: (image / 255, tf.one_hot(index, 10))))
    assert tree == (ArraySpec((16, 32, 32, 3), "float32"), ArraySpec((16, 10), "float32"))


def test_a_pipeline_that_never_batches_gives_its_first_element():
    elements = tf.data.Dataset.from_generator(
        lambda: iter([np.zeros((5, 2), "float32")]), output_signature=tf.TensorSpec((None, 2), tf.float32)
    )
    assert specs_of_dataset(elements) == ArraySpec((5, 2), "float32")


def test_an_unknown_dimension_is_refused_by_its_shape():
    with pytest.raises(InputError, match=r"\(8, \?\)"):
        require_static((ArraySpec((8, None), "int32"),))


def test_ragged_batches_are_refused():
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1, 2], [3]]))
    with pytest.raises(InputError, match="RaggedTensorSpec"):
        specs_of_dataset(ragged)
