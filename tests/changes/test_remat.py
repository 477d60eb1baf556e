"""Segments, blocks that are refused, undoing, custom loops, long training, and the memory that is saved."""

import json
import os
import random
import subprocess
import sys
from random import gauss
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from legroom.changes.microbatch import split
from legroom.changes.remat import cannot, effect, rematerialise, segments_of
from legroom.changes.remat_inside import Inside, inside_of
from legroom.changes.segments import costs_of
from legroom.errors import InputError
from legroom.records.plan import Effect

pytestmark = pytest.mark.tensorflow

X = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
Y = np.random.default_rng(1).normal(size=(12, 2)).astype("float32")


def net(run_eagerly: bool = False) -> Any:
    keras.utils.set_random_seed(3)
    parts = [
        layers.Dense(8, name="a"),
        layers.BatchNormalization(name="b"),
        layers.ReLU(name="c"),
        layers.Dropout(0.5, name="d"),
    ]
    model = keras.Sequential([keras.Input((6,)), *parts, layers.Dense(2, name="e")])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False, run_eagerly=run_eagerly)
    return model


def values(model: Any) -> list[Any]:
    return [variable.numpy() for variable in model.variables]


def same(one: list[Any], other: list[Any], tolerance: float = 1e-6) -> bool:
    return all(np.allclose(a, b, atol=tolerance, rtol=tolerance) for a, b in zip(one, other, strict=True))


def test_segments_have_names_sizes_and_work() -> None:
    found = segments_of(net())
    assert [segment.name for segment in found] == ["a", "b", "c", "d", "e"]
    assert (found[0].input_bytes, found[0].output_bytes, found[1].crossing_bytes) == (24, 32, 32)
    assert found[0].flops == 2 * 6 * 8 + 8
    assert found[0].kept_bytes(10) == 320  # read by batch normalisation's gradient
    assert found[1].kept_bytes(10) == 0  # nobody reads it: ReLU's gradient is made from ReLU's own output
    assert found[3].inner_bytes == 8  # the mask


def test_tensors_that_pass_by_count_at_the_boundary() -> None:
    inputs = keras.Input((4,))
    first = layers.Dense(4, name="first")(inputs)  # the batch itself is there anyway
    x = layers.Dense(4, name="next")(layers.Dense(4, name="inside")(first))
    model = keras.Model(inputs, layers.Add(name="sum")([first, x]))
    found = {segment.name: segment.crossing_bytes for segment in segments_of(model)}
    assert found == {"first": 0, "inside": 16, "next": 32, "sum": 32}


def test_segments_of_nested_models_have_paths_and_calls_have_numbers() -> None:
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(6, name="x"), layers.Dense(6, name="y")], name="inner")
    twice, inputs = layers.Dense(6, name="twice"), keras.Input((6,))
    model = keras.Model(inputs, twice(inner(twice(inputs))))
    found = segments_of(model)
    assert [segment.name for segment in found] == ["twice", "inner/x", "inner/y", "twice#2"]
    assert [segment.model for segment in found] == ["", "inner", "inner", ""]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([["a", "nothing"]], "no segment 'nothing'"),
        ([["a", "c"]], "not a run of consecutive segments"),
        ([["b", "a"]], "not a run of consecutive segments"),
        ([["a", "b"], ["b", "c"]], "'b' is in two blocks"),
    ],
)
def test_wrong_blocks_are_refused(blocks: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rematerialise(net(), blocks)


def test_a_block_through_a_nested_model_is_refused() -> None:
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(6, name="x"), layers.Dense(6, name="y")], name="inner")
    inputs = keras.Input((6,))
    model = keras.Model(inputs, inner(layers.Dense(6, name="first")(inputs)))
    with pytest.raises(InputError, match="cuts through a nested model"):
        rematerialise(model, [["first", "inner/x"]])


def test_a_model_is_rematerialised_once() -> None:
    model = net()
    undo = rematerialise(model, [["a", "b"]])
    with pytest.raises(InputError, match="already"):
        rematerialise(model, [["c"]])
    undo()
    rematerialise(model, [["c"]])


