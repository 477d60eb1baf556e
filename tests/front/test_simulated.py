"""Real models, estimated op by op for this machine's CPU."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import legroom
from legroom.capture.batch import ArraySpec
from legroom.errors import InputError
from legroom.front.simulated import Simulated
from legroom.front.target import choose_card
from legroom.units import MIB

pytestmark = pytest.mark.tensorflow

IMAGES = ArraySpec((8, 16, 16, 3), "float32"), ArraySpec((8,), "int32")
ROWS = ArraySpec((8, 64), "float32"), ArraySpec((8, 4), "float32")


@pytest.fixture(scope="module", autouse=True)
def _two_cores_and_an_empty_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEGROOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("legroom.front.target.gpu_of_this_machine", lambda: None)
        patch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
        yield


def small_cnn(**options):
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(16, 3, activation="relu", name="first")])
    model.add(layers.Conv2D(16, 3, activation="relu", name="second"))
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10, name="top"))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def dense(**options):
    import keras

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(2048, name="wide"), keras.layers.Dense(4)])
    model.compile("sgd", "mse", jit_compile=False, **options)
    return model


def with_layer(call):
    """A model with a layer in the middle that does what `call` does."""
    import keras

    class Own(keras.layers.Layer):
        def call(self, x):
            return call(x)

        def compute_output_shape(self, shape):
            return shape

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32), Own(name="own"), keras.layers.Dense(4)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.mark.parametrize(("gpu", "told_steps"), [(None, 5), ("t4", 1)])
def test_on_a_cpu_the_middle_is_that_of_several_steps_of_each_run(gpu, told_steps):
    simulated = SimpleNamespace(card=choose_card(gpu, None))
    assert Simulated.machine(simulated, 2**30).told_steps == told_steps


@pytest.fixture(scope="module")
def graph():
    return legroom.estimate(small_cnn(), IMAGES, engine="op")


@pytest.fixture(scope="module")
def eager():
    return legroom.estimate(small_cnn(run_eagerly=True), IMAGES, engine="op")


@pytest.fixture(params=["graph", "eager"])
def either(request):
    return request.getfixturevalue(request.param)


def test_categories_sum_to_the_peak(either):
    assert sum(either.breakdown.values()) == either.peak_bytes
    assert min(either.breakdown.values()) >= 0


def test_layers_sum_to_the_peak(either):
    assert sum(layer.peak_bytes for layer in either.layers) == either.peak_bytes


def test_the_peak_lies_within_its_bounds_and_fits(either):
    assert either.low_bytes <= either.peak_bytes <= either.high_bytes
    assert either.out_of_memory is None
    assert either.fits


def test_the_largest_layer_is_found(graph):
    assert graph.layers[0].name == "second"


def test_adam_holds_two_tensors_for_every_weight(graph):
    weights = 4 * (3 * 3 * 3 * 16 + 16 + 3 * 3 * 16 * 16 + 16 + 16 * 10 + 10)
    assert weights <= graph.breakdown["weights"] < weights + 100
    assert 2 * weights <= graph.breakdown["optimizer"] < 2 * weights + 100


def deep_cnn(**options):
    """Much is elementwise in it: written in place in a graph, and held by the tape in an eager step."""
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((16, 16, 3))])
    for _ in range(4):
        model.add(layers.Conv2D(16, 3, padding="same"))
        model.add(layers.Activation("gelu"))
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def test_an_eager_step_holds_more_than_a_graph():
    """Really, by TensorFlow's own allocator on two cores: 579 MB in a graph, 881 MB eagerly."""
    graph, eager = (
        legroom.estimate(deep_cnn(run_eagerly=eagerly), IMAGES, engine="op", batch_size=2048)
        for eagerly in (False, True)
    )
    assert eager.peak_bytes > 1.2 * graph.peak_bytes


def test_a_step_that_a_gpu_would_compile_is_told_as_what_it_is_here(graph, eager):
    assert (graph.execution, eager.execution) == ("graph", "eager")


def test_the_host_holds_no_compiler_where_nothing_is_compiled(graph):
    own = legroom.estimate(small_cnn(), IMAGES, engine="op", jit_compile=False)
    programs = [[part.size_bytes for part in found.host.parts if "programs" in part.name] for found in (graph, own)]
    assert programs[0] == programs[1] != []


def test_an_eager_steps_lines_are_the_users(eager):
    lines = [layer.name for layer in eager.layers if ".py:" in layer.name]
    assert lines
    assert all(line.startswith(__file__) for line in lines)


def test_the_engine_and_the_machine_are_named(either):
    assert (either.engine, either.on_cpu, either.batch) == ("op", True, 8)


