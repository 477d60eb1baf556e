"""Eager steps recorded on the fake device: what the trace says, and what it must leave alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from legroom.capture.batch import ArraySpec
from legroom.engines.op import c_api, fake_device
from legroom.engines.op.eager import fake_batch, record
from legroom.engines.op.ops import Array
from legroom.engines.op.trace import Dropped, EagerTrace, Ran
from legroom.errors import InputError, MissingError

pytestmark = pytest.mark.tensorflow

X = ArraySpec((32, 20), "float32")
Y = ArraySpec((32,), "int64")


def two_layers() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((20,)), layers.Dense(64, activation="relu"), layers.Dropout(0.5)])
    model.add(layers.BatchNormalization())
    model.add(layers.Dense(10))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], run_eagerly=True)
    return model


def ran(trace: EagerTrace, kind: str) -> list[Ran]:
    return [event for event in trace.events if isinstance(event, Ran) and event.op.kind == kind]


def dropped(trace: EagerTrace) -> list[int]:
    return [event.tensor for event in trace.events if isinstance(event, Dropped)]


def test_operations_and_sizes_of_a_train_step() -> None:
    model = two_layers()
    batch = fake_batch((X, Y))
    trace = record(lambda: model.train_step(batch))
    forward = ran(trace, "MatMul")[0]
    assert forward.op.inputs == (Array((32, 20), "float32"), Array((20, 64), "float32"))
    assert forward.op.outputs == (Array((32, 64), "float32"),)
    assert forward.op.name.endswith("dense/MatMul") or "dense" in forward.op.name
    assert forward.line is not None
    assert __file__ in forward.line
    assert len(ran(trace, "MatMul")) == 5  # two forward; two for the weights and one for the activations backward
    names = {resident.name for resident in trace.residents.values() if resident.role == "variable"}
    assert any(name is not None and name.endswith("kernel") for name in names)
    assert sorted(array.array.shape for array in trace.residents.values() if array.role == "batch") == [(32,), (32, 20)]
    assert trace.notes == ()
    assert trace.kept == ()


def test_every_tensor_is_made_before_it_is_used_and_dropped_once() -> None:
    model = two_layers()
    batch = fake_batch((X, Y))
    trace = record(lambda: model.train_step(batch))
    alive = set(trace.residents)
    for event in trace.events:
        if isinstance(event, Ran):
            assert alive.issuperset(event.inputs)
            alive.update(event.outputs)
        else:
            alive.remove(event.tensor)
    made = {number for event in trace.events if isinstance(event, Ran) for number in event.outputs}
    assert set(dropped(trace)) <= made
    big = {event.outputs[0] for event in ran(trace, "StatelessRandomUniformV2")}
    assert big <= set(dropped(trace))


def test_the_model_stays_as_it_was() -> None:
    import numpy as np

    model = two_layers()
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [variable.numpy() for variable in variables]
    batch = fake_batch((X, Y))
    trace = record(lambda: model.train_step(batch))
    assert len(ran(trace, "AssignAddVariableOp")) + len(ran(trace, "AssignVariableOp")) > 10
    assert int(model.optimizer.iterations) == 0
    for value, variable in zip(before, variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())


def test_a_second_recording_says_the_same() -> None:
    model = two_layers()
    model.optimizer.build(model.trainable_variables)
    batch = fake_batch((X, Y))
    _, first, second = (record(lambda: model.train_step(batch)) for _ in range(3))  # the first builds the metrics
    kinds = [[event.op.kind if isinstance(event, Ran) else "-" for event in trace.events] for trace in (first, second)]
    assert kinds[0] == kinds[1]


def test_tensors_are_dropped_when_python_and_the_tape_let_go() -> None:
    import tensorflow as tf

    x = fake_batch(X)

    def step() -> Any:
        first = tf.exp(x)
        second = tf.sin(first)
        del first
        third = tf.cos(second)
        del second
        return third

    trace = record(step)
    exp, sin, cos = (ran(trace, kind)[0].outputs[0] for kind in ("Exp", "Sin", "Cos"))
    sequence = [event.op.kind if isinstance(event, Ran) else event.tensor for event in trace.events]
    assert sequence == ["Exp", "Sin", exp, "Cos", sin, cos]
    assert cos in trace.returned

    def taped() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.exp(x))
        return tape.gradient(loss, x)

    trace = record(taped)
    exp = ran(trace, "Exp")[0].outputs[0]
    backward = next(i for i, event in enumerate(trace.events) if isinstance(event, Ran) and event.op.kind == "Mul")
    assert trace.events.index(Dropped(exp)) > backward


def test_a_value_that_depends_on_data_reads_as_zero_and_is_noted() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    seen: list[Any] = []

    def step() -> None:
        loss = tf.reduce_mean(x)
        seen.append(float(loss))
        seen.append(bool(tf.reduce_all(tf.math.is_finite(x))))
        seen.append(int(tf.shape(x)[0]))
        seen.append([int(i) for i in tf.range(3)])

    trace = record(step)
    assert seen == [0.0, True, 32, [0, 1, 2]]
    assert len(trace.notes) == 2
    assert f"{__file__}:" in trace.notes[0]
    assert "Mean" in trace.notes[0]


def test_what_the_step_writes_is_read_back_and_then_forgotten() -> None:
    import tensorflow as tf

    counter = tf.Variable(0)
    seen = []

    def step() -> None:
        while counter < 3:
            counter.assign_add(1)
        seen.append(int(counter))
        counter.assign(7)
        seen.append(int(counter))

    trace = record(step)
    assert seen == [3, 7]
    assert len(ran(trace, "AssignAddVariableOp")) == 3
    assert int(counter) == 0


def test_an_error_of_the_users_passes_and_tensorflow_stays_usable() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    error = RuntimeError("mine")

    def step() -> None:
        tf.exp(x)
        with tf.device("/GPU:0"):
            raise error

    with pytest.raises(RuntimeError) as caught:
        record(step)
    assert caught.value is error
    with pytest.raises(tf.errors.InvalidArgumentError):
        record(lambda: x @ x)
    product = tf.ones((2, 3)) @ tf.ones((3, 2))
    assert product.device.endswith("CPU:0")
    assert product.numpy().sum() == 12.0
    assert ran(record(lambda: tf.exp(x)), "Exp")


def test_variables_that_a_step_creates_are_real_and_counted() -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    x = fake_batch(X)
    layer, optimizer = keras.layers.Dense(8), keras.optimizers.Adam()

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, layer.trainable_variables), layer.variables, strict=True))

    trace = record(step)
    created = [event.op.outputs[0].shape for event in ran(trace, "VarHandleOp")]
    assert created.count((20, 8)) == 3  # the kernel and its two moments
    assert np.any(layer.kernel.numpy() != 0)
    assert int(optimizer.iterations) == 0
    assert np.isfinite(layer(np.ones((2, 20), "float32")).numpy()).all()


def test_a_function_is_one_operation() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    weights = tf.Variable(tf.ones((20, 5)))

    @tf.function
    def forward(inputs: Any) -> Any:
        return tf.nn.relu(inputs @ weights), tf.identity(inputs)

    trace = record(lambda: forward(x))
    (call,) = [event for event in trace.events if isinstance(event, Ran)]
    assert [array.shape for array in call.op.outputs] == [(32, 5), (32, 20)]
    assert call.op.attributes["aliases"] == (None, "input_0")
    assert forward(tf.ones((2, 20)))[0].shape == (2, 5)


def test_random_state_is_kept() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    generator = tf.random.Generator.from_seed(1)
    draws = []
    for recorded in (False, True):
        tf.random.set_seed(3)
        generator.reset_from_seed(1)
        if recorded:
            record(lambda: x + tf.random.normal((32, 20)) + generator.normal((32, 20)))
        draws.append((tf.random.normal((3,)).numpy().tolist(), generator.normal((3,)).numpy().tolist()))
    assert draws[0] == draws[1]


def test_what_piles_up_is_kept() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    history: list[Any] = []
    trace = record(lambda: history.append(tf.exp(x)))
    assert trace.kept == ran(trace, "Exp")[0].outputs


def test_sizes_that_depend_on_data_are_noted() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    trace = record(lambda: tf.where(x > 0))
    assert ran(trace, "Where")[0].op.outputs[0].shape == (640, 2)
    assert "largest possible" in trace.notes[0]
    with pytest.raises(InputError):
        fake_batch(ArraySpec((None, 3), "float32"))


def test_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_api, "VERSION", 5)
    c_api.load.cache_clear()
    with pytest.raises(MissingError, match="layout 4"):
        c_api.load()
    assert fake_device.NAME.endswith("LEGROOM:0")


STEP = """
import tensorflow as tf
w, v = tf.Variable(tf.ones((512, 2048))), tf.Variable(tf.ones((2048, 1)))
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(x @ w) @ v - y) ** 2)
    for variable, gradient in zip((w, v), tape.gradient(loss, (w, v))):
        variable.assign_sub(0.01 * gradient)
