"""The guard's functions put where `fit`, `evaluate` and `predict` look for theirs, and taken away again.

Private names used, tested with Keras 3.15.1: `Trainer.train_function`, `test_function`, `predict_function`: made before
`on_train_begin` (…), looked up at each step, and made again when they are None.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from legroom.capture.keras_execution import framework_of_keras
from legroom.engines.out_of_memory import oom_of
from legroom.errors import LegroomError
from legroom.guard.attempts import Options
from legroom.guard.evaluating import Cutting, Guarded, Predicting, Testing
from legroom.guard.journal import Journal, Position, Witness
from legroom.guard.retry import GaveUp, Ways
from legroom.guard.room import Room
from legroom.guard.training import Training
from legroom.records.run import Way, Where

Ended = Callable[[], None]
WHERE: dict[str, Where] = {"train": "training", "test": "evaluation", "predict": "prediction"}


@dataclass
class Installed:
    """One of the guard's functions in place of Keras' own."""

    witness: Witness
    undo: Callable[[], None]
    ways: Ways | None = None
    training: Training | None = None
    guarded: Any = None  # what `evaluate` or `predict` calls
    original: Any = None  # and what is in its place else

    def way(self) -> Way:
        return Way() if self.ways is None else self.ways.way

    def begin(self, way: Way) -> None:
        """Run steps this way from the first one on, if it takes less than the way they are run, and may be taken."""
        if self.ways is None or (
            way.micro_batches <= self.ways.way.micro_batches and way.recomputed <= self.ways.way.recomputed
        ):
            return
        function = self.ways.model.train_function
        with suppress(LegroomError):
            self.ways.take(way, None)
        self.ways.model.train_function = function

    def careful(self) -> int:
        return 0 if self.training is None else self.training.update.careful

    def note_callback(self, error: BaseException) -> None:
        if oom_of(error) is not None and not isinstance(error, GaveUp):
            self.witness.note_foreign(error, "callback")

    def put_back(self) -> None:
        self.undo()


@dataclass(frozen=True, slots=True)
class Notes:
    """What a run has written so far, where it is, and what was put in place for the evaluation before."""

    journal: Journal
    position: Position
    earlier: Installed | None = None


def install(model: Any, what: str, notes: Notes, options: Options, ended: Ended) -> Installed:
    """Guard this model's next `fit`, `evaluate` or `predict`."""
    if framework_of_keras() == "jax":
        return install_on_jax(model, what, notes, options, ended)
    room = Room()
    witness = Witness(notes.journal, room, notes.position)
    reason = cannot_guard(model, what)
    if reason:
        return not_guarded(witness, what, reason)
    name = f"{what}_function"
    original = getattr(model, name)
    if what == "train":
        ways = Ways(model, options.allow)
        training = Training(
            witness=witness, options=options, room=room, ways=ways, model=model, original=original, ended=ended
        )
        model.train_function = training
        return Installed(witness, lambda: leave_training(training), ways, training)
    cutting = Cutting(witness, WHERE[what])
    guarded: Guarded = Testing(model, cutting, ended)
    if what == "predict":
        guarded = Predicting(model, cutting, ended, original=original)
    return in_place(model, what, guarded, witness, notes.earlier)


def in_place(model: Any, what: str, guarded: Any, witness: Witness, earlier: Installed | None) -> Installed:
    """The guard's function for `evaluate` or `predict`, until it is put back.

    Validation comes back with every epoch: the earlier function is taken, with all it has traced, unless Keras has made another
    of its own since. In how many slices batches are taken stays for the run.
    """
    name = f"{what}_function"
    original = getattr(model, name)
    if earlier is not None and earlier.guarded is not None and earlier.guarded.model is model:
        if earlier.original is original:
            guarded = earlier.guarded
        else:
            guarded.cut_into(earlier.guarded.slices)
    setattr(model, name, guarded)

    def undo() -> None:
        if getattr(model, name) is guarded:
            setattr(model, name, original)

    return Installed(witness, undo, guarded=guarded, original=original)


def jax_batches(model: Any, what: str, witness: Witness, limit_bytes: int, ended: Ended) -> Any:
    from legroom.guard.jax_evaluating import JaxPredicting, JaxTesting

    if what == "predict":
        return JaxPredicting(model, witness, limit_bytes, ended)
    names = ("trainable_variables", "non_trainable_variables", "metrics_variables")
    return JaxTesting(model, witness, limit_bytes, ended, where="evaluation", names=names)


def install_on_jax(model: Any, what: str, notes: Notes, options: Options, ended: Ended) -> Installed:
    """Steps on JAX are compiled: they are asked about before they start."""
    from legroom.guard.jax_training import JaxTraining, cannot_guard_jax, limit_of_device

    witness = Witness(notes.journal, None, notes.position)
    limit = options.budget_bytes or limit_of_device()
    reason = cannot_guard_jax(model, limit)
    if reason or limit is None:
        return not_guarded(witness, what, reason)
    if what != "train":
        return in_place(model, what, jax_batches(model, what, witness, limit, ended), witness, notes.earlier)
    ways = Ways(model, options.allow)
    training = JaxTraining(model, model.train_function, witness, ways, limit, ended)
    model.train_function = training
    return Installed(witness, lambda: leave_training(training), ways)


def leave_training(training: Any) -> None:
    """The model as it was found; what was changed in between, Keras makes anew."""
    model, ways = training.model, training.ways
    changed = ways.undo is not None
    ways.take_back()
    if changed:
        model.train_function = None
    elif model.train_function is training:
        model.train_function = training.original


def not_guarded(witness: Witness, what: str, reason: str) -> Installed:
    witness.note(replace(witness.event("not_guarded", WHERE[what]), message=reason))
    return Installed(witness, lambda: None)


def cannot_guard(model: Any, what: str) -> str:
    """Why it cannot be guarded at all, or nothing."""
    if model.distribute_strategy.num_replicas_in_sync > 1:
        return "it runs on several replicas."
    if what == "train" and model.optimizer is None:
        return "the model was compiled without an optimizer."
    return ""
