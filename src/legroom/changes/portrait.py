"""A live Keras model's Portrait: what it runs, in order, and how it is trained. Cheap: nothing is traced and no weight is read.

Private names used, tested with Keras 3.15.1: those of `remat_units`, whose names for layers are the ones that plans use.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from legroom.changes.remat_units import Unit, functional_of, units_of
from legroom.errors import InputError
from legroom.records.portrait import Part, Portrait, snake_case

ITSELF = "(the model's own)"


def portrait_of(model: Any) -> Portrait:
    """The structure of a model as it is now; it need not be built."""
    import keras

    if not isinstance(model, keras.Model):
        raise InputError(f"A plan is for a keras.Model; received a {type(model).__name__}.", "Pass the model itself.")
    units = units_of(model)
    parts = tuple(part for part in parts_of(units) if part.kind != "InputLayer")
    optimizer = getattr(model, "optimizer", None)
    graph = functional_of(model)
    return Portrait(
        kind=type(model).__name__,
        parts=(*parts, *own_part(model, units)),
        inputs=None if graph is None else tuple(input_text(tensor) for tensor in graph.inputs),
        optimizer=None if optimizer is None else type(optimizer).__name__,
        loss=None if optimizer is None else loss_text(getattr(model, "loss", None)),
    )


def parts_of(units: Sequence[Unit], above: str = "") -> Iterator[Part]:
    for unit in units:
        kind = above + type(unit.operation).__name__
        if unit.inside:
            yield from parts_of(unit.inside, f"{kind}/")
        else:
            yield Part(unit.name, kind, weights_of(unit.operation), str(getattr(unit.operation, "compute_dtype", "")))


def own_part(model: Any, units: Sequence[Unit]) -> Iterator[Part]:
    """Weights that a subclassed model holds itself, outside its layers."""
    inner = {id(weight) for unit in units for weight in getattr(unit.operation, "weights", ())}
    own = tuple(variable_text(weight) for weight in model.weights if id(weight) not in inner)
    if own:
        yield Part(ITSELF, "", own)


def weights_of(operation: Any) -> tuple[str, ...] | None:
    if not getattr(operation, "built", True):
        return None
    return tuple(variable_text(weight) for weight in getattr(operation, "weights", ()))


def variable_text(variable: Any) -> str:
    sizes = ",".join(str(size) for size in variable.shape)
    return f"{'' if variable.trainable else 'frozen '}{variable.dtype}[{sizes}]"


def input_text(tensor: Any) -> str:
    """Its shape, with any number of samples."""
    sizes = ("?", *("?" if size is None else str(size) for size in tensor.shape[1:]))
    return f"{tensor.dtype}[{','.join(sizes)}]"


def loss_text(loss: Any) -> str:
    """A loss by name, the same for "mse", a function and an object of that kind."""
    import keras

    if isinstance(loss, dict):
        return "{" + ", ".join(f"{key}: {loss_text(loss[key])}" for key in sorted(loss, key=str)) + "}"
    if isinstance(loss, list | tuple):
        return "[" + ", ".join(loss_text(one) for one in loss) + "]"
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:
            return str(loss)
    if loss is None:
        return ""
    return str(getattr(loss, "__name__", None) or snake_case(type(loss).__name__))
