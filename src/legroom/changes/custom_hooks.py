"""Listening to a training step of the user's: gradients, updates, assignments, metrics, functions and random numbers.

The names below are replaced while at least one step is listened to, and what they do is passed to the `Listener` of the
thread at hand; threads without one are not touched.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `tensorflow.python.ops.resource_variable_ops.BaseResourceVariable`
and its `_read_variable_op` and `_strided_slice_assign`, `tensorflow.python.framework.ops._EagerTensorBase`,
`tensorflow.python.ops.cond._eager_cond_implementation`,
`tensorflow.python.eager.polymorphic_function.polymorphic_function.Function`, `tensorflow.python.ops.gen_random_ops`,
`gen_stateless_random_ops` and `gen_stateless_random_ops_v2`, `keras.src.optimizers.base_optimizer.BaseOptimizer`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar, Protocol

from legroom.capture.own_work import at_work

Call = Callable[..., Any]
ASSIGNS = ("assign", "assign_add", "assign_sub")
SCATTERS = (
    *(f"scatter_{name}" for name in ("add", "sub", "mul", "div", "min", "max", "update")),
    *(f"scatter_nd_{name}" for name in ("add", "sub", "min", "max", "update")),
    "batch_scatter_update",
)
PART = "_strided_slice_assign"  # variable[2:4].assign(value), all by keyword
READS = ("_read_variable_op", "sparse_read", "gather_nd")
VALUES = ("value", "delta", "sparse_delta", "updates")  # how what is assigned is called
RANDOM = (
    *("random_standard_normal", "truncated_normal", "random_uniform", "random_uniform_int"),
    *("multinomial", "random_gamma", "random_poisson_v2"),
)
STATELESS = (
    *("stateless_random_normal_v2", "stateless_truncated_normal_v2", "stateless_random_uniform_v2"),
    *("stateless_random_uniform_int_v2", "stateless_random_uniform_full_int_v2", "stateless_random_gamma_v3"),
)
STATELESS_OLD = ("stateless_multinomial", "stateless_random_binomial", "stateless_random_poisson")


class Listener(Protocol):
    """Each is handed the original, bound, and what it was called with; it answers in its place."""

    def gradient(self, call: Call, tape: Any, target: Any, sources: Any) -> Any: ...

    def opened(self, tape: Any) -> None: ...

    def apply(self, call: Call, optimizer: Any, gradients: Any, variables: Any) -> Any: ...

    def assign(self, call: Call, variable: Any, name: str, values: tuple[Any, ...]) -> Any: ...

    def read(self, variable: Any) -> None: ...

    def scalar(self, call: Call, metric: Any, value: Any, weight: Any) -> Any: ...

    def function(self, call: Call, function: Any, args: Any, kwargs: Any) -> Any: ...

    def layer(self, call: Call, layer: Any) -> Any: ...

    def random(self, call: Call) -> Any: ...

    def seed(self, call: Call) -> Any: ...

    def scale(self, call: Call, loss: Any) -> Any: ...

    def truth(self, call: Call, tensor: Any) -> bool: ...

    def switch(self, call: Call, tensor: Any) -> bool: ...


class Here(threading.local):
    """Who listens in this thread."""

    listener: Listener | None = None


class Replaced:
    """What is replaced now, for how many that listen."""

    lock = threading.Lock()
    count = 0
    originals: ClassVar[list[tuple[Any, str, Any]]] = []


here = Here()


@contextmanager
def listened(listener: Listener) -> Iterator[None]:
    """What this thread does meanwhile goes to the listener."""
    before = here.listener
    with Replaced.lock:
        Replaced.count += 1
        if Replaced.count == 1:
            install()
    here.listener = listener
    try:
        with at_work():
            yield
    finally:
        here.listener = before
        with Replaced.lock:
            Replaced.count -= 1
            if not Replaced.count:
                uninstall()


def uninstall() -> None:
    while Replaced.originals:
        owner, name, original = Replaced.originals.pop()
        setattr(owner, name, original)


def put(owner: Any, name: str, make: Callable[[Call, Listener, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Replace `owner.name`; `make` is called in its place where somebody listens."""
    original = vars(owner)[name]

    @wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        listener = here.listener
        return original(*args, **kwargs) if listener is None else make(original, listener, args, kwargs)

    Replaced.originals.append((owner, name, original))
    setattr(owner, name, replaced)


