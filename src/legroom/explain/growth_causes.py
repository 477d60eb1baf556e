"""Memory that grew until it ran out, on the device or on the host: what went well for a while had enough."""

import re
from collections.abc import Iterator

from legroom.explain.guesses import Guess, guess
from legroom.explain.incidents import ALIGNMENT, Incident
from legroom.explain.numbers import Numbers
from legroom.explain.signs import dumped_growth, numbered_op, printed_growth, repeated_chunks
from legroom.explain.story import CLOSE_LINES, Story
from legroom.units import format_bytes

LONG_AGO = 2
EVALUATES = re.compile(r"(?i)(?:eval|predict|test|validat|infer)\w{0,20}$")
SOME_STEPS, MANY_STEPS = 20, 200
DEEPEST = 1000  # equal tensors that a step may hold


def growth_guesses(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    yield from of_sizes(incident, numbers, story)
    epoch = max(incident.epoch or 0, incident.epochs_ended)
    if epoch >= LONG_AGO:
        text = f"It had trained up to epoch {epoch} before."
        weight = 0.6 if incident.is_on_host else 0.8  # a host has other processes, too
        weight = 0.3 if is_another_phase(incident) else weight
        yield guess(
            "leak_or_growth", weight, text, [*(story.all("epoch") or story.all("epochs_ended"))[-1:], incident.opened]
        )
    elif incident.epochs_ended and not is_another_phase(incident) and not evaluates(incident, story):
        text = "A whole epoch had gone well, and the next one's steps need no more than its own."
        weight = 0.4 if incident.is_on_host else 0.6  # the first evaluation may have left something behind, too
        yield guess("leak_or_growth", weight, text, [*story.all("epochs_ended")[-1:], incident.opened])
    elif incident.step is not None and incident.step >= SOME_STEPS and not incident.is_on_host:
        weight = 0.75 if incident.step >= MANY_STEPS else 0.4
        text = f"It had made {incident.step} steps before, and equal steps need equal memory."
        yield guess("leak_or_growth", weight, text, story.all("step")[-1:])
    if (numbered := numbered_op(numbers)) is not None:
        text = f"The graph holds {numbered} operations of one kind: it grows, as models built in a loop make it."
        yield guess("leak_or_growth", 0.6, text, [incident.said.get("node") or incident.opened])
    if story.has("retraced"):
        count = story.counts["retraced"]
        text = f"A function was traced again and again ({count} warnings): each trace keeps its memory."
        yield guess("retracing", 0.9 if count > 1 else 0.65, text, story.all("retraced")[:3])


def is_another_phase(incident: Incident) -> bool:
    """Whether it failed in an evaluation behind the training: that takes other batches than the steps that went well."""
    names = [name.strip("_") for name in incident.frames]
    return "fit" not in names and any(EVALUATES.match(name) for name in names)


def evaluates(incident: Incident, story: Story) -> bool:
    """Whether the lines of code above the error call a step of evaluation."""
    return any(0 <= incident.opened.line - fact.line <= CLOSE_LINES for fact in story.all("evaluates"))


def of_sizes(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    """Sizes that rise, and very many that are equal."""
    if growth := printed_growth(story):
        how, facts = growth
        text = f"Memory {how} before it ran out."
        yield guess("leak_or_growth", 0.8, text, facts)
    elif dumped := dumped_growth(story):
        sizes, facts = dumped
        text = f"From dump to dump {format_bytes(sizes[0])} became {format_bytes(sizes[-1])} for the same request."
        yield guess("leak_or_growth", 0.85, text, facts)
    if repeated := repeated_chunks(numbers):
        size, count = repeated
        text = f"{count} pieces of {format_bytes(size)} each are held at once: no model has that many equal tensors."
        is_asked_for = abs(size - (numbers.failed_bytes or 0)) <= ALIGNMENT  # as the layers of a deep model may be
        is_deep = is_asked_for and count < DEEPEST
        yield guess("leak_or_growth", 0.4 if is_deep else 0.8, text, [incident.opened])
