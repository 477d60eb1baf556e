"""A TensorFlow training step as an HLO module.

TensorFlow's own bridge makes the HLO that it would make on the GPU, but for its name: nothing in Keras' steps is lowered
differently there. Private names used, tested with TensorFlow 2.21.0: `Function.experimental_get_compiler_ir` and its
stage `hlo_serialized`.
"""

import hashlib
from typing import Any

from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep, functions_traced
from legroom.engines.tracing import compile_lazily, one_line, trace, traceable, with_parameters
from legroom.errors import EngineError
from legroom.records import Lowered


def lower(captured: KerasStep | FunctionStep) -> Lowered:
    """The step under `tf.function(jit_compile=True)`, as Keras' own `fit` compiles it."""
    import tensorflow as tf

    step = traceable(captured)
    function = compile_lazily(step, jit_compile=True)
    concrete = trace(step, function)
    try:
        with functions_traced():
            program = function.experimental_get_compiler_ir(*step.specs)(stage="hlo_serialized")
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise EngineError(
            f"TensorFlow cannot compile this step with XLA: {one_line(error)}",
            "Train it with jit_compile=False, or use other layers.",
        ) from error
    return Lowered(with_parameters(step, concrete), program, "hlo", identity_of(concrete))


def identity_of(concrete: Any) -> str:
    """A hash of the traced graph. The HLO's own bytes differ from run to run: its maps are written in any order."""
    graph = concrete.graph.as_graph_def(add_shapes=True)
    shapes = [str(tensor.shape) for tensor in concrete.inputs]
    return hashlib.sha256(graph.SerializeToString(deterministic=True) + str(shapes).encode()).hexdigest()
