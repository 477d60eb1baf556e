"""A Keras-on-JAX training step as StableHLO for a CUDA device, traced from shapes alone.

Private names used, tested with JAX 0.10.2 and Keras 3.15.1: `jax._src.interpreters.mlir.module_to_bytecode`.
"""

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from legroom.capture.batch import map_specs
from legroom.capture.keras_fit import KerasStep
from legroom.engines.owners import OwnedVariables
from legroom.engines.xla.cudnn_attention import gpu_attention_lowering
from legroom.engines.xla.cudnn_rnn import gpu_rnn_lowering
from legroom.errors import EngineError, InputError
from legroom.records import Lowered, Tensor


def lower_keras(captured: KerasStep, capability: tuple[int, int]) -> Lowered:
    """Trace and lower `model.train_step` with its state donated, as Keras' own `fit` compiles it."""
    import jax
    from jax._src.interpreters import mlir

    model = captured.model
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group] for group in groups)
    data = map_specs(lambda spec: jax.ShapeDtypeStruct(spec.shape, canonical_dtype(spec.dtype)), captured.data)

    def train_step(state: Any, data: Any) -> Any:
        return model.train_step(state, data)

    try:
        with gpu_attention_lowering(capability), gpu_rnn_lowering() if has_lstm(model) else nullcontext():
            traced = jax.jit(train_step, donate_argnums=0, keep_unused=True).trace(state, data)
            lowered = traced.lower(lowering_platforms=("cuda",))
    except (ValueError, TypeError) as error:
        if "Unknown output type" in str(error):
            raise InputError(
                "JAX cannot run Keras' LSTM in half precision on a GPU: cuDNN's is called with float32 or float64 only.",
                'Give the LSTM layers dtype="float32", or train in float32.',
            ) from error
        raise InputError(
            f"The training step could not be traced for this batch: {error}",
            "Check that the batch has the shape that the model and its loss expect.",
        ) from error
    except NotImplementedError as error:
        raise EngineError(f"JAX cannot lower this step for a CUDA device without one: {error}") from error
    program: bytes = mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))
    parameters = [
        *OwnedVariables(model.trainable_variables, captured.step.layers).tensors(groups),
        *input_tensors(data),
    ]
    input_bytes = sum(tensor.size_bytes for tensor in parameters if tensor.role == "input")
    step = replace(
        captured.step,
        parameters=tuple(parameters),
        resident_bytes=input_bytes,
        resident_reason="the next batch: Keras on JAX sends it to the GPU one step ahead",
    )
    return Lowered(step, program, "stablehlo", hashlib.sha256(program).hexdigest())


def has_lstm(model: Any) -> bool:
    """Whether Keras would look for cuDNN on a GPU; the stand-in for it is opened only then."""
    return any("LSTM" in cls.__name__ for layer in model._flatten_layers() for cls in type(layer).__mro__)


def canonical_dtype(dtype: str) -> Any:
    """What JAX makes of that dtype: 64 bits become 32 unless the user has asked for 64."""
    import jax

    return jax.dtypes.canonicalize_dtype(dtype)


def input_tensors(data: Any) -> list[Tensor]:
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(data)
    return [
        Tensor("batch" + jax.tree_util.keystr(path), tuple(leaf.shape), str(leaf.dtype), "input")
        for path, leaf in leaves
    ]
