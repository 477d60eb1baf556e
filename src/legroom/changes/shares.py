"""One loss in one slice of a batch: its share of the batch's value.

Follows `keras/src/losses/loss.py` (`reduce_weighted_values`, `apply_mask`). A mask's entries are counted in the forward pass only, so a
share under a mask is taken as if nothing were masked, and `Term.total` and `Term.valid` say by how much it has to grow once all slices
have been seen.

Private names used, tested with Keras 3.15.1: `keras.src.losses.loss.squeeze_or_expand_to_same_rank`, `keras.src.backend.get_keras_mask`.
"""

from dataclasses import dataclass
from typing import Any

from legroom.changes.microbatch_probe import LossKind, name_of
from legroom.errors import InputError

MEANS = ("mean", "sum_over_batch_size")


@dataclass(frozen=True)
class Call:
    """One loss and what it is called with: in the slice, and of the whole batch the sample weight."""

    loss: Any
    y_true: Any
    y_pred: Any
    sample_weight: Any
    whole_weight: Any
    fraction: Any
    weight: float | None


@dataclass(frozen=True)
class Term:
    """One loss in one slice: its share of the batch's value (`value` to differentiate, `shown` for the logs)."""

    value: Any
    shown: Any
    weight: float | None = None
    total: Any = None  # entries under the mask, and
    valid: Any = None  # what the loss divides by; both None where no mask is
    group: tuple[int, int] | None = None  # terms of one group grow by the same factor
    of_samples: bool = False  # not reduced: the logs are of a value for each sample


def term_of(call: Call, kind: LossKind) -> Term:
    """As `Loss.__call__` would have it, in shares of the batch."""
    from keras.src import backend

    in_mask = backend.get_keras_mask(call.y_pred)
    if kind.own_call:
        if call.sample_weight is not None or in_mask is not None:
            raise cannot(call.loss, "it has a __call__ of its own, and there is a sample weight or a mask")
        value = call.loss(call.y_true, call.y_pred)
    else:
        values, out_mask = call_loss(call.loss, call.y_true, call.y_pred)
        if kind.shape == "samples":
            return samples_term(call, values, in_mask, out_mask)
        value = scalar_share(call, values, joined(in_mask, out_mask))
    value = floating(value if kind.shape == "sum" else value * cast_like(call.fraction, value))
    return Term(value, value, call.weight)


def samples_term(call: Call, values: Any, in_mask: Any, out_mask: Any) -> Term:
    """The share of a loss with a value for each sample (or each of its steps or pixels)."""
    from keras import ops

    loss, mask = call.loss, joined(in_mask, out_mask)
    values, merged = weighted(values, call.sample_weight, mask)
    added = ops.sum(values)
    mean = floating(added / entries(values) * cast_like(call.fraction, values))
    if loss.reduction in (None, "none"):
        return Term(floating(added), mean, call.weight, of_samples=True)
    if loss.reduction == "sum":
        return Term(floating(added), floating(added), call.weight)
    if loss.reduction == "mean_with_sample_weight" and merged is not None:
        if mask is None:
            divisor = ops.sum(ops.convert_to_tensor(call.whole_weight, dtype=added.dtype))
            share = floating(ops.divide_no_nan(added, divisor))
            return Term(share, share, call.weight)
        return Term(mean, mean, call.weight, entries(values), ops.sum(merged), (id(call.y_pred), id(loss)))
    if mask is None:
        return Term(mean, mean, call.weight)
    group = (id(in_mask), 0) if out_mask is None else (id(call.y_pred), id(loss))
    return Term(
        mean, mean, call.weight, entries(ops.cast(mask, values.dtype)), ops.sum(ops.cast(mask, values.dtype)), group
    )


def entries(tensor: Any) -> Any:
    """How many there are, in the tensor's own type."""
    from keras import ops

    return ops.cast(ops.prod(ops.convert_to_tensor(ops.shape(tensor), dtype="int32")), tensor.dtype)


def call_loss(loss: Any, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """The loss before its reduction, and the mask that it made itself."""
    import keras
    from keras.src import backend

    def convert(tensor: Any) -> Any:
        return keras.ops.convert_to_tensor(tensor, dtype=loss.dtype)

    with keras.name_scope(loss.name):
        values = loss.call(keras.tree.map_structure(convert, y_true), keras.tree.map_structure(convert, y_pred))
    mask = backend.get_keras_mask(values)
    return keras.ops.convert_to_tensor(values, dtype=loss.dtype), mask


def weighted(values: Any, sample_weight: Any, mask: Any) -> tuple[Any, Any]:
    """Values times weights and mask, and the product of these two; a masked entry weighs nothing, any other one."""
    from keras import ops
    from keras.src.losses.loss import squeeze_or_expand_to_same_rank

    merged = None if sample_weight is None else ops.convert_to_tensor(sample_weight, dtype=values.dtype)
    if mask is not None:
        float_mask = ops.cast(mask, values.dtype)
        if merged is None:
            merged = float_mask
        else:
            float_mask, merged = squeeze_or_expand_to_same_rank(float_mask, merged)
            merged = merged * float_mask
    if merged is None:
        return values, None
    values, merged = squeeze_or_expand_to_same_rank(values, merged)
    return values * merged, merged


def scalar_share(call: Call, value: Any, mask: Any) -> Any:
    """A loss that is a scalar already is multiplied by the mean (or the sum) of the whole batch's weights, as Keras does."""
    from keras import ops

    reduction = call.loss.reduction
    if mask is not None and (call.sample_weight is not None or reduction not in MEANS):
        raise cannot(call.loss, "it returns one number for the batch, and the output has a mask")
    if call.sample_weight is None or reduction == "mean_with_sample_weight":
        return value
    whole = ops.convert_to_tensor(call.whole_weight, dtype=value.dtype)
    return value * (ops.mean(whole) if reduction in MEANS else ops.sum(whole))


def joined(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def cannot(loss: Any, why: str) -> InputError:
    return InputError(
        f"The loss {name_of(loss)!r} cannot be computed in slices of the batch: {why}.",
        "Let it return one value a sample, with a reduction of keras.losses.Loss.",
    )


def floating(value: Any) -> Any:
    """As `CompileLoss` casts its values: to Keras' default float."""
    import keras

    return keras.ops.cast(value, keras.config.floatx())


def cast_like(number: Any, tensor: Any) -> Any:
    import keras

    return keras.ops.cast(number, tensor.dtype)
