"""A block of layers as a pure function of its inputs and its variables' values, so that it can be run a second time.

Inside the block no variable is changed and no loss is recorded: what the layers would have changed (statistics, seeds) comes out
beside the outputs and is applied once, after the first run. A second run starts from the same values and draws the same masks.

Private names used, tested with Keras 3.15.1: `keras.src.backend.common.global_state` ("autocast_scope", "current_call_ctx",
"stateless_scope"), `backend.AutocastScope`, `get_keras_mask`, `set_keras_mask`, `Layer._loss_ids`, `Layer._flatten_layers`,
`keras.src.random.seed_generator.global_seed_generator`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from legroom.changes.remat_attributes import Attributes, as_they_were, attributes_of
from legroom.changes.remat_leaves import each_once
from legroom.errors import InputError

Function = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Ran:
    """What one run of a block gave: outputs with their masks, the variables it wanted to change, the losses it added.

    `left` are the masks of inputs, by their places, that it took off (None) or put on; `passed` are the places of outputs that are
    inputs as they came in, with these inputs' places.
    """

    outputs: list[Any]
    masks: list[Any]
    updates: list[tuple[Any, Any]]
    losses: list[tuple[Any, Any]]
    left: dict[int, Any] = field(default_factory=dict)
    passed: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Block:
    """Layers that are recomputed as one; `found` are variables outside them that a run turned out to change."""

    name: str
    layers: tuple[Any, ...]
    found: list[Any] = field(default_factory=list)
    checked: bool = False

    def variables(self) -> list[Any]:
        """All state of the layers, seeds and metrics too; tables of embeddings are read inside, so their gradients stay sparse."""
        everything = [variable for layer in self.layers for variable in all_variables(layer)] + self.found
        sparse = {id(table) for layer in self.layers for table in embedding_tables(layer)} if on_tensorflow() else set()
        return [v for v in {id(v): v for v in everything}.values() if id(v) not in sparse]


def all_variables(layer: Any) -> list[Any]:
    return [*layer.variables, *getattr(layer, "metrics_variables", ())]


def embedding_tables(layer: Any) -> list[Any]:
    import keras

    return [
        v for sub in layer._flatten_layers() if isinstance(sub, keras.layers.Embedding) for v in sub.trainable_variables
    ]


def on_tensorflow() -> bool:
    import keras

    return bool(keras.backend.backend() == "tensorflow")


def run(block: Block, function: Function, inputs: list[Any], training: bool) -> list[Any]:
    """The outputs of `function`, which calls the block's layers on `inputs`, computed so that nothing inside is kept."""
    backend = importlib.import_module("keras.src.backend")
    name = "legroom.changes.remat_tensorflow" if on_tensorflow() else "legroom.changes.remat_jax"
    framework = importlib.import_module(name)
    if not framework.records(inputs, training):
        return function(inputs)
    inputs, function = each_once(inputs, function)
    surroundings, attributes = current_surroundings(), attributes_of(block.layers) if on_tensorflow() else []
    while True:
        variables = block.variables()
        with backend.AutocastScope(None):
            values = [backend.convert_to_tensor(variable.value) for variable in variables]
        masks = [backend.get_keras_mask(tensor) for tensor in inputs]
        pure = partial(run_purely, Bound(function, tuple(variables), block.layers, surroundings, attributes))
        ran = framework.checkpoint(block, pure, (inputs, masks, values), [v.trainable for v in variables])
        known = {id(variable) for variable in variables}
        missed = [variable for variable, _ in ran.updates if id(variable) not in known]
        if not missed:
            break
        block.found.extend(missed)  # its starting value must be an input of the block: run again with it among them
    refuse_changed_weights(block, ran)
    for variable, value in ran.updates:
        variable.assign(value)
    for owner, loss in ran.losses:
        owner.add_loss(loss)
    for place, mask in ran.left.items():
        backend.set_keras_mask(inputs[place], mask)
    for output, mask in zip(ran.outputs, ran.masks, strict=True):
        if mask is not None:
            backend.set_keras_mask(output, mask)
    return [inputs[ran.passed[k]] if k in ran.passed else output for k, output in enumerate(ran.outputs)]


def refuse_changed_weights(block: Block, ran: Ran) -> None:
    """A weight that is overwritten in the forward pass has another gradient afterwards than before."""
    changed = [variable.path for variable, _ in ran.updates if variable.trainable]
    if changed:
        raise InputError(
            f"The block {block.name!r} cannot be recomputed: its forward pass overwrites {', '.join(changed)}, which is trained.",
            "Leave that layer out of the blocks.",
        )


@dataclass(frozen=True)
class Bound:
    """What is the same in every run of a block."""

    function: Function
    variables: tuple[Any, ...]
    layers: tuple[Any, ...]
    surroundings: dict[str, Any]
    attributes: Attributes


