"""A training step that the user wrote, as a function, which happens as a whole or not at all.

As a graph it is traced once more, with its optimizers held back: what it assigns besides is read from the graph and held before
it, by reference, and its updates are made afterwards. Run eagerly, what it assigns is held when it is assigned.

Private names used, tested with TensorFlow 2.21.0: `Function._clone`, `Function._autograph`, those of `calls`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

from legroom.capture.frames import first_line
from legroom.changes.custom_loop import SplitStep, as_function, split_function
from legroom.changes.custom_run import Kinds
from legroom.engines.out_of_memory import is_oom
from legroom.errors import InputError
from legroom.guard.calls import Call, note_layout
from legroom.guard.copying import attempt
from legroom.guard.function_update import JointUpdate, Kept
from legroom.guard.snapshots import copy, hold
from legroom.guard.traced import read_after
from legroom.guard.transaction import NotSeparable, StepFailed, count_operations, run_update
from legroom.guard.update import Gradients
from legroom.records.run import Way

COPIES = (
    "@legroom.train_step(guard=True, copies=True) guards it all the same, with a copy of weights and slots on the host at "
    "each step"
)
OWN = "legroom_own"
PLAIN = (bool, int, float, str, type(None))
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Written:
    """The user's step: its Python function, the `tf.function` that it may be, and what was found out about it."""

    python_function: Callable[..., Any]
    graph: Any = None
    known: dict[Any, Kinds] = field(default_factory=dict)
    allow: tuple[str, ...] = ()

    @property
    def autograph(self) -> bool:
        return self.graph is not None and bool(self.graph._autograph)

    @property
    def hint(self) -> str:
        return f"{COPIES}." if self.graph is not None else f"{COPIES}, where it is a tf.function."

    @property
    def name(self) -> str:
        return getattr(self.python_function, "__name__", "step")

    def sliced(self, count: int, keeper: Any = None) -> SplitStep:
        return SplitStep(self.python_function, count, self.allow, self.autograph, self.known, keeper=keeper)

    def split(self, count: int) -> Callable[..., Any]:
        """The step in slices, without a guard."""
        function = self.python_function if self.graph is None else self.graph
        made: Callable[..., Any] = split_function(function, count, self.allow, autograph=True, known=self.known)
        return made


@dataclass
class FunctionGraphStep:
    """In so many slices, as a graph (or compiled, as its `tf.function` says)."""

    written: Written
    way: Way
    update: JointUpdate
    calls: dict[Any, Call] = field(default_factory=dict)
    pinned: list[Any] = field(default_factory=list)
    assigned: list[Any] = field(default_factory=list)
    counted: int = 0  # graphs whose assignments these are

    @cached_property
    def traced(self) -> Any:
        import tensorflow as tf

        def gradients(*args: Any, **kwargs: Any) -> Any:
            graph = tf.compat.v1.get_default_graph()
            kept = Kept(eager=False, at_update=count_operations, graph=graph)
            outputs = self.written.sliced(self.way.micro_batches, kept)(*args, **kwargs)
            if kept.elsewhere:
                raise not_separable(self.written, "updates weights inside a loop, a condition or a function of its own")
            if kept.uses_again or any(read_after(graph, mark, changed) for mark, changed in kept.marks):
                raise uses_again(self.written)
            layout, tensors = kept.flat()
            note_layout(layout)
            return outputs, tensors

        return owned(self.written.graph._clone(tf.autograph.experimental.do_not_convert(like(self.written, gradients))))

    def prepare(self, args: Any, kwargs: Any) -> Call:
        key = key_of(args, kwargs)
        call = self.calls.get(key)
        if call is None:
            if self.way.micro_batches > 1:
                self.written.sliced(self.way.micro_batches).prepare_for(args, kwargs)
            with separable(self.written, self.way), traceable(self.written, self.way):
                call = Call(self.traced.get_concrete_function(*args, **kwargs))
                if self.update.build(
                    call.layout
                ):  # a step may see that: a loss is scaled by a variable only from then on
                    del self.traced
                    call = Call(self.traced.get_concrete_function(*args, **kwargs))
                self.calls[key] = call
            self.pinned.append(
                (args, kwargs) if has_objects(args, kwargs) else None
            )  # or their ids might be used again
        return call

    def __call__(self, data: Arguments) -> Any:
        args, kwargs = with_tensors(data)
        try:
            call = self.prepare(args, kwargs)
        except BaseException as error:
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        before = hold(self.all_written())
        try:
            outputs, tensors = self.traced(*args, **kwargs)
        except BaseException as error:
            before.put_back()
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        run_update(self.update, Gradients(call.layout, tensors), before, self.update.shared_bytes(call))
        return outputs

    def all_written(self) -> list[Any]:
        """By any of its graphs: TensorFlow may take a more general one than was traced for these arguments."""
        if self.counted != len(self.calls):
            self.counted = len(self.calls)
            found = [variable for call in self.calls.values() for variable in call.written]
            self.assigned = list({id(variable): variable for variable in found}.values())
        return self.assigned


