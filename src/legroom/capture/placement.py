"""Tensors that a script has put on the CPU by hand: `with tf.device("CPU"): x = tf.constant(array)`.

Where there is no GPU every tensor is on the CPU, so it must be noted while they are made. All that is made from Python values
goes through one function.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.framework.constant_op.convert_to_eager_tensor`.
"""

import weakref
from typing import Any

_on_cpu: dict[int, Any] = {}


def watch_placement() -> None:
    """Note from now on which tensors are made under a device scope of a CPU. Where TensorFlow has changed, nothing is noted."""
    from tensorflow.python.framework import constant_op

    original = getattr(constant_op, "convert_to_eager_tensor", None)
    if original is None:
        return

    def convert(value: Any, ctx: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = original(value, ctx, *args, **kwargs)
        if "CPU" in (getattr(ctx, "device_name", None) or "") and tensor.shape.rank:
            number = id(tensor)
            _on_cpu[number] = weakref.ref(tensor, lambda _: _on_cpu.pop(number, None))
        return tensor

    constant_op.convert_to_eager_tensor = convert


def is_kept_on_cpu(tensor: Any) -> bool:
    """Whether the script itself has put the tensor on the CPU."""
    known = _on_cpu.get(id(tensor))
    return known is not None and known() is tensor
