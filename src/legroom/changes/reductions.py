"""A batch's loss, taken apart into the shares of its slices: a mean over the batch is the sum of the slices' shares of it.

Follows `keras/src/losses/loss.py` (`reduce_weighted_values`, `apply_mask`) and `keras/src/trainers/compile_utils.py`
(`CompileLoss.call`). A mask's entries are counted in the forward pass only, so a share under a mask is taken as if nothing
were masked, and `Term.total` and `Term.valid` say by how much it has to grow once all slices have been seen.

Private names used, tested with Keras 3.15.1: `keras.src.losses.loss.squeeze_or_expand_to_same_rank`,
`keras.src.backend.get_keras_mask`, `CompileLoss._flat_losses`, `CompileLoss._metrics`, `Trainer._compile_loss`,
`Trainer._compute_loss`, `Trainer._aggregate_additional_loss`, `Layer._get_regularization_losses`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from legroom.changes.microbatch_probe import Kinds, LossKind, name_of
from legroom.changes.microbatch_samples import check_samples, statistics_reason
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


@dataclass(frozen=True)
class Slice:
    """A part of the batch, with its share of it."""

    x: Any
    y: Any
    sample_weight: Any
    fraction: Any  # its size over the batch's


@dataclass(frozen=True)
class SliceLoss:
    """All the losses of one slice. `added` is the share of `add_loss` and of activity regularisers."""

    terms: tuple[Term, ...]
    added: Any = None

    def objective(self, factors: Any) -> Any:
        """What to differentiate; `factors`, one a term, where the masks of the whole batch are known already."""
        parts = self.weighted([term.value for term in self.terms])
        if factors is not None:
            parts = [part * factor for part, factor in zip(parts, factors, strict=True)]
        return summed([*parts, self.added])

    def counts(self) -> tuple[list[Any], list[Any]]:
        """The entries under each term's mask and the divisors; ones where there is no mask."""
        totals = [floating(1.0 if term.total is None else term.total) for term in self.terms]
        valids = [floating(1.0 if term.valid is None else term.valid) for term in self.terms]
        return totals, valids

    @property
    def mixed(self) -> bool:
        """Whether its parts grow by different factors, so that the sum of their gradients cannot be mended at the end."""
        groups = {term.group for term in self.terms} | ({None} if self.added is not None else set())
        return len(groups) > 1

    def sums(self) -> list[Any]:
        """What the slices add up: each term's share, the counts, and what was added."""
        totals, valids = self.counts()
        return [*(term.shown for term in self.terms), *totals, *valids, *([] if self.added is None else [self.added])]

    def totals(self, sums: Any) -> tuple[list[Any], list[Any], Any]:
        """From the slices' `sums` added up: the terms' values for the batch, by how much they have grown, and the added."""
        size = len(self.terms)
        shown, totals, valids = (list(sums[size * i : size * (i + 1)]) for i in range(3))
        factors = growth(totals, valids)
        values = [value * factor for value, factor in zip(shown, factors, strict=True)]
        return values, factors, sums[-1] if self.added is not None else None

    def with_values(self, sums: list[Any]) -> "SliceLoss":
        """The same losses with other `sums`, such as zeros to start from."""
        size = len(self.terms)
        terms = tuple(
            replace(
                term,
                value=sums[number],
                shown=sums[number],
                total=None if term.total is None else sums[size + number],
                valid=None if term.valid is None else sums[2 * size + number],
            )
            for number, term in enumerate(self.terms)
        )
        return SliceLoss(terms, None if self.added is None else sums[-1])

    def weighted(self, values: list[Any]) -> list[Any]:
        """The terms' values, times their loss weights."""
        pairs = zip(self.terms, values, strict=True)
        return [value if term.weight is None else value * term.weight for term, value in pairs]


