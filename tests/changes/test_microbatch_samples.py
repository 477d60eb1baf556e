"""Models whose samples do not stay apart, or whose state moves at every call, are not cut; neither are losses that leave marks out."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from legroom.changes.known_layers import is_known
from legroom.changes.microbatch import split
from legroom.changes.microbatch_kinds import kinds_of_output
from legroom.errors import InputError, LegroomError

X, Y = np.random.default_rng(0).normal(size=(2, 8, 6)).astype("float32")
Y = Y[:, :3]


class Centred(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x - ops.mean(x, axis=0, keepdims=True)


class Counting(layers.Layer):  # type: ignore[misc]
    def build(self, _: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="ones", trainable=False, name="calls")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign(self.calls + 1.0)
        return x


class CountingOutside(layers.Layer):  # type: ignore[misc]
    """Its state is a variable that Keras knows nothing of."""

    def build(self, _: Any) -> None:
        import tensorflow as tf

        self.calls = tf.Variable(1.0, trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        return x * self.calls


class OwnNoise(layers.Layer):  # type: ignore[misc]
    """Random, but each sample by itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x: Any, training: bool = False) -> Any:
        return x + keras.random.normal(ops.shape(x), dtype=x.dtype, seed=self.seeds) if training else x


def centred_by_operations(x: Any) -> Any:
    return x - ops.mean(x, axis=0, keepdims=True)


class Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layers.Dense(5), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.last(ops.flip(self.first(x), axis=0) + self.first(x))


def fresh(kind: Any, **options: Any) -> Callable[[Any], Any]:
    """A new layer for each model."""

    def called(x: Any) -> Any:
        return kind(**options)(x)

    return called


REFUSED: dict[str, tuple[Any, str]] = {
    "a layer": (fresh(Centred, name="centred"), "the layer 'centred' looks at several samples"),
    "operations": (centred_by_operations, "the layer 'subtract.*' looks at several samples"),
    "an axis": (fresh(layers.Softmax, axis=0, name="soft"), "the layer 'soft' looks at several samples"),
    "an axis from the end": (fresh(layers.Softmax, axis=-2, name="soft"), "the layer 'soft' looks at several samples"),
    "an activation": (
        fresh(layers.Dense, units=5, activation=centred_by_operations, name="own"),
        "the layer 'own' looks at several samples",
    ),
    "subclassed": (None, "the model '.*' looks at several samples"),
    "state": (fresh(Counting, name="counting"), "counting/calls' is changed at every call"),
}


class Sized(layers.Layer):  # type: ignore[misc]
    """By the size of the batch, in training only."""

    def call(self, x: Any, training: bool = False) -> Any:
        return x / ops.cast(ops.shape(x)[0], x.dtype) if training else x


