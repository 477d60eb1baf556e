"""From facts to causes: every sign is weighed, the weights of one cause add up as independent signs do, and their shares are the probabilities."""

from collections.abc import Iterable, Iterator

from legroom.explain.device_causes import device_guesses
from legroom.explain.guesses import Guess, guess
from legroom.explain.host_causes import host_guesses
from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.explain.signs import printed_growth
from legroom.explain.story import Story
from legroom.explain.text import shown
from legroom.explain.torch_causes import torch_guesses
from legroom.explain.xla_causes import xla_guesses
from legroom.records.diagnosis import Cause, CauseName, Evidence, Fact

DOUBT = 0.5
TOO_LITTLE = 0.28
LINES_EACH = 6
MUCH_LEFT = 0.5
FAILURES = (
    *("refused", "driver_out", "cudnn", "cudnn_workspace", "mentioned", "no_context", "refused_on_host"),
    *("kernel_died", "not_memory", "growing", "retraced"),
)
HARMLESS = (
    "harmless",
    "large_allocation",
    "rematerialized",
    "captured_constants",
    "regions_collected",
    "autotune",
    "arguments_exceed",
)


def judge(story: Story, incident: Incident | None, numbers: Numbers) -> tuple[Cause, ...]:
    """The causes that the log speaks for, the likeliest first; `unknown` leads where nothing speaks loud enough."""
    guesses = list(guesses_of(story, incident, numbers))
    return rank(guesses, incident.opened if incident is not None else None)


def guesses_of(story: Story, incident: Incident | None, numbers: Numbers) -> Iterator[Guess]:
    yield from at_start(story, incident)
    if incident is None:
        yield from without_incident(story)
    elif 0 in (numbers.shape or ()):
        text = "A tensor without elements was refused: that is a fault of the framework, and not about memory."
        yield guess("unknown", 0.8, text, [incident.opened])
    elif incident.kind == "constant":
        yield guess(
            "graph_constant_too_large",
            0.97,
            "Data became a constant of the graph, and a graph cannot hold 2 GB.",
            [incident.opened],
        )
    elif "dataset" in incident.kinds or (is_in_pipeline(incident) and "pool" not in incident.kinds):
        facts = [incident.opened, *incident.lists.get("dataset", [])[:2]]
        yield guess("host_ram_dataset", 0.85, "It happened inside the data pipeline.", facts)
    elif incident.is_on_host:
        yield from host_guesses(incident, numbers, story)
    else:
        if is_in_pipeline(incident) and not (numbers.device or "").startswith("GPU"):
            facts = [incident.opened, *incident.lists.get("dataset", [])[:2]]
            yield guess("host_ram_dataset", 0.85, "It happened inside the data pipeline.", facts)
        if "host" in (numbers.allocator or ""):
            yield guess("host_ram_other", 0.8, "It is pinned memory of the host that ran out.", [incident.opened])
        yield from torch_guesses(incident, numbers)
        yield from xla_guesses(incident, numbers, story)
        yield from device_guesses(incident, numbers, story)


def is_in_pipeline(incident: Incident) -> bool:
    return bool(incident.lists.get("dataset"))


def at_start(story: Story, incident: Incident | None) -> Iterator[Guess]:
    """A GPU that cannot even be taken into use, and libraries that cannot start on it."""
    if story.has("no_context"):
        yield guess(
            "gpu_shared_or_preallocated",
            0.85,
            "The card had no room even for the process's own context.",
            story.all("no_context")[:2],
        )
    if story.has("cudnn"):
        if story.has("wrong_library"):
            yield guess(
                "unknown",
                0.7,
                "The versions of the libraries do not match: this is not about memory.",
                story.all("wrong_library")[:2],
            )
        elif any(fact.value > MUCH_LEFT for fact in story.all("left_at_failure")):
            text = "Most of the card was free when cuDNN could not start: compare its version with the framework's."
            yield guess("unknown", 0.7, text, [*story.all("left_at_failure")[:1], *story.all("cudnn")[:1]])
        else:
            weight = 0.85 if incident is None or incident.kind == "autotune" else 0.5
            yield guess(
                "cudnn_init_memory",
                weight,
                "cuDNN or cuBLAS could not start: the pool had left it nothing.",
                story.all("cudnn")[:3],
            )