def install() -> None:
    import keras
    import tensorflow as tf
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
    from tensorflow.python.framework.ops import _EagerTensorBase
    from tensorflow.python.ops import cond as conditions
    from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    put(tf.GradientTape, "gradient", on_gradient)
    put(tf.GradientTape, "__enter__", on_opened)
    for optimizer in owners(BaseOptimizer, "apply"):
        put(optimizer, "apply", on_apply)
    for name in (*ASSIGNS, *SCATTERS, PART):
        for variable in owners(BaseResourceVariable, name):
            put(variable, name, on_assign)
    for name in READS:
        for variable in owners(BaseResourceVariable, name):
            put(variable, name, on_read)
    for metric in (keras.metrics.Mean, keras.metrics.Sum):
        put(metric, "update_state", on_scalar)
    put(keras.optimizers.LossScaleOptimizer, "scale_loss", on_scale)
    put(Function, "__call__", on_function)
    put(keras.Layer, "__call__", on_layer)
    for name in RANDOM:
        put(gen_random_ops, name, on_random)
    for name in STATELESS:
        put(gen_stateless_random_ops_v2, name, on_random)
    for name in STATELESS_OLD:
        put(gen_stateless_random_ops, name, on_random)
    put(keras.random.SeedGenerator, "next", on_seed)
    put(_EagerTensorBase, "__bool__", on_truth)
    put(conditions, "_eager_cond_implementation", on_condition)


def owners(base: type, name: str) -> list[type]:
    """The class and those under it that have a method of that name of their own."""
    found: dict[type, None] = {}
    waiting = [base]
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if name in vars(one):
            found[one] = None
    return list(found)


def on_gradient(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = args[1] if len(args) > 1 else kwargs["target"]
    sources = args[2] if len(args) > 2 else kwargs["sources"]
    return listener.gradient(lambda: original(*args, **kwargs), args[0], target, sources)


def on_opened(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    listener.opened(args[0])
    return original(*args, **kwargs)


def on_apply(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradients = args[1] if len(args) > 1 else kwargs["grads"]
    variables = args[2] if len(args) > 2 else kwargs.get("trainable_variables")

    def call(given: Any = gradients) -> Any:
        if len(args) > 1:
            return original(args[0], given, *args[2:], **kwargs)
        return original(*args, **{**kwargs, "grads": given})

    return listener.apply(call, args[0], gradients, variables)


def on_assign(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = original.__name__
    at = 2 if name.startswith("scatter_nd") else 1  # there the indices come first
    key = next((key for key in VALUES if key in kwargs), "")

    def call(changed: Call = lambda value: value) -> Any:
        if len(args) > at:
            return original(*args[:at], changed(args[at]), *args[at + 1 :], **kwargs)
        return original(*args, **{**kwargs, key: changed(kwargs[key])}) if key else original(*args, **kwargs)

    named = ("value", "begin", "end") if name == PART else VALUES
    return listener.assign(call, args[0], name, (*args[1:], *(kwargs[key] for key in kwargs if key in named)))


def on_read(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    listener.read(args[0])
    return original(*args, **kwargs)


def on_scalar(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Only one number, with one weight or none: what has samples is the metric's own business."""
    value = args[1] if len(args) > 1 else kwargs.get("values")
    weight = args[2] if len(args) > 2 else kwargs.get("sample_weight")
    if value is None or not (is_number(value) and is_number(weight)):
        return original(*args, **kwargs)
    return listener.scalar(lambda total, weights: original(args[0], total, weights), args[0], value, weight)


def is_number(value: Any) -> bool:
    """One number, None too."""
    return not getattr(getattr(value, "shape", ()), "__len__", lambda: 1)()


def on_function(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.function(lambda: original(*args, **kwargs), args[0], args[1:], kwargs)


def on_layer(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.layer(lambda: original(*args, **kwargs), args[0])


def on_scale(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.scale(lambda: original(*args, **kwargs), args[1] if len(args) > 1 else kwargs["loss"])


def on_random(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.random(lambda: original(*args, **kwargs))


def on_seed(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.seed(lambda: original(*args, **kwargs))


def on_truth(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.truth(lambda: original(*args, **kwargs), args[0])


def on_condition(original: Call, listener: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`tf.cond`, run eagerly, does not ask for a truth as Python does."""
    import tensorflow as tf

    condition = args[0]
    if not isinstance(condition, tf.Tensor) or condition.shape.rank:
        return original(*args, **kwargs)
    decided = listener.switch(condition.numpy, condition)
    return original(condition if decided == bool(condition.numpy()) else tf.constant(decided), *args[1:], **kwargs)
