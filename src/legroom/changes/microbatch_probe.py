"""Whether a loss is a mean or a sum over the samples, found out by computing it once whole and once in two slices.

Keras' own losses are known; anything else gets small random arrays of its output's shape, several kinds of them, and random
weights where the whole model has to be called (`made_up_calls`).

Private names used, tested with Keras 3.15.1: `keras.src.losses.losses.LossFunctionWrapper` (`fn`, `_fn_kwargs`),
`Layer._loss_ids`, `Layer._flatten_layers`, `Trainer._compute_loss`, `Trainer._compile_loss`, `CompileLoss._user_loss`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.compared import compared_by, marks_around
from legroom.changes.cutting import numbers_each
from legroom.changes.later_numbers import waited
from legroom.changes.made_up import IGNORED, ROWS, SOME, ignored_labels, random_like, rows_of, scaled_labels
from legroom.changes.made_up_calls import Forward, added_losses, made_for_model, overriding
from legroom.changes.microbatch_kinds import (
    MODEL_TOLERANCE,
    TOLERANCE,
    Call,
    Kind,
    all_kinds_or_none,
    both,
    eagerly,
    first_of,
    kinds_in_slices,
    kinds_or_none,
    kinds_when_forced,
)
from legroom.changes.microbatch_later import Owners, kinds_later
from legroom.changes.microbatch_sizes import as_array, kinds_in_other_sizes
from legroom.errors import InputError

LARGE_WEIGHTS = 30.0
MOST_INPUTS = 6  # numbers among inputs that are tried, each of which takes three forward passes
COUPLED = ("dice", "tversky", "circle")  # of Keras' own losses those that may look at several samples at once
STYLES = ("binary", "unit", "signed", "binary again")


@dataclass(frozen=True)
class LossKind:
    """What slicing must know of one loss; `own_call` where it replaces `Loss.__call__` and with it the reduction."""

    shape: Kind
    own_call: bool = False


@dataclass(frozen=True)
class Kinds:
    """What has been found out about one model's losses, so that nothing is probed twice."""

    losses: dict[Any, tuple[Any, LossKind]] = field(default_factory=dict)
    others: dict[str, tuple[Kind, ...]] = field(default_factory=dict)

    def forget(self) -> None:
        self.losses.clear()
        self.others.clear()

    def of_loss(self, loss: Any, y_true: Any, y_pred: Any, *, eager: bool = False) -> LossKind:
        """`eager`: it is asked anew at every step, and not traced once."""
        source = source_of(loss)
        key = (id(source), outline_of(y_true), outline_of(y_pred))
        if key not in self.losses:
            self.losses[key] = (source, probe_loss(loss, y_true, y_pred, eager=eager))  # held: its id stays its own
        return self.losses[key][1]

    def of_added(self, model: Any, part: Any, count: int) -> tuple[Kind, ...]:
        if "added" not in self.others:
            self.others["added"] = probe_added(model, part.x, count)
        if len(self.others["added"]) != count:
            raise undecided(model, "add_loss() in one call, not in another,")
        return self.others["added"]

    def of_model(self, model: Any, part: Any) -> Kind:
        if "model" not in self.others:
            self.others["model"] = (probe_model(model, part),)
        return self.others["model"][0]


def outline_of(tree: Any) -> tuple[Any, ...]:
    """Shapes without the batch's size, and types: what was found for labels of one kind says nothing of others."""
    import keras

    return tuple((tuple(leaf.shape[1:]), str(leaf.dtype)) for leaf in keras.tree.flatten(tree) if leaf is not None)


def source_of(loss: Any) -> Any:
    """The user's own object: Keras wraps a plain function anew each time a model is compiled."""
    from keras.src.losses.losses import LossFunctionWrapper

    return loss.fn if type(loss) is LossFunctionWrapper and not loss._fn_kwargs else loss


def name_of(loss: Any) -> str:
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or type(loss).__name__)


def is_known_loss(loss: Any, y_pred: Any) -> bool:
    """One of Keras' own losses that gives a value for each sample, whatever the others are: they look along the last axis, which must not be the batch's."""
    import keras
    from keras.src.losses.losses import LossFunctionWrapper

    if any(len(leaf.shape) < 2 for leaf in keras.tree.flatten(y_pred)):
        return False
    function = getattr(loss, "fn", None)
    if type(loss).call is not LossFunctionWrapper.call or function is None:
        return False
    ours = getattr(function, "__module__", None) == LossFunctionWrapper.__module__
    return ours and function.__name__ not in COUPLED and loss._fn_kwargs.get("axis", -1) == -1


