"""What Keras runs on here, and how `fit` would run a model where there is a GPU: compiled, as a graph or eagerly.

Private names used, tested with Keras 3.15.1: `Trainer._flatten_layers`, `keras.src.trainers.trainer.model_supports_jit`,
`keras.src.backend.tensorflow.rnn._do_…_arguments_support_cudnn`.
"""

import importlib
from typing import Any

from legroom.errors import MissingError
from legroom.records import Execution, Framework

AUTOMATIC = 'jit_compile="auto" is True on a GPU'


def framework_of_keras() -> Framework:
    """The backend that Keras runs on here, if it is one that Legroom knows."""
    import keras

    name = keras.backend.backend()
    if name not in ("tensorflow", "jax"):
        raise MissingError(
            f"Keras runs on the {name} backend here, and Legroom does not know that one.",
            "Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax.",
        )
    framework: Framework = name
    return framework


def framework_version(framework: Framework) -> str:
    if framework == "tensorflow":
        import tensorflow

        return str(tensorflow.__version__)
    import jax

    return str(jax.__version__)


def execution_on_target(model: Any, framework: Framework, raw_jit: Any) -> tuple[Execution, str]:
    """How `fit` would run this model where a GPU is visible, whatever this machine has (facts: Keras' `jit_compile="auto"`)."""
    from keras.src.trainers.trainer import model_supports_jit

    if model.run_eagerly:
        return "eager", "run_eagerly=True"
    if raw_jit is False:
        return "graph", "jit_compile=False"
    if (
        framework == "tensorflow"
        and getattr(model, "_distribute_strategy", None) is not None
        and raw_jit in (None, "auto")
    ):
        return "graph", 'jit_compile="auto" is False under a distribution strategy'
    names = [layer.name for layer in model._flatten_layers() if not layer.supports_jit or needs_cudnn(layer, framework)]
    if names:
        return "graph", f"not compiled: {', '.join(names[:3])} cannot be"
    if not model_supports_jit(model):
        return "graph", "not compiled: Keras cannot (op determinism is on)"
    if framework == "jax":
        return ("xla", "JAX compiles its steps") if model.jit_compile else ("eager", "jit_compile=False")
    if raw_jit is True or (raw_jit is None and model.jit_compile):
        return "xla", "jit_compile=True"
    if raw_jit is None and gpu_visible():
        return "graph", "jit_compile=False"
    return "xla", AUTOMATIC


def needs_cudnn(layer: Any, framework: Framework) -> bool:
    """Whether Keras on TensorFlow would run this RNN layer through cuDNN where there is a GPU; XLA cannot compile that."""
    import keras

    if framework != "tensorflow" or not isinstance(layer, keras.layers.LSTM | keras.layers.GRU):
        return False
    rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")
    cell = layer.cell
    settings = {"activation": cell.activation, "recurrent_activation": cell.recurrent_activation}
    settings |= {"unroll": layer.unroll, "use_bias": cell.use_bias}
    if isinstance(layer, keras.layers.GRU):
        fitting = rnn._do_gru_arguments_support_cudnn(**settings, reset_after=cell.reset_after)
    else:
        fitting = rnn._do_lstm_arguments_support_cudnn(**settings)
    return bool(fitting) and layer.use_cudnn in (True, "auto")


def gpu_visible() -> bool:
    """Whether Keras resolved `jit_compile="auto"` with a GPU in sight, so that a False is the user's own."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
