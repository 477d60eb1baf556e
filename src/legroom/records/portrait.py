"""A Portrait: what a plan was made for. A model's structure as plain data, without the values of its weights, and what
differs between two of them.

Layers that the user gave no name are numbered by Keras as they are made, so that the same model made a second time in a process
has `dense_1` where the first had `dense`. Such names count as the same; the user's own do not.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Part:
    """A layer or operation, where the model runs it: `block/conv2d_3`, of the kind `Functional/Conv2D`.

    Weights are texts such as "float32[3,3,16,32]"; None where the layer is not built.
    """

    name: str
    kind: str
    weights: tuple[str, ...] | None
    dtype: str = ""  # what it computes in


@dataclass(frozen=True, slots=True)
class Portrait:
    """A model. None stands for what is not known: its inputs' shapes, or how it is trained in a loop of the user's own."""

    kind: str
    parts: tuple[Part, ...]
    inputs: tuple[str, ...] | None = None
    optimizer: str | None = None
    loss: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same structure, in any process."""
        parts = [[unnumbered(part), part.kind, part.weights, part.dtype] for part in self.parts]
        known = [self.kind, parts, self.inputs, self.optimizer, self.loss]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    @property
    def is_built(self) -> bool:
        return all(part.weights is not None for part in self.parts)


def portrait_to_json(portrait: Portrait) -> dict[str, Any]:
    return {"fingerprint": portrait.fingerprint, **asdict(portrait)}


def portrait_from_json(value: dict[str, Any]) -> Portrait:
    parts = tuple(
        Part(part["name"], part["kind"], texts(part["weights"]), str(part["dtype"])) for part in value["parts"]
    )
    return Portrait(value["kind"], parts, texts(value["inputs"]), value["optimizer"], value["loss"])


def texts(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(str(item) for item in value)


def first_difference(planned: Portrait, here: Portrait) -> str | None:
    """What differs first, as the end of "This plan was made for …"; None for the same structure."""
    if planned.kind != here.kind:
        return f"a {planned.kind}; this model is a {here.kind}"
    found = differing_part(planned, here)
    if found is not None:
        return f"a model with {len(planned.parts)} layers ({some_names(planned)}); {found}"
    if planned.inputs is not None and here.inputs is not None and planned.inputs != here.inputs:
        return f"inputs of {', '.join(planned.inputs)}; this model takes {', '.join(here.inputs)}"
    if planned.optimizer is None or (planned.optimizer, planned.loss) == (here.optimizer, here.loss):
        return None
    if here.optimizer is None:
        return "a compiled model; this one has not been compiled"
    if planned.optimizer != here.optimizer:
        return f"a model that is trained with {planned.optimizer}; this one is trained with {here.optimizer}"
    return f"a model with the loss {planned.loss or 'None'}; this one has {here.loss or 'None'}"


def differing_part(planned: Portrait, here: Portrait) -> str | None:
    """The first layer that is another one. Of a model that is not built, only the layers it has by now are looked at."""
    if not here.is_built and len(here.parts) != len(planned.parts):
        known = {unnumbered(part) for part in planned.parts}
        return next(
            (f"it has no {part.name!r}, as this one does" for part in here.parts if unnumbered(part) not in known), None
        )
    for one, other in zip_longest(planned.parts, here.parts):
        if other is None:
            return f"this one has {len(here.parts)}, and none like {one.name!r}"
        if one is None:
            return f"this one has {len(here.parts)}, {other.name!r} among them"
        found = difference_of(one, other)
        if found is not None:
            return found
    return None


def difference_of(one: Part, other: Part) -> str | None:
    if one.kind != other.kind:
        return f"where it has {one.name!r} ({last(one.kind)}), this one has {other.name!r} ({last(other.kind)})"
    if unnumbered(one) != unnumbered(other):
        return f"this one has no layer {one.name!r}: in its place is {other.name!r}"
    if None not in (one.weights, other.weights) and one.weights != other.weights:
        was, now = (", ".join(part.weights or ()) or "none" for part in (one, other))
        return f"the weights of {one.name!r} were {was} and are {now} in this one"
    if one.dtype != other.dtype:
        return f"{one.name!r} computed in {one.dtype or 'no type'} and does so in {other.dtype or 'none'} in this one"
    return None


def some_names(portrait: Portrait) -> str:
    names = [part.name for part in portrait.parts]
    return ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")


def unnumbered(part: Part) -> str:
    """Its name without the numbers that Keras counts by; `#2`, the second call of a layer, stays."""
    name, mark, call = part.name.partition("#")
    names, kinds = name.split("/"), part.kind.split("/")
    if len(names) != len(kinds):
        return part.name
    return "/".join(automatic(*pair) or pair[0] for pair in zip(names, kinds, strict=True)) + mark + call


def automatic(name: str, kind: str) -> str | None:
    """What Keras makes of a class's name, if that is where this name comes from (`keras/src/utils/naming.py`)."""
    start = snake_case(kind)
    return start if re.fullmatch(rf"{re.escape(start)}(_\d+)?", name) else None


def snake_case(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def last(path: str) -> str:
    return path.rpartition("/")[2]


def renaming(planned: Portrait, here: Portrait) -> dict[str, str]:
    """What the planned model's layers are called in this one, where that is another name."""
    if len(planned.parts) != len(here.parts):
        return {}
    pairs = zip(planned.parts, here.parts, strict=True)
    return {one.name: other.name for one, other in pairs if one.name != other.name}