def probe_loss(loss: Any, y_true: Any, y_pred: Any, *, eager: bool = False) -> LossKind:
    """The kind of a compiled loss; refused if it is neither a value a sample, nor a mean, nor a sum."""
    import keras

    own_call = type(loss).__call__ is not keras.losses.Loss.__call__
    if is_known_loss(loss, y_pred) and not own_call:
        return LossKind("samples")

    def call(labels: Any, predictions: Any) -> Any:
        if own_call:
            return loss(labels, predictions)
        convert = lambda array: keras.ops.convert_to_tensor(array, dtype=loss.dtype)  # noqa: E731
        return loss.call(keras.tree.map_structure(convert, labels), keras.tree.map_structure(convert, predictions))

    def call_rows(rows: Any) -> list[Any]:
        return [call(*rows)]

    found: set[Kind] | None = None
    for style in (*STYLES, SOME):
        if style == SOME and found is not None:
            break
        pair = (random_like(y_true, style), random_like(y_pred, "signed" if style == "signed" else "unit", seed=1))
        kinds = kinds_in_slices(call_rows, pair)[0]
        if kinds is not None:
            found = kinds if found is None else found & kinds

    def made(rows: int) -> Any:
        return random_like(y_true, SOME, rows=rows), random_like(y_pred, "unit", 1, rows)

    usual, predictions = random_like(y_true, "binary"), random_like(y_pred, "unit", seed=1)
    around = marks_around(eagerly(lambda: compared_by(call, usual, predictions)))
    pairs = [(labels, predictions) for labels in unusual(usual, random_like(y_true, "signed"), around)]
    pairs += [(usual, made) for made in unusual(predictions, random_like(y_pred, "signed"), around, ())]
    for pair in pairs:
        kinds = kinds_or_none(call_rows, pair)
        if kinds is not None and found is not None:
            found = found & kinds
    for (kinds,) in kinds_when_forced(call_rows, (usual, predictions)):
        if kinds is not None and found is not None:
            found = found & kinds
    numbers = numbers_each(y_true, y_pred)
    for (kinds,) in kinds_in_other_sizes(f"loss {name_of(loss)!r}", call_rows, made, numbers, TOLERANCE):
        if kinds is not None and found:
            found = found & kinds
    found = later(found, call_rows, (usual, predictions), Owners([loss], eager), undecided_loss(loss))
    if not found or (own_call and found == {"samples"}):
        raise undecided_loss(loss)
    return LossKind(first_of(found), own_call)


def later(found: set[Kind] | None, call: Call, arrays: Any, owners: Owners, refused: InputError) -> set[Kind] | None:
    """What is left when the numbers that it computes with are others; raised if nothing is."""
    for names, (kinds,) in kinds_later(call, arrays, owners):
        left = found if kinds is None or not found else found & kinds
        if found and not left:
            raise waited(refused, names)
        found = left
    return found


def undecided_loss(loss: Any) -> InputError:
    return InputError(
        f"The loss {name_of(loss)!r} cannot be computed in slices of the batch: it is neither a value for each sample "
        "nor their mean or sum.",
        "Let it return one value a sample, or plan with something other than micro-batches.",
    )


def unusual(usual: Any, values: Any, around: Iterable[float], ignored: Iterable[float] = IGNORED) -> Iterator[Any]:
    """Labels or predictions with marks for what is to be left out, the usual ones and those around the numbers that are compared; and large values."""
    yield from ignored_labels(usual, 0, dict.fromkeys((*ignored, *around)))
    yield scaled_labels(values)


def probe_added(model: Any, x: Any, count: int) -> tuple[Kind, ...]:
    """The kind of everything that layers add with `add_loss` (activity regularisers too) when the model is called."""
    refused: InputError | None = None
    for training in (True, False):

        def call(rows: Any, training: bool = training, scale: float = 1.0) -> list[Any]:
            return added_losses(model, rows[0], training, scale)

        (rows,) = made_for_model((x,))
        found = kinds_in_slices(call, (rows,), MODEL_TOLERANCE)
        compared = eagerly(lambda: compared_by(lambda x: call((x,)), rows))  # noqa: B023
        for marked in ignored_labels(rows, 0, compared[:MOST_INPUTS]):  # a padding id among the inputs, say
            found = both(found, all_kinds_or_none(call, (marked,)))
        for kinds in kinds_when_forced(call, (rows,), MODEL_TOLERANCE):
            found = both(found, kinds)
        if compared:  # with what lies inside, perhaps, where it may be larger
            found = both(found, all_kinds_or_none(call, (scaled_labels(rows),)))
            found = both(found, all_kinds_or_none(lambda rows: call(rows, scale=LARGE_WEIGHTS), (rows,)))
        made = lambda rows: made_for_model((x,), rows)  # noqa: E731
        for kinds in kinds_in_other_sizes("loss of add_loss()", call, made, numbers_each(x), MODEL_TOLERANCE):
            found = both(found, kinds)
        owners = Owners(model._flatten_layers(), model.run_eagerly, MODEL_TOLERANCE)
        for names, kinds in kinds_later(call, (rows,), owners):
            left = both(found, kinds)
            refused = waited(undecided(model, "add_loss()"), names) if all(found) and not all(left) else refused
            found = left
        if len(found) == count and all(found):
            return tuple(first_of(kinds) for kinds in found if kinds)
    raise refused or undecided(model, "add_loss()")


