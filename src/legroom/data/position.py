"""Where in its epochs a stream stands, as a small dictionary that goes into a checkpoint and comes back out of it."""

from dataclasses import dataclass
from typing import Any

from legroom.errors import InputError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Position:
    """So many samples of that epoch have been used."""

    epoch: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Course:
    """What an epoch is made of: as many samples, cut into batches of that size. `length` is None for a generator's."""

    length: int | None
    batch_size: int
    drop_last: bool = False

    def batches(self, samples: int = 0) -> int | None:
        """The batches of an epoch that are left after so many samples."""
        if self.length is None:
            return None
        left = max(0, self.length - samples)
        return left // self.batch_size if self.drop_last else -(-left // self.batch_size)

    def after(self, position: Position, batches: int) -> Position:
        """Where it stands after so many batches more, whole epochs and partial batches counted."""
        if self.length is None:
            return Position(position.epoch, position.samples + batches * self.batch_size)
        whole, left = self.batches(0) or 0, self.batches(position.samples) or 0
        if batches < left:
            return Position(position.epoch, position.samples + batches * self.batch_size)
        if whole == 0:
            return position
        epochs, rest = divmod(batches - left, whole)
        return Position(position.epoch + 1 + epochs, rest * self.batch_size)


def to_state(position: Position, seed: int, shuffle: bool, length: int | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "seed": seed,
        "shuffle": shuffle,
        "length": length,
        "epoch": position.epoch,
        "samples": position.samples,
    }


def from_state(state: Any, seed: int, shuffle: bool, length: int | None) -> Position:
    """The position in a state, of which the rest must be this stream's: else other samples would follow than were left."""
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise InputError(f"This is no state of a stream: {state!r:.200}.", "Give what `stream.state()` returned.")
    for name, here in (("seed", seed), ("shuffle", shuffle), ("length", length)):
        if state.get(name) != here:
            raise InputError(
                f"The state is of another stream: its {name} is {state.get(name)!r}, this one's is {here!r}.",
                "Make the stream with the same source, seed and shuffle, or start the epoch anew without the state.",
            )
    epoch, samples = state.get("epoch"), state.get("samples")
    most = length if length is not None else None
    for name, value, limit in (("epoch", epoch, None), ("samples", samples, most)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (limit is not None and value > limit):
            raise InputError(f"The state's {name!r} is {value!r}.", "Give what `stream.state()` returned.")
    assert isinstance(epoch, int)
    assert isinstance(samples, int)
    if length is not None and samples == length and length:
        return Position(epoch + 1, 0)
    return Position(epoch, samples)
