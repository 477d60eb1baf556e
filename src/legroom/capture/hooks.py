"""Watching a script for the moment it starts to train.

The script decides when, and with which backend, it imports Keras and TensorFlow; the hooks are put in right after that
import, by a finder in `sys.meta_path`. They replace `fit`, `train_on_batch` and `compile` of Keras' trainer, `apply` of its
optimizers, the call of a `tf.function` and the entry of a `tf.GradientTape`, in this process only. What they catch goes to the listener, which does not return.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `keras.src.trainers.trainer.Trainer`,
`keras.src.optimizers.base_optimizer.BaseOptimizer`, `tensorflow.python.eager.polymorphic_function.polymorphic_function.Function`.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NoReturn, Protocol

from legroom.capture.eager_loop import capture_split, capture_tape
from legroom.capture.keras_fit import KerasStep, capture_fit
from legroom.capture.limited import is_rehearsal
from legroom.capture.own_work import Watchers, own_work
from legroom.capture.placement import watch_placement
from legroom.capture.stack import user_line
from legroom.capture.tf_step import FunctionStep, capture_call
from legroom.errors import LegroomError, MissingError
from legroom.units import MIB

LARGE_BYTES = 512 * MIB  # a random tensor of this size is left unfilled: its values would never be looked at


class Listener(Protocol):
    """Who is told. Neither call returns; `training` is False until a step has been captured."""

    @property
    def training(self) -> bool: ...

    def captured(self, step: KerasStep | FunctionStep) -> NoReturn: ...

    def refused(self, error: LegroomError) -> NoReturn: ...


class Holding:
    """The listener, and whether a step is held: until the script is let go again, what runs is run by Legroom itself."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.let_go = False

    @property
    def training(self) -> bool:
        return self.listener.training

    @property
    def held(self) -> bool:
        return self.training and not self.let_go

    def captured(self, step: KerasStep | FunctionStep) -> NoReturn:
        try:
            self.listener.captured(step)
        finally:
            self.let_go = True

    def refused(self, error: LegroomError) -> NoReturn:
        self.listener.refused(error)


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once, right after a module of a given name has been imported."""

    def __init__(self, actions: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self.actions = actions
        self.looking: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.actions or name in self.looking:
            return None
        self.looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            action = self.actions.pop(name, None)
            if action is not None:
                action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(listener: Listener) -> None:
    """Watch for training from now on."""
    holding = Holding(listener)
    actions: dict[str, Callable[[types.ModuleType], None]] = {
        "keras": lambda module: watch_keras(holding),
        "tensorflow": lambda module: watch_tensorflow(module, holding),
        "jax": keep_jax_off_gpus,
        "tf_keras": lambda module: refuse_keras_2(module, holding),
    }
    for name in list(actions):
        if name in sys.modules:
            actions.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(actions))


def keep_jax_off_gpus(jax: Any) -> None:
    """Even if the script sets CUDA_VISIBLE_DEVICES itself."""
    jax.config.update("jax_platforms", "cpu")


def refuse_keras_2(module: Any, listener: Listener) -> None:
    """Keras 2 builds and compiles its steps in another way, which Legroom does not know."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        listener.refused(
            MissingError(
                f"This script trains with Keras 2 (tf_keras {module.__version__}), which Legroom does not support.",
                "Train it with Keras 3: unset TF_USE_LEGACY_KERAS and import keras instead of tf_keras.",
            )
        )

    module.Model.fit = module.Model.train_on_batch = refuse


def watch_keras(listener: Listener) -> None:
    from keras import Model
    from keras.src.trainers.trainer import Trainer

    trainer = next((cls for cls in Model.__mro__ if "fit" in vars(cls) and issubclass(cls, Trainer)), None)
    if trainer is None:
        raise MissingError("Keras' trainer is not where it was in the tested version (Keras 3.15.1).")
    for name in ("fit", "train_on_batch"):
        setattr(trainer, name, catch(getattr(trainer, name), name, listener))
    original_compile = Trainer.compile

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original_compile).bind(self, *args, **kwargs)
        self._legroom_jit = bound.arguments.get("jit_compile", "auto")
        return original_compile(self, *args, **kwargs)

    Trainer.compile = compile
    watch_optimizers(listener)


