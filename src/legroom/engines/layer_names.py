"""Finds the layer that an operation belongs to, by the operation's name.

JAX writes `jit(train_step)/transpose(jvp(conv2d_4))/…`, TensorFlow `gradient_tape/resnet50_1/conv1_conv_1/…`, where the last number
of every part is TensorFlow's own: it was added because the name had been used in that graph before.
"""

import re
from collections.abc import Iterable

_JITTED = re.compile(r"\bp?jit\([^()/]*\)")
_WRAPPED = re.compile(r"[A-Za-z_]\w*\(")
_NUMBERED = re.compile(r"(.+)_\d+$")


def split_op_name(op_name: str) -> tuple[str, ...]:
    """The parts of an operation's path, without what JAX wraps around them."""
    bare = _WRAPPED.sub("/", _JITTED.sub("/", op_name)).replace(")", "/")
    return tuple(part for part in bare.split("/") if part)


class LayerNames:
    """The known layers of a step. `find` answers with one of them, or with "" for an operation that belongs to none."""

    def __init__(self, layers: Iterable[str], op_names: Iterable[str]) -> None:
        """`op_names` are all of the program's: together they show whether its parts are numbered anew."""
        self._by_last_part: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for layer in layers:
            parts = tuple(layer.split("/"))
            self._by_last_part.setdefault(parts[-1], []).append((parts, layer))
        self._found: dict[str, str] = {}
        seen = {part for name in set(op_names) for path in name.split(";") for part in split_op_name(path)}
        known = self._by_last_part.keys()
        self._is_renumbered = len({_unnumbered(part) for part in seen} & known) > len(seen & known)

    def find(self, op_name: str) -> str:
        if op_name not in self._found:
            matches = (self._match(split_op_name(path)) for path in op_name.split(";"))
            self._found[op_name] = next((layer for layer in matches if layer), "")
        return self._found[op_name]

    def _match(self, path: tuple[str, ...]) -> str:
        """The deepest part that names a layer; of several layers that end in it, the one with the longest path."""
        for end in range(len(path) - 1, -1, -1):
            for name in self._readings(path[end]):
                candidates = self._by_last_part.get(name, [])
                fitting = [
                    (len(parts), layer) for parts, layer in candidates if self._is_within(parts[:-1], path[:end])
                ]
                if fitting:
                    return max(fitting)[1]
                if len(candidates) == 1:
                    return candidates[0][1]
        return ""

    def _readings(self, part: str) -> tuple[str, ...]:
        """What layer names a part may stand for, the likelier first."""
        unnumbered = _unnumbered(part)
        if not unnumbered:
            return (part,)
        return (unnumbered, part) if self._is_renumbered else (part, unnumbered)

    def _is_within(self, parents: tuple[str, ...], path: tuple[str, ...]) -> bool:
        """Whether the parents stand in the path, in their order."""
        remaining = iter(path)
        return all(any(parent in self._readings(part) for part in remaining) for parent in parents)


def _unnumbered(part: str) -> str:
    numbered = _NUMBERED.match(part)
    return numbered.group(1) if numbered else ""
