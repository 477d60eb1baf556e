"""TensorFlow's own optimiser asked about devices that are not there."""

import importlib

import pytest

from legroom.capture.batch import ArraySpec
from legroom.engines.op.grappler import Device, optimise

pytestmark = pytest.mark.tensorflow

CPU, A100, H100 = Device(), Device((8, 0)), Device((9, 0))


def concrete(function, *shapes):
    import tensorflow as tf

    return tf.function(function).get_concrete_function(*(tf.TensorSpec(shape, "float32") for shape in shapes))


@pytest.fixture(scope="module")
def convolution():
    """A small step with a convolution and its gradients."""
    import tensorflow as tf

    kernel = tf.Variable(tf.zeros((3, 3, 16, 32)))

    def step(images):
        with tf.GradientTape() as tape:
            images = tf.sin(images)
            loss = tf.reduce_sum(tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME")))
        kernel.assign_sub(tape.gradient(loss, kernel))
        return loss

    traced = concrete(step, (8, 32, 32, 16))
    traced.kept = kernel  # a function does not keep its variables alive
    return traced


def formats(definition):
    return {node.op: node.attr["data_format"].s.decode() for node in definition.node if "Conv2D" in node.op}


@pytest.mark.parametrize("card", [A100, H100], ids=["8.0", "9.0"])
def test_convolutions_of_float32_have_channels_first_on_a_gpu(convolution, card):
    found = formats(optimise(convolution, card))
    assert set(found.values()) == {"NCHW"}
    assert len(found) == 2


def test_convolutions_have_channels_last_on_the_cpu(convolution):
    found = formats(optimise(convolution, CPU))
    assert set(found.values()) == {"NHWC"}
    assert len(found) == 2


def test_images_are_transposed_only_for_the_gpu(convolution):
    transposed = [any(node.op == "Transpose" for node in optimise(convolution, device).node) for device in (A100, CPU)]
    assert transposed == [True, False]


def test_a_variable_is_a_handle_with_its_shape(convolution):
    handles = [node for node in optimise(convolution, CPU).node if node.op == "VarHandleOp"]
    assert [[size.size for size in node.attr["shape"].shape.dim] for node in handles] == [[3, 3, 16, 32]]
    assert [node.attr["shared_name"].s.decode() for node in handles] == [node.name for node in handles]


def test_arguments_stay_placeholders(convolution):
    places = [node for node in optimise(convolution, CPU).node if node.op == "Placeholder"]
    assert [node.name for node in places] == ["images"]


def test_what_the_step_changes_is_not_optimised_away(convolution):
    assert "AssignSubVariableOp" in {node.op for node in optimise(convolution, CPU).node}


@pytest.mark.parametrize("device", [CPU, A100], ids=["cpu", "gpu"])
def test_loops_stay_one_op(device):
    import tensorflow as tf

    def inner(x):
        return tf.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, tf.sin(x)), (0, x))[1]

    def function(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, inner(x)), (0, x))[1]

    definition = optimise(concrete(function, (5,)), device)
    inside = {node.op for body in definition.library.function for node in body.node_def}
    assert {node.op for node in definition.node} & {"While", "StatelessWhile"}
    assert inside & {"While", "StatelessWhile"}
    assert not inside & {"Enter", "Switch", "Merge"}


def recurrent(layer, device):
    """The kinds of ops that a step with that layer runs on the device."""
    import keras

    from legroom.capture.keras_fit import capture_model
    from legroom.engines.op.lower import lower

    model = keras.Sequential([keras.Input((6, 4)), layer, keras.layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=False)
    batch = ArraySpec((3, 6, 4), "float32"), ArraySpec((3, 2), "float32")
    return [node.op.kind for node in lower(capture_model(model, batch, raw_jit=False), device).work.nodes]


def test_an_lstm_is_cudnns_on_a_gpu():
    import keras

    kinds = recurrent(keras.layers.LSTM(8), A100)
    assert "CudnnRNNV3" in kinds
    assert "NextIteration" not in kinds


def test_an_lstm_is_a_loop_over_its_steps_on_the_cpu():
    import keras

    kinds = recurrent(keras.layers.LSTM(8), CPU)
    assert not [kind for kind in kinds if kind.startswith("Cudnn")]
    assert kinds.count("NextIteration") == 2 * 2 * 6  # forward and backward, a start and an end of each


def test_an_lstm_that_cudnn_cannot_run_is_a_loop_on_a_gpu_as_well():
    import keras

    kinds = recurrent(keras.layers.LSTM(8, recurrent_activation="relu"), A100)
    assert not [kind for kind in kinds if kind.startswith("Cudnn")]


def test_keras_sees_its_own_devices_again_afterwards():
    import keras

    rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")
    before = rnn._is_gpu_available
    recurrent(keras.layers.LSTM(8), A100)
    assert rnn._is_gpu_available is before


def test_nothing_is_moved_to_the_host_where_a_card_is_too_small():
    import keras

    from legroom.engines.op.unroll import Unroller

    inputs = x = keras.Input((48, 48, 3))
    for _ in range(4):
        x = keras.layers.Conv2D(24, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling2D()(x)))
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    step = concrete(lambda x, y: model.train_step((x, y)), (32, 48, 48, 3), (32, 1))
    slow = Device((7, 5), memory_bytes=35 * 2**20, bandwidth_bytes_per_second=10**11)
    definition = optimise(step, slow)
    kinds = {node.op.kind for node in Unroller(definition).unroll([], []).nodes}
    assert not any("Copy" in kind for kind in kinds)
