"""A few elements of a tf.data stage, made without filling its buffers: a second pipeline without shuffles and caches."""

import re
from typing import Any

from legroom.engines.host.kinds import SAME_ELEMENTS, kind_of

ELEMENTS = 3


def sample(dataset: Any) -> list[Any]:
    """Up to three elements as this stage makes them; none if they cannot be made here."""
    try:
        return list(lean(dataset).take(ELEMENTS))
    except Exception:  # noqa: BLE001 — the user's own code runs here, and whatever it raises, the bounds stay as they are
        return []


def lean(dataset: Any) -> Any:
    """The same elements without buffers: sources and functions as they are, everything that only keeps elements left out."""
    import tensorflow as tf

    inside = getattr(dataset, "_impl", None) or getattr(dataset, "_dataset", None)
    if inside is not None and hasattr(inside, "element_spec"):
        return lean(inside)
    name = re.sub(r"(^_|V[0-9]$)", "", type(dataset).__name__)
    kind = kind_of(name)
    inputs = list(dataset._inputs())
    if not inputs:
        return dataset
    if kind in SAME_ELEMENTS or kind in ("concatenate", "merge"):
        return lean(inputs[0])
    if kind == "zip":
        return tf.data.Dataset.zip(tf.nest.map_structure(lean, dataset._datasets))
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    if kind == "map" and function is not None and name != "ScanDataset":
        return lean(inputs[0]).map(function)
    if kind == "interleave" and function is not None:
        return lean(inputs[0]).flat_map(function)
    if kind == "unbatch":
        return lean(inputs[0]).unbatch()
    if name == "PaddedBatchDataset":
        return lean(inputs[0]).padded_batch(dataset._batch_size, dataset._padded_shapes, dataset._padding_values)
    if name in ("BatchDataset", "ParallelBatchDataset"):
        return lean(inputs[0]).batch(dataset._batch_size)
    return dataset
