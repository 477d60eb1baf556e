"""A Rehearsal as JSON for programs and as text for people."""

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from legroom.records.rehearsal import OomFact, Rehearsal
from legroom.report.view import SCHEMA
from legroom.units import format_bytes

KILLED = "SIGKILL"
HOW = {"graph": "op by op", "eager": "eagerly", "xla": "compiled"}


def rehearsal_view(rehearsal: Rehearsal) -> dict[str, Any]:
    """The whole answer as plain data."""
    oom = rehearsal.out_of_memory
    return {
        "schema": SCHEMA,
        "rehearsed": True,
        "batch": rehearsal.batch,
        "execution": rehearsal.execution,
        "limit_bytes": rehearsal.limit_bytes,
        "fits": rehearsal.fits,
        "peak_bytes": rehearsal.peak_bytes,
        "first_step_peak_bytes": rehearsal.first_step_peak_bytes,
        "step_peaks_bytes": list(rehearsal.step_peaks),
        "resident_bytes": rehearsal.resident_bytes,
        "max_batch": rehearsal.max_batch,
        "out_of_memory": None
        if oom is None
        else {**asdict(oom), "shape": None if oom.shape is None else list(oom.shape)},
        "notes": list(rehearsal.notes),
        "seconds": round(rehearsal.seconds, 3),
    }


def rehearsal_text(rehearsal: Rehearsal) -> RenderableType:
    """The whole answer, ready to print."""
    notes = [Text(f"note: {note}", style="dim") for note in rehearsal.notes]
    oom = rehearsal.out_of_memory
    if rehearsal.max_batch:
        notes = [Text(f"The largest batch that fits is {rehearsal.max_batch}.", style="bold"), *notes]
    return Group(verdict(rehearsal) if oom is None else failure(rehearsal, oom), *notes)


def verdict(rehearsal: Rehearsal) -> Text:
    batch = "It" if rehearsal.batch is None else f"Batch {rehearsal.batch}"
    peak, first = rehearsal.peak_bytes or 0, rehearsal.first_step_peak_bytes or 0
    most = max(peak, first)
    text = Text(f"{batch} took {format_bytes(peak)} at its peak")
    text.append(
        f" (first step {format_bytes(first)}, between steps {format_bytes(rehearsal.resident_bytes or 0)})", "dim"
    )
    text.append(
        f"\nReally run on this CPU, {HOW[rehearsal.execution]}, {len(rehearsal.step_peaks)} steps, by TensorFlow's own allocator."
    )
    text.append("\nIt fits", style="bold green")
    text.append(
        f" into the {format_bytes(rehearsal.limit_bytes)} that it was given, with {format_bytes(rehearsal.limit_bytes - most)} to spare."
    )
    return text


def failure(rehearsal: Rehearsal, oom: OomFact) -> Text:
    batch = "It" if rehearsal.batch is None else f"Batch {rehearsal.batch}"
    killed = oom.signal == KILLED
    text = Text(f"{batch} {'was ended' if killed else 'ran out of memory'} {moment(oom)}")
    text.append("\nIt does not fit", style="bold red")
    limit = format_bytes(rehearsal.limit_bytes)
    text.append(
        f" into this machine, though TensorFlow was to use {limit} at most."
        if killed
        else f" into the {limit} that it was given."
    )
    if oom.asked_bytes is not None:
        text.append(f"\n{oom.op or 'It'} asked for {format_bytes(oom.asked_bytes)}")
        if oom.shape is not None:
            text.append(f", a {oom.dtype} of shape ({', '.join(map(str, oom.shape))})")
        text.append(", and there was no room for it.")
    if oom.place:
        text.append(f"\nat {oom.place}")
    text.append(f"\n{oom.message}", style="dim")
    return text


def moment(oom: OomFact) -> str:
    if oom.during == "building":
        return "before its first step, while the script made its model or data"
    return "in a training step" if oom.step is None else f"in training step {oom.step}"
