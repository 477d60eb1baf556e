"""One training step cut into micro-batches inside itself: gradients are summed, and the optimizer updates once.

Callbacks, schedules, `iterations`, logs and metrics see one step, and the gradients are the whole batch's. The arithmetic of
losses is in `reductions`, the loop in `microbatch_loop` (TensorFlow) and `microbatch_jax`; `custom_loop` runs a `train_step`
that the user wrote, and Keras' own where the model gives its own metrics numbers for the batch (`custom_metrics`), or sets variables in its loss (`own_variables`).

Private names used, tested with Keras 3.15.1: `NEEDED`, `Layer._seed_generators`, `CompileLoss._user_loss`, and those that the
other modules name.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from legroom.capture.keras_execution import framework_of_keras
from legroom.changes.custom_metrics import numbers_given
from legroom.changes.known_layers import statistics_reason, unknown_parts
from legroom.changes.microbatch_probe import compiled_losses, is_known_loss, name_of
from legroom.changes.own_code import code_of
from legroom.changes.own_variables import meets_variables
from legroom.changes.reductions import Losses, overrides
from legroom.changes.trained_so import TrainedSo, trained_so
from legroom.errors import InputError, LegroomError, MissingError
from legroom.records.plan import Effect, Exactness

TESTED = "Keras 3.15.1"
NEEDED = (
    *("_compile_loss", "_compile_metrics", "_loss_tracker", "_call_has_training_arg", "_flatten_layers"),
    *("_compute_loss", "_aggregate_additional_loss", "_get_regularization_losses", "_losses_override"),
)
MARK = "legroom_micro_batches"  # on the step that `split` puts in place
RATES = ("rate", "dropout", "recurrent_dropout", "stddev")


def split(model: Any, count: int) -> Callable[[], None]:
    """Make this model train in `count` slices of each batch; the function returned undoes it."""
    check_model(model, count)
    losses = Losses(model, allowed=exactness(model)[0] == "inexact")
    check_losses(model, losses)
    own = model.__dict__.get("train_step")
    step = new_step(model, count, losses)
    setattr(step, MARK, count)
    model.train_step = step
    model.train_function = None
    traced_as_before = traced_anew(model) if framework_of_keras() == "jax" else None

    def undo() -> None:
        if traced_as_before is not None:
            traced_as_before()
        if plain_step(model.__dict__.get("train_step")) is not step:
            return
        del model.train_step
        if own is not None:
            model.train_step = own
        model.train_function = None

    return undo


def traced_anew(model: Any) -> Callable[[], None]:
    """JAX knows a function that it has traced by what it is, whatever the model has been compiled with since: it is given another one each time that Keras
    makes a train function. The function returned undoes that."""
    own = model.__dict__.get("make_train_function")
    original = model.make_train_function

    def make_train_function(force: bool = False) -> None:
        step = model.__dict__.get("train_step")
        if hasattr(step, MARK) and (force or model.train_function is None):
            model.train_step = same_step(step)
        original(force)

    model.make_train_function = make_train_function

    def undo() -> None:
        if model.__dict__.get("make_train_function") is make_train_function:
            del model.make_train_function
            if own is not None:
                model.make_train_function = own

    return undo


def same_step(step: Any) -> Any:
    """Another function that does the same; the one that it does is its `__wrapped__`."""
    plain = plain_step(step)

    @wraps(plain)
    def stateless_train_step(state: Any, data: Any) -> Any:
        return plain(state, data)

    return stateless_train_step


def plain_step(step: Any) -> Any:
    return getattr(step, "__wrapped__", step)


def exactness(model: Any) -> tuple[Exactness, tuple[str, ...]]:
    """Whether a split step learns the same: "equivalent" where other random numbers are drawn; and the layers that decide."""
    layers = list(model._flatten_layers())
    inexact = [reason for layer in layers if (reason := statistics_reason(layer))]
    if inexact:
        return "inexact", tuple(inexact)
    random = [f"{layer.name} draws other random numbers" for layer in layers if is_random(layer)]
    return ("equivalent", tuple(random)) if random else ("exact", ())


def effect(model: Any) -> Effect:
    """What it does to what is learned, and what is the user's own, of which that can only be tried out."""
    return Effect(*exactness(model), tuple(own_parts(model)))


def own_parts(model: Any) -> Iterator[str]:
    if overrides(model, "train_step"):
        yield f"train_step() of {type(model).__name__}"
        return
    yield from unknown_parts(model)
    if overrides(model, "compute_loss"):
        yield f"compute_loss() of {type(model).__name__}"
        return
    outputs = getattr(model, "outputs", None) or []
    for loss in compiled_losses(model):
        if not is_known_loss(loss, outputs):
            yield f"loss {name_of(loss)!r}"