@dataclass
class FunctionEagerStep:
    """The same for a function that runs eagerly."""

    written: Written
    way: Way
    update: JointUpdate

    def __call__(self, data: Arguments) -> Any:
        args, kwargs = data
        if self.way.micro_batches > 1:
            self.written.sliced(self.way.micro_batches).prepare_for(args, kwargs)
        kept = Kept(eager=True)
        try:
            with separable(self.written, self.way):
                outputs = self.written.sliced(self.way.micro_batches, kept)(*args, **kwargs)
            if kept.uses_again:
                raise uses_again(self.written)
        except BaseException as error:
            kept.held().put_back()
            if kept.uses_again and isinstance(error, Exception):  # it went on with what should have been updated
                raise uses_again(self.written) from None
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        layout, tensors = kept.flat()
        # The update puts weights and slots back itself; what others hold, it would have to copy.
        before = kept.held().without(self.update.variables(layout))
        del kept
        run_update(self.update, Gradients(layout, tensors), before)
        return outputs


@dataclass
class FunctionCopyStep:
    """A step whose update cannot be held back: all that it assigns is copied to the host before it."""

    written: Written
    way: Way
    calls: dict[Any, Call] = field(default_factory=dict)

    @cached_property
    def whole(self) -> Any:
        return owned(self.written.graph._clone(as_function(self.written.sliced(self.way.micro_batches))))

    def __call__(self, data: Arguments) -> Any:
        args, kwargs = with_tensors(data)
        key = key_of(args, kwargs)
        if key not in self.calls:
            self.calls[key] = Call(self.whole.get_concrete_function(*args, **kwargs))
        call = self.calls[key]
        return attempt(copy(call.written), lambda: self.whole(*args, **kwargs))


@contextmanager
def separable(written: Written, way: Way) -> Iterator[None]:
    """What is refused of a step as it is says that its update cannot be held back; else that it cannot be run this way."""
    try:
        yield
    except NotSeparable:
        raise
    except InputError as error:
        if way != Way():
            raise
        raise NotSeparable(error.message, written.hint) from None


@contextmanager
def traceable(written: Written, way: Way) -> Iterator[None]:
    """A step that runs as it is must not fail because it is guarded; an error of its own it will raise once more by itself."""
    try:
        yield
    except (InputError, StepFailed):
        raise
    except Exception as error:
        if way != Way() or is_oom(error):
            raise
        why = f"The training step {written.name!r} could not be traced with its update held back: {first_line(error)}."
        raise NotSeparable(why, written.hint) from None


def uses_again(written: Written) -> NotSeparable:
    why = "uses weights again, or variables of the optimizer, after it has updated them"
    return not_separable(written, why)


def not_separable(written: Written, why: str) -> NotSeparable:
    return NotSeparable(
        f"The training step {written.name!r} {why}, so that it cannot be computed first and applied afterwards.",
        written.hint,
    )


def owned(function: Any) -> Any:
    """A `tf.function` of the guard's own, which is not guarded once more."""
    setattr(function, OWN, True)
    return function


def like(written: Written, function: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow reads the signature of what it traces."""
    return wraps(written.python_function)(function)


def with_tensors(data: Arguments) -> Arguments:
    """Arrays as tensors, which is how a traced function takes them."""
    import numpy as np
    import tensorflow as tf

    args, kwargs = data
    if not any(isinstance(leaf, np.ndarray) for leaf in tf.nest.flatten((args, kwargs))):
        return data
    made: Arguments = tf.nest.map_structure(
        lambda leaf: tf.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, (args, kwargs)
    )
    return made


def key_of(args: Any, kwargs: Any) -> Any:
    """What a traced function depends on: shapes and types of tensors, and all other values."""
    import tensorflow as tf

    return (tuple(kwargs), tuple(map(leaf_key, tf.nest.flatten((args, kwargs)))))


def leaf_key(leaf: Any) -> Any:
    import tensorflow as tf

    shape = getattr(leaf, "_shape_tuple", None)
    if shape is not None:
        return shape(), leaf.dtype
    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
        return str(tf.type_spec_from_value(leaf))
    return leaf if isinstance(leaf, PLAIN) else id(leaf)


def has_objects(args: Any, kwargs: Any) -> bool:
    """Whether there is an argument that is known by its identity."""
    import tensorflow as tf

    known = (*PLAIN, tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
    return any(not isinstance(leaf, known) for leaf in tf.nest.flatten((args, kwargs)))
