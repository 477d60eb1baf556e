"""Estimating: capture, engine and memory wired together. What both `legroom estimate` and `legroom.estimate()` call."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from legroom.engines.xla import cache
from legroom.engines.xla.bounds import bounds_of
from legroom.engines.xla.client import LIMIT_SECONDS, Oracle, read_program_kept
from legroom.engines.xla.environment import require_system
from legroom.engines.xla.releases import release_for
from legroom.errors import InputError, MissingError
from legroom.front.max_batch import find_max_batch
from legroom.front.source import LocalSource, StepSource, step_from_json, step_to_json
from legroom.front.target import Card, choose_card
from legroom.gpus import target_description
from legroom.memory.estimate import Target, assemble
from legroom.records import Estimate, Program, Step

LARGEST_BATCH = 2**31 - 1
EngineName = Literal["auto", "xla"]
Say = Callable[[str], None]


def be_silent(text: str) -> None:
    """Progress for nobody."""


class Estimator:
    """Answers for one captured step and one card, at any batch size. A context manager: it holds the compiler's worker."""

    def __init__(
        self,
        source: StepSource,
        card: Card,
        engine: EngineName = "auto",
        *,
        say: Say = be_silent,
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self.source = source
        self.card = card
        self.say = say
        step = source.step
        require_compiled(step, engine)
        self.release = release_for(step.framework, step.framework_version)
        self.oracle = Oracle(self.release, limit)
        self.description = target_description(card.gpu)

    def __enter__(self) -> "Estimator":
        return self

    def __exit__(self, *exception: object) -> None:
        self.oracle.close()

    def at(self, batch: int | None) -> Estimate:
        """The estimate at that batch size; None stands for the one that was captured."""
        started = time.monotonic()
        batch = require_batch(self.source.step.batch if batch is None else batch)
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
        return replace(estimate, from_cache=cached)

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


def require_compiled(step: Step, engine: EngineName) -> None:
    """Op-by-op steps are sized by another engine, which is not built yet."""
    if step.execution == "xla" or engine == "xla":
        return
    raise MissingError(
        f"This step runs op by op ({step.execution_reason}), and its peak comes out of TensorFlow's executor and allocator; "
        "this version of Legroom sizes compiled steps only.",
        "Ask what it would take compiled with --engine xla, and train it so: jit_compile=True in compile() or @tf.function(jit_compile=True).",
    )


def require_batch(batch: int | None) -> int | None:
    if batch is not None and batch < 1:
        raise InputError(f"A batch has at least one example; received {batch}.", "Pass --batch 32, for example.")
    if batch is not None and batch > LARGEST_BATCH:
        raise InputError(
            f"A batch of {batch} examples is more than any framework can count.", f"The most is {LARGEST_BATCH}."
        )
    return batch


def estimate(  # noqa: PLR0913
    model: Any,
    batch: Any,
    *,
    gpu: str | None = None,
    budget: str | int | None = None,
    batch_size: int | None = None,
    max_batch: bool = False,
    engine: EngineName = "auto",
    jit_compile: bool | Literal["auto"] | None = None,
) -> Estimate:
    """Predict the peak of one training step of a compiled Keras model, without running it and without the GPU.

    `batch` is one batch: x, (x, y) or (x, y, sample_weight) of arrays (only their shapes are read), or a tf.data.Dataset of
    batches. `batch_size` asks for another size than the batch has. `jit_compile` is what was given to `model.compile` if
    Legroom cannot know it: on a machine without a GPU Keras turns "auto" into False.
    """
    from legroom.capture.factory import batch_tree
    from legroom.capture.keras_fit import capture_model

    require_system()
    card = choose_card(gpu, budget)
    require_batch(batch_size)
    source = LocalSource(capture_model(model, batch_tree(batch), raw_jit=jit_compile))
    with Estimator(source, card, engine) as estimator:
        found = estimator.at(batch_size)
        return find_max_batch(estimator.at, found) if max_batch else found