def is_random(layer: Any) -> bool:
    """Whether it holds a source of random numbers and uses it (an LSTM holds one for a dropout that is mostly zero), or runs code of the user's that draws some."""
    rates = [getattr(layer, name) for name in RATES if isinstance(getattr(layer, name, None), int | float)]
    return bool(layer._seed_generators and (not rates or any(rates))) or code_of(layer).draws


def check_model(model: Any, count: int) -> None:
    import keras

    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(
            f"A batch cannot be cut into {count!r} micro-batches.", "Give a whole number of them, 1 or more."
        )
    missing = [name for name in NEEDED if not hasattr(model, name)]
    if not isinstance(model, keras.Model):
        raise InputError(f"Expected a keras.Model to split, received a {type(model).__name__}.")
    if missing:
        raise MissingError(
            f"This Keras ({keras.__version__}) has no {missing[0]}, which Legroom needs for micro-batches (tested: {TESTED}).",
            "Install a tested version, or report it.",
        )
    if not model.compiled:
        raise InputError(
            f"The model {model.name!r} has not been compiled: its optimizer and loss are not known.",
            "Call model.compile(optimizer=..., loss=...) first.",
        )
    if model.optimizer is None:
        raise InputError(
            f"The model {model.name!r} was compiled without an optimizer: it has no update to hold back.",
            "Call model.compile(optimizer=..., loss=...).",
        )
    if hasattr(model.__dict__.get("train_step"), MARK):
        raise InputError(
            f"The model {model.name!r} is split already, into {getattr(model.train_step, MARK)} micro-batches.",
            "Undo that first: call the function that split() returned.",
        )
    stateful = [layer.name for layer in model._flatten_layers() if getattr(layer, "stateful", False)]
    if stateful:
        raise InputError(
            f"The layer {stateful[0]!r} keeps a state for each sample of a batch, so that the batch cannot be cut.",
            "Set stateful=False, or plan with something other than micro-batches.",
        )


def check_losses(model: Any, losses: Losses) -> None:
    """What can be known of custom losses before the first batch is tried now; the rest when the step is traced."""
    outputs = getattr(model, "outputs", None)
    if losses.opaque or not outputs or overrides(model, "train_step"):
        return
    for loss in compiled_losses(model):
        for output in outputs if len(outputs) == 1 else ():
            try:
                losses.kinds.of_loss(loss, output, output, eager=bool(model.run_eagerly))
            except LegroomError:
                raise
            except Exception:  # noqa: BLE001 - labels of another shape, perhaps: the trace will tell
                continue


def new_step(model: Any, count: int, losses: Losses) -> Any:
    """The step that runs in slices, as this backend calls it."""
    if framework_of_keras() == "jax":
        if overrides(model, "train_step"):
            raise InputError(
                f"{type(model).__name__} has a train_step of its own, which on JAX cannot be run in slices.",
                "Use compute_loss() instead of train_step(), or train on TensorFlow.",
            )
        if overrides(model, "compute_loss_and_updates"):
            raise InputError(
                f"{type(model).__name__} has a compute_loss_and_updates of its own, which cannot be run in slices.",
                "Use compute_loss() instead of it.",
            )
        from legroom.changes.microbatch_jax import Step as JaxStep

        jax_step = JaxStep(model, count, losses)

        def stateless_train_step(state: Any, data: Any) -> Any:
            return jax_step(state, data)

        return stateless_train_step
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise InputError(
            f"The model {model.name!r} trains on {model.distribute_strategy.num_replicas_in_sync} replicas, and its batches "
            "are cut for these already.",
            "Split a model that trains on one device.",
        )
    from legroom.changes.custom_loop import ALLOWED, SplitStep
    from legroom.changes.microbatch_tf import Step

    # what changes what is learned by its class, such as batch norm, was allowed before
    general = SplitStep(model.train_step, count, (ALLOWED,) if exactness(model)[0] == "inexact" else ())
    own = Step(model, count, losses)
    if overrides(model, "train_step"):

        def own_step(data: Any) -> Any:
            return general(data)

        return own_step
    chosen: dict[TrainedSo, Any] = {}

    def train_step(data: Any) -> Any:
        now = trained_so([model])
        if now not in chosen:  # only now is the model built, with all its metrics
            chosen[now] = general if numbers_given(model, data) or meets_variables(model, data) else own
        return chosen[now](data)

    return train_step