def test_a_model_that_is_not_built_is_refused() -> None:
    with pytest.raises(InputError, match="not built"):
        segments_of(keras.Sequential([layers.Dense(2)]))


def test_undo_leaves_no_trace_and_may_be_called_twice() -> None:
    model = net()
    before = {id(part): set(part.__dict__) for part in (model, model._functional, *model.layers)}
    model.train_on_batch(X, Y)
    undo = rematerialise(model, [["a", "b", "c", "d"]])
    assert model.train_function is None
    model.train_on_batch(X, Y)
    undo()
    assert model.train_function is None
    undo()
    assert before == {id(part): set(part.__dict__) for part in (model, model._functional, *model.layers)}
    assert same(model.predict(X, verbose=0), net_after_two_steps().predict(X, verbose=0))


def net_after_two_steps() -> Any:
    model = net()
    model.train_on_batch(X, Y)
    model.train_on_batch(X, Y)
    return model


def test_it_is_said_to_be_exact_and_layers_that_overwrite_weights_are_named() -> None:
    inputs = keras.Input((6,))
    strange = layers.SpectralNormalization(layers.Dense(4), name="strange")
    model = keras.Model(inputs, layers.Dense(2, name="fine")(strange(inputs)))
    assert effect(model, [["fine"]]) == Effect()
    assert cannot(model) == ("strange: SpectralNormalization overwrites a trained weight in its forward pass",)
    with pytest.raises(InputError, match="overwrites a trained weight"):
        rematerialise(model, [["strange", "fine"]])


class Foreign(keras.layers.Layer):  # type: ignore[misc]
    """Draws random numbers behind Keras' back."""

    def call(self, x: Any) -> Any:
        return x * tf.random.uniform(tf.shape(x))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_random_numbers_that_keras_does_not_hold_are_refused(run_eagerly: bool) -> None:
    model = keras.Sequential([keras.Input((6,)), Foreign(name="foreign"), layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=False, run_eagerly=run_eagerly)
    rematerialise(model, [["foreign"]])
    with pytest.raises(InputError, match="RandomUniform"):
        model.train_on_batch(X, Y)


class OnHost(keras.layers.Layer):  # type: ignore[misc]
    """Draws random numbers by NumPy or Python, in a method that `call` uses."""

    def __init__(self, draw: Any, **options: Any) -> None:
        super().__init__(**options)
        self.draw = draw

    def call(self, x: Any) -> Any:
        return x * self.factor()

    def factor(self) -> float:
        return float(self.draw())


def imported_inside() -> float:
    from random import betavariate

    return betavariate(1.0, 1.0)


OWN = np.random.default_rng(0)
HOST = {
    "numpy": lambda: np.random.uniform() + 1.0,
    "python": lambda: random.random() + 1.0,
    "a generator": lambda: OWN.uniform() + 1.0,
    "a function": lambda: gauss(0.0, 1.0),
    "imported inside": imported_inside,
}


def host_random(layer: Any, **settings: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), layer, layers.Dense(2)])
    model.compile("sgd", "mse", **({"jit_compile": False} | settings))
    rematerialise(model, [[layer.name]])
    return model


@pytest.mark.parametrize("mode", [{}, {"run_eagerly": True}, {"jit_compile": True}], ids=["graph", "eager", "xla"])
@pytest.mark.parametrize("name", HOST)
def test_random_numbers_that_no_framework_holds_are_refused(name: str, mode: dict[str, bool]) -> None:
    model = host_random(OnHost(HOST[name], name="drawing"), **mode)
    with pytest.raises(InputError, match="'drawing' cannot be recomputed: its code draws random numbers by NumPy"):
        model.train_on_batch(X, Y)


def test_an_activation_that_draws_them_is_refused_too() -> None:
    model = host_random(layers.Dense(6, activation=lambda x: x * np.random.uniform(), name="drawing"))
    with pytest.raises(InputError, match="draws random numbers by NumPy"):
        model.train_on_batch(X, Y)


