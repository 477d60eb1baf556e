"""Estimating: capture, engine and memory wired together. What both `legroom estimate` and `legroom.estimate()` call."""

from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

from legroom.engines.host.observe import Observed
from legroom.engines.host.on_device import kept_in_ram
from legroom.engines.xla.client import LIMIT_SECONDS
from legroom.errors import InputError
from legroom.front.compiled import Compiled
from legroom.front.hosting import at_batch, data_on, host_of
from legroom.front.local_source import LocalSource
from legroom.front.max_batch import find_max_batch
from legroom.front.sharing import Shared, View
from legroom.front.simulated import Simulated
from legroom.front.source import Say, StepSource, be_silent
from legroom.front.streaming import observed_streamed
from legroom.front.target import Card, choose_card, require_gpu
from legroom.memory.data import with_data
from legroom.records import Estimate, Step
from legroom.records.alternative import Alternative
from legroom.records.plan import Action, Effect

LARGEST_BATCH = 2**31 - 1
EngineName = Literal["auto", "xla", "op"]


class Estimator:
    """Answers for one captured step and one card, at any batch size. A context manager: it may hold a compiler's worker."""

    def __init__(
        self,
        source: StepSource,
        card: Card,
        engine: EngineName = "auto",
        *,
        say: Say = be_silent,
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self.source = source if isinstance(source, View) else View(Shared(source))
        self.card = card
        self.engine = engine
        self.say = say
        self.limit = limit
        self.observed: Observed | None = None
        self.ram_bytes: int | None = None  # the data read within so many bytes, as under `legroom run --ram`
        self.in_ram = False  # whether arrays are kept from the device
        self.pool_bytes: int | None = None  # what is usable instead of what the framework takes by itself
        self.made: dict[str, Compiled | Simulated] = {}
        self.answers = self.engine_now()

    def __enter__(self) -> "Estimator":
        return self

    def __exit__(self, *exception: object) -> None:
        for engine in self.made.values():
            engine.close()

    def beside(self) -> "Estimator":
        """Another one for the same step as it was captured, which may be asked at the same time; silent, and to be closed."""
        other = Estimator(self.source.beside(), self.card, self.engine, limit=self.limit)
        other.observed = self.observe()
        return other

    def engine_now(self) -> Compiled | Simulated:
        """The engine for how the step runs now, made once."""
        name = engine_for(self.source.step, self.card, self.engine)
        if name not in self.made and name == "op":
            self.made[name] = Simulated(self.source, self.card, say=self.say)
        elif name not in self.made:
            self.made[name] = Compiled(self.source, require_gpu(self.card), say=self.say, limit=self.limit)
        return self.made[name]

    def at(self, batch: int | None) -> Estimate:
        """The estimate at that batch size; None stands for the one that was captured."""
        step = self.source.step
        asked = require_batch(step.batch if batch is None else batch)
        observed = observed_streamed(at_batch(self.observe(), step, asked), step.framework, self.ram_bytes)
        placed = replace(observed, data=kept_in_ram(observed.data)) if self.in_ram else observed
        data = data_on(self.answers.card, step, placed)
        found = self.answers.at(asked, sum(item.size_bytes for item in data))
        found = found if self.pool_bytes is None else replace(found, usable_bytes=self.pool_bytes)
        return replace(with_data(found, data), host=host_of(step, observed, found))

    def observe(self) -> Observed:
        """The process before its step is traced and its variables made."""
        if self.observed is None:
            self.observed = self.source.observe()
        return self.observed

    def change(self, actions: tuple[Action, ...]) -> Effect:
        """Do these actions to the step, and undo those that were done before; how exact that is."""
        self.observe()
        found = self.source.change(actions)
        self.in_ram = any(action.name == "host_data" for action in actions)
        self.pool_bytes = next((action["usable_bytes"] for action in actions if action.name == "pool"), None)
        self.answers = self.engine_now()
        if isinstance(self.answers, Simulated):
            pages = self.card.pages or any(action.name == "allocator" for action in actions)
            self.answers.card = replace(self.answers.card, pages=pages)
        if isinstance(self.answers, Compiled):
            self.answers.hold(next((action["percent"] for action in actions if action.name == "xla_memory"), None))
        return found

    def imagine(self, alternative: Alternative) -> None:
        """From now on, the step of a model that has it so; `change` comes back to the real one."""
        self.change(())
        self.source.imagine(alternative)


def engine_for(step: Step, card: Card, engine: EngineName) -> Literal["xla", "op"]:
    """The engine for how the step will run there; on a CPU Keras compiles only what it was told to."""
    if engine not in ("auto", "xla", "op"):
        raise InputError(f"There is no engine {engine!r}.", 'Give "auto", "xla" or "op".')
    if engine != "auto":
        return engine
    if step.execution != "xla" or (card.is_cpu and step.compiled_for_gpu):
        return "op"
    return "xla"


def require_batch(batch: int | None) -> int | None:
    if batch is not None and (not isinstance(batch, Integral) or batch < 1):
        raise InputError(f"A batch has at least one example; received {batch!r}.", "Pass --batch 32, for example.")
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
    card = choose_card(gpu, budget)
    require_batch(batch_size)
    source = LocalSource(capture_here(model, batch, jit_compile))
    with Estimator(source, card, engine) as estimator:
        found = estimator.at(batch_size)
        return find_max_batch(estimator.at, found) if max_batch else found


def capture_here(model: Any, batch: Any, jit_compile: Any) -> Any:
    """A model of this process with one batch, as the step that `fit` would run."""
    from legroom.capture.factory import batch_tree
    from legroom.capture.keras_data import is_dataset
    from legroom.capture.keras_fit import capture_model

    captured = capture_model(model, batch_tree(batch), raw_jit=jit_compile)
    return replace(captured, given={"x": batch}) if is_dataset(batch) else captured
