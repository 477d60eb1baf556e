"""Answers for steps that run op by op: TensorFlow's executor and allocator, simulated."""

import time
from dataclasses import replace

from legroom.engines.op.bfc import Bfc, OrderedMemory
from legroom.engines.op.bounds import bounds_of
from legroom.engines.op.graph import Graph
from legroom.engines.op.grappler import Device
from legroom.engines.op.kernels import CpuKernels, GpuKernels
from legroom.engines.op.lower import OpStep
from legroom.engines.op.replay_eager import simulate_eager
from legroom.engines.op.simulate import Machine, Outcome, simulate_graph
from legroom.engines.op.unknown import compiled_bytes, notes_of, unknown_bytes
from legroom.errors import MissingError
from legroom.front.source import Say, StepSource, be_silent
from legroom.front.target import Card
from legroom.memory.estimate import Target, assemble
from legroom.records import Estimate

VERSION = "TensorFlow 2.21's executor and BFC allocator"
ROOM = 4  # how much larger than the card a simulated pool is that must not run out
HOST_THREADS = 8  # what launches kernels where a GPU is: a typical machine's cores


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
        self.kept: dict[int | None, OpStep] = {}

    def close(self) -> None:
        self.kept.clear()

    def at(self, batch: int | None) -> Estimate:
        """The estimate at that batch size."""
        started = time.monotonic()
        lowered = self.lowered_at(batch)
        step = lowered.step
        self.say(f"simulating the step at batch {batch}")
        usable = self.card.usable_bytes(step.framework)
        outcome = self.simulate(lowered, None)
        bounds = bounds_of(
            outcome,
            on_cpu=self.card.is_cpu,
            unknown_bytes=unknown_bytes(lowered.work),
            compiled_bytes=compiled_bytes(lowered.work),
        )
        target = Target(self.card.label, usable, "op", VERSION)
        estimate = assemble(step, outcome.program, target, bounds, notes=self.card.notes + notes_of(lowered.work))
        limited = self.simulate(lowered, usable) if tight(estimate) else None
        return replace(
            estimate,
            reserved_bytes=outcome.reserved_bytes,
            out_of_memory=limited.failure if limited is not None else None,
            seconds=time.monotonic() - started,
        )

    def lowered_at(self, batch: int | None) -> OpStep:
        if batch not in self.kept:
            self.say(f"tracing the step at batch {batch}")
            self.kept = {batch: self.source.work(batch, self.device())}
        return self.kept[batch]

    def device(self) -> Device:
        if self.card.is_cpu:
            return Device(cores=self.card.cores)
        return Device(self.card.gpu.compute_capability, self.card.cores, self.card.usable_bytes("tensorflow"))

    def simulate(self, lowered: OpStep, limit_bytes: int | None) -> Outcome:
        """On a pool of that size, or on one that is large enough for anything."""
        machine = self.machine(limit_bytes)
        if isinstance(lowered.work, Graph):
            seeds = (0,) if limit_bytes is not None else (0, 1, 2)
            return simulate_graph(lowered.step, lowered.work, machine, seeds)
        return simulate_eager(lowered.step, lowered.work, machine)

    def machine(self, limit_bytes: int | None) -> Machine:
        card = self.card
        if card.is_cpu:
            most = limit_bytes or 2**46
            return Machine(CpuKernels(card.cores), lambda: Bfc(most, memory=OrderedMemory(descending=True)), card.cores)
        growth = card.growth
        most = limit_bytes or ROOM * card.gpu.memory_bytes
        return Machine(GpuKernels(card.gpu), lambda: Bfc(most, growth=growth, garbage_collection=True), HOST_THREADS)


def tight(estimate: Estimate) -> bool:
    """Whether the pool is small enough that how it is torn could matter."""
    return estimate.peak_bytes * 2 > estimate.usable_bytes
