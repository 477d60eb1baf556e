"""The batch that a call of `fit` or `train_on_batch` hands to the train step, as shapes and kinds of its arrays: as Keras packs, splits and casts what it is given."""

from math import floor
from typing import Any

from legroom.capture.batch import (
    DEFAULT_BATCH,
    ArraySpec,
    Tree,
    batch_of,
    leaf_spec,
    map_specs,
    specs_of,
    specs_of_dataset,
    with_batch,
)
from legroom.errors import InputError


def data_of_fit(arguments: dict[str, Any], whole_batch: bool) -> Tree:
    """The batch that a call of `fit` (or, with `whole_batch`, of `train_on_batch`) would hand to the train step, as specs."""
    x, y, weight = arguments.get("x"), arguments.get("y"), arguments.get("sample_weight")
    class_weight = arguments.get("class_weight")
    if x is None:
        raise InputError("fit() was called without data.", "Pass x, a dataset or a generator.")
    if whole_batch:
        return add_class_weight(tuple(specs_of(part) for part in (x, y, weight)), class_weight)
    if is_dataset(x):
        return add_class_weight(specs_of_dataset(x), class_weight)
    if is_array_tree(x):
        batch = int(arguments.get("batch_size") or DEFAULT_BATCH)
        count = batch_of(specs_of(x))
        if count == 0:
            raise InputError("The arrays given to fit() are empty: there is no first batch.")
        if count and arguments.get("validation_split") and arguments.get("validation_data") is None:
            count = max(1, floor(count * (1.0 - arguments["validation_split"])))
        parts = with_batch(
            tuple(standard_floats(specs_of(part)) for part in (x, y, weight)), min(batch, count) if count else batch
        )
        return add_class_weight(pack(*parts), class_weight)
    return add_class_weight(standard_floats(standard_batch(specs_of(first_batch(x)))), class_weight)


def pack(x: Tree, y: Tree, weight: Tree) -> Tree:
    """As Keras packs arrays: x alone stays x."""
    if weight is not None:
        return (x, y, weight)
    if y is not None:
        return (x, y)
    return (x,) if isinstance(x, list | tuple) else x


def standard_batch(tree: Tree) -> Tree:
    """As Keras takes the batches of generators, PyDatasets and loaders: a list is a tuple, an array alone a tuple of one."""
    if isinstance(tree, list):
        return tuple(tree)
    return (tree,) if isinstance(tree, ArraySpec) else tree


def is_dataset(x: Any) -> bool:
    return any(cls.__name__ in ("DatasetV2", "DistributedDataset") for cls in type(x).__mro__) and hasattr(
        x, "element_spec"
    )


def is_array_tree(x: Any) -> bool:
    if isinstance(x, dict):
        return all(is_array_tree(value) for value in x.values())
    if isinstance(x, list | tuple):
        return bool(x) and all(is_array_tree(value) for value in x)
    return leaf_spec(x) is not None or type(x).__module__.startswith("pandas") or x is None


def first_batch(x: Any) -> Any:
    """The first batch of a PyDataset, a generator or a loader; its script is stopped afterwards, so none is missed."""
    import keras

    if isinstance(x, keras.utils.PyDataset):
        return x[0]
    try:
        return next(iter(x))
    except StopIteration:
        raise InputError("The data given to fit() is empty: its first batch does not exist.") from None
    except TypeError as error:
        raise InputError(
            f"Cannot read a batch from a {type(x).__name__}.",
            "Pass arrays, a tf.data.Dataset, a PyDataset or a generator.",
        ) from error


def standard_floats(tree: Tree) -> Tree:
    """Keras hands arrays to the model in its default float type, whatever float they were made in."""
    import keras

    floatx = keras.config.floatx()
    return map_specs(
        lambda spec: ArraySpec(spec.shape, floatx) if spec.dtype.startswith(("float", "bfloat")) else spec, tree
    )


def add_class_weight(tree: Tree, class_weight: Any) -> Tree:
    """`class_weight` arrives in the step as a sample weight for each example."""
    if class_weight is None or not isinstance(tree, tuple) or (len(tree) > 2 and tree[2] is not None):
        return tree
    import keras

    return (*(*tree, None)[:2], ArraySpec((batch_of(tree),), keras.config.floatx()))
