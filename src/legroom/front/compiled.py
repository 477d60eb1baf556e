"""Answers for steps that XLA compiles: the program comes from the compiler itself."""

import time
from dataclasses import replace

from legroom.engines import cache
from legroom.engines.bfc import Bfc
from legroom.engines.xla.bounds import bounds_around, left_by_tuning, pool_bounds, share_of
from legroom.engines.xla.client import LIMIT_PERCENT, LIMIT_SECONDS, OPTIONS, Oracle, read_program_kept
from legroom.engines.xla.environment import require_system
from legroom.engines.xla.pool import settle_in
from legroom.engines.xla.releases import release_for
from legroom.front.source import Say, StepSource, be_silent, step_from_json, step_to_json
from legroom.front.target import Card
from legroom.gpus import target_description
from legroom.memory.estimate import Bounds, Target, assemble
from legroom.records import Estimate, Failure, Program, Step
from legroom.units import format_bytes

POOL_REASON = "zeros that the optimizer's slots begin as, and what TensorFlow's allocator does not split off"
WORTH_SAYING = 0.01  # of the peak


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
        """The estimate at that batch size, where so many bytes of the pool are taken by others."""
        started = time.monotonic()
        step, program, cached = self.program_at(batch)
        usable = self.card.usable_bytes(step.framework)
        step, bounds, failure = self.placed(step, program, usable - beside_bytes)
        target = Target(self.card.label, usable, "xla", f"jaxlib {self.release.version}")
        notes = self.card.notes + ((self.release.note,) if self.release.note else ())
        if step.resident_bytes > WORTH_SAYING * program.total_bytes:
            notes += (f"beside the program: {step.resident_reason}",)
        if step.execution != "xla":
            notes += (
                f"this step runs op by op ({step.execution_reason}); the figures say what it would take compiled",
            )
        estimate = assemble(step, program, target, bounds, seconds=time.monotonic() - started, notes=notes)
        left = left_by_tuning(step, program, target.usable_bytes) if step.framework == "jax" else None
        first = None if left is None else estimate.peak_bytes + left
        return replace(estimate, from_cache=cached, first_step_peak_bytes=first, out_of_memory=failure)

    def placed(self, step: Step, program: Program, room_bytes: int) -> tuple[Step, Bounds, Failure | None]:
        """The step with what lies beside its program, the bounds of both, and what finds no room in a pool of that size."""
        share = share_of(step, program, self.release, self.card.gpu)
        if step.framework != "tensorflow":
            return step, bounds_around(program.total_bytes + step.resident_bytes, share), None
        pool = lambda size: Bfc(size, growth=self.card.growth, garbage_collection=True)  # noqa: E731
        settled = settle_in(step, program, share, max(1, room_bytes), pool)
        beside = step.resident_bytes + max(0, settled.peak_bytes - program.total_bytes)
        left = (
            f"{format_bytes(settled.left_bytes)} that trying algorithms leaves behind, " if settled.left_bytes else ""
        )
        placed = replace(step, resident_bytes=beside, resident_reason=left + POOL_REASON)
        high = settled.high_bytes + step.resident_bytes
        return placed, pool_bounds(program.total_bytes, beside, high, growth=self.card.growth), settled.failure

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
