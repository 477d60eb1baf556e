"""A training step that the user wrote, guarded: called like the function itself, and taken again in less memory where it runs out."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, update_wrapper
from typing import Any

from legroom.capture.own_work import own_work
from legroom.capture.tf_step import written_function
from legroom.changes.actions import perform
from legroom.changes.custom_arguments import arguments_of
from legroom.changes.custom_loop import MARK, is_tf_function
from legroom.changes.custom_models import models_of
from legroom.changes.drawn import nothing_drawn
from legroom.errors import InputError, LegroomError
from legroom.guard.attempts import Attempts, Options
from legroom.guard.function_step import Arguments, FunctionCopyStep, FunctionEagerStep, FunctionGraphStep, Written
from legroom.guard.function_update import JointUpdate
from legroom.guard.journal import Journal, Position, Witness
from legroom.guard.retry import Ways, all_blocks
from legroom.guard.room import Room
from legroom.guard.transaction import Step
from legroom.records.plan import Action, Exactness
from legroom.records.run import Run, Way

TRACED = (
    "It is called by a tf.function, which runs as a whole. Write @legroom.train_step(guard=True) above @tf.function, on the "
    "function that the script calls."
)


@dataclass(kw_only=True)
class FunctionWays(Ways):
    """How a function's steps are run now; `model` is the one that it computes with, None where there is not one."""

    written: Written
    last: Arguments | None = None  # what it was called with last

    def __post_init__(self) -> None:
        self.least = self.way.micro_batches  # that it begins with

    def splitting(self) -> tuple[Exactness, tuple[str, ...]]:
        """Tried out with the batch that there is no room for."""
        assert self.last is not None
        if "split" in self.reasons:
            return "exact", ()
        try:
            step = replace(self.written, allow=("batchnorm-split",)).sliced(2)
            kinds = step.prepare(arguments_of(*self.last))
        except LegroomError as error:
            self.reasons["split"] = error.message
            return "exact", ()
        return kinds.exactness, kinds.reasons

    def make_larger(self, batch: int | None) -> bool:
        """Half as many micro-batches, where there are more than it began with."""
        count = max(self.way.micro_batches // 2, self.least)
        if count == self.way.micro_batches:
            return False
        self.take(Way(count, self.way.recomputed), batch)
        return True

    def change(self, way: Way, batch: int | None) -> None:
        if way.recomputed:
            if self.model is None:
                raise InputError("Layers cannot be recomputed: the step does not compute with just one Keras model.")
            with nothing_drawn():
                blocks = all_blocks(self.model, batch or 1)
                self.undo = perform(self.model, [Action("remat", (("blocks", blocks),))]).undo
        self.way = way

    def take_back(self) -> None:
        undo, self.undo = self.undo, None
        if undo is not None:
            undo()
        self.way = Way(self.least)


@dataclass(kw_only=True)
class GuardedFunction(Attempts):
    """The guarded steps of one function."""

    written: Written
    original: Callable[..., Any]
    guarded: bool = True
    told: bool = False  # that it is not, inside a tf.function
    splits: dict[int, Callable[..., Any]] = field(default_factory=dict)  # what runs unguarded, in so many slices

    @cached_property
    def update(self) -> JointUpdate:
        return JointUpdate(None, self.room, self.note_update)

    @property
    def run(self) -> Run:
        """What happened so far."""
        journal, position = self.witness.journal, self.witness.position
        return Run(position.step, self.ways.way, self.update.careful, tuple(journal.events))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        if not tf.executing_eagerly() and self.guarded and not (self.told or own_work.on):
            self.told = True
            self.note_not_guarded((args, kwargs), TRACED)
        if not self.guarded or not tf.executing_eagerly():
            return self.unguarded(*args, **kwargs)
        assert isinstance(self.ways, FunctionWays)
        self.ways.last = args, kwargs
        try:
            return self.attempt((args, kwargs))
        finally:
            self.ways.last = None

    def batch_of(self, data: Any) -> int | None:
        try:
            front = arguments_of(*data).batch[0].shape[0]
        except LegroomError:
            return None
        return None if front is None else int(front)

    def new_runner(self) -> Step:
        import tensorflow as tf

        if self.written.graph is None or tf.config.functions_run_eagerly():
            return FunctionEagerStep(self.written, self.ways.way, self.update)
        return FunctionGraphStep(self.written, self.ways.way, self.update)

    def copying_runner(self) -> Step:
        return FunctionCopyStep(self.written, self.ways.way)

    def step_unguarded(self, data: Any, reason: str) -> Any:
        self.guarded = False
        self.note_not_guarded(data, reason)
        args, kwargs = data
        return self.unguarded(*args, **kwargs)

    def note_not_guarded(self, data: Any, reason: str) -> None:
        count = self.ways.way.micro_batches
        reason += f" It stays in {count} micro-batches." if count > 1 else ""
        self.witness.note(replace(self.witness.event("not_guarded", "training", self.batch_of(data)), message=reason))

    def unguarded(self, *args: Any, **kwargs: Any) -> Any:
        """As without the guard, in as many micro-batches as steps are run in now."""
        count = self.ways.way.micro_batches
        if count == 1:
            return self.original(*args, **kwargs)
        if count not in self.splits:
            self.splits[count] = self.written.split(count)
        return self.splits[count](*args, **kwargs)


def guard_function(
    function: Any,
    options: Options,
    journal: Journal,
    *,
    micro_batches: int = 1,
    original: Callable[..., Any] | None = None,
) -> GuardedFunction:
    """The function, plain or a `tf.function`, guarded. `original` is what is called where it cannot be."""
    if hasattr(function, MARK):
        raise InputError(
            "This training step is split already, and the guard could not take back what its slices do.",
            "Write both in one: @legroom.train_step(guard=True, micro_batches=4).",
        )
    graph = function if is_tf_function(function) else None
    plain = function if graph is None else written_function(graph)
    if options.copies and graph is None:
        raise InputError("copies=True is for a tf.function: what a function assigns is read from its graph.")
    written = Written(plain, graph, allow=options.allow)
    models = models_of(function)
    room = Room()
    ways = FunctionWays(
        model=models[0] if len(models) == 1 else None, allow=options.allow, way=Way(micro_batches), written=written
    )
    witness = Witness(journal, room, Position())
    made = GuardedFunction(
        witness=witness, options=options, room=room, ways=ways, written=written, original=original or function
    )
    update_wrapper(made, plain)
    return made
