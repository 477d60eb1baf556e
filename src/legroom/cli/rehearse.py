"""`legroom estimate --rehearse`: the step is really run, on this CPU and with a limit, instead of predicted."""

from legroom.cli.output import answers, print_json, progress
from legroom.errors import InputError
from legroom.front.child import require_target
from legroom.front.rehearsing import rehearse_target
from legroom.report.rehearsal import rehearsal_text, rehearsal_view


def rehearse(  # noqa: PLR0913
    target: str,
    arguments: tuple[str, ...],
    budget: str | None,
    batch: int | None,
    *,
    max_batch: bool,
    as_json: bool,
) -> int:
    """Rehearse, print, and answer with the exit code: 0 it fits, 1 it does not."""
    require_target(target)
    with progress() as say:
        found = rehearse_target(target, arguments, limit=budget, batch=batch, max_batch=max_batch, say=say)
    if as_json:
        print_json(rehearsal_view(found))
    else:
        answers().print(rehearsal_text(found))
    return 0 if found.fits else 1


def refuse_with_rehearsal(*, gpu: str | None, engine: str, ram: str | None) -> None:
    """What asks for a prediction cannot be asked of a rehearsal."""
    if gpu is not None:
        raise InputError(
            "--rehearse runs the step on this CPU; it cannot run it on another card.",
            "Leave --gpu out and say how much memory there is (--budget 8GiB), or leave --rehearse out to predict it for that card.",
        )
    if ram is not None:
        raise InputError("--ram is about the data; --rehearse runs a step without it.", "Leave one of them out.")
    if engine != "auto":
        raise InputError("--engine chooses how to predict; --rehearse predicts nothing.", "Leave one of them out.")