def test_the_allocator_takes_no_less_than_is_used(either):
    assert either.reserved_bytes >= either.program_bytes


def test_the_hosts_parts_sum_to_its_peak(either):
    host = either.host
    assert len(host.parts) > 1
    for whole in ("low_bytes", "high_bytes"):
        assert getattr(host, whole) == sum(getattr(part, whole) for part in host.parts)
    assert host.peak_bytes == sum(part.size_bytes for part in host.parts)


def test_a_process_on_the_cpu_holds_its_step_in_ram(graph):
    larger = legroom.estimate(small_cnn(), IMAGES, engine="op", batch_size=4096)
    found, held = (
        [part.size_bytes for part in estimate.host.parts if part.name == "the training step"]
        for estimate in (graph, larger)
    )
    assert held[0] - found[0] == larger.peak_bytes - graph.peak_bytes > 100 * MIB


def test_a_larger_batch_takes_more(graph):
    twice = legroom.estimate(small_cnn(), IMAGES, engine="op", batch_size=16)
    assert twice.batch == 16
    assert twice.breakdown["inputs"] > 1.9 * graph.breakdown["inputs"]
    assert twice.peak_bytes > graph.peak_bytes


def test_a_budget_below_the_weights_fails_on_a_variable():
    found = legroom.estimate(dense(), ROWS, engine="op", budget="100KiB")
    assert found.usable_bytes == 100 * 2**10
    assert found.out_of_memory.asked_by.endswith("wide/kernel")
    assert found.out_of_memory.asked_bytes == 4 * 64 * 2048
    assert not found.fits


def test_a_budget_between_the_weights_and_the_peak_fails_on_an_op():
    batch = ArraySpec((512, 64), "float32"), ArraySpec((512, 4), "float32")
    found = legroom.estimate(dense(), batch, engine="op", budget=3 * MIB)
    assert "MatMul" in found.out_of_memory.asked_by
    assert not found.fits


def raises_for_large_batches(x):
    if x.shape[0] == 13:
        raise RuntimeError("thirteen")
    return x


@pytest.mark.parametrize("eagerly", [False, True], ids=["graph", "eager"])
def test_a_step_that_raises_is_told_with_the_users_line(eagerly):
    model = with_layer(lambda x: x)
    model.train_step = lambda data: raises_for_large_batches(data[0])
    model.run_eagerly = eagerly
    with pytest.raises(InputError, match="RuntimeError: thirteen") as error:
        legroom.estimate(model, ROWS, engine="op", batch_size=13)
    line = Path(__file__).read_text().splitlines().index('        raise RuntimeError("thirteen")') + 1
    assert f"{__file__}:{line} in raises_for_large_batches" in str(error.value)


def test_an_op_without_a_rule_is_named_and_widens_the_bounds():
    import tensorflow as tf

    known, unknown = (
        legroom.estimate(with_layer(lambda x, op=op: x + tf.stop_gradient(op(x=x))), ROWS, engine="op")
        for op in (tf.raw_ops.Erf, tf.raw_ops.Dawsn)
    )
    assert "unknown ops, counted by their outputs: Dawsn" in unknown.notes
    assert known.notes == ()
    assert unknown.high_bytes - unknown.peak_bytes > known.high_bytes - known.peak_bytes


JAX = """
import keras, numpy as np, legroom
from legroom.errors import MissingError
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
try:
    legroom.estimate(model, (np.zeros((2, 4), "float32"), np.zeros((2, 4), "float32")), engine="op")
except MissingError as error:
    print("MISSING", error)
"""


@pytest.mark.jax
def test_jax_has_no_steps_that_run_op_by_op():
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", JAX], capture_output=True, text=True, check=True, env=environment)
    assert "MISSING Only TensorFlow" in done.stdout


def test_a_grouped_convolution_in_micro_batches_is_sized():
    """On a CPU Keras has XLA compile it: a function whose results only its insides tell where the slice's size is computed."""
    import keras
    import numpy as np

    import legroom
    from legroom.changes.microbatch import split

    inputs = keras.Input((16, 16, 8))
    x = keras.layers.Conv2D(8, 3, padding="same", groups=4)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling2D()(x)))
    model.compile("sgd", "mse", jit_compile=False)
    batch = np.zeros((8, 16, 16, 8), "float32"), np.zeros((8, 1), "float32")
    whole = legroom.estimate(model, batch, engine="op", budget="1GiB")
    split(model, 2)
    sliced = legroom.estimate(model, batch, engine="op", budget="1GiB")
    assert whole.peak_bytes > sliced.peak_bytes > 4 * 16 * 16 * 8 * 4
