"""TensorFlow is Keras' backend in this process; tests on JAX run in processes of their own."""

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

LONG = ("test_op_accuracy.py", "test_run_loops.py", "test_actions.py", "test_run_training.py", "test_gradients.py")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """The longest files first: two processes that share the files then end at about the same time."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))
