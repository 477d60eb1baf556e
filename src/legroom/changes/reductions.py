"""A batch's loss, taken apart into the shares of its slices: a mean over the batch is the sum of the slices' shares of it.

Follows `keras/src/trainers/compile_utils.py` (`CompileLoss.call`); what one loss gives for one slice is in `shares`.

Private names used, tested with Keras 3.15.1: `keras.src.backend.get_keras_mask`, `CompileLoss._flat_losses`, `CompileLoss._metrics`,
`CompileLoss._user_loss`, `Trainer._compile_loss`, `Trainer._compute_loss`, `Trainer._aggregate_additional_loss`, `Layer._get_regularization_losses`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from legroom.capture.frames import first_line
from legroom.changes.known_layers import statistics_reason
from legroom.changes.microbatch_probe import Kinds, LossKind, compiled_losses, name_of, source_of
from legroom.changes.microbatch_samples import check_samples
from legroom.changes.python_state import PythonState
from legroom.changes.shares import Call, Term, cast_like, floating, term_of
from legroom.changes.trained_so import TrainedSo, state_of, trained_so
from legroom.engines.out_of_memory import is_oom
from legroom.errors import InputError, LegroomError


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


class Whole(Protocol):
    """A batch, and whether its size is known while it is traced."""

    @property
    def batch(self) -> Any: ...

    @property
    def static(self) -> bool: ...


@dataclass(frozen=True)
class Losses:
    """How one model's loss falls into slices; `kinds` remembers what probing has found."""

    model: Any
    kinds: Kinds = field(default_factory=Kinds)
    checked: set[str] = field(default_factory=set)
    allowed: bool = True  # that layers take statistics of a slice, as they were when the plan was applied
    trained: list[TrainedSo] = field(default_factory=list)  # as what is known was found out, if anything is
    states: dict[TrainedSo, PythonState] = field(default_factory=dict)

    def renewed(self) -> bool:
        """Whether the model is trained in another way than before, so that all is forgotten that has been found out."""
        before, now = list(self.trained), self.trained_now()
        self.trained[:] = [now]
        if not before or before == [now]:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        self.kinds.forget()
        self.checked.clear()

    def trained_now(self) -> TrainedSo:
        now = trained_so([self.model])
        if now not in self.states:
            self.states[now] = state_of(self.owners, map(source_of, compiled_losses(self.model)))
        return TrainedSo(*now.things, self.states[now].now())

    def owners(self) -> list[Any]:
        """Whose code runs in a step."""
        return [*self.model._flatten_layers(), *map(source_of, compiled_losses(self.model))]

    def check_samples(self, x: Any, size: Any) -> None:
        """Refuse a model that does not keep its samples apart in slices of this size; where layers say so by their class, it must have been allowed."""
        reasons = [reason for layer in self.model._flatten_layers() if (reason := statistics_reason(layer))]
        if reasons and not self.allowed:
            raise InputError(
                f"The batch cannot be cut: {reasons[0]}, and that layer was frozen, or not there, when the plan was applied.",
                "Take the plan back with legroom.undo(model), and plan again for the model as it is now.",
            )
        if "apart" not in self.checked and not reasons:
            check_samples(self.model, x, size)
            self.checked.add("apart")

    @property
    def opaque(self) -> bool:
        """Whether the model has a `compute_loss` of its own, which is taken as one scalar."""
        return overrides(self.model, "compute_loss")

    @property
    def own_metrics(self) -> bool:
        """Whether the model has a `compute_metrics` of its own."""
        return overrides(self.model, "compute_metrics")

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
                terms.append(term_of(call, self.kind_of(loss, y_true, predicted)))
                return keras.ops.zeros(())

            return record

        with replaced_losses(compiled, recorder):
            compiled(part.y, y_pred, part.sample_weight)
        # Keras counts only the first of several losses on the one output of a model without nested outputs.
        alone = not keras.tree.is_nested(part.y) and not keras.tree.is_nested(y_pred)
        return terms[:1] if alone else terms

    def kind_of(self, loss: Any, y_true: Any, y_pred: Any) -> LossKind:
        """How it falls into slices; what a loss of the user's raises where it is tried out is a reason not to."""
        with few_samples(f"loss {name_of(loss)!r}"):
            return self.kinds.of_loss(loss, y_true, y_pred, eager=bool(self.model.run_eagerly))

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


def overrides(model: Any, name: str) -> bool:
    """Whether a method of Keras' trainer is the user's own, of the class or of this model."""
    import keras

    return getattr(type(model), name) is not getattr(keras.Model, name) or name in model.__dict__


def summed(parts: list[Any]) -> Any:
    """The sum of those that are there; zero where none is."""
    import keras

    there = [part for part in parts if part is not None]
    return sum(there[1:], start=there[0]) if there else keras.ops.zeros((), keras.config.floatx())


def update_loss_metrics(model: Any, loss: SliceLoss, values: list[Any], cut: Whole) -> None:
    """Keras logs each of several losses by itself, weighted by the batch where its size is known while tracing, or where it has a value for each sample."""
    compiled = model._compile_loss
    metrics = [] if compiled is None else compiled.metrics
    if len(metrics) == len(values):
        for metric, term, value in zip(metrics, loss.terms, values, strict=True):
            metric.update_state(value, sample_weight=cut.batch if cut.static or term.of_samples else None)


def growth(totals: list[Any], valids: list[Any]) -> list[Any]:
    """By how much each term grows when what is masked is left out of its divisor."""
    from keras import ops

    return [ops.divide_no_nan(total, valid) for total, valid in zip(totals, valids, strict=True)]


def at_path(path: tuple[Any, ...], tree: Any) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def build_loss(compiled: Any, part: Slice, y_pred: Any) -> None:
    """Keras builds its compiled loss at the first call; here that call leaves no trace in the loss trackers."""
    import keras

    if not compiled.built:
        names = ", ".join(name_of(loss) for loss in keras.tree.flatten(compiled._user_loss))
        with few_samples(f"loss {names!r}", lambda: compiled.built), keras.StatelessScope():
            compiled(part.y, y_pred, part.sample_weight)


@contextmanager
def few_samples(what: str, is_theirs: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """What a loss of the user's raises on a slice, or where it is tried out, is a reason not to cut the batch."""
    try:
        yield
    except LegroomError:
        raise
    except Exception as error:
        if is_oom(error) or not is_theirs():
            raise  # the guard knows what to do; or it is Keras' own, of labels that do not suit the outputs
        raise InputError(
            f"The {what} cannot be computed in slices of the batch: on a few samples it raises {first_line(error)}",
            "Let it take batches of any size, or plan with something other than micro-batches.",
        ) from error


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
