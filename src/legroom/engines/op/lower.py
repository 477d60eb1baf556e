"""From a captured step to what the simulation takes: its optimised graph, or the record of what it does eagerly."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.engines.op.collection import collector_paused
from legroom.engines.op.graph import Graph
from legroom.engines.op.grappler import Device, optimise, returned
from legroom.engines.op.jumps import Looped, has_jumps, let_shapes_change, read_order, with_loops
from legroom.engines.op.trace import EagerTrace
from legroom.engines.op.unroll import ShapesChange, Unroller
from legroom.engines.tracing import compile_lazily, trace, traceable, with_parameters
from legroom.errors import MissingError
from legroom.records import Step


@dataclass(frozen=True)
class OpStep:
    """A step ready to be simulated: `work` is a graph, or an eager step's trace."""

    step: Step
    work: Graph | EagerTrace


def lower(captured: KerasStep | FunctionStep, device: Device) -> OpStep:
    """Trace or record the step as it would run on that device; nothing is computed."""
    if captured.step.framework != "tensorflow":
        raise MissingError(
            "Only TensorFlow runs a step op by op in a way that can be simulated; JAX without jit cannot be sized.",
            "Ask what it takes compiled: --engine xla.",
        )
    with seen_by_keras(device), collector_paused():
        if captured.step.execution == "eager":
            from legroom.engines.op.eager_step import record_step

            return record_step(captured)
        return lower_graph(captured, device)


def lower_graph(captured: KerasStep | FunctionStep, device: Device) -> OpStep:
    step = traceable(captured)
    concrete = trace(step, compile_lazily(step, jit_compile=False))
    definition = optimise(concrete, device, keep_loops=False)
    if has_jumps(definition):
        definition = with_loops(definition, read_order(definition)) or optimise(concrete, device)
    return OpStep(replace(with_parameters(step, concrete), execution="graph"), lay_out(definition, concrete))


def lay_out(definition: Any, concrete: Any) -> Graph:
    """The graph unrolled; again, where a loop's results turn out to have other shapes than what it starts from."""
    while True:
        try:
            return Unroller(definition).unroll(
                [f"{name}:0" for name in returned(concrete)], [tensor.op.name for tensor in concrete.inputs]
            )
        except ShapesChange as found:
            let_shapes_change(definition, found.body)
        except ValueError:  # TensorFlow reads no graph in which shapes contradict each other, nor says whose they are
            if not isinstance(definition, Looped) or not let_shapes_change(definition):
                raise


@contextmanager
def seen_by_keras(device: Device) -> Iterator[None]:
    """Keras takes cuDNN's LSTM and GRU only where it sees a GPU while it traces: for a GPU, it sees one."""
    module: Any = importlib.import_module("keras.src.backend.tensorflow.rnn")
    name = "_is_gpu_available"
    if not hasattr(module, name):
        raise MissingError("Keras looks for GPUs in another way than in the tested version (Keras 3.15.1).")
    original = getattr(module, name)
    setattr(module, name, lambda: device.is_gpu)
    try:
        yield
    finally:
        setattr(module, name, original)
