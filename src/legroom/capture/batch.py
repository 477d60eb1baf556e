"""Batches as shapes: whatever a script hands to `fit`, read into a tree of `ArraySpec` without loading more than it must.

Arrays and tensors give their shape and dtype; a `tf.data` pipeline its element spec (nothing of it runs as long as its
batch size can be read from it); generators, PyDatasets and loaders their first batch. Structure (tuples, dicts, lists,
None) is kept, so that the step is traced with what it would really see.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from legroom.errors import InputError

BATCHES = ("BatchDataset", "ParallelBatchDataset")
SAME_ELEMENTS = (
    *(
        "PrefetchDataset",
        "CacheDataset",
        "ShuffleDataset",
        "RepeatDataset",
        "TakeDataset",
        "SkipDataset",
        "OptionsDataset",
    ),
    *("ShardDataset", "FilterDataset", "TakeWhileDataset", "AssertCardinalityDataset", "FinalizeDataset"),
)
MAPS = ("MapDataset", "ParallelMapDataset")
DEFAULT_BATCH = 32  # what Keras takes when `fit` is given arrays and no batch_size


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The shape and dtype of one array of a batch; `None` stands for a dimension that is not known yet."""

    shape: tuple[int | None, ...]
    dtype: str


Tree = Any  # nested tuples, lists, dicts and None with ArraySpec leaves


def map_specs(function: Callable[[ArraySpec], Any], tree: Tree) -> Any:
    """The same structure with `function` applied to every ArraySpec; everything else stays as it is."""
    if isinstance(tree, ArraySpec):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_specs(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_specs(function, value) for value in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(map_specs(function, value) for value in tree)
    return tree


def iter_specs(tree: Tree) -> Iterator[ArraySpec]:
    """All ArraySpecs of a tree, in order."""
    if isinstance(tree, ArraySpec):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from iter_specs(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from iter_specs(value)


def batch_of(tree: Tree) -> int | None:
    """The leading dimension of the first array that has a known one: the batch size."""
    return next((spec.shape[0] for spec in iter_specs(tree) if spec.shape and spec.shape[0] is not None), None)


def with_batch(tree: Tree, batch: int) -> Tree:
    """The tree for another batch size: every leading dimension that was the batch (or unknown) becomes `batch`."""
    old = batch_of(tree)

    def resize(spec: ArraySpec) -> ArraySpec:
        if spec.shape and spec.shape[0] in (old, None):
            return ArraySpec((batch, *spec.shape[1:]), spec.dtype)
        return spec

    return map_specs(resize, tree)


def require_static(tree: Tree) -> None:
    """Refuse a batch with a dimension that nobody knows: no number can be computed from it."""
    for spec in iter_specs(tree):
        if None in spec.shape:
            shown = ", ".join("?" if size is None else str(size) for size in spec.shape)
            raise InputError(
                f"The batch has an array of shape ({shown}) whose size is not known before it is loaded.",
                "Give it a size, the largest that occurs: padded_batch with padded_shapes, a fixed sequence length, "
                "`set_shape` in the map function; if it is the batch size, --batch will do.",
            )


def leaf_spec(value: Any) -> ArraySpec | None:
    """The spec of one array-like value, or None if it is not one (a string, None, a Python object)."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return None
    sizes = tuple(None if size is None else int(size) for size in shape)
    name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    return ArraySpec(sizes, str(name))


def specs_of(value: Any) -> Tree:
    """The tree of specs of one batch of real arrays; numbers are taken as the arrays they become."""
    if value is None:
        return None
    spec = leaf_spec(value)
    if spec is not None:
        return spec
    if isinstance(value, Mapping):
        return {key: specs_of(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(specs_of(item) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(specs_of(item) for item in value)
    if hasattr(value, "__array__") or isinstance(value, bool | int | float):
        import numpy as np

        return leaf_spec(np.asarray(value))
    raise InputError(
        f"Cannot tell the shape of a batch's {type(value).__name__}.",
        "Pass arrays, tensors, a tf.data.Dataset, a PyDataset or a generator of batches.",
    )


def static_element(dataset: Any) -> Any | None:
    """A tf.data pipeline's element spec with its batch size filled in, found without running it; None if it takes a run.

    Walks back to the last `.batch(...)` through stages that leave elements as they are; a `map` is traced with known shapes.
    """
    import tensorflow as tf

    name = type(dataset).__name__.lstrip("_")
    size = getattr(dataset, "_batch_size", None)
    if size is not None and name in BATCHES and tf.get_static_value(size) is not None:
        count = int(tf.get_static_value(size))
        return tf.nest.map_structure(lambda spec: fill_batch(spec, count), dataset.element_spec)
    before = getattr(dataset, "_input_dataset", None)
    element = None if before is None or name not in (*SAME_ELEMENTS, *MAPS) else static_element(before)
    if element is None or name in SAME_ELEMENTS:
        return element
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    arguments = element if isinstance(element, tuple) else (element,)
    if function is None:
        return None
    with suppress(TypeError, ValueError, AttributeError, tf.errors.OpError):
        outputs = tf.function(function, autograph=True).get_concrete_function(*arguments).structured_outputs
        return tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), outputs)
    return None


def fill_batch(spec: Any, count: int) -> Any:
    """A spec whose leading dimension is the batch's."""
    shape = getattr(spec, "shape", None)
    if shape is None or shape.rank in (None, 0) or shape[0] is not None:
        return spec
    return type(spec)((count, *shape[1:]), spec.dtype)


def specs_of_dataset(dataset: Any) -> Tree:
    """A tf.data pipeline's element spec with its batch size filled in; an element is made only if that is unknown."""
    import tensorflow as tf

    def leaf(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec):
            rank = spec.shape.rank
            if rank is None:
                raise InputError(
                    "The tf.data pipeline yields tensors of unknown rank.",
                    "Give their shapes: output_signature in from_generator, or `tensor.set_shape(...)` in the map function.",
                )
            return ArraySpec(tuple(spec.shape.as_list()), spec.dtype.name)
        if spec is None or type(spec).__name__ == "NoneTensorSpec":
            return None
        raise InputError(
            f"The tf.data pipeline yields a {type(spec).__name__}, which has no fixed size in memory.",
            "Convert it to dense tensors of a fixed shape (`.to_tensor(shape=...)`) before the step.",
        )

    tree = tf.nest.map_structure(leaf, dataset.element_spec)
    if not is_open(tree):
        return tree
    static = static_element(dataset)
    tree = tree if static is None else tf.nest.map_structure(leaf, static)
    return specs_of(next(iter(dataset))) if is_open(tree) else tree


def is_open(tree: Tree) -> bool:
    """Whether the batch size of some array is not known."""
    return any(spec.shape and spec.shape[0] is None for spec in iter_specs(tree))