"""
REAL = """
import json
x, y = tf.ones((2048, 512)) * 1.0, tf.ones((2048, 1)) * 1.0
step(x, y)
tf.config.experimental.reset_memory_stats("CPU:0")
before = tf.config.experimental.get_memory_info("CPU:0")["current"]
step(x, y)
print(json.dumps(tf.config.experimental.get_memory_info("CPU:0")["peak"] - before))
"""
BFC = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "2000"}


def rise_bytes(trace: EagerTrace, aliases: tuple[str, ...]) -> int:
    """How far the live bytes go above the residents, with what is known of these few kinds."""
    live, peak = 0, 0
    sizes: dict[int, int] = {}
    for event in trace.events:
        if isinstance(event, Dropped):
            live -= sizes[event.tensor]
            continue
        for number, array in zip(event.outputs, event.op.outputs, strict=True):
            host = event.op.kind == "_EagerConst" or event.op.kind in aliases
            sizes[number] = 0 if host else -(-array.size_bytes // 256) * 256
            live += sizes[number]
        peak = max(peak, live)
    return peak


def test_live_bytes_are_those_of_the_real_allocator() -> None:
    run = subprocess.run(
        [sys.executable, "-c", STEP + REAL], env={**os.environ, **BFC}, capture_output=True, text=True, check=True
    )
    scope: dict[str, Any] = {}
    exec(STEP, scope)
    step: Callable[..., Any] = scope["step"]
    x, y = fake_batch((ArraySpec((2048, 512), "float32"), ArraySpec((2048, 1), "float32")))
    trace = record(lambda: step(x, y))
    rise = rise_bytes(trace, ("ReadVariableOp", "Reshape", "Identity"))
    assert rise == pytest.approx(json.loads(run.stdout), rel=0.001)


def test_what_an_earlier_step_left_behind_is_not_counted() -> None:
    import tensorflow as tf

    x = fake_batch(X)
    history: list[Any] = []
    record(lambda: history.extend((tf.exp(x), tf.sin(x))))
    trace = record(lambda: (history.pop(), tf.cos(history[0])))
    assert {resident.role for resident in trace.residents.values()} == {"batch", "constant"}
    assert len(trace.residents) == 2
    assert trace.kept == ()


def test_looking_at_the_stack_keeps_no_tensor_alive() -> None:
    """A layer's `outputs = outputs + bias` lets go of the product before the activation runs, and so must the recording."""
    model = two_layers()
    x = fake_batch(X)
    events = record(lambda: model(x, training=True)).events
    product = next(event.outputs[0] for event in events if isinstance(event, Ran) and event.op.kind == "MatMul")
    let_go = next(i for i, event in enumerate(events) if isinstance(event, Dropped) and event.tensor == product)
    activation = next(i for i, event in enumerate(events) if isinstance(event, Ran) and event.op.kind == "Relu")
    assert let_go < activation
