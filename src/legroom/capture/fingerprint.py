"""What a stock Keras step depends on, as one hash: known steps need not be traced again.

Only for models that are stock Keras from end to end (layers, loss, metrics, optimizer); anything with code of the user's
own in it has no fingerprint and is traced each time.
"""

import hashlib
import json
import os
from typing import Any

from legroom.capture.batch import iter_specs
from legroom.capture.keras_fit import KerasStep

CODE_CARRIERS = ("Lambda", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "TFSMLayer")
SETTINGS = ("TF_", "XLA_", "JAX_", "KERAS_", "NVIDIA_TF32")


def fingerprint(captured: KerasStep) -> str | None:
    """A hash of the model's and its training's configuration, or None if some of it is not stock Keras."""
    import keras

    model = captured.model
    parts = [model, model.optimizer, *model._flatten_layers(include_self=False)]
    if not all(is_stock(part) for part in parts):
        return None
    compiled = compile_config(model)
    if compiled is None:
        return None
    known = {
        "versions": [keras.__version__, captured.step.framework, captured.step.framework_version],
        "model": model.get_config(),
        "compiled": compiled,
        "batch": repr(captured.data),
        "specs": [(spec.shape, spec.dtype) for spec in iter_specs(captured.data)],
        "variables": [
            (v.path, v.shape, str(v.dtype), v.trainable) for v in [*model.variables, *model.optimizer.variables]
        ],
        "policy": [keras.config.floatx(), keras.config.image_data_format(), captured.step.policy],
        "attention": str(keras.config.is_flash_attention_enabled()),
        "settings": sorted((k, v) for k, v in os.environ.items() if k.startswith(SETTINGS)),
        "framework": framework_settings(captured.step.framework),
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def is_stock(part: Any) -> bool:
    cls = type(part)
    return cls.__module__.startswith("keras.src.") and cls.__name__ not in CODE_CARRIERS


def compile_config(model: Any) -> Any | None:
    """Loss, metrics and optimizer as configuration; None when one of them is a function of the user's."""
    config = model._compile_config.config
    for value in flatten([config.get(name) for name in ("loss", "metrics", "weighted_metrics", "loss_weights")]):
        plain = value is None or isinstance(value, str | int | float)
        if not plain and not (is_stock(value) or str(getattr(value, "__module__", "")).startswith("keras.src.")):
            return None
    return model.get_compile_config()


def flatten(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flatten(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


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
