"""The budget as the frameworks take it: variables of the environment that must be there before they start."""

from collections.abc import Mapping

from legroom.gpus import Gpu
from legroom.running.child import ON_CPU
from legroom.running.speech import say
from legroom.units import format_bytes

JAX_SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def budget_environment(budget_bytes: int | None, gpu: Gpu | None, given: Mapping[str, str]) -> dict[str, str]:
    """For TensorFlow on a CPU a mark (its allocator is limited in the script's process), for JAX on a GPU its share."""
    if budget_bytes is None:
        return {}
    if gpu is None:
        if given.get("KERAS_BACKEND") == "jax":
            say(
                f"JAX on a CPU cannot be limited: {format_bytes(budget_bytes)} is planned for and compared with, not enforced."
            )
        return {ON_CPU: "1"}
    share = min(budget_bytes / gpu.memory_bytes, 1.0)
    return {JAX_SHARE: f"{share:.4f}"}