def without_incident(story: Story) -> Iterator[Guess]:
    """Nothing says that an allocation of the program failed."""
    yield from of_the_driver(story)
    yield from of_growth(story)
    if story.has("not_memory"):
        facts = story.all("not_memory")[:2]
        yield guess("unknown", 0.7, f"{facts[0].value} This is not about memory.", facts)
    elif story.has("mentioned") and not story.has("cudnn", "cudnn_workspace", "refused", "driver_out"):
        text = "A resource ran out, it is not said which; in training that is mostly the device's memory."
        yield guess("batch_or_activations", 0.35, text, story.all("mentioned")[:2])
    if story.has("kernel_died") and story.has("large_allocation"):
        facts = [*story.all("large_allocation")[-1:], *story.all("kernel_died")[:1]]
        yield guess("host_ram_other", 0.6, "A large allocation, and the notebook's kernel was gone.", facts)
    if not story.has(*FAILURES):
        yield from of_warnings(story)


def of_the_driver(story: Story) -> Iterator[Guess]:
    """The driver, and the libraries beside the pool, that have nothing left."""
    if story.has("refused"):
        text = f"The driver refused memory {story.counts['refused']} times."
        yield guess("gpu_shared_or_preallocated", 0.8, text, story.all("refused")[:3])
    elif story.has("driver_out") and not story.has("cudnn"):
        yield guess("gpu_shared_or_preallocated", 0.5, "The driver had no memory left.", story.all("driver_out")[:2])
    if story.has("cudnn_workspace") and not story.has("cudnn"):
        text = "A library of the GPU could not allocate what it works in."
        yield guess("workspace_or_autotune", 0.7, text, story.all("cudnn_workspace")[:2])
    if story.has("refused_on_host"):
        text = "The driver could not pin memory of the host."
        yield guess("host_ram_other", 0.7, text, story.all("refused_on_host")[:2])


def of_growth(story: Story) -> Iterator[Guess]:
    """Nothing has failed yet, and the memory grows."""
    if story.has("retraced"):
        text = "A function is traced again and again; each trace keeps its memory."
        yield guess("retracing", 0.85, text, story.all("retraced")[:3])
    elif story.has("growing"):
        yield guess("leak_or_growth", 0.7, "The framework itself suspects a leak.", story.all("growing")[:2])
    elif (growth := printed_growth(story)) is not None and not story.has("refused", "driver_out"):
        how, facts = growth
        yield guess("leak_or_growth", 0.6, f"By what the run printed, its memory {how}.", facts)


def of_warnings(story: Story) -> Iterator[Guess]:
    """Messages that say of themselves that nothing has failed."""
    name = next((name for name in HARMLESS if story.has(name)), None)
    if name is not None:
        text = f"{story.counts[name]} messages that only warn; nothing failed."
        yield guess("not_an_error", 0.9, text, story.all(name)[:3])
    elif story.has("shuffled") and not story.has("traceback"):
        text = "tf.data says how far it has filled its shuffle buffer; nothing failed."
        yield guess("not_an_error", 0.8, text, story.all("shuffled")[:3])


def rank(guesses: Iterable[Guess], opened: Fact | None) -> tuple[Cause, ...]:
    """Signs for the same cause add up as 1 − (1 − a)(1 − b); doubt keeps a share of its own."""
    by_cause: dict[CauseName, list[Guess]] = {}
    for each in guesses:
        by_cause.setdefault(each.cause, []).append(each)
    weights: dict[CauseName, float] = {}
    for name, members in by_cause.items():
        missing = 1.0
        for each in members:
            missing *= 1 - each.weight
        weights[name] = 1 - missing
    best = max(weights.values(), default=0.0)
    doubt = DOUBT * (1 - best) if best >= TOO_LITTLE else max(0.3, best + 0.05)
    weights["unknown"] = max(weights.get("unknown", 0.0), doubt)
    total = sum(weights.values())
    ranked = sorted(weights.items(), key=lambda item: -item[1])
    return tuple(
        Cause(
            name, round(weight / total, 3), evidence_of(by_cause.get(name, []), opened), why_of(by_cause.get(name, []))
        )
        for name, weight in ranked
        if weight / total >= 0.01
    )


def why_of(guesses: list[Guess]) -> str:
    return " ".join(dict.fromkeys(each.why for each in sorted(guesses, key=lambda each: -each.weight)[:2]))


def evidence_of(guesses: list[Guess], opened: Fact | None) -> tuple[Evidence, ...]:
    """Each line once, in the log's order."""
    facts = [fact for each in guesses for fact in each.facts] or (
        [opened] if opened is not None and not guesses else []
    )
    lines = {fact.line: Evidence(fact.line, shown(fact.text)) for fact in facts}
    return tuple(lines[number] for number in sorted(lines))[:LINES_EACH]