def run_purely(bound: Bound, inputs: list[Any], masks: list[Any], values: list[Any]) -> Ran:
    backend = importlib.import_module("keras.src.backend")
    for tensor, mask in zip(inputs, masks, strict=True):
        if mask is not None:
            backend.set_keras_mask(tensor, mask)
    scope = block_scope()(list(zip(bound.variables, values, strict=True)), collect_losses=True)
    with standing_in(bound.surroundings), as_they_were(bound.attributes), scope:
        held = tensors_left(bound.layers)
        outputs = bound.function(inputs)
        found = [backend.get_keras_mask(output) for output in outputs]
        losses = [(owner_of(loss, bound.layers), loss) for loss in scope.losses]
        refuse_side_channels(held, tensors_left(bound.layers))
    now = {place: backend.get_keras_mask(tensor) for place, tensor in enumerate(inputs)}
    left = {place: mask for place, mask in now.items() if mask is not masks[place]}
    return Ran(outputs, found, list(scope.changed.values()), losses, left, passed_through(inputs, outputs))


def passed_through(inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[int, int]:
    places = {id(tensor): place for place, tensor in enumerate(inputs)}
    return {k: places[id(output)] for k, output in enumerate(outputs) if id(output) in places}


def tensors_left(layers: Sequence[Any]) -> dict[tuple[int, str], tuple[str, Any]]:
    """The tensors that layers of the user's own hold in attributes, by layer and attribute, with where they were seen."""
    import keras

    inner = {id(sub): sub for layer in layers for sub in layer._flatten_layers()}
    found = {}
    for key, layer in inner.items():
        if type(layer).__module__.startswith("keras."):
            continue
        for name, value in vars(layer).items():
            held = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else [value]
            tensors = [one for one in held if keras.ops.is_tensor(one)]
            if tensors:
                found[(key, name)] = (f"{layer.name}.{name}", tensors)
    return found


def refuse_side_channels(before: dict[Any, tuple[str, Any]], after: dict[Any, tuple[str, Any]]) -> None:
    """A tensor that a layer keeps for others to use would have no gradient: it is made inside the block, and not handed out."""
    for key, (name, tensors) in after.items():
        known = {id(tensor) for tensor in before.get(key, ("", ()))[1]}
        if any(id(tensor) not in known for tensor in tensors):
            raise InputError(
                f"A layer cannot be recomputed that keeps a tensor of its call ({name}): its gradient would be lost where others use it.",
                "Return it as an output, or pass it to add_loss(), or leave that layer out of the blocks.",
            )


def block_scope() -> type[Any]:
    """A StatelessScope that remembers which variables were changed and reads those it was not given from the scope around it."""
    import keras

    class BlockScope(keras.StatelessScope):  # type: ignore[misc]
        def __init__(self, mapping: list[Any], collect_losses: bool) -> None:
            super().__init__(mapping, collect_losses=collect_losses)
            self.changed: dict[int, tuple[Any, Any]] = {}

        def add_update(self, update: tuple[Any, Any]) -> None:
            if on_tensorflow():  # what is read from a variable has no gradient by what was assigned, as without a block
                update = (update[0], keras.ops.stop_gradient(update[1]))
            super().add_update(update)
            self.changed[id(update[0])] = update

        def get_current_value(self, variable: Any) -> Any:
            value = super().get_current_value(variable)
            if value is None and self.original_scope is not None:
                return self.original_scope.get_current_value(variable)
            return value

    return BlockScope


def owner_of(loss: Any, layers: Sequence[Any]) -> Any:
    """The layer that added a loss; its note of it is taken back, since the loss will be added again outside the block."""
    for layer in layers:
        for inner in layer._flatten_layers():
            if id(loss) in inner._loss_ids:
                inner._loss_ids.discard(id(loss))
                return inner
    raise InputError("A loss was added inside a block by a layer that is not part of it.", "Leave that layer out.")


SURROUNDINGS = ("autocast_scope", "current_call_ctx")


def current_surroundings() -> dict[str, Any]:
    """What Keras layers find around them when called: whether it is training, and the type that weights are cast to."""
    state = importlib.import_module("keras.src.backend.common.global_state")
    return {name: state.get_global_attribute(name) for name in SURROUNDINGS}


@contextlib.contextmanager
def standing_in(surroundings: dict[str, Any]) -> Iterator[None]:
    """The backward pass runs where no layer is being called: put back what stood around the forward pass."""
    state = importlib.import_module("keras.src.backend.common.global_state")
    before = current_surroundings()
    try:
        for name, value in surroundings.items():
            state.set_global_attribute(name, value)
        yield
    finally:
        for name, value in before.items():
            state.set_global_attribute(name, value)


def make_global_seeds() -> None:
    """Keras makes its global seed generator when first asked, which must not happen inside a block."""
    if on_tensorflow():
        importlib.import_module("keras.src.random.seed_generator").global_seed_generator()
