"""The generators of random numbers of this process, kept and put back, so that a resumed run draws what it would have drawn.

Private names used, tested with TensorFlow 2.21.0 and Keras 3.15.1: `context.context()._rng` (gives eager random operations
their seeds), `global_state.get_global_attribute("global_seed_generator")`. Layers' own generators are variables of the model.
"""

import random
import sys
from typing import Any


def kept() -> dict[str, Any]:
    """As plain data."""
    import numpy as np

    version, numbers, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)
    found: dict[str, Any] = {"python": [version, list(numbers), gauss], "numpy": [name, keys.tolist(), *rest]}  # type: ignore[union-attr]
    generator = tensorflow_generator()
    if generator is not None:
        version, numbers, gauss = generator.getstate()
        found["tensorflow"] = [version, list(numbers), gauss]
    return found


def put_back(found: dict[str, Any]) -> None:
    import numpy as np

    version, numbers, gauss = found["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = found["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    generator = tensorflow_generator()
    if generator is not None and "tensorflow" in found:
        version, numbers, gauss = found["tensorflow"]
        generator.setstate((version, tuple(numbers), gauss))


def tensorflow_generator() -> random.Random | None:
    """There only where the script has set a seed."""
    if "tensorflow" not in sys.modules:
        return None
    from tensorflow.python.eager import context

    found = getattr(context.context(), "_rng", None)
    return found if isinstance(found, random.Random) else None


def keras_generator() -> Any:
    """The variable of Keras' global generator, or None."""
    from keras.src.backend.common import global_state

    found = global_state.get_global_attribute("global_seed_generator")
    return None if found is None else found.state
