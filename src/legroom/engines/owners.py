"""Whose variable it is: the layer that owns a weight, and the weight that an optimizer's slot belongs to."""

from collections.abc import Iterable, Sequence
from typing import Any

from legroom.records import Role, Tensor

ROLES: tuple[Role, ...] = ("weight", "state", "optimizer", "metric")


class OwnedVariables:
    """Names, roles and owners of a Keras model's variables, its optimizer's slots included."""

    def __init__(self, weights: Iterable[Any], layers: Sequence[str] = ()) -> None:
        self.layers = frozenset(layers)
        self.owners = sorted(((flat(v.path), self.layer_of(v.path)) for v in weights), key=lambda pair: -len(pair[0]))

    def layer_of(self, path: str) -> str:
        """`sequential/conv1/kernel` → `conv1`: the longest end of the variable's path that is a known layer."""
        parts = path.split("/")[:-1]
        ends = ["/".join(parts[start:]) for start in range(len(parts))]
        return next((end for end in ends if end in self.layers), ends[0] if ends else "")

    def tensors(self, groups: Sequence[Iterable[Any]]) -> list[Tensor]:
        """All variables of (trainable, non-trainable, optimizer, metrics), in that order."""
        return [self.tensor(v, role) for group, role in zip(groups, ROLES, strict=True) for v in group]

    def tensor(self, variable: Any, role: Role) -> Tensor:
        path = str(getattr(variable, "path", None) or variable.name)
        owner = self.slot_owner(path) if role == "optimizer" else self.layer_of(path)
        return Tensor(path, tuple(variable.shape), str(variable.dtype), role, owner)

    def slot_owner(self, path: str) -> str:
        """Keras names a slot after its weight: `adam/conv1_conv_kernel_momentum`."""
        name = path.rpartition("/")[2]
        return next((layer for weight, layer in self.owners if name.startswith(weight)), "")


def flat(path: str) -> str:
    return path.replace("/", "_")
