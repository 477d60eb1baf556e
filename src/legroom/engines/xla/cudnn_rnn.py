"""cuDNN's LSTM on a machine without a GPU.

Keras on JAX takes cuDNN's LSTM only if it sees a GPU while it traces (`keras/src/backend/jax/rnn.py`), and JAX then asks
cuDNN how much scratch memory the layer needs (`jaxlib/gpu_rnn.py`), which only the CUDA plugin can answer, and only on a
GPU. Here a formula answers instead, and `gpu_rnn_lowering` holds both doors open while a step is traced and lowered.

JAX takes cuDNN's bytes for a number of float32 elements, so a real GPU sets aside four times what cuDNN asked for. That
is in JAX's own lowering, which is used unchanged.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from legroom.errors import EngineError, MissingError

_TESTED_KERAS = (3, 15, 1)
_TESTED = "JAX 0.10.2 and Keras 3.15.1"
_SIZES = "compute_rnn_workspace_reserve_space_sizes"
_CUDA = "cuda"


def _padded(size_bytes: int) -> int:
    """The next multiple of 32 bytes: cuDNN starts every piece of a buffer at one."""
    return -(-size_bytes // 32) * 32


def rnn_sizes(  # noqa: PLR0913, PLR0917 - the signature of the function of jaxlib that this one stands in for
    input_size: int,
    hidden_size: int,
    num_layers: int,
    batch: int,
    length: int,
    dropout: float,
    bidirectional: bool,
    tf32: bool,
) -> tuple[int, int]:
    """(workspace_bytes, reserve_bytes) that cuDNN asks for to train one float32 LSTM layer.

    Found from `bench/data/h200_rnn_sizes.jsonl` (an H200; inputs 1 to 512, hidden sizes 8 to 1024, batches 1 to 256,
    lengths 1 to 256, one and two directions), of which it gives all 2,400 rows to the byte. `tf32` changes nothing
    there. More than one layer, and dropout between layers, were not measured (Keras asks for neither) and are refused.
    """
    del tf32
    if num_layers != 1 or dropout:
        raise EngineError(
            "The memory of a cuDNN LSTM is known for one layer without dropout. "
            f"Received: num_layers={num_layers}, dropout={dropout}.",
            hint="Call jax.experimental.rnn.lstm once per layer, or use keras.layers.LSTM.",
        )
    directions = 2 if bidirectional else 1
    reserve_bytes = _padded(20 * directions * hidden_size * batch * length) + 256

    gate_weights = 16 * directions * hidden_size * (input_size + hidden_size)
    steps = _bidirectional_steps if bidirectional else _forward_steps
    fixed = directions * 2**23 + gate_weights + _padded(8 * batch) + 256
    return fixed + steps(input_size, hidden_size, batch, length), reserve_bytes


def _forward_steps(input_size: int, hidden_size: int, batch: int, length: int) -> int:
    """The part of the workspace that grows with the batch and the length, in one direction.

    The larger of two layouts, cut into pieces: states [batch, hidden], inputs and outputs [length, batch, …].
    """
    state = _padded(4 * batch * hidden_size)
    inputs = _padded(4 * batch * length * input_size)
    outputs = _padded(4 * batch * length * hidden_size)
    narrow_input = 4 * state + 4 * batch * hidden_size * (6 + 5 * length) + inputs
    wide_input = 9 * state + 8 * batch * hidden_size + 3 * outputs + 2 * inputs + max(inputs, outputs)
    return max(narrow_input, wide_input)


def _bidirectional_steps(input_size: int, hidden_size: int, batch: int, length: int) -> int:
    """As `_forward_steps`, in both directions."""
    inputs = _padded(4 * batch * length * input_size)
    narrow_input = 8 * batch * hidden_size * (12 + 7 * length) + inputs
    wide_input = 104 * batch * hidden_size + 24 * batch * length * (hidden_size + input_size)
    return max(narrow_input, wide_input)


@contextmanager
def gpu_rnn_lowering() -> Iterator[None]:
    """While open, Keras on JAX traces its LSTMs as on a GPU, and JAX lowers them for CUDA, whatever is installed.

    For `jax.jit(step).trace(…).lower(lowering_platforms=("cuda",))`; what is lowered so can be compiled but never run
    (its descriptor is a placeholder). JAX's caches are cleared on both ways through, or a function traced on one side
    would be taken for itself on the other: already compiled functions compile again at their next call.
    A Keras that never uses cuDNN on JAX (before 3.15) goes on as it is.
    """
    jax, rnn, mlir = (_import(name) for name in ("jax", "jax.experimental.rnn", "jax._src.interpreters.mlir"))
    library = _private(rnn, "gpu_rnn")
    lowerings = {
        _private(rnn, "rnn_fwd_p"): partial(_private(library, "_rnn_fwd_lowering"), _PlaceholderLibrary(), "cu"),
        _private(rnn, "rnn_bwd_p"): partial(_private(library, "_rnn_bwd_lowering"), _PlaceholderLibrary(), "cu"),
    }
    registered = _private(mlir, "_platform_specific_lowerings")[_CUDA]
    register = _private(mlir, "register_lowering")
    keras_rnn = _keras_rnn_module()

    with ExitStack() as restore:
        restore.callback(jax.clear_caches)
        _set_attribute(restore, library, _SIZES, rnn_sizes)
        if keras_rnn is not None:
            _set_attribute(restore, keras_rnn, "_is_gpu_available", lambda: True)
        for primitive, rule in lowerings.items():
            restore.callback(_put_back, registered, primitive, registered.get(primitive))
            register(primitive, rule, platform=_CUDA)
        jax.clear_caches()
        yield


class _PlaceholderLibrary:
    """Stands where JAX's lowering wants the CUDA plugin's `_rnn` module."""

    def build_rnn_descriptor(self, *sizes: object) -> bytes:
        """The description that cuDNN would read at run time; the compiler only carries it."""
        del sizes
        return b"legroom"


def _keras_rnn_module() -> ModuleType | None:
    """The module in which Keras chooses cuDNN, or None where there is no such choice."""
    try:
        keras = importlib.import_module("keras")
    except ModuleNotFoundError:
        return None
    if keras.config.backend() != "jax":
        return None
    module = importlib.import_module("keras.src.backend.jax.rnn")
    if hasattr(module, "_is_gpu_available"):
        return module
    version = tuple(int(part) for part in keras.__version__.split(".")[:3] if part.isdigit())
    if version >= _TESTED_KERAS:
        raise _missing(f"Keras {keras.__version__} has no {module.__name__}._is_gpu_available")
    return None


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _missing(f"{name} cannot be imported ({error})") from error


def _private(module: Any, name: str) -> Any:
    value = getattr(module, name, None)
    if value is None:
        jax_version = _import("jax").__version__
        raise _missing(f"JAX {jax_version} has no {getattr(module, '__name__', module)}.{name}")
    return value


def _missing(what: str) -> MissingError:
    return MissingError(
        f"A cuDNN LSTM cannot be lowered without a GPU here: {what}.",
        hint=f"This uses private names of both and was tested with {_TESTED}; install those versions.",
    )


def _set_attribute(restore: ExitStack, module: Any, name: str, value: Callable[..., object]) -> None:
    """Sets a module's attribute until `restore` closes; one that was not there is taken away again."""
    if hasattr(module, name):
        restore.callback(setattr, module, name, getattr(module, name))
    else:
        restore.callback(delattr, module, name)
    setattr(module, name, value)


def _put_back(registered: dict[Any, Any], primitive: Any, rule: Any) -> None:
    if rule is None:
        registered.pop(primitive, None)
    else:
        registered[primitive] = rule
