"""How a value that is computed from rows falls into slices of them: a value a row, a mean, a sum, or nothing of these; found out by computing it once
whole and once in two slices, also with comparisons that are made to come out otherwise (`forced`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Literal, TypeVar

from legroom.changes.bends import MOST, PLACES, Bend, of_the_batch
from legroom.changes.cutting import FEW, Cutting, Place
from legroom.changes.forced import PATTERNS, with_a_row_each
from legroom.changes.forced_losses import run_bent, run_forced
from legroom.changes.made_up import rows_of

Kind = Literal["samples", "mean", "sum"]  # one value a sample; one number that is their mean; one that is their sum
Call = Callable[[Any], list[Any]]
Result = TypeVar("Result")

TOLERANCE = 5e-6  # in single precision and better, of the largest number that is compared
MODEL_TOLERANCE = 5e-5  # of what has come through a model: other kernels compute a smaller batch
HALVES = {"bfloat16": 2e-2, "float16": 2e-3}


def kinds_in_slices(
    call: Call, arrays: Any, tolerance: float = TOLERANCE, cutting: Cutting = FEW
) -> list[set[Kind] | None]:
    """What `call` gives on all rows and on the slices, eagerly, whatever is being traced around it: for each output the kinds that it can be, None
    where the numbers say nothing."""
    return kinds_of(lambda place: call(rows_of(arrays, *place)), call, arrays, tolerance, cutting)


def kinds_of(
    compute: Callable[[Place], list[Any]], call: Call, arrays: Any, tolerance: float, cutting: Cutting = FEW
) -> list[set[Kind] | None]:
    """Of what is computed for the rows from one place to another."""
    import keras

    def numbers() -> list[list[Any]]:
        with full_precision():
            return [
                [keras.ops.convert_to_numpy(keras.ops.cast(output, "float32")) for output in compute(place)]
                for place in cutting.places
            ]

    def found(tolerance: float) -> list[set[Kind] | None]:
        return [
            kinds_of_output(one, [part[at] for part in slices], tolerance, cutting.shares)
            for at, one in enumerate(whole)
        ]

    whole, *slices = eagerly(numbers)
    if len({len(whole), *map(len, slices)}) > 1:
        return [set()]
    kinds = found(tolerance)
    if set() in kinds:
        half = eagerly(lambda: half_in(call, rows_of(arrays, 0, cutting.rows)))
        return found(HALVES[half]) if half else kinds
    return kinds


def kinds_when_forced(call: Call, arrays: Any, tolerance: float = TOLERANCE) -> Iterator[list[set[Kind] | None]]:
    """The same with comparisons of samples that come out otherwise, several times, and with numbers of the whole batch that come out on the other side of what
    bends; nothing where there are none, or where the user's code cannot be run so."""
    yield from kinds_when_compared(call, arrays, tolerance)
    yield from kinds_when_bent(call, arrays, tolerance)


def kinds_when_compared(call: Call, arrays: Any, tolerance: float) -> Iterator[list[set[Kind] | None]]:

    def run(place: tuple[int, int], pattern: int, which: frozenset[int]) -> Any:
        return run_forced(call, rows_of(arrays, *place), place, pattern, which)

    try:
        whole, *parts = eagerly(lambda: [run(place, 0, frozenset())[1] for place in FEW.places])
        which = with_a_row_each(
            whole, [(stop - start, part) for (start, stop), part in zip(FEW.cuts, parts, strict=True)]
        )
        for pattern in range(PATTERNS if which else 0):
            compute = lambda place: run(place, pattern, which)[0]  # noqa: B023, E731
            yield kinds_of(compute, call, arrays, tolerance)
    except Exception:  # noqa: BLE001 - the user's own code, which may look after what it compares
        return


def kinds_when_bent(call: Call, arrays: Any, tolerance: float) -> Iterator[list[set[Kind] | None]]:
    """With all such numbers at once, and one after the other where the user's code cannot be run so."""

    def run(place: tuple[int, int], pattern: int = 0, which: dict[int, Bend] | None = None) -> Any:
        with on_cpu():
            return run_bent(call, rows_of(arrays, *place), place, pattern, which or {})

    def kinds(pattern: int, which: dict[int, Bend]) -> list[set[Kind] | None] | None:
        try:
            return kinds_of(lambda place: run(place, pattern, which)[0], call, arrays, tolerance)
        except Exception:  # noqa: BLE001 - the user's own code, which may look after its numbers
            return None

    try:
        which = of_the_batch(eagerly(lambda: [run(place)[1] for place in PLACES]))
    except Exception:  # noqa: BLE001 - the same
        return
    for pattern in range(PATTERNS if which else 0):
        found = kinds(pattern, which)
        alone = list(which)[:MOST] if found is None or None in found else []
        yield from (one for one in (found, *(kinds(pattern, {at: which[at]}) for at in alone)) if one is not None)


