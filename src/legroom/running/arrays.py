"""What variables hold, as arrays of the host."""

from typing import Any


def array_of(variable: Any) -> Any:
    """A copy of what a variable of Keras or TensorFlow holds now. (NumPy warns where it is given a `tf.Variable` itself.)"""
    import keras
    import numpy as np

    value = variable.value if isinstance(variable, keras.Variable) else variable
    return value.numpy() if hasattr(value, "numpy") else np.array(value)