class SizedNoise(Sized):
    """Random numbers in training, the size of the batch in inference."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.noise = layers.GaussianNoise(0.1)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.noise(super().call(x, training=True), training=training)


class Placed(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x * (1 + ops.cast(ops.arange(ops.shape(x)[0]), x.dtype)[:, None])


class Same(layers.Layer):  # type: ignore[misc]
    """Makes a model one that has to be tried out."""

    def call(self, x: Any) -> Any:
        return 1.0 * x


ALONE: dict[str, Any] = {"size": fresh(Sized), "size and noise": fresh(SizedNoise), "place": fresh(Placed)}
TAKEN: dict[str, Any] = {"own noise": OwnNoise(), "own noise and dropout": [OwnNoise(), layers.Dropout(0.5)]}


def made(middle: Any, loss: Any = "mse", **settings: Any) -> Any:
    keras.utils.set_random_seed(1)
    if middle is None:
        model = Subclassed()
    else:
        x = inputs = keras.Input((6,))
        x = layers.Dense(5)(x)
        for part in middle if isinstance(middle, list) else [middle]:
            x = part(x)
        model = keras.Model(inputs, layers.Dense(3)(x))
    model.compile(keras.optimizers.SGD(0.1), loss, **settings)
    return model


def said(middle: Any, **settings: Any) -> str:
    model = made(middle, **settings)
    split(model, 2)
    try:
        model.train_on_batch(X, Y)
    except LegroomError as error:
        return str(error)
    return ""


def loss_said(loss: Any) -> str:
    try:
        return said([], loss=loss)
    except LegroomError as error:
        return str(error)


@pytest.mark.tensorflow
@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_mans_own_is_not_cut(name: str, run_eagerly: bool) -> None:
    middle, why = REFUSED[name]
    model = made(middle, run_eagerly=run_eagerly)
    before = [variable.numpy() for variable in model.variables]
    split(model, 2)
    with pytest.raises(InputError, match=why):
        model.train_on_batch(X, Y)
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, model.variables, strict=False))


@pytest.mark.tensorflow
@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
def test_a_state_that_keras_knows_nothing_of_is_found_too(run_eagerly: bool) -> None:
    assert "a tf.Variable' is changed at every call" in said(fresh(CountingOutside), run_eagerly=run_eagerly)


class Balanced(keras.Model):  # type: ignore[misc]
    """Beside what it predicts, one number for the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.last = layers.Dense(3)

    def call(self, x: Any) -> Any:
        found = self.last(x)
        return found, ops.reshape(ops.square(ops.mean(found)), (1, 1))


def balanced(second: Any) -> Any:
    model = Balanced()
    model.compile(keras.optimizers.SGD(0.1), ["mse", second])
    split(model, 2)
    return model.train_on_batch(X, (Y, np.zeros((8, 1), "float32")))


@pytest.mark.tensorflow
def test_an_output_that_is_not_of_samples_is_not_compared_with_labels() -> None:
    with pytest.raises(InputError, match=r"output 1 of the model '.*' has no row for each sample"):
        balanced(lambda y_true, y_pred: ops.mean(y_pred))


@pytest.mark.tensorflow
def test_where_no_loss_looks_at_it_it_is_no_matter() -> None:
    assert np.isfinite(balanced(None))


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", TAKEN)
def test_random_numbers_for_each_sample_are_no_reason(name: str) -> None:
    assert said(TAKEN[name]) == ""


@pytest.mark.tensorflow
@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("name", ALONE)
def test_the_size_of_the_batch_and_the_place_in_it_are_found(name: str, run_eagerly: bool) -> None:
    assert "depends on the size of the batch, or on the sample's place in it" in said(
        ALONE[name], run_eagerly=run_eagerly
    )


def recurrent() -> list[Any]:
    return [layers.Reshape((2, 3)), layers.Bidirectional(layers.LSTM(4, return_sequences=True)), layers.GRU(5)]


def convolved() -> list[Any]:
    return [layers.Reshape((5, 1)), layers.Conv1D(8, 3, activation="relu"), layers.Flatten()]


def attended(x: Any) -> Any:
    x = layers.Reshape((5, 1))(x)
    return layers.Flatten()(layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))


UNTOUCHED: dict[str, Any] = {
    "dropout": lambda: [layers.Dropout(0.5)],
    "noise": lambda: [layers.GaussianNoise(0.5)],
    "noise in inference": lambda: [sampled_always],
    "frozen statistics": lambda: [layers.BatchNormalization(trainable=False)],
    "convolutions": convolved,
    "attention": lambda: [attended],
    "recurrent": lambda: [layers.Dense(6), *recurrent()],
    "an array of numbers": lambda: [lambda x: x + np.ones(5, "float32")],
    "deep": lambda: [layers.Dense(64, "tanh") for _ in range(20)],
}


class AlwaysNoise(OwnNoise):
    def call(self, x: Any) -> Any:
        return super().call(x, training=True)


def sampled_always(x: Any) -> Any:
    return AlwaysNoise()(x)


