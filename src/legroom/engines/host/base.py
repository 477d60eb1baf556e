"""What the framework itself takes of the host: its libraries, and the programs of a step. Measured, TensorFlow 2.21 (CPU
build), Keras 3.15.1 and JAX on Linux x86-64: RSS after the import, after a first tiny step, and after a step of ResNet50.
"""

from dataclasses import dataclass

from legroom.engines.host.holdings import Holding
from legroom.engines.host.span import Span, exactly
from legroom.records import Execution, Framework

MEGABYTE = 1_000_000

IMPORTED: dict[Framework, Span] = {
    "tensorflow": Span(480 * MEGABYTE, 640 * MEGABYTE, 900 * MEGABYTE),
    "jax": Span(180 * MEGABYTE, 260 * MEGABYTE, 450 * MEGABYTE),
}
# A first step, and every layer of it. Graphs and kernels stay; an XLA compiler's memory goes back to the allocator only.
FIRST_STEP: dict[tuple[Framework, bool], Span] = {
    ("tensorflow", False): Span(15 * MEGABYTE, 25 * MEGABYTE, 100 * MEGABYTE),
    ("tensorflow", True): Span(60 * MEGABYTE, 120 * MEGABYTE, 300 * MEGABYTE),
    ("jax", False): Span(30 * MEGABYTE, 65 * MEGABYTE, 200 * MEGABYTE),
    ("jax", True): Span(30 * MEGABYTE, 65 * MEGABYTE, 200 * MEGABYTE),
}
PER_LAYER: dict[tuple[Framework, bool], Span] = {
    ("tensorflow", False): Span(500_000, 2_700_000, 5 * MEGABYTE),
    ("tensorflow", True): Span(1 * MEGABYTE, 6_800_000, 12 * MEGABYTE),
    ("jax", False): Span(500_000, 4_200_000, 8 * MEGABYTE),
    ("jax", True): Span(500_000, 4_200_000, 8 * MEGABYTE),
}
# Not measured on this machine: CUDA, cuDNN and cuBLAS loaded into a process, their context and pinned staging buffers.
CUDA = Span(600 * MEGABYTE, 1500 * MEGABYTE, 3000 * MEGABYTE)


@dataclass(frozen=True, slots=True)
class Process:
    """The training process: what runs in it, and what is known of its memory already.

    `device_peak_bytes` is given where the device *is* this CPU, whose memory is the host's; `current_rss_bytes` where the
    process has come to `fit` already, so that its imports, arrays and datasets are in it.
    """

    framework: Framework
    weights_bytes: int = 0
    device_peak_bytes: int | None = None
    current_rss_bytes: int | None = None
    execution: Execution = "graph"
    layers: int = 0
    gpu: bool = False
    cores: int | None = None


def base_holdings(process: Process) -> list[Holding]:
    """The process before its data: libraries, the step's programs, the device's memory if that is RAM."""
    compiled = process.execution == "xla" or process.framework == "jax"
    key = (process.framework, compiled)
    if process.current_rss_bytes is None:
        name = {"tensorflow": "TensorFlow", "jax": "JAX"}[process.framework]
        found = [Holding(f"{name} and Keras", IMPORTED[process.framework], "the libraries, imported", "kept")]
    else:
        why = "resident when the first step was reached: libraries, arrays, datasets, the model as it was then"
        found = [Holding("the process so far", exactly(process.current_rss_bytes), why, "kept")]
    step = FIRST_STEP[key] + PER_LAYER[key] * process.layers
    why = f"graphs, kernels and compiled programs of a step with {process.layers} layers"
    found.append(Holding("the step's programs", step, why, "kept"))
    if process.gpu:
        found.append(
            Holding("CUDA libraries", CUDA, "CUDA, cuDNN, cuBLAS and pinned buffers; a bound, not measured", "kept")
        )
    if process.device_peak_bytes is not None:
        why = "the device is this CPU: what the step holds is RAM"
        found.append(Holding("the training step", exactly(process.device_peak_bytes), why, "running"))
    elif process.weights_bytes:
        why = "weights on their way to the device, and when they are loaded or saved"
        found.append(Holding("weights staged", Span(0, process.weights_bytes, process.weights_bytes), why, "kept"))
    return found
