"""Whether a model keeps the samples of a batch apart, and its state still, when it trains: else it cannot be cut into slices.

Found out by calling it on a few made-up samples, twice, with some of them replaced: the outputs of the others must be as before.
Seeds are the same in both calls, and with them what random layers draw. Nothing of the model is changed.

Private names used, tested with Keras 3.15.1: `Layer._flatten_layers`, `Layer._seed_generators`, `Trainer._compile_loss`, `CompileLoss._user_loss`.
"""

import time
from collections.abc import Callable
from typing import Any

from legroom.capture.frames import first_line
from legroom.capture.quiet import unheard
from legroom.changes.cutting import SMALL, Place, numbers_each, rows_for
from legroom.changes.known_layers import is_known
from legroom.changes.later_numbers import moved, numbers_read, waited
from legroom.changes.made_up import random_like, rows_of
from legroom.changes.made_up_calls import call_model
from legroom.changes.microbatch_attempts import SIX, TWO, Rows, attempts, is_unknown
from legroom.changes.microbatch_bends import may_bend, outputs_when_bent
from legroom.changes.microbatch_calls import (
    assigned_in,
    call,
    caller,
    numbers_of,
    outputs_or_none,
    overwritten_in,
    rows_called,
    traced,
    values_of,
)
from legroom.changes.microbatch_gradients import gradients_add_up, has_its_own
from legroom.changes.microbatch_kinds import eagerly
from legroom.engines.out_of_memory import is_oom
from legroom.errors import InputError, LegroomError

PATIENCE = 10.0  # seconds, in which an input is looked for that a model takes
TRACED = 1.0  # a model that takes longer to be traced is not traced for many samples too
NO_MEMORY = ("RESOURCE_EXHAUSTED", "OOM when allocating")
CLOSE = 1e-4
TIMES = (
    1.0,
    30.0,
    0.01,
)  # as large as the others are the samples that are replaced: a largest number, or a norm, over the batch must not move the rest
APART = 0.05  # of batches of different sizes, which other kernels compute


def check_samples(model: Any, x: Any, size: Any = None) -> None:
    """Raises InputError where a layer or an operation looks at several samples, or changes its state at every call; or where that cannot be found out.
    Slices are going to be of this size, where it is known."""
    if not is_known(model):
        with unheard():  # of functions that are traced anew for each size
            eagerly(lambda: compare_somehow(model, x, size))


def compare_somehow(model: Any, x: Any, size: Any) -> None:
    """On the first made-up samples that the model takes."""
    failed: Exception | None = None
    began = time.perf_counter()
    for rows, style in attempts(x, size):
        try:
            compare(model, x, rows, style)
            return compare_later(model, x, rows, style)
        except LegroomError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's own, on inputs that may not suit it
            failed = failed or error
            if no_memory(error):
                return compare_two(model, x)
        if time.perf_counter() - began > PATIENCE:
            break
    assert failed is not None
    raise InputError(
        f"The batch cannot be cut: whether the model {model.name!r} keeps its samples apart could not be found out, as on made-up ones it raises "
        f"{first_line(failed)}",
        "Let it take batches of any size, and inputs of any value, or plan with something other than micro-batches.",
    ) from failed


def no_memory(error: Exception) -> bool:
    """As TensorFlow, NumPy or JAX say it."""
    return is_oom(error) or isinstance(error, MemoryError) or any(word in str(error) for word in NO_MEMORY)


def compare_two(model: Any, x: Any) -> None:
    """Where there is no memory for six."""
    try:
        compare(model, x, TWO, "signed")
    except LegroomError:
        raise
    except Exception:  # noqa: BLE001 - nor for two, perhaps
        return


