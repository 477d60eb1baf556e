"""Models of Keras' own layers, of which it is known that they keep the samples of a batch apart, and layers that do not by their class.

Private names used, tested with Keras 3.15.1: `Layer._flatten_layers`, `Trainer._compile_loss`, and `_inbound_nodes` of an operation.
"""

from collections.abc import Iterator
from typing import Any

STATISTICS = ("batchnorm", "batchrenorm", "minibatch")  # in the names of layers that look at several samples at once
ELEMENTWISE = (  # operations of keras.ops between samples of one shape
    *("Absolute", "Add", "Cast", "Divide", "DivideNoNan", "Elu", "Exp", "Expm1", "Gelu"),
    *("HardSigmoid", "HardSilu", "LeakyRelu", "Log", "Log1p", "Maximum", "Minimum", "Multiply", "Negative"),
    *("Power", "Reciprocal", "Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid", "Silu", "Softplus"),
    *("Softsign", "Sqrt", "Square", "Subtract", "Tanh", "TrueDivide"),
)
TRAINER = frozenset(f"{name}_{kind}" for name in ("train", "test", "predict") for kind in ("step", "function"))
TRAINER |= {"make_train_function"}
RECOMPUTED, REDRAWN = (
    "legroom_rematerialises",
    "legroom_redraws",
)  # on calls of layers that are ours, and compute what theirs did
MIXING = ("Lambda", "MixUp", "CutMix", "TorchModuleWrapper", "FlaxLayer", "JaxLayer", "TFSMLayer")


def statistics_reason(layer: Any) -> str | None:
    import keras

    names = [cls.__name__.lower().replace("_", "") for cls in type(layer).__mro__]
    if layer.trainable and any(word in name for name in names for word in STATISTICS):
        return f"{layer.name} takes its statistics from the slice, not from the batch"
    if isinstance(layer, keras.layers.SpectralNormalization):
        return f"{layer.name} iterates once for each slice"
    return None


def is_known(model: Any) -> bool:
    """Made of Keras' own layers only, none of which works along the batch or calls a function of the user's, and at most sums and the like between them."""
    return next(unknown_parts(model), None) is None


def unknown_parts(model: Any) -> Iterator[str]:
    """The layers and operations of which it must be tried out whether they keep the samples apart."""
    layers = list(model._flatten_layers())
    for layer in layers:
        if not is_known_layer(layer):
            yield f"{'model' if layer is model else 'layer'} {layer.name!r}"
    for one in (one for layer in layers for one in getattr(layer, "operations", ())):
        if not hasattr(one, "_flatten_layers") and not is_elementwise(one):
            yield f"operation {one.name!r}"


def is_known_layer(layer: Any) -> bool:
    if may_work_along_batch(layer) or type(layer).__name__ in MIXING or not is_of_keras(type(layer)):
        return False
    compiled = ("loss",) if hasattr(layer, "_compile_loss") else ()  # of a model, which does not call it on its way
    held = [one for name, one in vars(layer).items() if name not in TRAINER and name not in compiled]
    return not any(callable(one) and not is_of_keras(one) and not is_ours(one) for one in held)


def is_ours(call: Any) -> bool:
    return hasattr(call, RECOMPUTED) or hasattr(call, REDRAWN)


def may_work_along_batch(layer: Any) -> bool:
    """The last axis is never the batch's; from another that is counted from the end it cannot be told."""
    axes = getattr(layer, "axis", None), getattr(layer, "axes", None)
    each = [one for axis in axes for one in (axis if isinstance(axis, list | tuple) else [axis])]
    return any(isinstance(one, int) and one < 1 and one != -1 for one in each)


def is_of_keras(thing: Any) -> bool:
    """A class or function of Keras', or an object of such a class: an activation may be anything."""
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return str(module).startswith("keras.")


def is_elementwise(operation: Any) -> bool:
    """Whether each sample that comes out is made of the same sample of each tensor that goes in, and of numbers."""
    import keras

    kind = type(operation)
    if not kind.__module__.startswith("keras.src.ops.") or kind.__name__ not in ELEMENTWISE:
        return False
    for node in operation._inbound_nodes:
        arguments = node.arguments
        ranks = {len(tensor.shape) for tensor in arguments.keras_tensors}
        given = keras.tree.flatten((arguments.args, arguments.kwargs))
        others = [one for one in given if not isinstance(one, keras.KerasTensor)]
        if len(ranks) != 1 or not all(one is None or isinstance(one, int | float | str) for one in others):
            return False
    return True
