"""What facts hint at, reckoned: a shape that is a weight's, memory that grows, a card that others hold."""

import re
from itertools import pairwise

from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.explain.readers.progress import LEFT
from legroom.explain.story import Story
from legroom.records.diagnosis import Fact
from legroom.units import GIB, KIB, MIB

MANY_CHUNKS = 300
SMALLEST_POOL = 256 * MIB
SMALL_CARD = int(1.9 * GIB)  # hardly a card that trains has less
FEW, MANY_STEPS_UP = 4, 8
STILL = 1.03
LESS = 0.9
GROWN, LEVEL = 1.02, 1.0005
EVENLY = 0.4  # of the mean step: the smallest
BOTH = "both: "  # what is printed before and after something, in one series
INVERSE = 2**128
STATE_FRAMES = re.compile(
    r"(?i)^(?:add_weight|build|_?init\w{0,24}|__init__|initializer\w{0,12}|restore\w{0,20}|load\w{0,24}|from_pretrained|device_put\w{0,24}|replicate|create_train_state|"
    r"create_state|add_slot|apply_gradients|_create_\w{0,20}|add_variable\w{0,24}|variable\w{0,20}|glorot\w{0,12}|shard_params|to|"
    r"batch_set_value|set_weights|assign\w{0,20})$"
)
WEIGHT_FRAMES = re.compile(
    r"(?:_?add_(?:weight|variable|slot)\w{0,40}|(?:glorot|he|lecun|xavier|kaiming)_(?:uniform|normal)_?|initiali[sz]e_weights|_?create_slots|_create_all_weights"
    r"|default_variable_creator\w{0,8}|make_variable|_variable_v\d_call)$"
)
UPDATE_FRAMES = re.compile(  # of Keras's and of PyTorch's optimizers
    r"(?:apply_gradients|_?distributed_apply\w{0,24}|apply_grad_to_update_var|update_step|_(?:resource_)?apply_(?:dense|sparse)\w{0,30}|_init_group"
    r"|_(?:multi|single)_tensor_\w{2,20})$"
)
STEP_FRAMES = re.compile(
    r"(?i)^(?:train\w{0,20}|fit|_?step\w{0,12}|p?_?update\w{0,12}|loss\w{0,12}|grad\w{0,12}|backward|forward|predict\w{0,12}|call|sample\w{0,12}|"
    r"compute_loss|train_function|run_step|one_step_on_data|train_on_batch|evaluate)$"
)
PHASES = re.compile(r"(?i)\b(?:start|end|begin|before|after|pre|post)\b[^\w]{0,4}")  # of one iteration
LOOPS = re.compile(r"(?i)while|lstm|gru|rnn|tensorlist|scan")
NUMBERED = re.compile(r"\w_(\d{3,7})(?:/|$)")  # `/_4497` numbers an edge between devices
ABSURD_NUMBER = 1500


MAKING = re.compile(  # names under which models are made, loaded and put on a device, whoever calls them
    r"(?:build|init(?:_fn|_params?|_weights|_state|_model|_variables|ialize)?|create_train_state|create_state|restore\w{0,20}|from_pretrained"
    r"|load_(?:weights|model|checkpoint|state_dict|params|pretrained)\w{0,20}|(?:build|create|make|get|load)_\w{0,12}models?)$"
)


def frames_say(incident: Incident) -> str | None:
    """Whether the way to the error is through building and loading, or through a training step."""
    if makes_weights(incident):
        return "state"  # a layer is built when it is first called
    if "_apply" in incident.frames and "forward" not in incident.frames:
        return "state"  # PyTorch puts a module on a device
    names = [name.strip("_<>") for name in incident.frames]
    step = [number for number, name in enumerate(names) if STEP_FRAMES.match(name)]
    state = [number for number, name in enumerate(names) if STATE_FRAMES.match(name)]
    if not step and not state:
        return None
    running = [number for number in step if names[number] not in ("call", "forward")]
    making = [number for number, name in enumerate(names) if MAKING.match(name)]
    if making and max(making) > max(running, default=-1):
        return "state"
    return "state" if state and (not step or (max(state) > max(step) and "apply_gradients" in names)) else "step"


def makes_weights(incident: Incident) -> bool:
    """Whether the way to the error is through an initializer: NumPy is called there as it is for data."""
    return any(WEIGHT_FRAMES.match(name) for name in incident.frames)


def updates_weights(incident: Incident) -> str | None:
    """The frame of an optimizer through which the way to the error leads."""
    return next((name for name in incident.frames if UPDATE_FRAMES.match(name)), None)


def repeated_chunks(numbers: Numbers) -> tuple[int, int] | None:
    """(size, count) of one size that holds most of the pool in very many pieces: only the time steps of a loop are so many and so equal."""
    pool = numbers.pool
    if pool is None or not pool.in_use_bytes or LOOPS.search(numbers.op or ""):
        return None
    for size, count in pool.held:
        if count >= MANY_CHUNKS and size >= 64 * KIB and size * count >= 0.4 * pool.in_use_bytes:
            return size, count
    return None


def numbered_op(numbers: Numbers) -> int | None:
    """The number behind an operation's name where it is absurd: TensorFlow counts up whenever a name is taken."""
    found = NUMBERED.search(numbers.op or "")
    return int(found[1]) if found and int(found[1]) >= ABSURD_NUMBER and "radient" not in (numbers.op or "") else None