def compare(model: Any, x: Any, rows: Rows, style: str) -> None:
    first = random_like(x, style, rows=rows.count)
    others = random_like(x, style, 7, rows.count)
    called = caller(model, relaxed=is_unknown(x))
    began = time.perf_counter()
    outputs, changed = call(model, called, first)
    tracing = 0.0 if is_unknown(x) else time.perf_counter() - began
    graph = traced(model, rows_of(first, 0, rows.count))
    changed += assigned_in(graph) + overwritten_in(model, rows_of(first, 0, rows.count))
    require_rows(model, outputs, rows.count)
    if changed:
        raise InputError(
            f"The batch cannot be cut: {changed[0]!r} is changed at every call, and would be for each slice.",
            "Plan with something other than micro-batches, or change it once a step, in a callback.",
        )
    began = time.perf_counter()
    if not alike(outputs, call(model, called, first)[0], rows):
        return  # random numbers that Keras knows nothing of: nothing can be told
    seconds = time.perf_counter() - began
    for factor in TIMES:
        second = mixed(first, times(others, factor), rows.kept)
        replaced = outputs_or_none(model, called, second, must=factor == 1)
        if replaced is not None and not alike(outputs, replaced, rows):
            raise InputError(
                f"The batch cannot be cut: {culprit(model, first, second, rows)} looks at several samples of it at once.",
                "Plan with something other than micro-batches.",
            )
    if not alone(model, called, first, rows.parts):
        raise depends_on_size(model)
    if rows is not SIX:
        return
    if tracing < TRACED:
        compare_many(model, called, x, style, rows_for(numbers_each(x, outputs), 2 * seconds))
    check_branches(model, first, graph)
    if has_its_own(graph) and not gradients_add_up(model, first):
        raise InputError(
            f"The batch cannot be cut: a gradient of its own in the model {model.name!r} (tf.custom_gradient, jax.custom_vjp) looks at several samples at once.",
            "Let it look at each sample by itself, or plan with something other than micro-batches.",
        )


def compare_later(model: Any, x: Any, rows: Rows, style: str) -> None:
    """With other numbers in place of those that its layers compute with: what weighs nothing now may later on."""
    values = values_of(model)
    made = rows_of(random_like(x, style, rows=rows.count), 0, None)
    called = lambda given: call_model(model, values, given, True)[0]  # noqa: E731
    numbers = numbers_read(model._flatten_layers(), called, made, eager=model.run_eagerly, live=True)
    for stage in range(numbers.stages):
        with moved(numbers, stage) as names:
            try:
                compare(model, x, rows, style)
            except LegroomError as error:
                raise waited(error, names) from None
            except Exception:  # noqa: BLE001 - the user's own, with numbers that may not suit it
                continue


def check_branches(model: Any, arrays: Any, graph: Any) -> None:
    """Numbers of the whole batch must not decide what is computed for a sample, whatever side they are on now."""
    import keras

    if not may_bend(graph):
        return
    values = values_of(model)
    found = outputs_when_bent(lambda rows: keras.tree.flatten(call_model(model, values, rows, True)[0]), arrays)
    usual: list[Any] | None = None
    for outputs in map(numbers_of, found):
        usual = usual or outputs
        if any(one.shape != two.shape or not near(one, two, CLOSE) for one, two in zip(usual, outputs, strict=True)):
            raise InputError(
                f"The batch cannot be cut: what the model {model.name!r} computes for a sample depends on a number of the whole batch, as by a branch, a floor or a sign.",
                "Plan with something other than micro-batches.",
            )


