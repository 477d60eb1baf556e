"""A Diagnosis for people: what happened, why, a picture of the pool, and what to do first."""

from rich.console import Group, RenderableType
from rich.text import Text

from legroom.records.diagnosis import Advice, Cause, CauseName, Diagnosis
from legroom.report.diagnosis_pool import pool_picture
from legroom.units import format_bytes

HEADLINES: dict[CauseName, str] = {
    "tensor_too_large": "One tensor is too large",
    "batch_or_activations": "The batch and its activations do not fit",
    "weights_or_optimizer_state": "The weights and the optimizer's state do not fit",
    "fragmentation": "The free memory is torn into pieces",
    "leak_or_growth": "Memory grew until it ran out",
    "gpu_shared_or_preallocated": "Somebody else holds the GPU's memory",
    "host_ram_dataset": "The data does not fit into the host's RAM",
    "host_ram_other": "The host's RAM ran out",
    "graph_constant_too_large": "Data became a constant of the graph, which cannot hold 2 GB",
    "workspace_or_autotune": "There was no room for the workspaces of algorithms",
    "retracing": "A function is traced again and again",
    "cudnn_init_memory": "cuDNN or cuBLAS found no memory to start in",
    "not_an_error": "Nothing failed: the messages are warnings",
    "unknown": "The cause is not known",
}
SHOWN_EVIDENCE = 3
SHOWN_CAUSES = 3
WORTH_SHOWING = 0.08


def diagnosis_text(found: Diagnosis, name: str = "") -> RenderableType:
    """The whole answer, ready to print."""
    parts: list[RenderableType] = [headline(found, name), *asked(found)]
    picture = pool_picture(found)
    if picture is not None:
        parts += [Text(), picture]
    parts += evidence(found)
    others = [
        each for each in found.causes[1:SHOWN_CAUSES] if each.probability >= WORTH_SHOWING and each.cause != "unknown"
    ]
    parts += [other_cause(cause) for cause in others]
    if found.advice:
        parts.append(Text("\nWhat to do first", style="bold"))
        parts += [advice_text(number, advice) for number, advice in enumerate(found.advice, 1)]
    return Group(*parts)


def headline(found: Diagnosis, name: str) -> Text:
    text = Text(f"{name}: " if name else "")
    if found.cause == "unknown" and not found.incidents:
        text.append("There is no out-of-memory error in it that Legroom knows", style="bold yellow").append(".")
        return text.append(f"\n{found.why}") if found.why else text
    style = "bold green" if found.cause == "not_an_error" else "bold red"
    text.append(HEADLINES[found.cause], style=style)
    if found.causes and found.cause != "unknown":
        text.append(f" ({found.causes[0].probability:.0%} sure)", style="dim")
    text.append(".")
    return text.append(f"\n{found.why}") if found.why else text


def asked(found: Diagnosis) -> list[RenderableType]:
    """Who asked for what, where, and from which line of the user's code."""
    lines = []
    if found.failed_bytes is not None:
        who = found.layer or found.op or "It"
        text = f"{who} asked for {format_bytes(found.failed_bytes)}"
        if found.tensor_shape is not None:
            text += f", {found.dtype or 'a tensor'} of shape [{', '.join(map(str, found.tensor_shape))}]"
        lines.append(text + (f", on {found.device}" if found.device else "") + ".")
    if found.place:
        lines.append(f"at {found.place}")
    if found.incidents > 1:
        lines.append(f"Memory ran out {found.incidents} times in this log; this is about the one that counts.")
    return [Text(line) for line in lines]


def evidence(found: Diagnosis) -> list[RenderableType]:
    lines = found.causes[0].evidence[:SHOWN_EVIDENCE] if found.causes else ()
    return (
        [Text("\nIt rests on", style="bold"), *(Text(f"  {each.line:>6}  {each.text}", style="dim") for each in lines)]
        if lines
        else []
    )


def other_cause(cause: Cause) -> Text:
    text = Text(f"\nOr, {cause.probability:.0%}: ", style="yellow")
    words = HEADLINES[cause.cause]
    return text.append(f"{words[0].lower()}{words[1:]}. {cause.why}", style="default")


def advice_text(number: int, advice: Advice) -> Text:
    text = Text(f"{number}. {advice.title}", style="bold")
    if advice.saves_bytes:
        text.append(f"  saves about {format_bytes(advice.saves_bytes)}", style="green")
    text.append(f"\n   {advice.why}", style="default not bold")
    return text.append(f"\n   {advice.how}", style="cyan not bold")
