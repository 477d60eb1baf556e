"""Numbers that a training step computes with and that will be others later on: counters, rates, flags.

A term of a loss may weigh nothing at the first call, for as long as `optimizer.iterations`, a variable or an argument is 0. Such
numbers are set to others while the step is tried out, and small arrays of them. Weights, slots, metrics and what belongs to Keras' own layers are left alone.

Private names used, tested with Keras 3.15.1: `Optimizer._iterations`, `Optimizer._learning_rate`, `Layer._flatten_layers`, `Layer._non_trainable_variables`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from legroom.changes.custom_arguments import Arguments, concrete
from legroom.changes.custom_models import DEPTH, native, reachable, same_for
from legroom.changes.later_numbers import COUNTS, FEW, NUMBERS, is_number, is_small, is_variable, number_at
from legroom.changes.own_code import LIBRARIES, root_of

Stage = tuple[
    int, Sequence[int], Sequence[int], Sequence[float]
]  # which one, what counters are set to, what other whole numbers are, and what floating point numbers are after the first ones


@dataclass
class Scalars:
    """Single numbers in variables, as they are met in trials."""

    moved: dict[int, Any] = field(default_factory=dict)  # by the step: counters
    read: dict[int, Any] = field(default_factory=dict)
    kept: dict[int, Any] = field(default_factory=dict)  # as they are

    def is_read(self, variable: Any) -> None:
        if is_small(variable) and same_for(variable) not in self.read and by_user():
            self.read[same_for(variable)] = variable

    def is_moved(self, variable: Any) -> None:
        if is_small(variable):
            self.moved[same_for(variable)] = variable

    def is_of(self, optimizer: Any) -> None:
        """All that an optimizer has but its counter and its learning rate."""
        for one in (optimizer, getattr(optimizer, "inner_optimizer", None)):
            if one is not None:
                self.keep(one)
                counter = counter_of(one)
                self.kept.pop(same_for(counter), None)
                self.is_moved(counter)
                rate = getattr(one, "_learning_rate", None)
                if is_variable(rate):  # by which a step may do something else, and which no gradient depends on
                    self.kept.pop(same_for(native(rate)), None)
                    self.read[same_for(native(rate))] = native(rate)

    def keep(self, owner: Any) -> None:
        self.kept |= {same_for(variable): variable for variable in map(native, owner.variables)}

    def chosen(self, function: Callable[..., Any], weights: dict[int, Any]) -> list[Any]:
        """Those to be set to other numbers."""
        found = {**self.moved, **self.read, **self.held_by(function)}
        trained = {same_for(native(variable)) for variable, _ in weights.values()}
        return [one for key, one in found.items() if key not in self.kept and key not in trained]

    def held_by(self, function: Callable[..., Any]) -> dict[int, Any]:
        """What the function refers to: TensorFlow reads a variable without a word where an operation is given it as it is."""
        import keras

        values = list(reachable(function, DEPTH, set()))
        owner = getattr(function, "__self__", None)
        values += list(vars(owner).values()) if isinstance(owner, keras.Layer) else []
        for value in values:
            if isinstance(value, keras.metrics.Metric | keras.Layer) and value is not owner:
                self.keep(value)
            elif isinstance(value, keras.optimizers.Optimizer):
                self.is_of(value)
        own = [one for value in values if isinstance(value, keras.Layer) for one in state_of(value)]
        variables = [native(one) for one in (*values, *own) if is_variable(one)]
        for one in own:
            self.kept.pop(same_for(native(one)), None)
        return {same_for(one): one for one in variables if is_small(one)}


def state_of(layer: Any) -> Iterator[Any]:
    """What layers of the user's own keep that is not trained: the weight of a term that one adds to the loss, a gate."""
    for one in layer._flatten_layers():
        if root_of(type(one)) not in LIBRARIES:
            held = [value for value in vars(one).values() if is_variable(value) and not value.trainable]
            yield from {id(value): value for value in (*one._non_trainable_variables, *held)}.values()


def counter_of(optimizer: Any) -> Any:
    """The variable that counts its steps; one that adds gradients up over several of them gives their number divided."""
    counter = optimizer.iterations
    return native(counter if is_variable(counter) else optimizer._iterations)


@contextmanager
def later(scalars: Scalars, function: Callable[..., Any], weights: dict[int, Any], at: Stage) -> Iterator[list[str]]:
    """Meanwhile these variables have other numbers; they are named."""
    stage, counts, whole, beyond = at
    before: list[tuple[Any, Any]] = []
    try:
        for variable in scalars.chosen(function, weights):
            value = variable.numpy()
            counts_it = same_for(variable) in scalars.moved
            number = number_at(value, stage, COUNTS if counts_it else whole, () if counts_it else beyond)
            if counts_it and len(COUNTS) <= stage < len(counts) and is_number(variable) and value.dtype.kind in "if":
                number = value.dtype.type(counts[stage])
            if number is not None:
                before.append((variable, value))
                variable.assign(number)
        yield [str(variable.name).partition(":")[0] for variable, _ in before]
    finally:
        for variable, value in reversed(before):
            variable.assign(value)


def arguments_at(arguments: Arguments, stage: int, whole: Sequence[int] = NUMBERS) -> Arguments:
    """With other numbers in place of those that are not the batch's."""
    leaves = [
        leaf if place in arguments.places else argument_at(leaf, stage, whole)
        for place, leaf in enumerate(arguments.leaves)
    ]
    return replace(arguments, leaves=tuple(leaves))


def argument_at(leaf: Any, stage: int, whole: Sequence[int]) -> Any:
    """Whole numbers and flags of Python's are left as they are: a step may do something else for each."""
    import numpy as np
    import tensorflow as tf

    if isinstance(leaf, float):
        return type(leaf)(number_at(np.float64(leaf), stage))
    if not isinstance(leaf, np.generic | np.ndarray | tf.Tensor | tf.TensorSpec):
        return leaf
    size = tf.TensorShape(leaf.shape).num_elements()
    if size is None or size > FEW or leaf.dtype in (tf.string, object):
        return leaf
    value = np.asarray(concrete(leaf))
    number = (
        number_at(value, stage, whole) if not value.ndim or value.dtype.kind == "f" else None
    )  # whole ones may be places
    if number is None:
        return leaf
    return (
        np.asarray(number, value.dtype)[()]
        if isinstance(leaf, np.generic | np.ndarray)
        else tf.constant(number, leaf.dtype)
    )


def by_user() -> bool:
    """Whether a variable is read in code that is no layer's, no metric's and no optimizer's."""
    import keras

    frame = sys._getframe(1)
    while frame.f_code.co_name != "run_slice":
        name, owner = frame.f_code.co_name, frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))
        if isinstance(owner, keras.metrics.Metric | keras.optimizers.Optimizer | keras.random.SeedGenerator):
            return False
        if (name == "__call__" and isinstance(owner, keras.Layer)) or frame.f_back is None:
            return False
        frame = frame.f_back
    return True