def printed_growth(story: Story) -> tuple[str, list[Fact]] | None:
    """Sizes that the script itself printed, one line after another, and that only grow; or what is left over, and that shrinks."""
    series: dict[str, list[Fact]] = {}
    for fact in story.all("printed"):
        label, plain = fact.value[0], PHASES.sub("", fact.value[0])
        series.setdefault(label, []).append(fact)
        if plain != label:
            series.setdefault(f"{BOTH}{plain}", []).append(fact)
    for label, facts in series.items():
        is_left = LEFT.search(facts[0].value[0]) is not None
        sizes = [INVERSE // max(1, fact.value[1]) if is_left else fact.value[1] for fact in facts]
        if is_rising(sizes) and not (label.startswith(BOTH) and falls(sizes)):
            verb = "that was left fell" if is_left else "grew"
            return f"{verb} from {facts[0].value[2]} to {facts[-1].value[2]}", [facts[0], facts[-1]]
    return None


def is_rising(sizes: list[int]) -> bool:
    """Whether sizes grow: by much with some ups and downs, or by little in every step of many."""
    if len(sizes) < FEW:
        return False
    falling = falls(sizes)
    grown = sizes[-1] / max(1, sizes[0])
    still = sizes[-1] >= STILL * sizes[len(sizes) // 2]  # after it has settled
    by_much = grown >= 1.3 and still and falling <= 0.3 * len(sizes) and sizes[-1] >= 0.9 * max(sizes)
    return by_much or (grown >= GROWN and not falling and (len(set(sizes)) >= MANY_STEPS_UP or is_steady(sizes)))


def falls(sizes: list[int]) -> int:
    return sum(later < sooner for sooner, later in pairwise(sizes))


def is_steady(sizes: list[int]) -> bool:
    """Whether sizes that never fall rise by about as much each time: what only warms up rises less and less."""
    kept = [sizes[0]]
    for size in sizes[1:]:
        kept += [size] if size > LEVEL * kept[-1] else []
    steps = [later - sooner for sooner, later in pairwise(kept)]
    grown = sizes[-1] - sizes[0]
    is_late = sizes[-1] - sizes[len(sizes) // 2] >= 0.3 * grown
    return len(steps) >= FEW and is_late and min(steps) >= EVENLY * grown / len(steps)


def dumped_growth(story: Story) -> tuple[list[int], list[Fact]] | None:
    """In-use bytes that rise from dump to dump although the same tensor is asked for each time."""
    grouped: dict[object, list[tuple[int, Fact]]] = {}
    for incident in story.incidents:
        in_use = None if incident.pool.is_empty else incident.pool.build().in_use_bytes
        if in_use is not None:
            key = (incident.shape, incident.failed_bytes, incident.value("allocator"))
            grouped.setdefault(key, []).append((in_use, incident.opened))
    for dumps in grouped.values():
        sizes = [size for size, _ in dumps]
        if (
            len(sizes) >= 2
            and all(later > sooner for sooner, later in pairwise(sizes))
            and sizes[-1] >= 1.03 * sizes[0]
        ):
            return sizes, [fact for _, fact in dumps]
    return None


def starved_card(story: Story, numbers: Numbers) -> tuple[str, list[Fact]] | None:
    """Others hold the card: little of it was free at the start, or the pool may be only a small part of it."""
    totals, frees = story.all("card_bytes"), story.all("card_free_bytes")
    for total, free in zip(totals, frees, strict=False):
        if total.value >= GIB and free.value < 0.5 * total.value:
            return f"only {share(free.value, total.value)} of the card was free when TensorFlow started", [total, free]
    if numbers.pool is not None and 0 < (numbers.limit_bytes or 0) < SMALLEST_POOL and not numbers.is_on_cpu:
        return f"the whole pool is {(numbers.limit_bytes or 0) // MIB} MiB", []
    limits = story.all("device_limit")
    if limits and totals and totals[0].value >= 2 * GIB and limits[0].value[1] < 0.35 * totals[0].value:
        return f"TensorFlow was given {share(limits[0].value[1], totals[0].value)} of the card", [limits[0], totals[0]]
    if limits and limits[0].value[1] < 1000 * MIB and (numbers.limit_bytes or 0) < 1100 * MIB:
        return f"TensorFlow found {limits[0].value[1] // MIB} MB of the card to use", [limits[0]]
    return None


def refused_sizes(story: Story) -> list[Fact]:
    """The driver's refusals."""
    return story.all("refused")


def least_on_card(refused: list[Fact], held_bytes: int) -> int:
    """So much at the most was there for this run: the least that the driver refused, and what the run held."""
    return int(min(fact.value for fact in refused)) + held_bytes


def never_given(refused: list[Fact], failed_bytes: int | None) -> int | None:
    """What the pool was refused last, far more than failed in the end, while nothing was given in between.

    TensorFlow asks for a tenth less each time until it is given something or has come down to what it needs, and asks for as much again later.
    """
    last: int = refused[-1].value
    smallest = min(fact.value for fact in refused)
    is_repeated = sum(fact.value == last for fact in refused) > 1 and last == max(fact.value for fact in refused)
    is_lowest = len(refused) > 1 and LESS * smallest <= (failed_bytes or 0)
    asked: int = max(fact.value for fact in refused)
    is_far_more = asked >= max(2 * GIB, 2 * (failed_bytes or 0))
    return asked if is_far_more and (is_repeated or is_lowest) else None


def share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f}%"