def compare_many(model: Any, called: Callable[[Any], Any], x: Any, style: str, count: int) -> None:
    """Where something else is done from some size on."""
    if not count:
        return
    rows = Rows(count, count // 2, ((count - SMALL, count),))
    first = random_like(x, style, rows=count)
    second = mixed(first, random_like(x, style, 7, count), rows.kept)
    try:
        outputs = call(model, called, first)[0]
        apart = alike(outputs, call(model, called, second)[0], rows) and alone(model, called, first, rows.parts)
    except Exception:  # noqa: BLE001 - the user's own, which may not take so many
        return
    if not apart:
        raise depends_on_size(model)


def depends_on_size(model: Any) -> InputError:
    return InputError(
        f"The batch cannot be cut: what {model.name!r} computes for a sample depends on the size of the batch, or on the sample's place in it.",
        "Plan with something other than micro-batches.",
    )


def alone(model: Any, called: Callable[[Any], Any], arrays: Any, parts: tuple[Place, ...]) -> bool:
    """Whether samples come out of a batch of few as they do of the whole one: in training or, where random numbers are drawn then, in inference; where they are
    drawn there too, it cannot be told."""
    import keras

    count = next(len(leaf) for leaf in keras.tree.flatten(arrays) if leaf is not None)
    for called_so in (called, caller(model, training=False)):
        whole, drawn = rows_called(called_so, arrays, 0, count)
        if not drawn:
            return all(as_in_whole(whole, rows_called(called_so, arrays, *part)[0], count, part) for part in parts)
    return True


def as_in_whole(whole: list[Any], part: list[Any], count: int, place: Place) -> bool:
    start, stop = place
    pairs = [(one, two) for one, two in zip(whole, part, strict=True) if one.ndim and len(one) == count]
    return all(one[start:stop].shape == two.shape and near(one[start:stop], two, APART) for one, two in pairs)


def require_rows(model: Any, outputs: list[Any], count: int) -> None:
    """What is compared with labels must have a row for each sample."""
    import keras

    compiled = model._compile_loss
    losses = [None] * len(outputs) if compiled is None else keras.tree.flatten(compiled._user_loss)
    used = (
        [loss is not None for loss in losses] if len(losses) == len(outputs) else [compiled is not None] * len(outputs)
    )
    for number, (output, is_used) in enumerate(zip(outputs, used, strict=True)):
        if is_used and (not output.ndim or len(output) != count):
            raise InputError(
                f"The batch cannot be cut: output {number} of the model {model.name!r} has no row for each sample, but a shape of {output.shape}.",
                "Give it to add_loss() instead, or plan with something other than micro-batches.",
            )


def times(arrays: Any, factor: float) -> Any:
    """Numbers so much larger; what is no floating point number stays what it is."""
    import keras

    def larger(one: Any) -> Any:
        return one * one.dtype.type(factor) if one is not None and one.dtype.kind == "f" else one

    return keras.tree.map_structure(larger, arrays)


def mixed(first: Any, second: Any, kept: int) -> Any:
    """The first rows of the one, the last of the other."""
    import keras
    import numpy

    def both(one: Any, other: Any) -> Any:
        return None if one is None else numpy.concatenate([one[:kept], other[kept:]])

    return keras.tree.map_structure(both, first, second)


def alike(these: list[Any], those: list[Any], rows: Rows) -> bool:
    """Whether the rows that were not replaced came out as they were; what has no rows is no matter."""
    pairs = zip(these, those, strict=True)
    return all(
        near(one[: rows.kept], other[: rows.kept], CLOSE)
        for one, other in pairs
        if one.ndim and len(one) == rows.count and one.shape == other.shape
    )


def near(one: Any, other: Any, tolerance: float) -> bool:
    import numpy

    scale = float(numpy.max(numpy.abs(one), initial=0.0, where=numpy.isfinite(one)))
    return bool(numpy.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def culprit(model: Any, first: Any, second: Any, rows: Rows) -> str:
    """The name of the first operation of a Functional model whose rows differ; of others, the model's."""
    import keras

    operations = [one for one in getattr(model, "operations", ()) if getattr(one, "_inbound_nodes", None)]
    for operation in operations:
        try:
            until = keras.Model(model.inputs, operation.output)
            called = caller(until)
            if not alike(call(until, called, first)[0], call(until, called, second)[0], rows):
                return f"the layer {operation.name!r}"
        except Exception:  # noqa: BLE001 - of several outputs, or called several times
            continue
    return f"the model {model.name!r}"
