"""A training step that XLA compiles, on TensorFlow, which is never started where it could not end.

XLA asks for all of a program's memory before it computes anything. If it gets none, the variables that it was to overwrite are
lost already: their memory was handed over (donated), and the process aborts a step later. But it takes over only what nobody
else holds (`RefCountIsOne` in TensorFlow's xla_launch_util.cc). So a shape that is new runs with all variables held: the
allocator answers whether it fits, and if not, nothing has happened. After that its need is known, and is asked for before
each step; where it is not there, the step runs held again.

Private names used, tested with TensorFlow 2.21.0: those of `calls`.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from legroom.engines.out_of_memory import is_oom
from legroom.errors import LegroomError
from legroom.guard.calls import Traced
from legroom.guard.room import Room
from legroom.guard.transaction import StepFailed
from legroom.units import parse_bytes

ASKED = re.compile(r"trying to allocate ([\d.]+) ?([KMGT]iB|bytes)")


class StateLost(LegroomError):
    """Memory ran out in a compiled step that held nothing: its variables are gone."""


@dataclass
class CompiledStep:
    """Keras' own step under `jit_compile=True`."""

    model: Any
    room: Room
    budget_bytes: int | None = None
    needs: dict[Any, int] = field(default_factory=dict)  # bytes beside what stays, by the batch's shapes

    @cached_property
    def whole(self) -> Traced:
        return Traced(self.model.train_step, jit_compile=True, model=self.model)

    def __call__(self, data: Any) -> Any:
        if self.model.optimizer is not None and not self.model.optimizer.built and self.model.built:
            self.model.optimizer.build(self.model.trainable_variables)
        call, leaves = self.whole.prepare(data)
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        need = self.needs.get(shapes)
        if need is None or not self.room.has(need):
            self.needs[shapes], logs = self.run_held(call, leaves)
            return logs
        try:
            return call(leaves)
        except BaseException as error:
            if not is_oom(error):
                raise
            raise StateLost(
                "Memory ran out in a compiled step that had fitted before: something else took it at that moment. XLA has "
                "lost the weights with it.",
                "Load the last checkpoint in a new process.",
            ) from None

    def run_held(self, call: Any, leaves: list[Any]) -> tuple[int, Any]:
        """The step with all variables held, and how much it took; if there is no room, all is as it was."""
        before = call.hold()
        used = self.room.in_use_bytes() or 0
        try:
            logs = call(leaves)
        except BaseException as error:
            before.put_back()
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        return max((self.room.peak_bytes() or 0) - used, 0), logs


def asked_by_xla(message: str) -> int | None:
    """How much a compiled program asked for, from XLA's error."""
    found = ASKED.search(message)
    return None if found is None else parse_bytes(f"{found[1]}{found[2]}")
