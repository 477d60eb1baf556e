"""What facts hint at, reckoned: a shape that is a weight's, memory that grows, a card that others hold."""

import re
from itertools import pairwise

from legroom.explain.incidents import Incident
from legroom.explain.layers import OPTIMIZERS
from legroom.explain.numbers import Numbers
from legroom.explain.story import Story
from legroom.records.diagnosis import Fact
from legroom.units import GIB, KIB, MIB

LARGEST_KERNEL = 11
LARGEST_BATCH = 4096
MANY_CHUNKS = 300
SMALLEST_POOL = 256 * MIB
STATE_OPS = re.compile(
    r"Initializer|VarHandle|AssignVariable|(?:^|/)Assign|[Rr]estore|Variable_\d|ResourceApply|SparseApply|/(?:m|v|momentum|velocity)$"
    r"|/(?:bias(?:es)?|weights?|kernel|gamma|beta|embeddings?|moving_mean|moving_variance)$"
)
FILLING_OPS = re.compile(
    r"Random(?:Standard)?(?:Normal|Uniform)|TruncatedNormal|random_uniform|truncated_normal|zeros_like|(?:^|/)(?:Fill|zeros|ones)(?:_\d{1,4})?$"
)
ACTIVATION_OPS = re.compile(
    r"MatMul(?:_\d{1,4})?_grad/MatMul$|BackpropInput|(?:^|/)(?:Relu6?|LeakyRelu|Elu|Selu|Gelu|Tanh|Sigmoid|Softmax|BiasAdd|ConcatV2)(?:_\d{1,4})?$"
)
STATE_FRAMES = re.compile(
    r"(?i)^(?:add_weight|build|_?init\w{0,24}|__init__|initializer\w{0,12}|restore\w{0,20}|load\w{0,24}|from_pretrained|device_put\w{0,24}|replicate|create_train_state|"
    r"create_state|add_slot|apply_gradients|_create_\w{0,20}|add_variable\w{0,24}|variable\w{0,20}|glorot\w{0,12}|shard_params|to|"
    r"batch_set_value|set_weights|assign\w{0,20})$"
)
WEIGHT_FRAMES = re.compile(
    r"(?:add_(?:weight|variable)\w{0,20}|(?:glorot|he|lecun|xavier|kaiming)_(?:uniform|normal)|initiali[sz]e_weights)$"
)
STEP_FRAMES = re.compile(
    r"(?i)^(?:train\w{0,20}|fit|_?step\w{0,12}|p?_?update\w{0,12}|loss\w{0,12}|grad\w{0,12}|backward|forward|predict\w{0,12}|call|sample\w{0,12}|"
    r"compute_loss|train_function|run_step|one_step_on_data|train_on_batch|evaluate)$"
)
LOOPS = re.compile(r"(?i)while|lstm|gru|rnn|tensorlist|scan")
NUMBERED = re.compile(r"\w_(\d{3,7})(?:/|$)")  # `/_4497` numbers an edge between devices
ABSURD_NUMBER = 1500


def is_weight_shape(shape: tuple[int, ...] | None) -> bool:
    """Kernels have small first sizes and channels behind; embeddings and dense kernels have more rows than a batch."""
    if shape is None or len(shape) < 2:
        return False
    if len(shape) in (4, 5):
        kernel, channels = shape[:-2], shape[-2:]
        return (
            max(kernel) <= LARGEST_KERNEL
            and len(set(kernel)) == 1
            and max(channels) >= 32
            and kernel[0] in (1, 3, 5, 7, 9, 11)
        )
    return len(shape) == 2 and shape[0] > LARGEST_BATCH and shape[1] >= 16


def is_activation_op(op: str | None) -> bool:
    """Whether an operation's result has the batch in it by its name: what layers put out, and the gradient of what they were given."""
    return bool(ACTIVATION_OPS.search(op or ""))


def is_state_op(op: str | None, shape: tuple[int, ...] | None) -> bool:
    """Whether an operation makes or updates weights or an optimizer's slots, by its name, and for one that only fills by its shape."""
    if not op:
        return False
    if OPTIMIZERS.search(op):
        return "gradients/" not in op
    return bool(STATE_OPS.search(op)) or (bool(FILLING_OPS.search(op)) and is_weight_shape(shape))


def frames_say(incident: Incident) -> str | None:
    """Whether the way to the error is through building and loading, or through a training step."""
    names = [name.strip("_<>") for name in incident.frames]
    step = [number for number, name in enumerate(names) if STEP_FRAMES.match(name)]
    state = [number for number, name in enumerate(names) if STATE_FRAMES.match(name)]
    if not step and not state:
        return None
    return "state" if state and (not step or (max(state) > max(step) and "apply_gradients" in names)) else "step"


def makes_weights(incident: Incident) -> bool:
    """Whether the way to the error is through an initializer: NumPy is called there as it is for data."""
    return any(WEIGHT_FRAMES.match(name) for name in incident.frames)


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


def printed_growth(story: Story) -> tuple[list[int], list[Fact]] | None:
    """Sizes that the script itself printed, one line after another, and that only grow."""
    series: dict[str, list[Fact]] = {}
    for fact in story.all("printed"):
        series.setdefault(fact.value[0], []).append(fact)
    for facts in series.values():
        sizes = [fact.value[1] for fact in facts]
        rising = sum(later > sooner for sooner, later in pairwise(sizes))
        falling = sum(later < sooner for sooner, later in pairwise(sizes))
        if len(sizes) >= 4 and falling <= 0.1 * len(sizes) and rising >= 3 and sizes[-1] >= 1.3 * max(1, sizes[0]):
            return sizes, [facts[0], facts[-1]]
    return None


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
    if numbers.limit_bytes is not None and numbers.limit_bytes < SMALLEST_POOL and not numbers.is_on_cpu:
        return f"the whole pool is {numbers.limit_bytes // MIB} MiB", []
    limits = story.all("device_limit")
    if limits and totals and totals[0].value >= 2 * GIB and limits[0].value[1] < 0.35 * totals[0].value:
        return f"TensorFlow was given {share(limits[0].value[1], totals[0].value)} of the card", [limits[0], totals[0]]
    if limits and limits[0].value[1] < 1000 * MIB and (numbers.limit_bytes or 0) < 1100 * MIB:
        return f"TensorFlow found {limits[0].value[1] // MIB} MB of the card to use", [limits[0]]
    return None


def refused_sizes(story: Story) -> list[Fact]:
    """The driver's refusals."""
    return story.all("refused")


def share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f}%"
