"""From a captured step to the program that the compiler takes."""

from legroom.capture.batch import require_static
from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.records import Lowered


def lower(captured: KerasStep | FunctionStep, capability: tuple[int, int]) -> Lowered:
    """Trace the step from its shapes and lower it for a GPU of that compute capability; imports only the framework it is for."""
    if isinstance(captured, FunctionStep):
        require_static((captured.args, captured.kwargs))
        from legroom.engines.xla import lower_tf

        return lower_tf.lower_function(captured)
    captured = captured.built()
    if captured.step.framework == "jax":
        from legroom.engines.xla import lower_jax

        return lower_jax.lower_keras(captured, capability)
    from legroom.engines.xla import lower_tf

    return lower_tf.lower_keras(captured)
