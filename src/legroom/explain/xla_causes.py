"""Why a compiled program does not fit: XLA says how much of it is arguments, temporaries and results."""

import re
from collections.abc import Iterator

from legroom.explain.guesses import Guess, guess
from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.explain.pairs import pairs_of, text_of_pairs
from legroom.explain.signs import frames_say, share
from legroom.explain.story import CLOSE_LINES, Story
from legroom.units import GIB, MIB, format_bytes

TINY = 256 * MIB
ABSURD = 200 * GIB
STATE = ("parameter", "arguments")
MAKING_WEIGHTS = re.compile(
    r"_truncated_normal|jit\(_(?:uniform|normal|gaussian)|random_(?:bits|normal|uniform)|/init(?:ialize)?\b|jit\(init"
)


def xla_guesses(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    """By the program's own account where there is one, else by size."""
    if not incident.kinds & {"xla", "hbm", "reserve"}:
        return
    parts = {fact.value[0]: fact.value[1] for fact in reversed(incident.lists.get("xla_allocation", []))}
    facts = incident.lists.get("xla_allocation", [])[:4]
    state = max((parts.get(name, 0) for name in STATE), default=0)
    work = max(parts.get("preallocated temp", 0), parts.get("program", 0), parts.get("HLO temp", 0)) + parts.get(
        "maybe_live_out", 0
    )
    total = max(state + work, parts.get("total", 0))
    failed = numbers.failed_bytes
    if total and failed is not None and failed > total:  # the account is cut off: what it lacks is the step's own
        work, total = work + failed - total, failed
    if (
        total
        and failed is not None
        and max(total, failed) < (numbers.limit_bytes or 4 * GIB) // 4
        and not is_own(numbers)
    ):
        text = f"The program needs {format_bytes(total)} in all: the memory was already gone before it."
        yield guess("gpu_shared_or_preallocated", 0.55, text, [incident.opened, *facts])
        yield guess("leak_or_growth", 0.35, text, [incident.opened])
    elif story.has("arguments_exceed") and not total:
        text = "XLA warned before that the program's arguments alone are more than the limit: weights, state, data."
        yield guess("weights_or_optimizer_state", 0.75, text, [*story.all("arguments_exceed")[:1], incident.opened])
    elif total and MAKING_WEIGHTS.search(numbers.op or ""):
        text = f"The largest buffers are those of {numbers.op}: weights that are being made."
        yield guess(
            "weights_or_optimizer_state", 0.75, text, [incident.opened, *incident.lists.get("buffer_op", [])[:2]]
        )
    elif total and state > 0.6 * total:
        yield guess(
            "weights_or_optimizer_state",
            0.75,
            f"{share(state, total)} of the program is what it is given: weights, state, data.",
            [incident.opened, *facts],
        )
    elif total:
        text = f"{share(work, total)} of the program is made by the step itself: activations, gradients, temporaries."
        yield guess("batch_or_activations", 0.75, text, [incident.opened, *facts])
    else:
        yield from by_size(incident, numbers, story)


def by_size(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    failed, said = numbers.failed_bytes, frames_say(incident)
    loads = [fact for fact in story.all("loads_model") if abs(fact.line - incident.opened.line) <= CLOSE_LINES]
    opened = [incident.opened]
    if story.has("rematerialized"):
        fact = story.all("rematerialized")[0]
        wanted, reached = fact.value
        text = f"XLA could recompute its way down to {format_bytes(reached)}, and {format_bytes(wanted)} were wanted."
        yield guess("batch_or_activations", 0.75, text, [*opened, fact])
    elif "on_chip" in incident.said:
        text = f"It is the scratch memory of a core ({incident.value('on_chip')}) that one kernel has used up, not the device's memory."
        yield guess("workspace_or_autotune", 0.6, text, opened)
    elif incident.kind == "hbm":
        yield guess(
            "batch_or_activations", 0.65, f"The compiled program needs {format_bytes(failed or 0)} at its peak.", opened
        )
    elif (pairs := pairs_of(failed, story)) is not None:
        yield guess("tensor_too_large", 0.7, text_of_pairs(pairs[0]), [*pairs[1], *opened])
    elif failed is not None and failed >= ABSURD:
        yield guess("tensor_too_large", 0.8, f"{format_bytes(failed)} at once is more than any device holds.", opened)
    elif said == "state" or (loads and said is None):
        text = "It failed while weights were made or loaded."
        yield guess("weights_or_optimizer_state", 0.5, text, [*loads[:1], *opened])
    elif failed is not None and failed >= TINY:
        yield guess("batch_or_activations", 0.6, f"One compiled step asks for {format_bytes(failed)} at once.", opened)
    elif failed is not None and numbers.free_bytes is not None and numbers.free_bytes < failed:
        text = f"{format_bytes(numbers.free_bytes)} were free: the device was full when {format_bytes(failed)} more were asked for."
        yield guess("batch_or_activations", 0.45, text, opened)
    elif failed is not None and is_own(numbers):
        text = f"This process held {format_bytes(numbers.in_use_bytes or 0)} of {format_bytes(numbers.limit_bytes or 0)} when it asked for more."
        yield guess("batch_or_activations", 0.5, text, opened)
    elif failed is not None:
        text = f"Not even {format_bytes(failed)} were left; nothing says that others hold the device."
        yield guess("batch_or_activations", 0.4, text, opened)
        yield guess("gpu_shared_or_preallocated", 0.3, text, opened)


def is_own(numbers: Numbers) -> bool:
    """Whether the log says that this process itself held most of what it was allowed."""
    in_use, limit = numbers.in_use_bytes, numbers.limit_bytes
    return in_use is not None and limit is not None and in_use > 0.5 * limit
