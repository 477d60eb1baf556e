"""Small values that a graph computes about itself: shapes, loop counters, indices. Computed for real, on the CPU.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.eager.execute.execute`.
"""

from collections.abc import Callable
from typing import Any

LARGEST = 4096  # elements; anything larger is data, not arithmetic about shapes
DTYPES = ("int32", "int64", "bool", "int8", "int16", "uint8")


def numpy_functions() -> dict[str, Callable[..., Any]]:
    """What loops do in every iteration, without the way through TensorFlow."""
    import numpy as np

    return {
        "Add": np.add,
        "AddV2": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Less": np.less,
        "LessEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterEqual": np.greater_equal,
        "Equal": np.equal,
        "NotEqual": np.not_equal,
        "LogicalAnd": np.logical_and,
        "LogicalOr": np.logical_or,
        "LogicalNot": np.logical_not,
        "Minimum": np.minimum,
        "Maximum": np.maximum,
        "Identity": lambda x: x,
        "FloorMod": np.mod,
        "FloorDiv": np.floor_divide,
    }


class Evaluator:
    """Evaluates ops of a graph whose inputs are known."""

    def __init__(self) -> None:
        self.functions = numpy_functions()

    def evaluate(self, operation: Any, inputs: list[Any]) -> list[Any] | None:
        """The outputs' values, or None if they cannot be told without running the step."""
        import numpy as np

        if not all(output.dtype.name in DTYPES for output in operation.outputs) or operation.op_def.is_stateful:
            return None
        if any((output.shape.num_elements() or 0) > LARGEST for output in operation.outputs):
            return None
        function = self.functions.get(operation.type)
        if function is not None:
            return [np.asarray(function(*inputs), operation.outputs[0].dtype.as_numpy_dtype)]
        return self.execute(operation, inputs)

    def execute(self, operation: Any, inputs: list[Any]) -> list[Any] | None:
        import tensorflow as tf
        from tensorflow.python.eager import context, execute

        attributes: list[Any] = []
        for name in operation.node_def.attr:
            if not name.startswith("_"):
                attributes += [name, plain(operation.get_attr(name))]
        try:
            with tf.device("CPU:0"), tf.init_scope():
                given = [tf.constant(value) for value in inputs]
                found = execute.execute(
                    operation.type, len(operation.outputs), given, tuple(attributes), context.context()
                )
        except (tf.errors.OpError, TypeError, ValueError):
            return None
        return [output.numpy() for output in found]


def plain(value: Any) -> Any:
    """An attribute as the runtime takes it."""
    enum = getattr(value, "as_datatype_enum", None)
    if enum is not None:
        return enum
    return [plain(item) for item in value] if isinstance(value, list) else value
