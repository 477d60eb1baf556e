"""A captured step that runs eagerly, recorded: its arrays are made of nothing, its Python code runs once."""

from dataclasses import replace
from typing import Any

from legroom.capture.batch import iter_specs
from legroom.capture.frames import user_frames
from legroom.capture.keras_fit import KerasStep
from legroom.capture.own_work import recorded
from legroom.capture.tf_step import FunctionStep
from legroom.engines.op.eager import fake_batch, record, recorder
from legroom.engines.op.lower import OpStep
from legroom.engines.tracing import named
from legroom.errors import InputError, LegroomError
from legroom.records import Tensor


def record_step(captured: KerasStep | FunctionStep) -> OpStep:
    """Run the step's Python code on tensors without memory."""
    import tensorflow as tf

    eagerly = bool(tf.config.functions_run_eagerly())
    if isinstance(captured, KerasStep):
        captured = captured.built()
        batch = fake_batch(captured.data)
        model = captured.model

        def step() -> Any:
            return model.train_step(batch)

        arrays = list(iter_specs(captured.data))
    else:
        args, kwargs = fake_batch((captured.args, captured.kwargs))
        function = captured.function

        def step() -> Any:
            return function(*args, **kwargs)

        arrays = list(iter_specs((captured.args, captured.kwargs)))
    tf.config.run_functions_eagerly(True)
    try:
        with recorded():
            trace = record(step)
    except LegroomError:
        raise
    except Exception as error:
        raise InputError(
            f"The training step could not be run on empty tensors: {named(error)}\n{user_frames(error)}",
            zeros_hint() or "Check that the batch has the shape that the model and its loss expect.",
        ) from error
    finally:
        tf.config.run_functions_eagerly(eagerly)
    inputs = tuple(
        Tensor(f"input_{i}", tuple(size or 0 for size in spec.shape), spec.dtype, "input")
        for i, spec in enumerate(arrays)
    )
    return OpStep(replace(captured.step, parameters=inputs), trace)


def zeros_hint() -> str | None:
    """Code that looks at values finds zeros: that may be why it failed."""
    notes = list(recorder().notes)
    return f"It looked at values, which are zeros here: {notes[0]}" if notes else None
