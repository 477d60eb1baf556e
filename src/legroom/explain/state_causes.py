"""Whether what did not fit was weights or an optimizer's slots: by the operation, then by the way to it, then by the shape."""

from legroom.explain.guesses import Guess, guess
from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.explain.roles import is_activation_op, is_long_row, is_state_op, is_weight_gradient, is_weight_shape
from legroom.explain.signs import frames_say, updates_weights
from legroom.explain.story import CLOSE_LINES, Story
from legroom.records.diagnosis import Fact


def of_state(incident: Incident, numbers: Numbers, story: Story, opened: list[Fact | None]) -> Guess | None:
    """The first sign that holds; None where nothing speaks for weights."""
    op, shape = incident.value("named") or numbers.op, numbers.shape
    is_activation = is_activation_op(op)
    is_gradient = "gradients/" in (op or "")  # of an activation, then: those of weights are asked for before
    signs: tuple[tuple[object, float, str], ...] = (
        (is_state_op(op, shape), 0.75, f"{op} makes or updates weights or optimizer state."),
        (is_weight_gradient(op, shape), 0.6, f"{op} is the gradient of weights, and as large as they are."),
        (
            "updates" in incident.said and not is_gradient,
            0.65,
            f"It was defined in {incident.value('updates')}, where an optimizer updates weights.",
        ),
        (
            "makes" in incident.said and not is_gradient,
            0.65,
            f"It was defined in {incident.value('makes')}, where a variable is made.",
        ),
        (
            updates_weights(incident),
            0.65,
            f"The way to it is through {updates_weights(incident)}, where an optimizer updates weights.",
        ),
        (
            "state_kernel" in incident.said,
            0.65,
            f"It failed in {incident.value('state_kernel')}, which writes weights.",
        ),
        (
            is_weight_shape(shape) and not is_activation and not is_of_batch(shape, story),
            0.65,
            f"{list(shape or ())} is the shape of weights, not of a batch.",
        ),
        (
            is_long_row(shape, numbers.dtype) and not is_activation,
            0.45,
            "A single row of so many floats is all weights or gradients in one piece.",
        ),
        (
            frames_say(incident) == "state"
            and (shape is None or len(shape) < 3 or incident.kind in ("xla", "reserve")),
            0.55,
            "It failed while weights were made or loaded.",
        ),
    )
    loads = [fact for fact in story.all("loads_model") if abs(fact.line - incident.opened.line) <= CLOSE_LINES]
    if loads and frames_say(incident) is None and shape is None:
        signs = (*signs, (loads, 0.5, "It failed while weights were loaded or put on the device."))
    facts = [*opened, *(incident.said.get(name) for name in ("op", "updates", "state_kernel"))]
    for holds, weight, text in signs:
        if holds:
            return guess("weights_or_optimizer_state", weight, text, facts)
    return None


def is_of_batch(shape: tuple[int, ...] | None, story: Story) -> bool:
    """Whether the first size is a batch size that the log names."""
    return shape is not None and len(shape) == 2 and any(fact.value == shape[0] for fact in story.all("batch_size"))
