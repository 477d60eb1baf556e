"""What the guard tells the user: one line for each thing that changes, and what to do where nothing is left."""

from rich.text import Text

from legroom.records.run import Event, Way
from legroom.units import format_bytes

WHERE = {
    "gradients": "in the forward or backward pass",
    "update": "in the optimizer's update",
    "training": "in a training step",
    "evaluation": "in evaluate()",
    "prediction": "in predict()",
    "callback": "in a callback",
    "data": "in the data pipeline",
    "": "",
}


def event_line(event: Event) -> Text:
    """One line of an event."""
    text = Text("legroom: ")
    if event.kind == "changed":
        training = event.where not in ("evaluation", "prediction")
        text.append(f"step {event.step} ran out of memory" if training else "memory ran out")
        text.append(f" {WHERE[event.where]}")
        text.append(f"{asked_text(event)}; nothing of it was kept. The same batch is taken again ")
        text.append(way_text(event.way, event.batch), "bold").append(", and so are all that follow.")
    elif event.kind == "does_not_fit":
        text.append(f"a compiled step with this batch would need {size_text(event.asked_bytes)}")
        text.append(f" and {size_text(event.free_bytes)} can be had: it was not started. It is run ")
        text.append(way_text(event.way, event.batch), "bold").append(" instead.")
    elif event.kind == "larger":
        text.append("fewer micro-batches are tried again, as asked: ").append(way_text(event.way, event.batch), "bold")
    elif event.kind == "not_ours":
        text.append(f"memory ran out {WHERE[event.where]}", "bold").append(asked_text(event))
        text.append(", not in a step: the model is as the last step left it, and the error is passed on.")
    elif event.kind == "not_guarded":
        text.append("this training is not guarded: ", "bold").append(event.message)
    else:
        text.append(event.message)
    if event.message and event.kind in ("changed", "does_not_fit"):
        text.append(f" {event.message}")
    return text


def way_text(way: Way, batch: int | None = None) -> str:
    """How a step is run, in words."""
    words = ["with recomputed layers"] if way.recomputed else []
    if way.micro_batches > 1:
        size = "" if batch is None else f" of {-(-batch // way.micro_batches)}"
        words.append(f"in {way.micro_batches} micro-batches{size}")
    return " ".join(words) or "as it is"


def asked_text(event: Event) -> str:
    if event.asked_bytes is None:
        return ""
    free = (
        "" if event.free_bytes is None else f" beside what it held; the whole step has {format_bytes(event.free_bytes)}"
    )
    who = f"{event.op} " if event.op else ""
    return f" ({who}asked for {format_bytes(event.asked_bytes)}{free})"


def size_text(size_bytes: int | None) -> str:
    return "more" if size_bytes is None else format_bytes(size_bytes)


def refusal(event: Event, reasons: tuple[str, ...]) -> tuple[str, str]:
    """What to say, and what to do, where a step cannot be done at all."""
    needed = "" if event.asked_bytes is None else f" It asked for {format_bytes(event.asked_bytes)}"
    if needed and event.free_bytes is not None:
        needed += f" beside what it held already, of {format_bytes(event.free_bytes)} for the whole step"
    if needed and event.in_use_bytes is not None:
        least = event.in_use_bytes + max(event.asked_bytes or 0, event.free_bytes or 0)
        needed += (
            f", beside {format_bytes(event.in_use_bytes)} that stay between steps: it needs more than "
            f"{format_bytes(least)} in all"
        )
    what = "A batch" if event.where in ("evaluation", "prediction") else f"Step {event.step}"
    message = (
        f"{what} ran out of memory {WHERE[event.where]}, {way_text(event.way, event.batch)}, and nothing is left to "
        f"try.{needed + '.' if needed else ''} The model, its optimizer and its metrics are as they were before this step."
    )
    return message, "\n".join([*reasons, "Take a smaller model or input, or more memory."])