@contextmanager
def on_cpu() -> Iterator[None]:
    """TensorFlow's tensors lie there, where their memory can be written."""
    import keras

    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    with tf.device("CPU:0"):
        yield


@contextmanager
def full_precision() -> Iterator[None]:
    """Meanwhile GPUs compute no products in TF32, which some of their kernels do and some do not."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
        return
    import tensorflow as tf

    kept = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(kept)


def half_in(call: Call, rows: Any) -> str | None:
    """The coarsest type of 16 bits in which something is computed on the way, read from the code's own graph; None where it cannot be traced."""
    import keras

    try:
        if keras.backend.backend() == "jax":
            import jax

            text = str(jax.make_jaxpr(call)(rows))
            types = {"bfloat16" if mark else "float16" for mark in re.findall(r"\b(b?)f16\[", text)}
        else:
            import tensorflow as tf

            definition = tf.function(call).get_concrete_function(rows).graph.as_graph_def()
            nodes = [*definition.node, *(one for inner in definition.library.function for one in inner.node_def)]
            types = {tf.as_dtype(value.type).name for node in nodes for value in node.attr.values() if value.type}
    except Exception:  # noqa: BLE001 - the user's own code, which need not be traceable
        return None
    return next((name for name in HALVES if name in types), None)


def kinds_of_output(
    whole: Any, slices: list[Any], tolerance: float, shares: Sequence[float] = FEW.shares
) -> set[Kind] | None:
    import numpy

    if whole.ndim and not numpy.all(numpy.isfinite(whole)):
        whole, slices = finite_rows(whole, slices)
    if not whole.size or not numpy.all(numpy.isfinite(whole)):
        return None
    if not all(numpy.all(numpy.isfinite(values)) for values in slices):
        return set()  # such as the mean of what a mask leaves of a slice, where it leaves nothing
    kinds: dict[Kind, Any] = {}
    if whole.ndim:
        kinds = {"samples": numpy.concatenate(slices)} if all(part.ndim == whole.ndim for part in slices) else {}
    else:
        kinds["mean"] = sum(share * part for share, part in zip(shares, slices, strict=True))
        kinds["sum"] = sum(slices)
    largest = max(float(numpy.max(numpy.abs(part), initial=0.0)) for part in (whole, *slices))
    return {
        kind
        for kind, value in kinds.items()
        if value.shape == whole.shape and numpy.allclose(value, whole, rtol=0, atol=tolerance * largest)
    }


def finite_rows(whole: Any, slices: list[Any]) -> tuple[Any, list[Any]]:
    """The rows that are finite in the batch, such as the means of samples that are not masked altogether; as they are where the slices have other rows."""
    import numpy

    sizes = [len(part) if part.ndim == whole.ndim else 0 for part in slices]
    if sum(sizes) != len(whole):
        return whole, slices
    kept = numpy.isfinite(whole).reshape(len(whole), -1).all(axis=1)
    parts = numpy.split(kept, numpy.cumsum(sizes)[:-1])
    return whole[kept], [part[rows] for part, rows in zip(slices, parts, strict=True)]


def first_of(kinds: set[Kind]) -> Kind:
    order: tuple[Kind, ...] = ("samples", "mean", "sum")
    return next(kind for kind in order if kind in kinds)


def eagerly(function: Callable[[], Result]) -> Result:
    """`function` called in a thread of its own, where nothing is being traced, taped or placed on another device; its `ContextVar`s are this one's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, function).result()


def kinds_or_none(call: Call, arrays: Any, tolerance: float = TOLERANCE) -> set[Kind] | None:
    """As `kinds_in_slices`, of one number; None also where the user's code does not take such labels."""
    found = all_kinds_or_none(call, arrays, tolerance)
    return None if found is None else found[0]


def all_kinds_or_none(
    call: Call, arrays: Any, tolerance: float = MODEL_TOLERANCE, cutting: Cutting = FEW
) -> list[set[Kind] | None] | None:
    try:
        return kinds_in_slices(call, arrays, tolerance, cutting)
    except Exception:  # noqa: BLE001 - a class of that number does not exist, say
        return None


def both(found: list[set[Kind] | None], kinds: list[set[Kind] | None] | None) -> list[set[Kind] | None]:
    """What is left after another trial, if it said something."""
    if kinds is None or len(kinds) != len(found):
        return found
    return [one if other is None else (one or set()) & other for one, other in zip(found, kinds, strict=True)]
