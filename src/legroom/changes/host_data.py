"""Arrays that `fit` is given stay in RAM: Keras makes tensors of them on the CPU, and batches go to the GPU one by one.

TensorFlow puts an eager tensor on the GPU, whole, and `fit` makes one of every array. Here the dataset that Keras makes of arrays is
made under `tf.device("CPU:0")`, by Keras' own code: the order of the samples, shuffled or not, is the same. Tensors that
the script has put on the GPU itself stay there. Private names used, tested with Keras 3.15.1: `ArrayDataAdapter.get_tf_dataset`.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from legroom.errors import InputError, MissingError

METHODS = ("fit", "evaluate", "predict")


def keep_in_ram(model: Any) -> Callable[[], None]:
    """Let the model's `fit`, `evaluate` and `predict` leave arrays on the host; returns the way back."""
    import keras

    if keras.backend.backend() != "tensorflow":
        raise InputError("Keras on JAX keeps arrays in RAM anyway.", "There is nothing to change.")
    if any(name in vars(model) for name in METHODS):
        raise InputError(f"A method of the model {model.name!r} is replaced already.", "Undo that first.")
    for name in METHODS:
        vars(model)[name] = on_host(getattr(model, name))

    def undo() -> None:
        for name in METHODS:
            vars(model).pop(name, None)

    return undo


def on_host(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with datasets_on_host():
            return method(*arguments, **named)

    return call


@contextmanager
def datasets_on_host() -> Iterator[None]:
    """Meanwhile, datasets that Keras makes of arrays are made on the CPU."""
    import tensorflow as tf
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    plain = vars(ArrayDataAdapter).get("get_tf_dataset")
    if plain is None:
        raise MissingError("Keras makes datasets of arrays in another way than in the tested version (Keras 3.15.1).")

    @functools.wraps(plain)
    def get_tf_dataset(adapter: Any) -> Any:
        with tf.device("CPU:0"):
            return plain(adapter)

    ArrayDataAdapter.get_tf_dataset = get_tf_dataset
    try:
        yield
    finally:
        ArrayDataAdapter.get_tf_dataset = plain