@pytest.mark.tensorflow
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_keeps_samples_apart_is_not_refused(name: str, policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        assert said([fresh(Same), *UNTOUCHED[name]()]) == ""
    finally:
        keras.config.set_dtype_policy("float32")


class NoTraining(keras.Model):  # type: ignore[misc]
    """Its call has no such argument."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.same, self.last = layers.Dropout(0.5), Same(), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.last(self.drop(self.same(x)))


@pytest.mark.tensorflow
def test_nor_is_a_model_whose_call_has_no_training() -> None:
    model = NoTraining()
    model.compile("sgd", "mse")
    split(model, 2)
    assert np.isfinite(model.train_on_batch(X, Y))


def of_text(*parts: Any) -> Any:
    words = layers.TextVectorization(max_tokens=9, output_sequence_length=4)
    words.adapt(["a b some more"])
    x = inputs = keras.Input((), dtype="string")
    for part in (words, layers.Embedding(9, 5), Same(), *parts, layers.Flatten(), layers.Dense(3)):
        x = part(x)
    model = keras.Model(inputs, x)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return model


TEXT = np.array(["a", "b a", "some more", "a more", "b", "b b", "some", "a"])


@pytest.mark.tensorflow
def test_a_model_of_text_trains_as_on_the_whole_batch() -> None:
    import tensorflow as tf

    found = []
    for count in (None, 3):
        keras.utils.set_random_seed(1)
        model = of_text()
        if count is not None:
            split(model, count)
        model.train_on_batch(tf.constant(TEXT), Y)
        found.append(model.get_weights())
    for whole, part in zip(*found, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.tensorflow
def test_a_model_of_text_is_tried_out_as_others_are() -> None:
    import tensorflow as tf

    model = of_text(Centred())
    split(model, 2)
    with pytest.raises(InputError, match="looks at several samples"):
        model.train_on_batch(tf.constant(TEXT), Y)


KNOWN: dict[str, tuple[Any, bool]] = {
    "a residual sum": (lambda x: x + layers.Dense(5)(x), True),
    "numbers": (lambda x: ops.gelu(2.0 * x - 1), True),
    "a mean over the batch": (centred_by_operations, False),
    "tensors of two ranks": (lambda x: x + ops.sum(x, axis=-1), False),
    "an array": (lambda x: x + np.ones(5, "float32"), False),
}


@pytest.mark.parametrize("name", KNOWN)
def test_operations_between_samples_of_one_shape_need_no_trial(name: str) -> None:
    middle, known = KNOWN[name]
    assert is_known(made(middle)) is known


@pytest.mark.tensorflow
def test_a_trial_lets_go_of_what_has_been_used() -> None:
    code = """
import keras, tensorflow as tf
from keras import layers
from legroom.changes.microbatch_samples import check_samples
class Own(layers.Layer):
    def call(self, x):
        return 2.0 * x
x = inputs = keras.Input((1 << 18,))
for _ in range(20):
    x = Own()(x)
model = keras.Model(inputs, x)
model.compile("sgd", "mse")
check_samples(model, keras.Input((1 << 18,)))
print("PEAK", tf.config.experimental.get_memory_info("CPU:0")["peak"])
"""
    env = os.environ | {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "2000"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    one = 6 << 20  # six samples of 1 MiB, of which a Functional model that is called eagerly holds twenty
    assert int(done.stdout.split("PEAK ")[1]) < 6 * one


@pytest.mark.jax
def test_on_jax_they_are_not_cut_either() -> None:
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_microbatch_samples as here
print("FOUND " + json.dumps({name: here.said(middle) for name, (middle, _) in here.REFUSED.items()}))
print("FOUND " + json.dumps({name: here.said(middle) for name, middle in here.TAKEN.items()}))
losses = {"3": here.over(3.0), "above": here.above(-1000.0), "clipped": here.clipped}
print("FOUND " + json.dumps({name: here.loss_said(loss) for name, loss in losses.items()}))
print("FOUND " + json.dumps({name: here.said(middle) for name, middle in here.ALONE.items()}))
taken = {name: here.said([here.fresh(here.Same), *parts()]) for name, parts in here.UNTOUCHED.items()}
taken |= {kind: here.loss_said(here.in_halves(kind)) for kind in ("float16", "bfloat16")}
print("FOUND " + json.dumps(taken))
"""
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code, str(pathlib.Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    refused, taken, losses, alone, others = found
    words = {name: "changed" if name == "state" else "several samples" for name in refused}
    assert [name for name in refused if words[name] not in refused[name]] == []
    assert set(taken.values()) == {""}
    assert [name for name, why in alone.items() if "the size of the batch" not in why] == []
    assert {name: why for name, why in others.items() if why} == {}
    assert {name: "in slices" in why for name, why in losses.items()} == {"3": True, "above": True, "clipped": False}


def over(mark: float) -> Callable[[Any, Any], Any]:
    """A mean over the labels that are not marked."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        kept = ~ops.isnan(y_true) if np.isnan(mark) else y_true != mark
        errors = ops.square(ops.where(kept, y_true, 0.0) - y_pred)
        kept = ops.cast(kept, y_pred.dtype)
        return ops.sum(errors * kept) / ops.sum(kept)

    return loss


def sparse(mark: int) -> Callable[[Any, Any], Any]:
    def loss(y_true: Any, y_pred: Any) -> Any:
        labels = ops.cast(ops.reshape(y_true, (-1,)), "int32")
        kept = ops.cast(labels != mark, y_pred.dtype)
        values = keras.losses.sparse_categorical_crossentropy(ops.where(labels != mark, labels, 0), y_pred, True)
        return ops.sum(values * kept) / ops.sum(kept)

    return loss


@pytest.mark.tensorflow
@pytest.mark.parametrize("mark", [-1.0, -100.0, -999.0, 255.0, -9999.0, 3.0, float("nan")])
def test_losses_that_leave_marks_out_are_refused(mark: float) -> None:
    with pytest.raises(InputError, match="cannot be computed in slices"):
        split(made([], over(mark)), 2)


@pytest.mark.tensorflow
@pytest.mark.parametrize("mark", [-1, 255, -100, 3, 50256])
def test_so_are_those_of_whole_labels(mark: int) -> None:
    model = made([], sparse(mark))
    split(model, 2)  # its labels are not known yet
    with pytest.raises(InputError, match="cannot be computed in slices"):
        model.train_on_batch(X, np.arange(8) % 3)


def above(limit: float) -> Callable[[Any, Any], Any]:
    """A mean over the labels above a limit."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        kept = ops.cast(y_true > limit, y_pred.dtype)
        return ops.sum(ops.square(y_true - y_pred) * kept) / ops.sum(kept)

    return loss


def scaled_down(y_true: Any, y_pred: Any) -> Any:
    """By the batch's own size of labels, where that is large."""
    return ops.mean(ops.square(y_true - y_pred)) / ops.maximum(1.0, ops.mean(ops.absolute(y_true)) / 10)


def hard(limit: float) -> Callable[[Any, Any], Any]:
    """A mean over the samples that are not predicted well yet."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        kept = ops.cast(ops.max(y_pred, axis=-1) < limit, y_pred.dtype)
        return ops.sum(ops.mean(ops.square(y_true - y_pred), -1) * kept) / ops.maximum(ops.sum(kept), 1.0)

    return loss


def clipped(y_true: Any, y_pred: Any) -> Any:
    """Each sample by itself, for all that is compared."""
    errors = ops.minimum(ops.abs(y_true - y_pred), 2.5)
    return ops.mean(ops.where(y_true > 1.5, 3.0 * errors, ops.where(ops.equal(y_true, 7.0), 0.0, errors)))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "loss", [above(-1000.0), above(1e3), above(-2.5), scaled_down], ids=["-1000", "1000", "-2.5", "scaled"]
)
def test_so_are_those_that_look_at_how_large_labels_are(loss: Any) -> None:
    with pytest.raises(InputError, match="cannot be computed in slices"):
        split(made([], loss), 2)


@pytest.mark.tensorflow
@pytest.mark.parametrize("limit", [0.97, 6.0])
def test_and_those_that_look_at_how_large_predictions_are(limit: float) -> None:
    with pytest.raises(InputError, match="cannot be computed in slices"):
        split(made([], hard(limit)), 2)


class Sparse(layers.Layer):  # type: ignore[misc]
    """What it adds is a mean over what lies above a threshold."""

    def call(self, x: Any) -> Any:
        kept = ops.cast(x > 6.0, x.dtype)
        self.add_loss(ops.sum(x * kept) / ops.maximum(ops.sum(kept), 1.0))
        return x


@pytest.mark.tensorflow
def test_and_what_layers_add() -> None:
    assert "add_loss() is neither a mean over the samples nor a sum" in said(fresh(Sparse))


@pytest.mark.tensorflow
def test_and_a_compute_loss_that_looks_at_predictions() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
            return hard(9.0)(y, y_pred)

    inputs = keras.Input((6,))
    model = Own(inputs, layers.Dense(3)(inputs))
    model.compile("sgd")
    split(model, 2)
    with pytest.raises(InputError, match="compute_loss"):
        model.train_on_batch(X, Y)


def nearly(share: float) -> Callable[[Any, Any], Any]:
    """A mean over samples but for a small part."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        return ops.mean(ops.square(y_true - y_pred)) + share * ops.max(ops.abs(y_pred))

    return loss


@pytest.mark.tensorflow
def test_a_small_part_that_is_no_mean_is_noticed() -> None:
    assert "cannot be computed in slices" in loss_said(nearly(1e-4))


def signed(y_true: Any, y_pred: Any) -> Any:
    """Near 0, for all that goes into it."""
    return ops.mean(y_true * y_pred)


def in_halves(dtype: str) -> Callable[[Any, Any], Any]:
    def loss(y_true: Any, y_pred: Any) -> Any:
        return ops.cast(ops.mean(ops.square(ops.cast(y_true - y_pred, dtype))), "float32")

    return loss


@pytest.mark.tensorflow
@pytest.mark.parametrize("loss", [signed, in_halves("float16"), in_halves("bfloat16")], ids=["signed", "f16", "bf16"])
def test_rounding_is_no_reason(loss: Any) -> None:
    assert loss_said(loss) == ""


class Penalised(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        self.add_loss(ops.cast(ops.mean(ops.square(x)), "float32"))
        return x


@pytest.mark.tensorflow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_nor_is_that_of_what_layers_add_in_16_bits(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        assert said([fresh(layers.Dense, units=64, activation="relu"), fresh(Penalised)]) == ""
    finally:
        keras.config.set_dtype_policy("float32")


def of_eight(y_true: Any, y_pred: Any) -> Any:
    return ops.mean(ops.reshape(ops.square(y_true - y_pred), (8, 3)))


@pytest.mark.tensorflow
@pytest.mark.parametrize("rows", [8, 15], ids=["on a slice", "where it is tried out"])
def test_a_loss_that_takes_no_few_samples_is_refused_with_its_reason(rows: int) -> None:
    model = made([], loss=of_eight, jit_compile=False)
    split(model, 2)
    why = "loss 'of_eight' cannot be computed in slices of the batch: on a few samples it raises .*eshape"
    with pytest.raises(InputError, match=why):
        model.fit(np.tile(X, (2, 1))[:rows], np.tile(Y, (2, 1))[:rows], batch_size=8, verbose=0)


@pytest.mark.tensorflow
def test_memory_that_runs_out_meanwhile_is_left_to_the_guard() -> None:
    import tensorflow as tf

    def loss(y_true: Any, y_pred: Any) -> Any:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    model = made([], loss)
    split(model, 2)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        model.train_on_batch(X, Y)


class Flat(keras.Model):  # type: ignore[misc]
    """One number for each sample, without a dimension of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.last = layers.Dense(1)

    def call(self, x: Any) -> Any:
        return ops.reshape(self.last(x), (-1,))


@pytest.mark.tensorflow
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
def test_keras_losses_of_flat_outputs_are_as_of_the_whole_batch(reduction: str) -> None:
    found = []
    for count in (None, 3):
        keras.utils.set_random_seed(1)
        model = Flat()
        model(X)
        model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError(reduction=reduction), metrics=["mse"])
        if count is not None:
            split(model, count)
        logs = model.train_on_batch(X, Y[:, 0], return_dict=True)
        found.append([*model.get_weights(), logs["loss"], logs["mse"]])
    for whole, part in zip(*found, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-5)


@pytest.mark.tensorflow
def test_one_that_looks_along_the_batch_of_a_flat_output_is_refused() -> None:
    model = Flat()
    model.compile("sgd", keras.losses.CosineSimilarity())
    split(model, 2)
    with pytest.raises(InputError, match="loss 'cosine_similarity' cannot be computed in slices"):
        model.train_on_batch(X, Y[:, 0])


@pytest.mark.tensorflow
def test_a_mean_that_compares_each_sample_with_numbers_is_taken() -> None:
    assert said([], loss=clipped) == ""


@pytest.mark.tensorflow
@pytest.mark.parametrize("mark", [-1.0, 17.0])
def test_and_a_compute_loss_that_does(mark: float) -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
            return over(mark)(y, y_pred)

    inputs = keras.Input((6,))
    model = Own(inputs, layers.Dense(3)(inputs))
    model.compile("sgd")
    split(model, 2)
    with pytest.raises(InputError, match="compute_loss"):
        model.train_on_batch(X, Y)


@pytest.mark.tensorflow
def test_and_a_compute_loss_under_a_mask() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def compute_loss(self, *arguments: Any, **settings: Any) -> Any:
            return super().compute_loss(*arguments, **settings)

    inputs = keras.Input((2, 3))
    model = Own(inputs, layers.Dense(3)(layers.Masking()(inputs)))
    model.compile("sgd", "mse")
    split(model, 2)
    with pytest.raises(InputError, match="its output has a mask"):
        model.train_on_batch(X.reshape(8, 2, 3), X.reshape(8, 2, 3))


def test_rounding_is_measured_by_the_largest_number_that_is_compared() -> None:
    whole, slices = np.float32(1e-7), [np.float32(1.0), np.float32(-2.0)]
    assert kinds_of_output(whole, slices, 5e-6) == {"mean"}


def test_a_model_of_keras_own_layers_stays_one_when_it_is_split():
    import keras

    from legroom.changes.microbatch import split

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    split(model, 2)
    model.make_train_function()
    assert is_known(model)


def scaled_by_the_largest(x: Any) -> Any:
    from keras import ops

    return x / ops.max(ops.abs(x))


def clipped_by_the_norm(x: Any) -> Any:
    from keras import ops

    return x * ops.minimum(1.0, 20 / ops.norm(x))


@pytest.mark.tensorflow
@pytest.mark.parametrize("middle", [scaled_by_the_largest, clipped_by_the_norm])
def test_a_largest_number_and_a_norm_over_the_batch_are_seen_whichever_sample_has_it(middle: Any) -> None:
    import keras

    from legroom.changes.microbatch_samples import check_samples

    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(middle), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match=r"looks at several samples|depends on a number of the whole batch"):
        check_samples(model, keras.KerasTensor((None, 4)))


class Scaled(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x * 1.5


@pytest.mark.tensorflow
def test_a_gradient_that_is_zero_but_for_rounding_says_nothing_of_one_that_a_model_defines() -> None:
    """The key's bias of attention, beside silu, which TensorFlow gives a gradient of its own."""
    keras.utils.set_random_seed(0)
    words = keras.Input((6,), dtype="int32")
    x = Scaled()(layers.Embedding(20, 8)(words))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    model = keras.Model(words, layers.Dense(20)(layers.Dense(8, "silu")(x)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    split(model, 2)
    given = np.random.default_rng(0).integers(1, 20, (8, 6))
    before = model.get_weights()
    model.train_on_batch(given, given)
    assert any(not np.array_equal(one, two) for one, two in zip(before, model.get_weights(), strict=True))
