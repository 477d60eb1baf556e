"""Why a device's memory ran out: the request against what is free, the largest hole, the limit and the rest of the card."""

import re
from collections.abc import Iterator
from math import prod

from legroom.explain.growth_causes import growth_guesses
from legroom.explain.guesses import Guess, guess
from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.explain.pairs import pairs_of, text_of_pairs
from legroom.explain.signs import SMALL_CARD, least_on_card, never_given, refused_sizes, share, starved_card
from legroom.explain.state_causes import of_state
from legroom.explain.story import Story
from legroom.records.diagnosis import Fact
from legroom.units import GIB, format_bytes

HUGE = 24 * GIB
NO_CARD_HAS = 200 * GIB
DATA_ROWS = 2000
ROOMY = 0.03  # with less than this left after the request, the pool is as good as full: the next one would fail anyhow
HALF_EMPTY = 0.3
GATHERS = re.compile(
    r"(?:^|/)(?:_EagerConst|Const|Cast|Pack|stack|OneHot|one_hot|ConcatV2|concat)(?:_\d{1,4})?$"
)  # one array of many
COMPUTES = re.compile(
    r"(?:^|/)(?:Conv[23]D\w{0,24}|MatMul|BiasAdd|\w{0,5}Relu\w{0,5}|MaxPool\w{0,12}|AvgPool\w{0,12})(?:_\d{1,4})?$"
)
IMAGES = re.compile(r"(?i)(?:^|/)\w{0,24}(?:image|decode|resize|jpeg|png|crop)")
BYTE_TYPES = ("uint8", "int8")
ONE_TENSOR = frozenset(("pool", "tensor", "copy", "torch", "device", "device_said"))


