"""Data that lies in the device's memory for the whole training: it lifts the peak, the bounds and the curve alike."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from legroom.memory.timeline import UNOWNED
from legroom.records.estimate import Estimate, LayerShare
from legroom.units import format_bytes

WORTH_A_WORD = 0.01  # of the peak


@dataclass(frozen=True, slots=True)
class DeviceData:
    """One such piece, with its bounds and why it is there."""

    name: str
    low_bytes: int
    size_bytes: int
    high_bytes: int
    why: str


def with_data(estimate: Estimate, data: Sequence[DeviceData]) -> Estimate:
    """The estimate with the data in it, as `breakdown["data"]`; what is worth a word is in the notes."""
    size = sum(item.size_bytes for item in data)
    if not any(item.high_bytes for item in data):
        return estimate
    layers = {share.name: share.peak_bytes for share in estimate.layers}
    layers[UNOWNED] = layers.get(UNOWNED, 0) + size
    ranked = sorted(((name, held) for name, held in layers.items() if held), key=lambda item: (-item[1], item[0]))
    peak = estimate.peak_bytes + size
    first = estimate.first_step_peak_bytes
    return replace(
        estimate,
        peak_bytes=peak,
        low_bytes=estimate.low_bytes + sum(item.low_bytes for item in data),
        high_bytes=estimate.high_bytes + sum(item.high_bytes for item in data),
        breakdown={**estimate.breakdown, "data": size},
        layers=tuple(LayerShare(name, held) for name, held in ranked),
        curve=tuple(replace(point, held_bytes=point.held_bytes + size) for point in estimate.curve),
        first_step_peak_bytes=None if first is None else first + size,
        reserved_bytes=None if estimate.reserved_bytes is None else estimate.reserved_bytes + size,
        notes=estimate.notes + tuple(note(item) for item in data if item.size_bytes > WORTH_A_WORD * peak),
    )


def note(item: DeviceData) -> str:
    return f"data on the device: {format_bytes(item.size_bytes)}, {item.name}: {item.why}"
