"""Large arrays as a few numbers that add and scale as they do, so that gradients can be compared without being held.

A digest is a linear map with random signs, fixed by the array's size: sums over stretches of a dense array, and over groups of rows of a
sparse one. Small arrays are their own digest.
"""

from typing import Any

LENGTH = 4096  # numbers in a digest


def digest_of(leaf: Any) -> Any:
    """The digest of a tensor, variable, array or number, in double; None and text stay what they are."""
    import keras
    import numpy as np
    import tensorflow as tf

    if leaf is None or isinstance(leaf, str):
        return leaf
    if isinstance(leaf, tf.IndexedSlices):
        return digest_of_rows(np.asarray(leaf.values), np.asarray(leaf.indices))
    values = np.asarray(tf.convert_to_tensor(leaf) if isinstance(leaf, keras.Variable | tf.Variable) else leaf)
    if values.dtype.kind in "OSU":
        return values
    if values.size <= LENGTH:
        return values.astype("float64")
    flat = values.ravel() * signs(values.size)
    starts = np.linspace(0, flat.size, LENGTH, endpoint=False).astype(int)
    return np.add.reduceat(flat, starts, dtype="float64")


def digest_of_rows(values: Any, indices: Any) -> Any:
    """Rows of an embedding: those of one index go together, whichever samples they come from."""
    import numpy as np

    flat = values.reshape(len(indices), -1).astype("float64")
    weights = np.random.default_rng(flat.shape[1]).normal(size=flat.shape[1])
    found = np.zeros(LENGTH)
    np.add.at(found, indices % LENGTH, (flat @ weights) * np.where((indices // LENGTH) % 2, -1.0, 1.0))
    return found


def signs(size: int) -> Any:
    import numpy as np

    return np.random.default_rng(size).integers(0, 2, size, dtype="int8") * np.int8(2) - np.int8(1)
