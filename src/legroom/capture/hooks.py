"""Watching a script for the moment it starts to train.

The script decides when, and with which backend, it imports Keras and TensorFlow; the hooks are put in right after that
import, by a finder in `sys.meta_path`. They replace `fit`, `train_on_batch` and `compile` of Keras' trainer, and the call
of a `tf.function`, in this process only. What they catch goes to `on_captured`, which does not return.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `keras.src.backend.<name>.trainer`,
`tensorflow.python.eager.polymorphic_function.polymorphic_function.Function`.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from legroom.capture.keras_fit import KerasStep, capture_fit
from legroom.capture.tf_step import FunctionStep, capture_call
from legroom.errors import MissingError
from legroom.units import MIB

OnCaptured = Callable[[KerasStep | FunctionStep], None]

LARGE_BYTES = 512 * MIB  # a random tensor of this size is left unfilled: its values would never be looked at


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once, right after a module of a given name has been imported."""

    def __init__(self, actions: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self.actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.actions:
            return None
        action = self.actions.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(on_captured: OnCaptured) -> None:
    """Watch for training from now on."""
    actions: dict[str, Callable[[types.ModuleType], None]] = {
        "keras": lambda module: watch_keras(on_captured),
        "tensorflow": lambda module: watch_tensorflow(module, on_captured),
        "tf_keras": refuse_keras_2,
    }
    for name in list(actions):
        if name in sys.modules:
            actions.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(actions))


def refuse_keras_2(module: Any) -> None:
    """Keras 2 builds and compiles its steps in another way, which Legroom does not know."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise MissingError(
            f"This script trains with Keras 2 (tf_keras {module.__version__}), which Legroom does not support.",
            "Train it with Keras 3: unset TF_USE_LEGACY_KERAS and import keras instead of tf_keras.",
        )

    module.Model.fit = module.Model.train_on_batch = refuse


def watch_keras(on_captured: OnCaptured) -> None:
    from keras import Model
    from keras.src.trainers.trainer import Trainer

    trainer = next((cls for cls in Model.__mro__ if "fit" in vars(cls) and issubclass(cls, Trainer)), None)
    if trainer is None:
        raise MissingError("Keras' trainer is not where it was in the tested version (Keras 3.15.1).")
    for name in ("fit", "train_on_batch"):
        setattr(trainer, name, catch(getattr(trainer, name), name, on_captured))
    original_compile = Trainer.compile

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original_compile).bind(self, *args, **kwargs)
        self._legroom_jit = bound.arguments.get("jit_compile", "auto")
        return original_compile(self, *args, **kwargs)

    Trainer.compile = compile


def catch(method: Any, name: str, on_captured: OnCaptured) -> Any:
    signature = inspect.signature(method)

    def caught(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        arguments.pop("self", None)
        self._assert_compile_called(name)
        on_captured(capture_fit(self, arguments, name, getattr(self, "_legroom_jit", None)))

    return caught


def watch_tensorflow(tf: types.ModuleType, on_captured: OnCaptured) -> None:
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    call = Function.__call__
    busy = threading.local()

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(busy, "on", False) or not tf.executing_eagerly() or tf.inside_function():
            return call(self, *args, **kwargs)
        busy.on = True
        try:
            step = capture_call(self, args, kwargs)
            if step is not None:
                on_captured(step)
        finally:
            busy.on = False
        return call(self, *args, **kwargs)

    Function.__call__ = watched
    watch_eager_tapes(tf)
    leave_unfilled(tf)


def watch_eager_tapes(tf: Any) -> None:
    """A tape used outside any tf.function is eager training: say so instead of training along."""
    gradient = tf.GradientTape.gradient

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and not tf.inside_function():
            raise MissingError(
                "This script trains eagerly, with a GradientTape outside any @tf.function; such a step cannot be sized yet.",
                "Put the step (tape, gradient and apply_gradients) into a function under @tf.function and try again with "
                "--engine xla.",
            )
        return gradient(self, *args, **kwargs)

    tf.GradientTape.gradient = watched


def leave_unfilled(tf: Any) -> None:
    """Huge random tensors get their memory but no values, so that their pages are never touched: only shapes matter here."""
    from math import prod

    for name in ("normal", "uniform", "truncated_normal"):
        original = getattr(tf.random, name)
        signature = inspect.signature(original)

        def made(*args: Any, _original: Any = original, _signature: Any = signature, **kwargs: Any) -> Any:
            bound = _signature.bind(*args, **kwargs)
            bound.apply_defaults()
            shape, dtype = bound.arguments["shape"], tf.as_dtype(bound.arguments["dtype"])
            static = tf.get_static_value(shape) if tf.is_tensor(shape) else shape
            sizes = [int(size) for size in static] if static is not None else []
            if tf.executing_eagerly() and prod(sizes) * dtype.size >= LARGE_BYTES:
                return tf.raw_ops.Empty(shape=sizes, dtype=dtype, init=False)
            return _original(*args, **kwargs)

        setattr(tf.random, name, made)
