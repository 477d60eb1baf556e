"""From a captured step to the program that the compiler takes."""

from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.records import Lowered


def lower(captured: KerasStep | FunctionStep, capability: tuple[int, int]) -> Lowered:
    """Trace the step from its shapes and lower it for a GPU of that compute capability; imports only the framework it is for."""
    if isinstance(captured, KerasStep) and captured.step.framework == "jax":
        from legroom.engines.xla import lower_jax

        return lower_jax.lower_keras(captured.built(), capability)
    from legroom.engines.xla import lower_tf

    return lower_tf.lower(captured)
