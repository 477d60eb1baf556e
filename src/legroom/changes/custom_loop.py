"""A training step that the user wrote, with its tape and its optimizer, run in slices of its batch inside one call.

`split_function` takes a plain function or a `tf.function` and gives one that is called in the same way. In graphs the slices but
the last run in one `tf.while_loop`, and the last, which updates, after it; in eager mode they run one after the other. What
each slice does is in `custom_run`, what must be known of the step before is found out by `custom_probe`, at its first call.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `Function._clone`, `Function._autograph`,
`tf.__internal__.autograph.tf_convert`, and those that `custom_hooks` and `custom_trial` name.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from legroom.capture.own_work import announce, own_work
from legroom.capture.tf_step import written_function
from legroom.changes.batch_cut import Cut, cut_batch
from legroom.changes.custom_arguments import Arguments, arguments_of, front_of
from legroom.changes.custom_hooks import listened
from legroom.changes.custom_probe import find_kinds
from legroom.changes.custom_run import Keeper, Kinds, Run, Whole, converted
from legroom.changes.microbatch_loop import Found, add, loop, trace, zeros
from legroom.changes.op_outline import Outline, Outlines, outlined
from legroom.changes.own_code import is_users_object
from legroom.changes.python_state import COUNTED, PythonState
from legroom.changes.slice_seeds import other_seeds
from legroom.changes.trained_so import inner_layers, layers_of, state_of, trained_so
from legroom.errors import InputError
from legroom.records.plan import Effect, together

ALLOWED = "batchnorm-split"
MARK = "legroom_micro_batches"  # on what `split_function` gives

Made = TypeVar("Made")


@dataclass
class SplitStep:
    """The step in slices, as a function of the same arguments."""

    function: Callable[..., Any]
    count: int
    allow: Sequence[str] = ()
    autograph: bool = False
    known: dict[Any, Kinds] = field(default_factory=dict)
    keeper: Keeper | None = None  # of updates, which are not made then
    places: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of the batch among so many arguments
    found_with: dict[Any, object] = field(
        default_factory=dict
    )  # of what is known, how Python was when it was found out
    outlines: dict[Any, Outlines] = field(default_factory=dict)  # of the step, run and traced, by the same keys
    fresh: set[Any] = field(default_factory=set)  # what was found out in this call
    used: Any = None  # the key of what is known of the call at hand
    last: object = None  # how Python was when the layers were looked for
    given: dict[int, Any] = field(default_factory=dict)  # objects of the user's among the arguments, by place
    met: dict[int, set[Any]] = field(default_factory=dict)  # flags, whole numbers and words there

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        if self.count == 1:
            return self.whole(args, kwargs)
        arguments = self.arguments_of(args, kwargs)
        cut = cut_batch(arguments.batch, self.count)
        if cut.single:
            return self.whole(args, kwargs)

        def one(kinds: Kinds, part: Any, held: dict[int, Any] | None = None) -> Found:
            run = Run(kinds, fraction_of(cut, part), self.autograph, keeper=self.keeper, held=held)
            self.run(run, *arguments.filled(part))
            return run.found()

        size, pieces = cut.size, -(-cut.batch // cut.size)
        start = (pieces - 1) * size
        if tf.executing_eagerly():
            begun = self.begin(arguments, lambda kinds, held: one(kinds, cut.piece(0, size)[0], held), traced=False)
            kinds, total = begun
            for begin in range(size, start, size):
                total = add(total, one(kinds, cut.piece(begin, size)[0]))
        else:
            traced = self.begin(arguments, lambda kinds, _: trace(cut, lambda part, _: one(kinds, part)), traced=True)
            kinds, layout = traced
            first, count = zeros(layout), (pieces - 1, lambda begin: size)
            total = loop(cut, lambda part, _: one(kinds, part), layout, first, count)
        with tf.control_dependencies(waited(total)):  # or the last slice would be computed beside the others
            part = cut.piece(start, cut.batch - start)[0]
            part = [tf.identity(leaf) for leaf in part]
        last = Run(kinds, fraction_of(cut, part), self.autograph, total, self.keeper)
        with other_seeds():
            return self.run(last, *arguments.filled(part))

    def arguments_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        found = arguments_of(args, kwargs, self.places.get(len(flat(args, kwargs)), ()))
        self.places.setdefault(len(found.leaves), found.places)
        return found

    def whole(self, args: Any, kwargs: Any) -> Any:
        if self.keeper is not None:
            return self.run(Whole(self.keeper, self.autograph), args, kwargs)
        return converted(self.function, self.autograph)(*args, **kwargs)

    def run(self, run: Run, args: Any, kwargs: Any) -> Any:
        """One slice; what the hooks refuse is told as they said it."""
        function = converted(self.function, self.autograph)

        def run_slice() -> Any:
            return function(*args, **kwargs)

        try:
            with listened(run):
                return run.returned(run_slice())
        except Exception:
            if (
                run.error is not None
            ):  # made anew: AutoGraph has hung its own notes on it, and would write around it again
                raise InputError(run.error.message, run.error.hint) from None
            raise

    def prepare(self, arguments: Arguments, *, called: bool = False) -> Kinds:
        """What must be known of the step, found out at its first call with such arguments, and again when its models are trained in another way or it finds
        something else in Python. A `tf.function` that is `called` may have been traced already, with what that was then."""
        self.meet(arguments)
        now = None if called else self.state.now()
        if now is not None and now is not self.last:
            self.__dict__.pop("layers", None)
            self.last = now
        size, even = slices_of(front_of(arguments.batch[0]), self.count)
        call = arguments.key(self.counters), trained_so(self.layers)
        keys = [(call, False), *([(call, True)] if even is not False else [])]
        found = next((key for key in keys if key in self.known), None)
        if found is None or now not in (None, self.found_with.get(found, now)):
            found = call, bool(even)
            self.known[found] = find_kinds(self.function, arguments, size, even=bool(even))
            self.found_with.pop(found, None)
            self.fresh.add(found)
            self.state.settle()
        if now is not None:
            self.found_with[found] = now
        kinds, self.used = self.known[found], found
        if kinds.exactness == "inexact" and ALLOWED not in self.allow:
            raise InputError(
                f"Slices would change what is learned: {'; '.join(kinds.reasons)}.",
                f'Allow it with allow=("{ALLOWED}",), or use another normalisation.',
            )
        return kinds

    def begin(
        self, arguments: Arguments, compute: Callable[[Kinds, dict[int, Any]], Made], *, traced: bool
    ) -> tuple[Kinds, Made]:
        """What is computed of the first slice, by what is known of the step; found out anew where it goes another way than it did then."""
        kinds = self.prepare(arguments)
        if own_work.recording:  # on a device of Legroom's own, which reads zeros
            return kinds, compute(kinds, {})
        held: dict[int, Any] = {}
        try:
            with outlined(traced=traced) as outline:
                made = compute(kinds, held)
            if self.is_known(outline):
                return kinds, made
        except InputError:
            if self.is_known(outline):
                raise
        for variable, value in held.values():
            variable.assign(value)
        kinds = self.find_again(arguments)
        return kinds, compute(kinds, {})

    def is_known(self, outline: Outline) -> bool:
        """Whether the step still computes what it did when it was found out what it is."""
        known = self.outlines.setdefault((self.used, outline.traced), Outlines())
        is_new = not (self.used in self.fresh or known.has(outline))
        known.add(outline)
        return not is_new

    def find_again(self, arguments: Arguments) -> Kinds:
        """It goes another way than it did: by something in Python that nobody watches."""
        before, used = self.known.pop(self.used), self.used
        try:
            kinds = self.prepare(arguments, called=True)
        except InputError as error:
            raise InputError(
                f"{error.message} It was otherwise at first: something that it finds in Python has changed.", error.hint
            ) from None
        if kinds != before:
            self.outlines = {key: known for key, known in self.outlines.items() if key[0] not in (used, self.used)}
        return kinds

    def meet(self, arguments: Arguments) -> None:
        """The user's objects among the arguments, and which other ones are counters: what has been something else in each of several calls."""
        for place, leaf in arguments.others().items():
            if is_users_object(leaf):
                self.given[place] = leaf
            elif isinstance(leaf, bool | int | str):
                self.met.setdefault(place, set()).add(leaf)

    @property
    def counters(self) -> list[int]:
        return [place for place, values in self.met.items() if len(values) > COUNTED]

    @functools.cached_property
    def layers(self) -> list[Any]:
        return layers_of(self.function)

    @functools.cached_property
    def state(self) -> PythonState:
        return state_of(lambda: inner_layers(self.function), [self.function], self.given.values)

    def prepare_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fresh.clear()
        arguments = self.arguments_of(args, kwargs)
        if not cut_batch(arguments.batch, self.count).single:
            self.prepare(arguments, called=True)

    def effect(self) -> Effect:
        """How exact it is, once it is prepared: a step that the user wrote is always tried out."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        found = (Effect(kinds.exactness, kinds.reasons) for kinds in self.known.values())
        return together([*found, Effect(tried=(f"step {name!r}",))])


def split_function(
    function: Any,
    count: int,
    allow: Sequence[str] = (),
    *,
    autograph: bool = False,
    known: dict[Any, Kinds] | None = None,
) -> Any:
    """The function, plain or a `tf.function`, as one that runs in `count` slices of its batch and updates once.

    `autograph` says that a plain function is going to be traced with it; a `tf.function` keeps all its options. `known` is
    where what is found out about the step is kept, for other counts. The answer's `legroom_step` is its `SplitStep`.
    """
    import tensorflow as tf

    check(function, count)
    known = {} if known is None else known
    if not is_tf_function(function):
        return as_function(SplitStep(function, count, allow, autograph, known))
    step = SplitStep(written_function(function), count, allow, bool(function._autograph), known)
    inner = function._clone(as_function(step))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    @functools.wraps(function.python_function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and not tf.inside_function():
            step.prepare_for(args, kwargs)  # now, while the batch is here to be tried
        return inner(*args, **kwargs)

    called.get_concrete_function = inner.get_concrete_function
    called.python_function = function.python_function
    return finished(called, step)


def as_function(step: SplitStep) -> Callable[..., Any]:
    """TensorFlow reads signatures: those of a function, not of an object."""
    import tensorflow as tf

    @functools.wraps(step.function)
    def split_step(*args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and not tf.inside_function():
            step.prepare_for(args, kwargs)
            announce(made, args, kwargs)
        return step(*args, **kwargs)

    made: Callable[..., Any] = finished(tf.autograph.experimental.do_not_convert(split_step), step)
    return made


def finished(made: Any, step: SplitStep) -> Any:
    made.legroom_step = step
    setattr(made, MARK, step.count)
    return made


def check(function: Any, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(
            f"A batch cannot be cut into {count!r} micro-batches.", "Give a whole number of them, 1 or more."
        )
    if not callable(function):
        raise InputError(f"Expected a training step to split, a function; received a {type(function).__name__}.")
    if hasattr(function, MARK) or hasattr(getattr(function, "python_function", None), MARK):
        raise InputError("This training step is split already.", "Split it once.")


def is_tf_function(function: Any) -> bool:
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    return isinstance(function, Function)


def flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    import tensorflow as tf

    return list(tf.nest.flatten((args, kwargs)))


def slices_of(batch: int | None, count: int) -> tuple[int | None, bool | None]:
    """The size of a slice, and whether all of them are even: what goes by pairs is tried out on odd ones only where there are some. None: not known."""
    if batch is None:
        return None, None
    size = -(-batch // count)
    return size, not batch % 2 and not size % 2


def fraction_of(cut: Cut, part: Sequence[Any]) -> Any:
    """What these rows are of the batch, in double."""
    import tensorflow as tf

    rows = part[0].shape[0] if part[0].shape[0] is not None else tf.shape(part[0])[0]
    return tf.cast(rows, tf.float64) / tf.cast(cut.batch, tf.float64)


def waited(total: Found) -> list[Any]:
    import tensorflow as tf

    tensors = [*total.gradients, *total.sums]
    return [one.values if isinstance(one, tf.IndexedSlices) else one for one in tensors if one is not None]
