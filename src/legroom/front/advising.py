"""Advice about the model itself: which layers hold the most, and what the step would take if some things were different.

Only numbers that were estimated are said, by the same engine as everything else; nothing of it is done.
"""

from dataclasses import replace

from legroom.errors import LegroomError
from legroom.front.estimating import Estimator
from legroom.front.source import Say
from legroom.memory.timeline import UNOWNED
from legroom.records import Estimate
from legroom.records.alternative import Alternative
from legroom.records.plan import Planning
from legroom.units import format_bytes

TOP = 3  # layers that are named
CHANGED = 2  # and of these, the ones for which alternatives are looked for
MOST_ESTIMATES = 3


def with_advice(found: Planning, estimator: Estimator, plain: Estimate, batch: int | None, say: Say) -> Planning:
    """The Planning with its advice, and the step as it was."""
    holders = [share for share in plain.layers if share.name != UNOWNED][:TOP]
    if not holders:
        return found
    total = format_bytes(plain.peak_bytes)
    named = ", ".join(f"`{share.name}` {format_bytes(share.peak_bytes)}" for share in holders)
    advice = [f"of the {total} at the peak the most is held by {named}"]
    try:
        candidates = estimator.source.alternatives([share.name for share in holders[:CHANGED]])
        advice += estimated(candidates, estimator, plain, batch, say)
    finally:
        estimator.change(())
    return replace(found, advice=tuple(advice))


def estimated(
    candidates: list[Alternative], estimator: Estimator, plain: Estimate, batch: int | None, say: Say
) -> list[str]:
    """What each of them would take; those that cannot be, or save nothing, are left out."""
    lines: list[str] = []
    done: list[Alternative] = []
    for alternative in candidates:
        if len(done) == MOST_ESTIMATES:
            break
        if alternative.kind == "input" and any(other.kind == "input" for other in done):
            continue
        say(f"estimating {alternative.text}")
        try:
            estimator.imagine(alternative)
            there = estimator.at(batch)
        except LegroomError:
            continue
        done.append(alternative)
        if there.high_bytes < plain.high_bytes:
            lines.append(line(alternative, there, plain))
    return lines


def line(alternative: Alternative, there: Estimate, plain: Estimate) -> str:
    high, before = format_bytes(there.high_bytes), format_bytes(plain.high_bytes)
    data = plain.breakdown.get("data", 0)
    kept = (
        f", with the {format_bytes(data)} of data on the device as now" if alternative.kind == "input" and data else ""
    )
    verdict = "it would fit" if there.fits else "still too much"
    return f"{alternative.text}: up to {high} instead of {before}{kept} ({verdict})"