class DrawingMeanwhile(keras.layers.Layer):  # type: ignore[misc]
    """Another thread, which loads data perhaps, draws random numbers while this one is called."""

    def call(self, x: Any) -> Any:
        draw_elsewhere()
        return 2.0 * x


def draw_elsewhere() -> None:
    ELSEWHERE["draw"]()


ELSEWHERE = {"draw": lambda: (np.random.uniform(), random.random())}  # not found by the names in the code


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_random_numbers_that_others_draw_meanwhile_are_no_reason(run_eagerly: bool) -> None:
    model = host_random(DrawingMeanwhile(), run_eagerly=run_eagerly)
    assert np.isfinite(model.train_on_batch(X, Y))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_nothing_is_watched_where_all_layers_are_of_keras(run_eagerly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legroom.changes.host_random.state_of", lambda _: pytest.fail("a state was read"))
    model = net(run_eagerly)
    rematerialise(model, [["a", "b", "c", "d"]])
    assert np.isfinite(model.train_on_batch(X, Y))


class Leaving(keras.layers.Layer):  # type: ignore[misc]
    """Keeps a tensor of its call for others."""

    def call(self, x: Any) -> Any:
        self.energy = keras.ops.mean(keras.ops.square(x))
        return 2.0 * x


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_layer_that_keeps_a_tensor_for_others_is_refused(run_eagerly: bool) -> None:
    model = keras.Sequential([keras.Input((6,)), Leaving(name="leaving"), layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=False, run_eagerly=run_eagerly)
    rematerialise(model, [["leaving"]])
    with pytest.raises(InputError, match=r"leaving\.energy"):
        model.train_on_batch(X, Y)


class Running(keras.layers.Layer):  # type: ignore[misc]
    """Reads what it has just assigned, through which no gradient flows."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * keras.ops.mean(x, axis=0))
        return x - self.mean


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_state_that_is_assigned_and_read_has_no_gradient(run_eagerly: bool) -> None:
    found = []
    for blocks in ([], [["running"]]):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((6,)), layers.Dense(4, "tanh"), Running(name="running"), layers.Dense(2)])
        model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False, run_eagerly=run_eagerly)
        if blocks:
            rematerialise(model, blocks)
        model.train_on_batch(X, Y)
        found.append(values(model))
    assert same(*found)


class Unseeded(keras.layers.Layer):  # type: ignore[misc]
    """Uses Keras' global seeds and a raw variable of TensorFlow's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scale = tf.Variable(np.ones(6, "float32"))

    def call(self, x: Any) -> Any:
        return x * keras.random.uniform((12, 6)) * self.scale


@pytest.mark.parametrize("compiled", [False, True])
def test_global_seeds_and_raw_variables_in_a_custom_loop(compiled: bool) -> None:
    def gradients(blocks: list[list[str]]) -> list[Any]:
        keras.backend.clear_session()
        keras.utils.set_random_seed(5)
        noisy = Unseeded(name="noisy")
        model = keras.Sequential([keras.Input((6,)), layers.Dense(6, name="a"), noisy, layers.Dense(2, name="b")])
        rematerialise(model, blocks)

        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(X, training=True) - Y) ** 2)
            return tape.gradient(loss, [*model.trainable_variables, noisy.scale])

        step = tf.function(step) if compiled else step
        step()
        return [grad.numpy() for grad in step()]

    assert same(gradients([]), gradients([["a", "noisy"]]))


def test_the_gradient_of_a_traced_forward_pass() -> None:
    found = []
    for blocks in ([], [["a", "b", "c", "d"]]):
        model = net()
        rematerialise(model, blocks)
        forward = tf.function(lambda x, model=model: model(x, training=True))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(forward(X) ** 2)
        found.append([grad.numpy() for grad in tape.gradient(loss, model.trainable_variables)] + values(model))
    assert same(*found)


