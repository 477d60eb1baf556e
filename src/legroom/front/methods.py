"""A decorated training step that may be a method: each object has a step of its own, as with `tf.function`.

Private names used, tested with TensorFlow 2.21.0: `Function._clone`.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from legroom.errors import InputError

FIELD = "_legroom_steps"  # on an object: its own steps


class DecoratedStep:
    """What `legroom.train_step` gives: called like the function, and bound like one where a class has it."""

    def __init__(self, function: Any, decorate: Callable[[Any], Any]) -> None:
        self.function = function
        self.decorate = decorate
        self.kind: type | None = None  # the class that it is a method of
        self.step = decorate(function)
        update_wrapper(self, self.step, updated=())  # its fields are asked for when they are wanted

    def __set_name__(self, kind: type, name: str) -> None:
        self.kind = kind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.kind is not None and args and isinstance(args[0], self.kind):  # Trainer.step(trainer, x, y)
            return self.__get__(args[0])(*args[1:], **kwargs)
        return self.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "step":  # not made yet
            raise AttributeError(name)
        return getattr(self.step, name)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        function = bound(self.function, owner)
        if function is self.function:  # not bound anywhere else, either
            return self.step
        steps = steps_of(owner, self.__name__).known
        if id(self) not in steps:
            steps[id(self)] = self, self.decorate(function)
        return steps[id(self)][1]

    def __reduce__(self) -> Any:
        """A copy has what happens to its own steps."""
        return DecoratedStep, (self.function, self.decorate)


class Steps:
    """The steps of one object, which go when it does; a copy of it makes its own."""

    def __init__(self, owner: Any = None) -> None:
        self.owner = owner
        self.known: dict[int, tuple[DecoratedStep, Any]] = {}  # by what the class has

    def __reduce__(self) -> Any:
        return Steps, ()


def steps_of(owner: Any, name: str) -> Steps:
    fields = getattr(owner, "__dict__", None)
    if fields is None:
        raise InputError(
            f"Each object keeps a training step {name!r} of its own, and a {type(owner).__name__} can keep nothing: it has "
            "__slots__, and no __dict__.",
            'Add "__dict__" to its __slots__, or decorate a function outside of the class.',
        )
    found = fields.get(FIELD)
    if isinstance(found, Steps) and found.owner is owner:
        return found
    made = Steps(owner)
    if isinstance(owner, type):  # of a class method; the fields of a class are read-only
        setattr(owner, FIELD, made)
    else:
        fields[FIELD] = made  # unseen by Keras and tf.Module, which look at what is set
    return made


def bound(function: Any, owner: Any) -> Any:
    """The function as a method of this object; itself where it is nothing that Python binds."""
    from legroom.changes.custom_loop import is_tf_function

    graph = is_tf_function(function)
    plain = function.python_function if graph else function
    method = plain.__get__(owner, type(owner)) if hasattr(type(plain), "__get__") else plain
    if method is plain:
        return function
    return function._clone(method) if graph else method
