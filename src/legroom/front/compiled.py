"""Answers for steps that XLA compiles: the program comes from the compiler itself."""

import time
from dataclasses import replace

from legroom.engines import cache
from legroom.engines.xla.bounds import bounds_of, left_by_tuning
from legroom.engines.xla.client import LIMIT_PERCENT, LIMIT_SECONDS, OPTIONS, Oracle, read_program_kept
from legroom.engines.xla.environment import require_system
from legroom.engines.xla.releases import release_for
from legroom.front.source import Say, StepSource, be_silent, step_from_json, step_to_json
from legroom.front.target import Card
from legroom.gpus import target_description
from legroom.memory.estimate import Target, assemble
from legroom.records import Estimate, Program, Step


class Compiled:
    """One captured step and one card, at any batch size. It holds the compiler's worker until it is closed."""

    def __init__(self, source: StepSource, card: Card, *, say: Say = be_silent, limit: float = LIMIT_SECONDS) -> None:
        require_system()
        self.source = source
        self.card = card
        self.say = say
        self.release = release_for(source.step.framework, source.step.framework_version)
        self.oracle = Oracle(self.release, limit)
        self.description = target_description(card.gpu)

    def close(self) -> None:
        self.oracle.close()

    def hold(self, percent: int | None) -> None:
        """Tell XLA to make do with so much of what it would take the card to have; None for what it does by itself."""
        self.oracle.options = OPTIONS if percent is None else (*OPTIONS, (LIMIT_PERCENT, percent))

    def at(self, batch: int | None, beside_bytes: int = 0) -> Estimate:
        """The estimate at that batch size. What lies beside it changes nothing of what XLA plans."""
        started = time.monotonic()
        step, program, cached = self.program_at(batch)
        target = Target(
            self.card.label, self.card.usable_bytes(step.framework), "xla", f"jaxlib {self.release.version}"
        )
        notes = self.card.notes + ((self.release.note,) if self.release.note else ())
        if step.resident_bytes:
            notes += (f"beside the program: {step.resident_reason}",)
        if step.execution != "xla":
            notes += (
                f"this step runs op by op ({step.execution_reason}); the figures say what it would take compiled",
            )
        bounds = bounds_of(step, program, self.release, self.card.gpu)
        estimate = assemble(step, program, target, bounds, seconds=time.monotonic() - started, notes=notes)
        left = left_by_tuning(step, program, target.usable_bytes)
        first = None if left is None else estimate.peak_bytes + left
        return replace(estimate, from_cache=cached, first_step_peak_bytes=first)

    def program_at(self, batch: int | None) -> tuple[Step, Program, bool]:
        known = self.source.fingerprint(batch)
        key = None if known is None else cache.key_of("step", known, self.description, self.release.version)
        kept = None if key is None else cache.read(key)
        program = None if kept is None else read_program_kept(kept["program"])
        if kept is not None and program is not None:
            return self.remembered(step_from_json(kept["step"]), batch), program, True
        self.say(f"tracing the step at batch {batch}")
        lowered = self.source.lower(batch, self.card.gpu.compute_capability)
        self.say(f"compiling for {self.card.label} at batch {batch}")
        before = self.oracle.compiled
        program = self.oracle.compile(lowered, self.card.gpu)
        if key is not None:
            cache.write(
                key, {"step": step_to_json(lowered.step), "program": self.oracle.key_of(lowered, self.card.gpu)}
            )
        return lowered.step, program, self.oracle.compiled == before

    def remembered(self, kept: Step, batch: int | None) -> Step:
        """The step at hand with what tracing it has brought out before."""
        return replace(
            self.source.step,
            batch=batch,
            parameters=kept.parameters,
            resident_bytes=kept.resident_bytes,
            resident_reason=kept.resident_reason,
        )