@pytest.mark.parametrize("compiled", [None, False, True])
def test_second_derivatives(compiled: bool | None) -> None:
    found = []
    for blocks in ([], [["a", "c"]]):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((6,)), layers.Dense(5, activation="tanh", name="a")])
        model.add(layers.Dropout(0.4, name="c"))
        model.add(layers.Dense(1, name="e"))
        rematerialise(model, blocks)

        def step(model: Any = model) -> Any:
            x = tf.constant(X)
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    y = model(x, training=True)
                penalty = tf.reduce_sum(inner.gradient(y, x) ** 2)
            return outer.gradient(penalty, model.layers[0].kernel)

        run = step if compiled is None else tf.function(step, jit_compile=compiled)
        found.append([run().numpy()])
    assert same(*found, tolerance=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_blocks_inside_a_loop_over_slices_of_the_batch(compiled: bool) -> None:
    found = []
    for blocks in ([], [["a", "b", "c", "d"]]):
        model = net()
        rematerialise(model, blocks)

        def step(model: Any = model) -> Any:
            def body(i: Any, total: Any) -> Any:
                with tf.GradientTape() as tape:
                    part = model(tf.reshape(tf.constant(X), (3, 4, 6))[i], training=True)
                    loss = tf.reduce_mean(part**2)
                return i + 1, total + tape.gradient(loss, model.layers[0].kernel)

            return tf.while_loop(lambda i, _: i < 3, body, (0, tf.zeros((6, 8))), maximum_iterations=3)[1]

        found.append([tf.function(step, jit_compile=compiled)().numpy(), *values(model)])
    assert same(*found, tolerance=1e-5)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_gradients_of_embeddings_stay_sparse(run_eagerly: bool) -> None:
    inputs = keras.Input((3,), dtype="int32")
    x = layers.Flatten(name="flat")(layers.Embedding(50, 4, name="table")(inputs))
    model = keras.Model(inputs, layers.Dense(1, name="top")(x))
    rematerialise(model, [["table", "flat", "top"]])
    kinds = []

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.constant([[1, 2, 3]]), training=True))
        found = tape.gradient(loss, model.trainable_variables)
        kinds.append(type(found[0]).__name__)
        return [tf.convert_to_tensor(grad) for grad in found]

    (step if run_eagerly else tf.function(step))()
    assert kinds == ["IndexedSlices"]