@dataclass(frozen=True)
class Losses:
    """How one model's loss falls into slices; `kinds` remembers what probing has found."""

    model: Any
    kinds: Kinds = field(default_factory=Kinds)
    checked: set[str] = field(default_factory=set)

    def check_samples(self, x: Any) -> None:
        """Refuse a model that does not keep its samples apart; where layers say so by their class, it was known and allowed."""
        if "apart" not in self.checked:
            if not any(statistics_reason(layer) for layer in self.model._flatten_layers()):
                check_samples(self.model, x)
            self.checked.add("apart")

    @property
    def opaque(self) -> bool:
        """Whether the model has a `compute_loss` of its own, which is taken as one scalar."""
        from keras.src.trainers.trainer import Trainer

        return type(self.model).compute_loss is not Trainer.compute_loss

    @property
    def own_metrics(self) -> bool:
        """Whether the model has a `compute_metrics` of its own."""
        from keras.src.trainers.trainer import Trainer

        return type(self.model).compute_metrics is not Trainer.compute_metrics

    def of_slice(self, part: Slice, y_pred: Any, whole_weight: Any) -> SliceLoss:
        """The losses of a slice after its forward pass; `whole_weight` is the sample weight of the whole batch."""
        if self.opaque:
            self.require_no_mask(y_pred)
            loss = self.model._compute_loss(part.x, part.y, y_pred, part.sample_weight, training=True)
            share = loss if self.kinds.of_model(self.model, part) == "sum" else loss * cast_like(part.fraction, loss)
            return SliceLoss((Term(share, share),))
        terms = tuple(self.compiled_terms(part, y_pred, whole_weight))
        return SliceLoss(terms, self.added_share(part))

    def require_no_mask(self, y_pred: Any) -> None:
        """What a mask leaves is another share of each slice, and what a model's own loss does about that cannot be seen."""
        import keras
        from keras.src import backend

        if any(backend.get_keras_mask(output) is not None for output in keras.tree.flatten(y_pred)):
            raise InputError(
                f"The batch cannot be cut: {type(self.model).__name__} has a compute_loss of its own, and its output has a mask.",
                "Use a loss in compile() instead of compute_loss(), or plan with something other than micro-batches.",
            )

    def compiled_terms(self, part: Slice, y_pred: Any, whole_weight: Any) -> list[Term]:
        import keras

        compiled = self.model._compile_loss
        if compiled is None:
            return []
        build_loss(compiled, part, y_pred)
        terms: list[Term] = []

        def recorder(path: tuple[Any, ...], loss: Any, weight: float | None) -> Any:
            def record(y_true: Any, predicted: Any, sample_weight: Any = None) -> Any:
                nested = whole_weight is not None and keras.tree.is_nested(whole_weight)
                whole = at_path(path, whole_weight) if nested else whole_weight
                call = Call(loss, y_true, predicted, sample_weight, whole, part.fraction, weight)
                terms.append(term_of(call, self.kinds.of_loss(loss, y_true, predicted)))
                return keras.ops.zeros(())

            return record

        with replaced_losses(compiled, recorder):
            compiled(part.y, y_pred, part.sample_weight)
        # Keras counts only the first of several losses on the one output of a model without nested outputs.
        alone = not keras.tree.is_nested(part.y) and not keras.tree.is_nested(y_pred)
        return terms[:1] if alone else terms

    def added_share(self, part: Slice) -> Any:
        """The share of what layers added while they were called, activity regularisers among it; None where nothing was."""
        model = self.model
        added = model.losses
        regularisers = len(model._get_regularization_losses())
        added = added[: len(added) - regularisers]
        if not added:
            return None
        shares = []
        for kind, loss in zip(self.kinds.of_added(model, part, len(added)), added, strict=True):
            value = floating(model._aggregate_additional_loss(loss))
            shares.append(value if kind == "sum" else value * cast_like(part.fraction, value))
        return summed(shares)

    def regularisers(self) -> Any:
        """The weights' regularisers, summed: they belong to the step, not to a slice of it. None where there are none."""
        if self.opaque:
            return None
        losses = [floating(self.model._aggregate_additional_loss(x)) for x in self.model._get_regularization_losses()]
        return summed(losses) if losses else None


def summed(parts: list[Any]) -> Any:
    """The sum of those that are there; zero where none is."""
    import keras

    there = [part for part in parts if part is not None]
    return sum(there[1:], start=there[0]) if there else keras.ops.zeros((), keras.config.floatx())


def update_loss_metrics(model: Any, values: list[Any], batch: int | None) -> None:
    """Keras logs each of several losses by itself, weighted by the batch where its size is known while tracing."""
    compiled = model._compile_loss
    metrics = [] if compiled is None else compiled.metrics
    if len(metrics) == len(values):
        for metric, value in zip(metrics, values, strict=True):
            metric.update_state(value, sample_weight=batch)


def growth(totals: list[Any], valids: list[Any]) -> list[Any]:
    """By how much each term grows when what is masked is left out of its divisor."""
    from keras import ops

    return [ops.divide_no_nan(total, valid) for total, valid in zip(totals, valids, strict=True)]


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
        return Term(floating(added), mean, call.weight)
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


def at_path(path: tuple[Any, ...], tree: Any) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def floating(value: Any) -> Any:
    """As `CompileLoss` casts its values: to Keras' default float."""
    import keras

    return keras.ops.cast(value, keras.config.floatx())


def cast_like(number: Any, tensor: Any) -> Any:
    import keras

    return keras.ops.cast(number, tensor.dtype)


def build_loss(compiled: Any, part: Slice, y_pred: Any) -> None:
    """Keras builds its compiled loss at the first call; here that call leaves no trace in the loss trackers."""
    import keras

    if not compiled.built:
        with keras.StatelessScope():
            compiled(part.y, y_pred, part.sample_weight)


@contextmanager
def replaced_losses(compiled: Any, replace: Any) -> Iterator[None]:
    """Keras' own code finds each loss its output, label and weight; its trackers are left out, they count once a step."""
    losses, metrics = compiled._flat_losses, compiled._metrics
    compiled._flat_losses = [
        entry._replace(loss=replace(entry.path, entry.loss, entry.loss_weights), loss_weights=None) for entry in losses
    ]
    compiled._metrics = [None] * len(metrics)
    try:
        yield
    finally:
        compiled._flat_losses, compiled._metrics = losses, metrics
