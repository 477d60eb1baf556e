"""A captured TensorFlow step, really run a few times in a process that `capture.limited` has prepared, and measured.

The batch is made up. Integers are zeros: no other number is sure to be a row of every embedding and a class of every loss.
Floats are random in [0, 1): zeros alone lead to divisions by zero and to branches that data never takes.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from legroom.capture.batch import ArraySpec, iter_specs, map_specs, require_static
from legroom.capture.frames import ANSI, first_line
from legroom.capture.keras_fit import KerasStep
from legroom.capture.limited import limit_here
from legroom.capture.tf_step import FunctionStep, tensor_specs
from legroom.engines.out_of_memory import oom_of, place_of
from legroom.engines.tracing import Traceable, compile_lazily, trace, traceable
from legroom.errors import EngineError, InputError, LegroomError, MissingError
from legroom.records import Execution, Step
from legroom.records.rehearsal import Rehearsal
from legroom.records.step import dtype_bytes
from legroom.units import format_bytes

DEVICE = "CPU:0"
ON_THE_WAY = ("Graph execution error", "Detected at node", "  ", "\t", "File ")
RANDOM = ("float16", "bfloat16", "float32", "float64")


class NoRoomForBatch(EngineError):
    """Not even the batch could be made."""


def rehearse_step(captured: KerasStep | FunctionStep, steps: int) -> Rehearsal:
    """Run the step so many times. Its state changes as in training; only out-of-memory errors are caught."""
    require_tensorflow(captured.step)
    started = time.monotonic()
    found = Rehearsal(captured.step.batch, execution_here(captured.step), limit_here(), notes=notes_of(captured))
    peaks: list[int] = []
    resident_bytes = None
    try:
        resident_bytes = measure(captured, steps, peaks)
    except Exception as error:
        oom = oom_of(error)
        if oom is None and isinstance(error, LegroomError):
            raise
        if oom is None:
            raise as_input_error(error) from error
        op = "the batch" if isinstance(error, NoRoomForBatch) else oom.op
        found = replace(found, out_of_memory=replace(oom, op=op, step=len(peaks) + 1))
    return replace(
        found,
        peak_bytes=max(peaks[1:] or peaks) if found.fits else None,
        first_step_peak_bytes=peaks[0] if peaks else None,
        step_peaks=tuple(peaks),
        resident_bytes=resident_bytes,
        seconds=time.monotonic() - started,
    )


def measure(captured: KerasStep | FunctionStep, steps: int, peaks: list[int]) -> int:
    """Append the peak of each step when it has ended; returns what is held between steps.

    As in a training loop, the batch stays, and a result lives until the next one is there.
    """
    import tensorflow as tf

    run = prepare(captured)
    result = None
    for _ in range(steps):
        tf.config.experimental.reset_memory_stats(DEVICE)
        result = run()
        peaks.append(memory_info()["peak"])
    held = memory_info()["current"]
    del result, run
    return held


def prepare(captured: KerasStep | FunctionStep) -> Callable[[], Any]:
    """The step with its variables and its batch made, as a function without arguments."""
    if execution_here(captured.step) == "graph":
        step = untouched(captured) if captured.step.makes_slots else traceable(captured)
        function = compile_lazily(step, jit_compile=False)
        tensors = [made_up(ArraySpec(tuple(spec.shape), spec.dtype.name)) for spec in step.specs]
        if captured.step.makes_slots:
            trace(step, function)  # so that a batch of the wrong shape is told as such
        return lambda: function(*tensors)
    if isinstance(captured, KerasStep):
        model = captured.built().model
        batch = map_specs(made_up, captured.data)
        return lambda: model.train_step(batch)
    require_static((captured.args, captured.kwargs))
    args, kwargs = map_specs(made_up, (captured.args, captured.kwargs))
    called = captured.function
    return lambda: called(*args, **kwargs)


def untouched(captured: KerasStep | FunctionStep) -> Traceable:
    """A Keras model's step whose optimizer has no slots yet: TensorFlow makes them when it traces the step, as in training. Made before,
    they would lie elsewhere, and the same step would take less."""
    import tensorflow as tf

    assert isinstance(captured, KerasStep)
    require_static(captured.data)
    structure: Any = ((tensor_specs(captured.data),), {})
    leaves = tf.nest.flatten(structure)
    return Traceable(captured.model.train_step, leaves, structure, captured.step, lambda handle: None)


def made_up(spec: ArraySpec) -> Any:
    """An array for that spec, made in place: it takes its own size and no more. See the module's text for its values."""
    import tensorflow as tf

    try:
        if spec.dtype in RANDOM:
            return tf.raw_ops.RandomUniform(shape=spec.shape, dtype=spec.dtype, seed=1, seed2=2)
        return tf.zeros(spec.shape, spec.dtype)
    except tf.errors.ResourceExhaustedError as error:
        raise NoRoomForBatch("There is no room for the batch itself.") from error


def memory_info() -> dict[str, int]:
    import tensorflow as tf

    try:
        found: dict[str, int] = tf.config.experimental.get_memory_info(DEVICE)
    except ValueError as error:
        raise MissingError(
            f"This TensorFlow ({tf.__version__}) does not count what its CPU allocates.",
            "Rehearse on TensorFlow 2.18 or later.",
        ) from error
    return found


def require_tensorflow(step: Step) -> None:
    if step.framework != "tensorflow":
        raise MissingError(
            "A step on JAX cannot be rehearsed: JAX on a CPU takes its memory from the system, and no limit can be set for it.",
            "Ask for a prediction without --rehearse, e.g. --gpu t4, or rehearse it on TensorFlow: KERAS_BACKEND=tensorflow.",
        )


def execution_here(step: Step) -> Execution:
    """How the step is run here: never compiled by XLA, whose buffers this allocator does not see one by one."""
    import tensorflow as tf

    return "eager" if step.execution == "eager" or tf.config.functions_run_eagerly() else "graph"


def notes_of(captured: KerasStep | FunctionStep) -> tuple[str, ...]:
    """What the numbers do not say by themselves."""
    step, notes = captured.step, captured.step.notes
    if step.execution == "xla":
        where = "on a GPU" if step.compiled_for_gpu else "where it trains"
        notes += (
            f"XLA compiles this step {where} ({step.execution_reason}); here it ran op by op, as memory under XLA is not "
            "counted on a CPU. Compiled, it takes another amount: `legroom estimate --gpu` predicts it.",
        )
    if isinstance(captured, FunctionStep):
        specs = iter_specs((captured.args, captured.kwargs))
        size = sum(dtype_bytes(spec.dtype, prod(size or 0 for size in spec.shape)) for spec in specs)
        if size:
            notes += (
                f"The script holds a batch of its own beside the one it was rehearsed with: up to {format_bytes(size)} too much.",
            )
    return notes


def as_input_error(error: Exception) -> InputError:
    place = place_of(error)
    return InputError(
        f"The training step failed when it was run: {type(error).__name__}: {reason(error)}{place and f' (at {place})'}",
        "It was given made-up data: zeros for integers, random numbers between 0 and 1 for floats. If it cannot do with "
        "these, ask for a prediction without --rehearse.",
    )


def reason(error: Exception) -> str:
    """The line of a message that says what was wrong; TensorFlow puts the way there in front of it."""
    lines = [line for line in ANSI.sub("", str(error)).splitlines() if line.strip() and not line.startswith(ON_THE_WAY)]
    return lines[0][:300] if lines else first_line(error)