class Table(keras.layers.Layer):  # type: ignore[misc]
    """Looks its rows up by itself."""

    def build(self, shape: Any) -> None:
        self.rows = self.add_weight(shape=(9, 4), name="rows")

    def call(self, ids: Any) -> Any:
        return keras.ops.take(self.rows, ids, axis=0)


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("mode", [{"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}])
def test_adam_sees_the_same_entries_of_any_tables_gradient(mode: dict[str, bool], sliced: bool) -> None:
    """Keras squares each entry by itself: a row that was looked up twice must stay two entries."""
    ids = np.random.default_rng(0).integers(0, 5, (12, 3)).astype("int32")
    found = []
    for changed in (False, True):
        keras.utils.set_random_seed(2)
        inputs = keras.Input((3,), dtype="int32")
        x = layers.Flatten(name="flat")(Table(name="table")(inputs))
        model = keras.Model(inputs, layers.Dense(2, name="top")(x))
        model.compile(keras.optimizers.Adam(0.1), "mse", **mode)
        if changed:
            rematerialise(model, [["table", "flat"]])
        if changed and sliced:
            split(model, 5)
        for _ in range(2):
            model.train_on_batch(ids, Y)
        found.append([*values(model), *(variable.numpy() for variable in model.optimizer.variables)])
    assert same(*found, tolerance=1e-5)


def test_losses_are_there_once_after_a_call() -> None:
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(4, activity_regularizer="l2", name="a"), layers.Dense(2, name="b")]
    )
    rematerialise(model, [["a", "b"]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(X, training=True)) + sum(model.losses)
    tape.gradient(loss, model.trainable_variables)
    assert len(model.losses) == 1


def test_a_model_is_saved_as_it_was(tmp_path: Any) -> None:
    model = net()
    rematerialise(model, [["a", "b"], ["c", "d"]])
    model.train_on_batch(X, Y)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert same(model.get_weights(), again.get_weights())
    assert np.allclose(model.predict(X, verbose=0), again.predict(X, verbose=0), atol=1e-6)


def test_twenty_steps_of_fit_end_with_the_same_weights() -> None:
    found = []
    for blocks in ([], [["a", "b"], ["c", "d", "e"]]):
        model = net()
        rematerialise(model, blocks)
        history = model.fit(np.tile(X, (5, 1)), np.tile(Y, (5, 1)), batch_size=6, epochs=2, verbose=0, shuffle=False)
        assert int(model.optimizer.iterations.numpy()) == 20
        found.append([*values(model), history.history["loss"]])
    assert same(*found, tolerance=1e-4)


MEMORY = """
import json, sys
import keras, numpy as np, tensorflow as tf
from keras import layers
from legroom.changes.remat import rematerialise, segments_of

def peak(mode, rematerialised):
    x = inputs = keras.Input((32, 32, 16))
    for k in range(12):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Dense(16)(x)))  # no workspaces, as a convolution would have
        x = layers.Dropout(0.4)(x)
    model = keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))
    model.compile("sgd", "mse", jit_compile=mode == "xla", run_eagerly=mode == "eager")
    names = [segment.name for segment in segments_of(model)]
    if rematerialised:
        rematerialise(model, [names[at : at + 12] for at in range(0, 48, 12)])
    x, y = np.ones((32, 32, 32, 16), "float32"), np.zeros((32, 4), "float32")
    model.train_on_batch(x, y)
    tf.config.experimental.reset_memory_stats("CPU:0")
    model.train_on_batch(x, y)
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]

print("FOUND " + json.dumps([peak(sys.argv[1], rematerialised) for rematerialised in (False, True)]))
"""


@pytest.mark.parametrize(
    ("mode", "share"),
    [
        ("graph", 0.5),
        pytest.param("eager", 0.45, marks=pytest.mark.slow),
        pytest.param("xla", 0.4, marks=pytest.mark.slow),
    ],
)
def test_memory_is_saved_under_the_real_allocator(mode: str, share: float) -> None:
    env = os.environ | {
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": "4000",
    }
    done = subprocess.run([sys.executable, "-c", MEMORY, mode], capture_output=True, text=True, env=env, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    plain, rematerialised = json.loads(lines[0][6:])
    assert rematerialised < share * plain


class Wide(layers.Layer):  # type: ignore[misc]
    """Four times as wide inside as outside."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(4 * units, "gelu"), layers.Dense(units)

    def call(self, x: Any) -> Any:
        return x + self.second(self.first(x))


class Rows(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layers.Dense(8), layers.Dense(2)
        self.blocks = [Wide(8) for _ in range(3)]
        self.attention = layers.MultiHeadAttention(2, 4)

    def call(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.attention(x, x))


def test_what_layers_of_a_subclassed_model_hold_is_known_by_the_shapes_that_they_were_built_with() -> None:
    model = Rows()
    model(np.zeros((3, 5, 6), "float32"))
    costs = {cost["name"]: cost for cost in costs_of(model, 10)}
    outside, inside = 10 * 5 * 8 * 4, 10 * 5 * 32 * 4
    wide = costs[model.blocks[0].name]
    assert (wide["boundary_bytes"], wide["kept_bytes"]) == (outside, 2 * inside + outside)
    assert wide["flops"] == pytest.approx(10 * 5 * 2 * (2 * 8 * 32), rel=0.1)
    scores = 10 * 2 * 5 * 5 * 4
    projected = 10 * 4 * 5 * 8 * 4
    assert costs[model.attention.name]["kept_bytes"] == pytest.approx(2 * scores + projected + outside, rel=0.1)
    assert all(cost["begins"] for cost in list(costs.values())[1:])


def test_a_layer_of_ones_own_in_a_functional_model_holds_what_the_layers_inside_it_do() -> None:
    x = keras.Input((5, 8))
    model = keras.Model(x, layers.Dense(1)(Wide(8)(x)))
    wide = costs_of(model, 10)[0]
    assert wide["kept_bytes"] == 10 * 5 * (2 * 32 + 8) * 4


def test_a_layer_whose_shapes_are_not_known_counts_as_nothing() -> None:
    assert inside_of(layers.Dense(3)) == Inside()
