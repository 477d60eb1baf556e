"""What a stock Keras step depends on, as one hash: known steps need not be traced again.

Only for models that are stock Keras from end to end (layers, activations, loss, metrics, optimizer); anything with code of the
user's own in it has no fingerprint and is traced each time. Private names used, tested with Keras 3.15.1:
`keras.src.utils.module_utils.LazyModule._available`, `Sequential._functional`.
"""

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from legroom.capture.keras_fit import KerasStep

CODE_CARRIERS = ("Lambda", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "TFSMLayer")
SETTINGS = ("TF_", "XLA_", "JAX_", "KERAS_", "NVIDIA_TF32")


def fingerprint(captured: KerasStep) -> str | None:
    """A hash of the model's and its training's configuration, or None if some of it is not stock Keras."""
    import keras

    model = captured.model
    if not all(layer.built for layer in model._flatten_layers()):
        captured = captured.built()
    layers = list(model._flatten_layers())
    graphs = [
        layer._functional for layer in layers if getattr(layer, "_functional", None) is not None
    ]  # of Sequentials
    if any(name in vars(part) for part in [*layers, *graphs] for name in ("call", "train_step", "_run_through_graph")):
        return None  # this very instance was changed: by a plan that was applied to it, say
    if not all(is_stock(part) for part in [model.optimizer, *layers]):
        return None
    try:
        with tensorflow_left_out():
            configurations = [model.get_config(), model.get_compile_config(), model.optimizer.get_config()]
    except (NotImplementedError, TypeError, ValueError):
        return None
    if not all(is_plain(configuration) for configuration in configurations):
        return None
    known = {
        "versions": [keras.__version__, captured.step.framework, captured.step.framework_version],
        "configurations": configurations,
        "optimizer": type(model.optimizer).__name__,  # a plan may have put another one in
        "batch": repr(captured.data),
        "variables": [
            (v.path, v.shape, str(v.dtype), v.trainable)
            for v in [*model.trainable_variables, *model.non_trainable_variables]
        ],
        "recomputed": [(layer.name, str(vars(layer).get("_remat_mode"))) for layer in layers],
        "policy": [keras.config.floatx(), keras.config.image_data_format(), captured.step.policy],
        "attention": str(keras.config.is_flash_attention_enabled()),
        "settings": sorted((k, v) for k, v in os.environ.items() if k.startswith(SETTINGS)),
        "framework": framework_settings(captured.step.framework),
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def tensorflow_left_out() -> Iterator[None]:
    """Keras imports TensorFlow, if it is installed, to look for its types in a configuration; on JAX there are none, and that takes seconds."""
    lazy = importlib.import_module("keras.src.utils.module_utils").tensorflow
    if "tensorflow" in sys.modules or not hasattr(lazy, "_available"):
        yield
        return
    kept, lazy._available = lazy._available, False
    try:
        yield
    finally:
        lazy._available = kept


def is_stock(part: Any) -> bool:
    """Whether its class is Keras' own and its call has not been wrapped (by a RematScope, say)."""
    cls = type(part)
    own = cls.__module__.startswith("keras.src.") and cls.__name__ not in CODE_CARRIERS
    return own and vars(part).get("_remat_mode") is None


def is_plain(configuration: Any) -> bool:
    """Whether a configuration names nothing but Keras' own classes, and holds nothing that is not data."""
    if isinstance(configuration, dict):
        kind, module = configuration.get("class_name"), str(configuration.get("module", "keras"))
        if kind in ("function", "__lambda__", *CODE_CARRIERS) or not module.startswith(("keras", "builtins")):
            return False
        if configuration.get("registered_name") not in (None, kind):
            return False
        return all(is_plain(value) for value in configuration.values())
    if isinstance(configuration, list | tuple):
        return all(is_plain(value) for value in configuration)
    return configuration is None or isinstance(configuration, str | int | float | bool)


def framework_settings(framework: str) -> Any:
    """Global switches of the framework that change what is traced."""
    if framework == "jax":
        import jax

        return sorted((name, str(value)) for name, value in jax.config.values.items())
    import tensorflow as tf

    return [
        tf.config.experimental.tensor_float_32_execution_enabled(),
        str(tf.config.optimizer.get_experimental_options()),
    ]
