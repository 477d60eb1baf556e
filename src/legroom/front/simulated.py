"""Answers for steps that run op by op: TensorFlow's executor and allocator, simulated."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from legroom.engines import cache
from legroom.engines.bfc import Bfc, OrderedMemory
from legroom.engines.codec import program_from_json, program_to_json
from legroom.engines.cuda_pool import CudaPool
from legroom.engines.op.arrivals import ArrivingExecutor
from legroom.engines.op.bounds import Doubt, bounds_of, doubt_of, is_torn, share_of
from legroom.engines.op.collection import collector_paused
from legroom.engines.op.graph import Graph
from legroom.engines.op.grappler import Device
from legroom.engines.op.kernels import CpuKernels, GpuKernels
from legroom.engines.op.lower import OpStep
from legroom.engines.op.replay_eager import simulate_eager
from legroom.engines.op.simulate import Machine, Outcome, simulate_graph
from legroom.engines.op.unknown import notes_of
from legroom.errors import MissingError
from legroom.front.source import Say, StepSource, be_silent, step_from_json, step_to_json
from legroom.front.target import Card
from legroom.memory.estimate import Target, assemble
from legroom.records import Estimate, Failure, Program, Step

VERSION = "TensorFlow 2.21's executor and BFC allocator"
UNLIMITED_BYTES = 2**46
TOLD_STEPS = 5  # on a CPU: as many as real ones are measured by (bench/savings.py)
HOST_THREADS = 8  # what launches kernels where a GPU is: a typical machine's cores


@dataclass(frozen=True, slots=True)
class Answer:
    """What tracing and simulating one step at one batch size came to."""

    step: Step
    outcome: Outcome
    shortage: Failure | None
    doubt: Doubt
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        outcome = {**asdict(replace(self.outcome, program=NOTHING)), "program": program_to_json(self.outcome.program)}
        return {**asdict(replace(self, outcome=NO_OUTCOME)), "step": step_to_json(self.step), "outcome": outcome}


NOTHING = Program((), (), (), 0)
NO_OUTCOME = Outcome(NOTHING, (), 0)


def answer_from(kept: dict[str, Any]) -> Answer:
    outcome = kept["outcome"]
    found = Outcome(
        program_from_json(outcome["program"]),
        tuple(outcome["peaks"]),
        outcome["reserved_bytes"],
        failure_from(outcome["failure"]),
        tuple(outcome["later_peaks"]),
        outcome.get("step_seconds"),
    )
    doubt = Doubt(**kept["doubt"])
    return Answer(step_from_json(kept["step"]), found, failure_from(kept["shortage"]), doubt, tuple(kept["notes"]))


def failure_from(kept: dict[str, Any] | None) -> Failure | None:
    return None if kept is None else Failure(**kept)


class Simulated:
    """One captured step and one card, at any batch size."""

    def __init__(self, source: StepSource, card: Card, *, say: Say = be_silent) -> None:
        if source.step.framework != "tensorflow":
            raise MissingError(
                "Only TensorFlow runs steps op by op in a way that Legroom can simulate.",
                "Ask what the step takes compiled: --engine xla.",
            )
        self.source = source
        self.card = card
        self.say = say

    def close(self) -> None:
        """Nothing is held here."""

    def at(self, batch: int | None, beside_bytes: int = 0) -> Estimate:
        """The estimate at that batch size, where so many bytes of the pool are taken by others."""
        started = time.monotonic()
        known = self.source.fingerprint(batch)
        card = [
            asdict(self.device()),
            self.card.label,
            self.usable_bytes,
            self.card.growth,
            self.card.pages,
            beside_bytes,
        ]
        step = self.source.step
        key = None if known is None else cache.key_of("op", known, step.execution, step.makes_slots, card)
        kept = None if key is None else cache.read(key)
        answer = self.answer_at(batch, beside_bytes) if kept is None else answer_from(kept)
        if key is not None and kept is None:
            cache.write(key, answer.as_dict())
        bounds = bounds_of(answer.outcome, answer.doubt)
        target = Target(self.card.label, self.usable_bytes, "op", VERSION)
        notes = self.card.notes + answer.notes
        return replace(
            assemble(answer.step, answer.outcome.program, target, bounds, notes=notes),
            reserved_bytes=answer.outcome.reserved_bytes,
            out_of_memory=answer.shortage,
            step_seconds=answer.outcome.step_seconds,
            from_cache=kept is not None,
            seconds=time.monotonic() - started,
        )

    @property
    def usable_bytes(self) -> int:
        return self.card.usable_bytes("tensorflow")

    def answer_at(self, batch: int | None, beside_bytes: int) -> Answer:
        lowered = self.lowered_at(batch)
        self.say(f"simulating the step at batch {batch}")
        outcome = self.simulate(lowered, None)
        room = max(1, self.usable_bytes - beside_bytes)
        is_tight = 2 * max((*outcome.peaks, *outcome.later_peaks)) > room  # else no tear could matter
        share = None
        if not self.card.is_cpu:
            card, most = self.card, max(outcome.peaks)
            share = share_of(lowered.work, card.gpu, most, growth=card.growth, pages=card.pages)
        doubt = doubt_of(lowered.work, share=share, tears=not self.card.pages)
        shortage = self.shortage(lowered, room, doubt) if is_tight else None
        return Answer(lowered.step, outcome, shortage, doubt, notes_of(lowered.work))

    def shortage(self, lowered: OpStep, room: int, doubt: Doubt) -> Failure | None:
        """What finds no room, or on a GPU would find none if there were a little less, or a pool with more than a little less that would then be torn."""
        failure = self.simulate(lowered, room).failure
        if failure is not None or self.card.is_cpu:
            return failure
        full, torn = (min(less, room - 1) for less in doubt.less_bytes(room))
        failure = self.simulate(lowered, room - full).failure
        if failure is not None:
            return replace(failure, less_bytes=full)
        failure = self.simulate(lowered, room - torn).failure
        return replace(failure, less_bytes=torn) if failure is not None and is_torn(failure, room) else None

    def lowered_at(self, batch: int | None) -> OpStep:
        self.say(f"tracing the step at batch {batch}")
        return self.source.work(batch, self.device())

    def device(self) -> Device:
        if self.card.is_cpu:
            return Device(cores=self.card.cores)
        gpu = self.card.gpu
        rates = (gpu.sm_count, round(1000 * gpu.clock_ghz), gpu.bandwidth_bytes_per_second)
        return Device(gpu.compute_capability, self.card.cores, self.usable_bytes, *rates)

    def simulate(self, lowered: OpStep, limit_bytes: int | None) -> Outcome:
        """On a pool of that size, or on one that is large enough for anything."""
        machine = self.machine(UNLIMITED_BYTES if limit_bytes is None else limit_bytes)
        with collector_paused():
            if isinstance(lowered.work, Graph):
                return simulate_graph(lowered.step, lowered.work, machine)
            return simulate_eager(lowered.work, machine)

    def machine(self, most: int) -> Machine:
        card = self.card
        if card.is_cpu:
            kernels = CpuKernels(card.cores)
            heap = lambda: Bfc(most, memory=OrderedMemory(descending=True))  # noqa: E731
            return Machine(kernels, heap, card.cores, drifts=True, told_steps=TOLD_STEPS, timed=True)
        growth, pages = card.growth, card.pages
        pool = lambda: CudaPool(most) if pages else Bfc(most, growth=growth, garbage_collection=True)  # noqa: E731
        return Machine(GpuKernels(card.gpu), pool, HOST_THREADS, drifts=True, executor=ArrivingExecutor)
