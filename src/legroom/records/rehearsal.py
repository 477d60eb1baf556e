"""A Rehearsal: what a training step really took when it was run on this CPU under TensorFlow's allocator with a limit."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from legroom.records.step import Execution


@dataclass(frozen=True, slots=True)
class OomFact:
    """Memory that ran out, as TensorFlow, its log or the system said it. None or empty is what they did not say.

    `during` is "building" while the script still made its model or data, else "step", and `step` counts from one; `place` is
    the line of the user's code; `signal` is what ended the process, if it could not even raise an error.
    """

    op: str
    shape: tuple[int, ...] | None
    dtype: str
    asked_bytes: int | None
    message: str
    during: Literal["building", "step"] = "step"
    step: int | None = None
    place: str = ""
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The answer of `legroom.rehearse`. `step_peaks` are those of the steps that ended, `peak_bytes` the largest after the first.

    `resident_bytes` is what stays between steps: variables, optimizer state and the batch.
    """

    batch: int | None
    execution: Execution
    limit_bytes: int
    peak_bytes: int | None = None
    first_step_peak_bytes: int | None = None
    step_peaks: tuple[int, ...] = ()
    resident_bytes: int | None = None
    out_of_memory: OomFact | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    max_batch: int | None = None  # where the largest was looked for; 0: not even one example fits

    @property
    def fits(self) -> bool:
        return self.out_of_memory is None


def rehearsal_to_json(rehearsal: Rehearsal) -> dict[str, Any]:
    return asdict(rehearsal)


def rehearsal_from_json(data: dict[str, Any]) -> Rehearsal:
    oom = data["out_of_memory"]
    return Rehearsal(
        **{
            **data,
            "step_peaks": tuple(data["step_peaks"]),
            "notes": tuple(data["notes"]),
            "out_of_memory": None if oom is None else oom_from_json(oom),
        }
    )


def oom_from_json(data: dict[str, Any]) -> OomFact:
    return OomFact(**{**data, "shape": None if data["shape"] is None else tuple(data["shape"])})
