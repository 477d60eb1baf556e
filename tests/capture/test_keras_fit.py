"""What `fit` would train on, and how it would run on a GPU."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from legroom.capture.batch import ArraySpec
from legroom.capture.keras_data import data_of_fit
from legroom.capture.keras_fit import capture_fit, capture_model, layer_names
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow

X, Y = np.zeros((100, 6), "float64"), np.zeros((100,), "int32")
F32 = "float32"


def compiled(**options):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, name="first"), layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        assert index == 0, "only the first batch is needed"
        return np.zeros((20, 6)), np.zeros((20,), "int32")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x": X, "y": Y, "batch_size": 16}, (ArraySpec((16, 6), F32), ArraySpec((16,), "int32"))),
        ({"x": X, "y": Y}, (ArraySpec((32, 6), F32), ArraySpec((32,), "int32"))),
        ({"x": X, "y": Y, "batch_size": 500}, (ArraySpec((100, 6), F32), ArraySpec((100,), "int32"))),
        ({"x": X}, ArraySpec((32, 6), F32)),
        ({"x": X[:40], "validation_split": 0.5}, ArraySpec((20, 6), F32)),
        ({"x": [X, X]}, ([ArraySpec((32, 6), F32)] * 2,)),
        ({"x": ([X[:8], Y[:8]] for _ in range(3))}, (ArraySpec((8, 6), F32), ArraySpec((8,), "int32"))),
        ({"x": tf.zeros((100, 6)), "y": tf.zeros((100,), tf.int32)}, (ArraySpec((32, 6), F32), ArraySpec((32,), "int32"))),
        ({"x": X, "y": Y, "sample_weight": np.ones(100)}, (ArraySpec((32, 6), F32), ArraySpec((32,), "int32"), ArraySpec((32,), F32))),
        ({"x": X, "y": Y, "class_weight": {0: 1.0}}, (ArraySpec((32, 6), F32), ArraySpec((32,), "int32"), ArraySpec((32,), F32))),
        ({"x": {"a": X, "b": X}, "y": [Y, Y]}, ({"a": ArraySpec((32, 6), F32), "b": ArraySpec((32, 6), F32)}, [ArraySpec((32,), "int32")] * 2)),
        ({"x": Batches()}, (ArraySpec((20, 6), F32), ArraySpec((20,), "int32"))),
        ({"x": ((X[:8], Y[:8]) for _ in range(3))}, (ArraySpec((8, 6), F32), ArraySpec((8,), "int32"))),
        (
            {"x": tf.data.Dataset.from_tensor_slices((X.astype(F32), Y)).batch(12)},
            (ArraySpec((12, 6), F32), ArraySpec((12,), "int32")),
        ),
    ],
)  # fmt: skip
def test_the_batch_that_fit_would_train_on(arguments, expected):
    assert data_of_fit(arguments, whole_batch=False) == expected


def test_train_on_batch_takes_the_whole_array():
    assert data_of_fit({"x": X, "y": Y}, whole_batch=True)[0].shape == (100, 6)


@pytest.mark.parametrize(
    ("raw", "options", "execution"),
    [
        ("auto", {}, "xla"),
        (True, {"jit_compile": True}, "xla"),
        (False, {"jit_compile": False}, "graph"),
        ("auto", {"run_eagerly": True}, "eager"),
        (None, {}, "xla"),
        (None, {"jit_compile": True}, "xla"),
    ],
)
def test_jit_compile_is_resolved_as_a_gpu_would(raw, options, execution):
    captured = capture_model(compiled(**options), (ArraySpec((4, 6), F32), ArraySpec((4,), "int32")), raw_jit=raw)
    assert captured.step.execution == execution


@pytest.mark.parametrize("layer", [layers.LSTM, layers.GRU])
def test_a_layer_that_cudnn_would_run_cannot_be_compiled_and_is_named(layer):
    model = keras.Sequential([keras.Input((9, 6)), layer(4, name="memory"), layers.Dense(2)])
    model.compile("adam", "mse")
    captured = capture_model(model, (ArraySpec((4, 9, 6), F32), ArraySpec((4, 2), F32)), raw_jit="auto")
    assert captured.step.execution == "graph"
    assert "memory" in captured.step.execution_reason


def test_a_recurrent_layer_that_cudnn_cannot_run_is_compiled():
    model = keras.Sequential([keras.Input((9, 6)), layers.LSTM(4, activation="relu"), layers.Dense(2)])
    model.compile("adam", "mse")
    captured = capture_model(model, (ArraySpec((4, 9, 6), F32), ArraySpec((4, 2), F32)), raw_jit="auto")
    assert captured.step.execution == "xla"


def test_a_lazy_model_is_built_from_shapes_alone():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    model.compile("adam", "sparse_categorical_crossentropy")
    capture_model(model, (ArraySpec((4, 6), F32), ArraySpec((4,), "int32"))).built()
    assert model.count_params() == 6 * 3 + 3 + 3 * 2 + 2
    assert int(model.optimizer.iterations) == 0


def test_nothing_is_trained():
    model = compiled()
    before = [w.copy() for w in model.get_weights()]
    capture_fit(model, {"x": X, "y": Y}, "fit").built()
    assert all((old == new).all() for old, new in zip(before, model.get_weights(), strict=True))


def test_an_uncompiled_model_is_refused():
    with pytest.raises(InputError, match="has not been compiled"):
        capture_model(keras.Sequential([keras.Input((6,)), layers.Dense(2)]), (ArraySpec((4, 6), F32),))


def test_a_batch_of_the_wrong_shape_is_refused():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.build((None, 7))
    with pytest.raises(InputError, match="could not be built"):
        capture_model(model, (ArraySpec((4, 6), F32), ArraySpec((4,), "int32"))).built()


def test_steps_per_execution_is_said():
    captured = capture_model(compiled(steps_per_execution=8), (ArraySpec((4, 6), F32), ArraySpec((4,), "int32")))
    assert "steps_per_execution=8" in captured.step.notes[0]


def test_layers_are_named_by_their_way_down():
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(3, name="deep")], name="block")
    names = layer_names(keras.Sequential([inner, layers.Dense(2, name="top")]))
    assert [name for name in names if "input" not in name] == ["block", "block/deep", "top"]


def test_arrays_without_a_row_are_refused() -> None:
    import keras
    import numpy as np

    from legroom.capture.keras_fit import capture_fit
    from legroom.errors import InputError

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match="empty"):
        capture_fit(model, {"x": np.zeros((0, 4), "float32"), "y": np.zeros((0, 1), "float32")}, "fit")


def test_slots_are_made_by_the_step_unless_somebody_else_made_them_before():
    model, data = compiled(), (ArraySpec((4, 6), F32), ArraySpec((4,), "int32"))
    captured = capture_model(model, data)
    assert captured.step.makes_slots
    captured.built()
    assert model.optimizer.built
    assert capture_model(model, data).step.makes_slots, "Legroom's own look at the step does not count"
    other = compiled()
    other.optimizer.build(other.trainable_variables)
    assert not capture_model(other, data).step.makes_slots
