"""PyTorch's own account: what the card has, what is free, what this process reserved and what it really uses."""

from collections.abc import Iterator

from legroom.explain.guesses import Guess, guess
from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.units import format_bytes

TORN = 0.15  # less than this of the card in pieces is what PyTorch always keeps; half of it, where the card has as much free


def torch_guesses(incident: Incident, numbers: Numbers) -> Iterator[Guess]:
    if incident.kind != "torch":
        return
    failed, limit, free, used = numbers.failed_bytes, numbers.limit_bytes, numbers.free_bytes, numbers.in_use_bytes
    reserved = incident.value("torch_reserved")
    if "torch_idle" in incident.said and used is not None:
        reserved = used + incident.value("torch_idle")
    opened = [incident.opened]
    others = incident.value("torch_others")  # in a container this process may be listed among them, by another number
    if limit is not None and free is not None and (reserved is not None or used is not None):
        others = limit - free - (incident.value("torch_own") or max(reserved or 0, used or 0))
    if others is not None and limit and others > 0.25 * limit:
        yield guess(
            "gpu_shared_or_preallocated",
            0.75,
            f"Others hold {format_bytes(others)} of the card's {format_bytes(limit)}.",
            opened,
        )
    if (
        failed is not None
        and reserved is not None
        and used is not None
        and reserved - used >= max(failed, (TORN / 2 if (free or 0) > failed else TORN) * (limit or 0))
    ):
        text = f"{format_bytes(reserved - used)} are reserved and not used, in pieces; {format_bytes(failed)} were asked for in one."
        yield guess("fragmentation", 0.75, text, opened)
    if used is not None and limit and used > 0.6 * limit:
        text = f"This process uses {format_bytes(used)} of {format_bytes(limit)}."
        yield guess("batch_or_activations", 0.5, text, opened)