def catch(method: Any, name: str, listener: Listener) -> Any:
    signature = inspect.signature(method)

    def caught(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        arguments.pop("self", None)
        self._assert_compile_called(name)
        try:
            step = capture_fit(self, arguments, name, getattr(self, "_legroom_jit", None))
        except LegroomError as error:
            listener.refused(error)
        listener.captured(step)

    caught.legroom_watched = True  # type: ignore[attr-defined]  # for `legroom.fit`, which then leaves the step as it is
    return caught


def watch_optimizers(listener: Listener) -> None:
    """An optimizer that is applied outside any captured step is a training loop that was not understood: say so, do not train."""
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    def watch(original: Any) -> Any:
        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not listener.training and not in_tf_function():
                line = user_line(sys._getframe(1))
                listener.refused(
                    MissingError(
                        "This script applies its optimizer in a loop of its own, outside any @tf.function"
                        f"{f' ({line})' if line else ''}, and Legroom cannot tell where a step of it begins.",
                        "On TensorFlow, call optimizer.apply_gradients in the loop or function that opens the GradientTape, or put "
                        "tape, gradient and apply_gradients into a function under @tf.function; on JAX, use model.fit or a "
                        "module:function that returns (model, batch).",
                    )
                )
            return original(self, *args, **kwargs)

        return watched

    for name in ("apply", "stateless_apply"):
        setattr(BaseOptimizer, name, watch(getattr(BaseOptimizer, name)))


def in_tf_function() -> bool:
    tf = sys.modules.get("tensorflow")
    return tf is not None and bool(tf.inside_function())


def watch_tensorflow(tf: Any, listener: Holding) -> None:
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    with suppress(RuntimeError):  # already initialised: then CUDA_VISIBLE_DEVICES has kept it off them
        tf.config.set_visible_devices([], "GPU")
    watch_placement()
    call = Function.__call__
    busy = threading.local()

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(busy, "on", False) or listener.held or not tf.executing_eagerly() or tf.inside_function():
            return call(self, *args, **kwargs)
        busy.on = True
        try:
            try:
                step = capture_call(self, args, kwargs)
            except LegroomError as error:
                listener.refused(error)
            if step is not None:
                listener.captured(step)
        finally:
            busy.on = False
        return call(self, *args, **kwargs)

    Function.__call__ = watched
    watch_tapes_entered(tf, listener)
    if not is_rehearsal():
        leave_unfilled(tf)


def watch_tapes_entered(tf: Any, listener: Holding) -> None:
    """A tape that the script enters outside any tf.function may be the start of an eager training step."""
    enter = tf.GradientTape.__enter__

    def entered(self: Any) -> Any:
        if not own_work.on and not listener.held and tf.executing_eagerly() and not tf.inside_function():
            try:
                step = capture_tape(sys._getframe(1))
            except LegroomError as error:
                listener.refused(error)
            if step is not None:
                listener.captured(step)
        return enter(self)

    tf.GradientTape.__enter__ = entered

    def announced(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The step runs in slices, by `legroom.train_step`."""
        if not listener.held:
            try:
                step = capture_split(function, args, kwargs)
            except LegroomError as error:
                listener.refused(error)
            listener.captured(step)

    Watchers.announce.append(announced)


def leave_unfilled(tf: Any) -> None:
    """Huge random tensors get their memory but no values, so that their pages are never touched: only shapes matter here."""

    def replace(original: Any) -> Any:
        signature = inspect.signature(original)

        def made(*args: Any, **kwargs: Any) -> Any:
            if tf.executing_eagerly() and not tf.inside_function():
                with suppress(TypeError, ValueError, AttributeError):
                    bound = signature.bind(*args, **kwargs)
                    bound.apply_defaults()
                    sizes = [int(size) for size in bound.arguments["shape"]]
                    dtype = tf.as_dtype(bound.arguments["dtype"])
                    if prod(sizes) * dtype.size >= LARGE_BYTES:
                        return tf.raw_ops.Empty(shape=sizes, dtype=dtype, init=False)
            return original(*args, **kwargs)

        return made

    for name in ("normal", "uniform", "truncated_normal"):
        setattr(tf.random, name, replace(getattr(tf.random, name)))