def device_guesses(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    """Everything that the facts of one incident on a device speak for."""
    opened = [incident.opened, incident.said.get("shape")]
    yield from of_the_pool(incident, numbers, story)
    yield from of_the_tensor(incident, numbers, story, opened)
    yield from of_the_workspace(incident, numbers, story)
    yield from growth_guesses(incident, numbers, story)
    yield from of_others(incident, numbers, story)


def of_the_pool(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    """Full, torn, or not allowed to grow."""
    failed, free, hole, room = numbers.failed_bytes, numbers.free_bytes, numbers.largest_free_bytes, numbers.room_bytes
    if (
        failed is None
        or free is None
        or numbers.limit_bytes is None
        or failed > numbers.limit_bytes
        or "torch" in incident.kinds
    ):
        return
    facts = [incident.opened, incident.pool.said.get("stat_Limit"), incident.pool.said.get("stat_InUse")]
    if room is not None and room >= failed:
        yield guess(
            "gpu_shared_or_preallocated",
            0.8,
            f"The pool could still grow by {format_bytes(room)} up to its limit and only {format_bytes(failed)} were asked for: the driver refused.",
            [*facts, *refused_sizes(story)[:2]],
        )
    elif failed <= free and (hole is None or hole < failed) and (numbers.pool is not None or hole is not None):
        torn = f", the largest piece {format_bytes(hole)}" if hole is not None else ""
        left = free - failed >= max(ROOMY * numbers.limit_bytes, failed // 4)
        is_roomy = (left or incident.is_whole_step) and not starved_card(story, numbers)
        yield guess(
            "fragmentation",
            (0.85 if hole is not None else 0.6) if is_roomy else 0.45,
            f"{format_bytes(free)} are free{torn}; {format_bytes(failed)} were asked for in one piece.",
            facts,
        )


def of_the_tensor(incident: Incident, numbers: Numbers, story: Story, opened: list[Fact | None]) -> Iterator[Guess]:
    """One tensor that is absurd, a data set, a weight, or a batch of activations."""
    shape = numbers.shape
    if shape is not None and is_data(numbers, shape):
        text = f"{shape[0]} rows at once are a data set, not a batch."
        if shape[0] < DATA_ROWS:
            text = "A single image, without a batch, is made on the host: in the data pipeline."
        yield guess("host_ram_dataset", 0.7, text, opened)
    else:
        yield from of_its_size(incident, numbers, story, opened)
    state = of_state(incident, numbers, story, opened)
    if state is not None:
        yield state
    elif shape is not None and len(shape) > 1 and (shape[0] > 1 or len(shape) > 2):
        text = f"{shape[0]} examples of {format_bytes(one_example_of(numbers))} each in one activation."
        is_full = is_short(numbers)
        yield guess(
            "batch_or_activations", 0.7 if is_full else 0.5, f"{text} {full_text(numbers)}" if is_full else text, opened
        )
    elif incident.kind in ONE_TENSOR and not is_half_empty(numbers):
        yield guess("batch_or_activations", 0.35, full_text(numbers), opened)


def of_its_size(incident: Incident, numbers: Numbers, story: Story, opened: list[Fact | None]) -> Iterator[Guess]:
    """More at once than the pool, the card or any card holds."""
    failed, limit = numbers.failed_bytes, numbers.limit_bytes
    is_one_tensor = incident.kind in ONE_TENSOR
    if "too_large" in incident.said:
        yield guess("tensor_too_large", 0.8, "It is larger than one buffer of the device may be.", opened)
    elif is_one_tensor and prod(numbers.shape or (0,)) >= (limit or NO_CARD_HAS):
        text = f"{prod(numbers.shape or ()):,} numbers in one tensor are more than {'the pool' if limit else 'any card'} holds, even at one byte each."
        yield guess("tensor_too_large", 0.85, text, opened)
    elif failed is None and is_empty_pool(numbers):
        text = f"{format_bytes(numbers.in_use_bytes or 0)} of {format_bytes(limit or 0)} were in use: only something larger than all of it fails then."
        yield guess("tensor_too_large", 0.5, text, opened)
    elif failed is None:
        return
    elif limit is not None and failed > limit and is_one_tensor:
        text = f"{format_bytes(failed)} were asked for at once; the whole pool is {format_bytes(limit)}."
        weight = 0.4 if failed < HUGE and starved_card(story, numbers) else 0.8  # or it is the pool that is too small
        yield guess("tensor_too_large", weight, text, opened)
    elif limit is None and is_one_tensor and (failed >= HUGE or one_example_of(numbers) >= 2 * GIB):
        text = f"A single tensor of {format_bytes(failed)} is more than most cards hold."
        yield guess("tensor_too_large", 0.75, text, opened)
    elif limit is None and is_one_tensor and (pairs := pairs_of(failed, story)) is not None:
        yield guess("tensor_too_large", 0.7, text_of_pairs(pairs[0]), [*pairs[1], *opened])
    elif incident.kind == "copy" and numbers.op == "_EagerConst" and failed >= 0.25 * (limit or HUGE):
        text = f"A whole array of {format_bytes(failed)} is copied to the device at once."
        yield guess("tensor_too_large", 0.7, text, opened)


def is_empty_pool(numbers: Numbers) -> bool:
    """A pool that has all that it may have, of a usual size, and nothing in it."""
    limit, in_use, room = numbers.limit_bytes, numbers.in_use_bytes, numbers.room_bytes
    return limit is not None and in_use is not None and limit >= GIB and in_use < 0.01 * limit and room == 0


def one_example_of(numbers: Numbers) -> int:
    return (numbers.tensor_bytes or 0) // max(1, numbers.shape[0]) if numbers.shape else 0


def is_half_empty(numbers: Numbers) -> bool:
    """Whether there was far more room than was asked for, as far as the log says it: then it was not for being full."""
    free, limit = numbers.free_bytes, numbers.limit_bytes
    return free is not None and limit is not None and free > max(HALF_EMPTY * limit, 2 * (numbers.failed_bytes or 0))


def full_text(numbers: Numbers) -> str:
    if numbers.in_use_bytes and numbers.limit_bytes:
        return f"{share(numbers.in_use_bytes, numbers.limit_bytes)} of {format_bytes(numbers.limit_bytes)} were in use when more was asked for."
    return "The memory was full when more was asked for."


def is_data(numbers: Numbers, shape: tuple[int, ...]) -> bool:
    """Whole data sets are put into one tensor on the host."""
    on_host = (numbers.device or "").startswith("CPU") and not (numbers.allocator or "").startswith("GPU")
    is_pairs = len(shape) > 1 and shape[0] == shape[1]
    is_rows = len(shape) >= 3 or (len(shape) == 2 and bool(GATHERS.search(numbers.op or "")))
    is_one_image = len(shape) == 3 and shape[-1] in (1, 3, 4) and bool(IMAGES.search(numbers.op or ""))
    if COMPUTES.search(numbers.op or ""):
        return False
    return on_host and (is_one_image or (is_rows and shape[0] >= DATA_ROWS and prod(shape[1:]) >= 256 and not is_pairs))


def of_the_workspace(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    shape, failed = numbers.shape, numbers.failed_bytes
    tried = [*story.all("autotune")[:2], *story.all("harmless")[:1], *story.all("cudnn_workspace")[:1]]
    before = [other.opened for other in story.incidents[: story.incidents.index(incident)] if other.kinds == {"pool"}]
    if incident.is_whole_step and before and is_short(numbers):
        in_use = format_bytes(numbers.in_use_bytes or 0)
        text = f"Algorithms were tried {len(before)} times without room for them, and {in_use} were still held when the compiled step asked for its memory."
        yield guess("workspace_or_autotune", 0.75, text, [*before[:2], incident.opened])
    elif "no_algorithm" in incident.said and (tried or failed is not None):
        yield guess(
            "workspace_or_autotune",
            0.85,
            "No convolution algorithm found room for its workspace.",
            [incident.said["no_algorithm"], *tried],
        )
    elif "no_algorithm" in incident.said:
        yield guess(
            "workspace_or_autotune",
            0.5,
            "No convolution algorithm worked, which is mostly a lack of room for its workspace.",
            [incident.opened],
        )
    elif "autotune" in incident.said:
        yield guess(
            "workspace_or_autotune", 0.8, "It failed while algorithms were tried out.", [incident.opened, *tried]
        )
    elif shape is not None and len(shape) == 1 and numbers.dtype in BYTE_TYPES:
        is_large = failed is not None and failed >= 0.03 * (numbers.limit_bytes or 8 * GIB)
        text = f"A row of {format_bytes(failed or 0)} of plain bytes is a workspace, not a layer's output."
        yield guess(
            "workspace_or_autotune", 0.8 if is_large else 0.25, text, [incident.opened, incident.said.get("shape")]
        )
    elif story.has("cudnn_workspace"):
        yield guess(
            "workspace_or_autotune",
            0.6,
            "A library of the GPU could not allocate what it works in.",
            story.all("cudnn_workspace")[:2],
        )


def is_short(numbers: Numbers) -> bool:
    """Whether the request would fit into the pool, but not into what is free of it."""
    free, failed = numbers.free_bytes, numbers.failed_bytes
    return free is not None and failed is not None and free < failed <= (numbers.limit_bytes or 0)


def of_others(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    """Somebody else holds the card, or the framework has taken it all beforehand."""
    if "taken" in incident.said:
        yield guess("gpu_shared_or_preallocated", 0.8, "The card was not free at the start.", [incident.opened])
    elif starved := starved_card(story, numbers):
        text, facts = starved
        yield guess("gpu_shared_or_preallocated", 0.8, f"Somebody else holds the card: {text}.", facts)
    elif refused := refused_sizes(story):
        reserved = numbers.reserved_bytes or numbers.in_use_bytes
        small = reserved is not None and numbers.limit_bytes is not None and reserved < 0.85 * numbers.limit_bytes
        text = f"The driver refused {len(refused)} times, {format_bytes(refused[0].value)} at first."
        weight = 0.8 if small else 0.3
        if numbers.pool is None and (asked := never_given(refused, numbers.failed_bytes)):
            weight = 0.4 if numbers.shape else 0.6
            text = f"{text} The pool might still grow by {format_bytes(asked)} and was given nothing."
        elif reserved is not None and least_on_card(refused, reserved) < SMALL_CARD and not story.has("card_bytes"):
            weight = 0.85
            text = f"{text} With what the run held that is {format_bytes(least_on_card(refused, reserved))}: hardly a card is so small."
        yield guess("gpu_shared_or_preallocated", weight, text, refused[:3])
    if "load" in incident.kinds:
        yield guess(
            "gpu_shared_or_preallocated",
            0.7,
            "The program itself could not be loaded: the pool had left the driver nothing.",
            [incident.opened],
        )
