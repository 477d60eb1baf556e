"""An eager training step as a sequence of operations, recorded without computing any of them.

The step's own Python code runs, on a device whose tensors have no memory (`fake_device`); what it does to its tensors,
and exactly when it and the tape let go of each, is the trace. Variables are never written: the model, its optimizer and
its random state are as they were. A value that the code asks for (`float(loss)`) and that depends on data reads as zero,
and the trace says so.

Private names used, tested with TensorFlow 2.21.0: `Context._set_device`, `Context._rng`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from legroom.capture.batch import ArraySpec, Tree, map_specs, require_static
from legroom.engines.op.fake_device import NAME
from legroom.engines.op.ops import Op
from legroom.engines.op.recorder import Recorder
from legroom.engines.op.trace import EagerTrace, Event, Ran, Resident
from legroom.errors import EngineError


@cache
def recorder() -> Recorder:
    """The one of this process; the device is registered when it is first needed."""
    return Recorder()


def fake_batch(tree: Tree) -> Any:
    """Tensors without memory in place of every ArraySpec: what a step can be recorded with."""
    import tensorflow as tf

    require_static(tree)
    recorder()

    def make(spec: ArraySpec) -> Any:
        return tf.raw_ops.Empty(shape=spec.shape, dtype=spec.dtype)

    with tf.device(NAME):
        return map_specs(make, tree)


def record(step: Callable[[], Any]) -> EagerTrace:
    """Run an eager step on the fake device. What the step raises is raised as it is; TensorFlow stays usable.

    The step's Python side effects are real: lists it appends to, objects it builds, text it prints.
    """
    device = recorder()
    device.clear()
    flush_caches()
    events: list[Event] = []
    returned: tuple[int, ...] = ()
    with random_state_kept(), everything_here(device):
        device.events = events
        try:
            result = step()
            returned = alive(device)
            del result
        except Exception:
            if device.failure is None:
                raise
        finally:
            device.events = None
            flush_caches()
    if device.failure is not None:
        raise EngineError(
            f"The eager step could not be recorded: {type(device.failure).__name__}: {device.failure}",
            "Run the step as a @tf.function (or fit without run_eagerly) to predict it as a graph, and report this.",
        ) from device.failure
    trace = EagerTrace(tuple(events), dict(device.residents), returned, alive(device), tuple(device.notes))
    device.clear()
    return trace


def alive(device: Recorder) -> tuple[int, ...]:
    """The tensors that the step made and that somebody still holds."""
    return tuple(number for number in device.fakes if number > device.started)


def flush_caches() -> None:
    """TensorFlow keeps scalars and small zeros that it made once: each recording makes its own."""
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import context

    pywrap_tfe.TFE_ClearScalarCache()
    context.context().zeros_cache().flush()
    context.context().ones_rank_cache().flush()


@contextmanager
def random_state_kept() -> Iterator[None]:
    """TensorFlow draws the seeds of random operations from a Python generator when `tf.random.set_seed` was called."""
    from tensorflow.python.eager import context

    generator = getattr(context.context(), "_rng", None)
    state = None if generator is None else generator.getstate()
    try:
        yield
    finally:
        if generator is not None:
            generator.setstate(state)


@contextmanager
def everything_here(device: Recorder) -> Iterator[None]:
    """All operations go to the fake device, whatever device the code asks for.

    Variables are the exception: they are really created, on the host, so that layers and optimizers which build
    themselves in their first step are whole afterwards.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    current = context.context()
    original = current._set_device
    before = current.device_name, current.device_spec

    def set_device(name: str, spec: Any) -> None:
        original(name if device.writing else NAME, spec)

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        name, spec = current.device_name, current.device_spec
        device.writing = True
        original("", tf.DeviceSpec())
        try:
            variable = next_creator(**arguments)
        finally:
            original(name, spec)
            device.writing = False
        note_creation(device, variable)
        return variable

    current._set_device = set_device
    try:
        with tf.device(NAME), tf.variable_creator_scope(create):
            yield
    finally:
        del current._set_device
        original(*before)


def note_creation(device: Recorder, variable: Any) -> None:
    """A new variable takes its memory when it is created."""
    device.writing = True
    try:
        variable.read_value()  # the recorder meets it
    finally:
        device.writing = False
    met = device.variables.last
    if met is not None and device.events is not None:
        device.residents[met.number] = Resident(met.array, "variable", variable.name)
        device.events.append(Ran(Op(variable.name, "VarHandleOp", (), (met.array,)), (), (met.number,)))