def probe_model(model: Any, part: Any) -> Kind:
    """The kind of a model's own `compute_loss`, its regularisers within."""
    import keras

    weighted = part.sample_weight is not None
    specs = (part.x, part.y, part.sample_weight) if weighted else (part.x, part.y)
    x, y, *weight = made_for_model(specs)
    for training in (True, False):
        forward = Forward(model, training)

        def loss_of(rows: Any, forward: Forward = forward) -> Any:
            x, y_pred, y, *weight = rows
            _, mapping, losses = forward.of(x)
            with keras.StatelessScope(state_mapping=mapping), overriding(model, losses):
                return model._compute_loss(x, y, y_pred, weight[0] if weight else None, training=True)

        def call(rows: Any, loss_of: Callable[[Any], Any] = loss_of) -> list[Any]:
            return [loss_of(rows)]

        inputs = eagerly(lambda: rows_of(x, 0, ROWS))
        made = eagerly(lambda: keras.tree.map_structure(as_array, forward.of(inputs)[0]))  # noqa: B023
        found = kinds_in_slices(call, (x, made, y, *weight), MODEL_TOLERANCE)[0]
        if found and found != {"samples"}:
            compares = lambda *given: loss_of((inputs, *given))  # noqa: B023, E731
            around = marks_around(eagerly(lambda: compared_by(compares, made, y, *weight)))  # noqa: B023
            pairs = [(made, labels) for labels in unusual(y, random_like(part.y, "signed", 1), around)]
            others = [random_like(made, style, 1) for style in ("unit", "signed")]  # made-up weights give means near 0
            pairs += [(predictions, y) for predictions in (*unusual(made, made, around, ()), *others)]
            for predictions, labels in pairs:
                kinds = kinds_or_none(call, (x, predictions, labels, *weight), MODEL_TOLERANCE)
                found = found if kinds is None else found & kinds
            for (kinds,) in kinds_when_forced(call, (x, made, y, *weight), MODEL_TOLERANCE):
                found = found if kinds is None else found & kinds

            def of_model(rows: int, forward: Forward = forward) -> Any:
                x, *others = made_for_model(specs, rows)
                outputs = eagerly(lambda: keras.tree.map_structure(as_array, forward.of(rows_of(x, 0, rows))[0]))
                return x, outputs, *others

            for (kinds,) in kinds_in_other_sizes(
                "loss of compute_loss()", call, of_model, numbers_each(*specs, made), MODEL_TOLERANCE
            ):
                found = found if kinds is None else found & kinds
            owners = Owners(model._flatten_layers(), model.run_eagerly, MODEL_TOLERANCE, forward.known.clear)
            found = later(found, call, (x, made, y, *weight), owners, undecided(model, "compute_loss()"))
            if not found:
                break
            return first_of(found - {"samples"})
    raise undecided(model, "compute_loss()")


def undecided(model: Any, what: str) -> InputError:
    names = [layer.name for layer in model._flatten_layers() if layer._loss_ids] or [model.name]
    return InputError(
        f"The loss that {', '.join(map(repr, names[:3]))} makes with {what} is neither a mean over the samples nor a sum "
        "of them, so that it cannot be computed in slices of the batch.",
        "Plan with something other than micro-batches, or make it a mean over the samples.",
    )


def compiled_losses(model: Any) -> Iterator[Any]:
    """The losses given to `compile`, as Keras would wrap them."""
    import keras
    from keras.src.losses.losses import LossFunctionWrapper

    compiled = model._compile_loss
    for loss in keras.tree.flatten(compiled._user_loss) if compiled is not None else ():
        if isinstance(loss, keras.losses.Loss):
            yield loss
        elif callable(loss):
            yield LossFunctionWrapper(loss, name=name_of(loss))
