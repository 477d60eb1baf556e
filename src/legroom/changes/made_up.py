"""Made-up samples on which losses, models and steps are tried out: random ones, and labels with the marks that losses often leave out."""

from collections.abc import Iterable, Iterator
from typing import Any

ROWS = 6
CUTS = ((0, 4), (4, 6))  # uneven, so that a plain mean of slices is told from a weighted one
LENGTH = 5  # where a dimension other than the batch's is not known
LARGE = 1000.0
SOME = "binary, some"
ABOVE, SHARES = "above", "shares"  # floats from 1 on and integers of 1 and 2; floats that add up to 1 in each row
WORDS = ("a", "b", "some more")
IGNORED = (-1.0, 255.0, -100.0, -999.0, float("nan"))  # what labels that a loss leaves out are often marked with


def random_like(tree: Any, style: str, seed: int = 0, rows: int = ROWS) -> Any:
    """Small random arrays shaped as these tensors: integers are 0 or 1, floats as `style` says; with "some" in each row one is 1 at least."""
    import keras
    import numpy

    random = numpy.random.default_rng((seed, len(style)))

    def one(tensor: Any) -> Any:
        if tensor is None:
            return None
        shape = (rows, *(LENGTH if size is None else size for size in tensor.shape[1:]))
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype == "string":
            return random.choice(WORDS, shape)
        if dtype == "bfloat16":
            dtype = "float32"  # NumPy has none
        if "float" not in dtype or style.startswith("binary"):
            often = numpy.linspace(0.1, 0.9, rows).reshape(rows, *[1] * (len(shape) - 1))  # not alike in the two slices
            truths = random.random(shape) < often
            if style == SOME and truths.ndim > 1:
                truths[..., 0] = True
            return (truths + (style == ABOVE and dtype != "bool")).astype(dtype)
        values = random.normal(size=shape) if style == "signed" else random.uniform(0.05, 0.95, shape)
        if style == SHARES and len(shape) > 1:
            values /= values.sum(axis=-1, keepdims=True)
        return (values + (style == ABOVE)).astype(dtype)

    return keras.tree.map_structure(one, tree)


def rows_of(arrays: Any, start: int, stop: int | None) -> Any:
    import keras

    def cut(array: Any) -> Any:
        if array is None:
            return None
        if array.dtype.kind == "U":
            return text(array[start:stop])
        return keras.ops.convert_to_tensor(array[start:stop])

    return keras.tree.map_structure(cut, arrays)


def text(array: Any) -> Any:
    """Only TensorFlow has tensors of text."""
    import tensorflow as tf

    return tf.constant(array)


def ignored_labels(labels: Any, seed: int, marks: Iterable[float] = IGNORED) -> Iterator[Any]:
    """These labels, with a mark in place of some of them, for each of the marks that their type can hold."""
    import keras

    chosen = random_like(labels, "binary", seed + 1)
    for mark in marks:
        changed: list[bool] = []

        def marked(values: Any, marks: Any, mark: float = mark, changed: list[bool] = changed) -> Any:
            made = with_mark(values, marks, mark)
            changed.append(made is not values)
            return made

        made = keras.tree.map_structure(marked, labels, chosen)
        if any(changed):
            yield made


def scaled_labels(labels: Any) -> Any:
    """These labels, of another order of magnitude where they are no classes: what a loss does to large ones only."""
    import keras

    def scaled(values: Any) -> Any:
        return values * values.dtype.type(LARGE) if values is not None and values.dtype.kind == "f" else values

    return keras.tree.map_structure(scaled, labels)


def with_mark(values: Any, marks: Any, mark: float) -> Any:
    """The mark where `marks` is not set; the values themselves where their type has no such number."""
    import numpy

    if values is None or values.dtype.kind not in "fiu" or (values.dtype.kind != "f" and not mark_fits(values, mark)):
        return values
    return numpy.where(marks.astype(bool), values, numpy.asarray(mark).astype(values.dtype))


def mark_fits(values: Any, mark: float) -> bool:
    import numpy

    limits = numpy.iinfo(values.dtype)
    return bool(limits.min <= mark <= limits.max)  # no NaN does
