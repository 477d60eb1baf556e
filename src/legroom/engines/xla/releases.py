"""Which XLA release stands for which framework version. XLA changes its mind between releases by up to 10%.

| framework         | release      | how it was checked                                                            |
|-------------------|--------------|-------------------------------------------------------------------------------|
| TensorFlow 2.21   | jaxlib 0.9.0 | 13 + 17 programs against a real H200 (docs/accuracy.md); 0.10.2 is up to 10% off |
| TensorFlow others | jaxlib 0.9.0 | the nearest release that compiles without a GPU; not checked, bounds wider       |
| JAX ≥ 0.9         | its own      | 0.10.2 against JAX 0.11.2 on a real H200 (docs/accuracy.md)                      |
| JAX < 0.9         | jaxlib 0.9.0 | older ones refuse to compile without a GPU; not checked, bounds wider            |
"""

import re
from dataclasses import dataclass

from legroom.errors import InputError
from legroom.records import Framework

OLDEST = (0, 9, 0)
TENSORFLOW_RELEASE = "0.9.0"
TENSORFLOW_CHECKED = (2, 21)


@dataclass(frozen=True, slots=True)
class Release:
    """A jaxlib version to compile with; `matches` is False when it is only the nearest one."""

    version: str
    matches: bool
    note: str | None = None


def release_for(framework: Framework, version: str) -> Release:
    """The release whose compiler is, or is nearest to, the one inside that framework version."""
    parts = parse(version)
    if framework == "tensorflow":
        if parts[:2] == TENSORFLOW_CHECKED:
            return Release(TENSORFLOW_RELEASE, True)
        note = f"TensorFlow {version} carries another XLA than the nearest release to be had ({TENSORFLOW_RELEASE}): bounds are wider."
        return Release(TENSORFLOW_RELEASE, False, note)
    if parts < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Release(
            oldest, False, f"JAX {version} cannot compile without a GPU; {oldest} stands in: bounds are wider."
        )
    return Release(version.split("+", maxsplit=1)[0], True)


def parse(version: str) -> tuple[int, ...]:
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?[\w.+-]*", version)
    if match is None:
        raise InputError(f"Cannot read {version!r} as a version.", "Write it as 0.9.0.")
    return tuple(int(part or 0) for part in match.groups())
