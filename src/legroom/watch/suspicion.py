"""From a growing counter to a finding: a census when growth is certain, another a little later, and the difference.

A census disturbs what it looks at: the memory that it takes and gives back feeds a leak for some windows. So none is taken
before the statistics have spoken, and where the first two tell nothing they must speak again on windows after it.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from legroom.watch.causes import find_cause
from legroom.watch.census import compare, take_census
from legroom.watch.evidence import Cause, Census
from legroom.watch.findings import Finding, Memory
from legroom.watch.growth import CONFIRM, Growth, Trend

SURE = 2  # windows in a row that must say so
GATHER = 4  # windows between the two censuses
LATER = GATHER + CONFIRM  # windows after which growth without a cause is told, if it went on
PATIENCE = 2 * LATER  # windows after which it is dropped
AGAIN = 64  # windows before the next look after a finding


class Suspicion:
    """Watches the trends, and gathers evidence only where one of them grows."""

    def __init__(self, trends: dict[Memory, Trend]) -> None:
        self.trends = trends
        self.first: Census | None = None
        self.predicts: Counted | None = None
        self.found: tuple[Memory, Growth] | None = None
        self.windows = self.streak = self.rest = 0
        self.wait = PATIENCE

    def examine(self, step: int) -> Finding | None:
        """A window is full: is there anything to tell?"""
        if self.rest:
            self.rest -= 1
            return None
        growing = self.certain()
        if self.first is None:
            self.streak = self.streak + 1 if growing else 0
            if self.streak >= SURE:
                self.first, self.predicts = take_census(step), Counted.install()
                self.found, self.windows = growing, 0
            return None
        self.windows += 1
        if self.windows == GATHER and self.found is not None:
            return self.conclude(step, *self.found, must=False)
        if self.windows >= LATER and growing is not None:
            return self.conclude(step, *growing, must=True)
        if self.windows >= PATIENCE:
            self.wait = min(self.wait * 2, 1024)
            self.drop(self.wait)
        return None

    def conclude(self, step: int, memory: Memory, growth: Growth, must: bool) -> Finding | None:
        """The finding; none where its cause is not known yet and there is still time."""
        cause = self.cause(step, growth)
        if cause.kind == "unknown" and not must:
            return None
        self.drop(AGAIN)
        return Finding(step, memory, growth, cause)

    def cause(self, step: int, growth: Growth) -> Cause:
        assert self.first is not None
        calls = self.predicts.calls if self.predicts else 0
        return find_cause(compare(self.first, take_census(step), calls), growth.slope_bytes)

    def certain(self) -> tuple[Memory, Growth] | None:
        """The memory that grows for certain; the device's before the host's, if that explains as much."""
        found = {memory: trend.confirmed() for memory, trend in self.trends.items()}
        device, host = found.get("device"), found.get("host")
        if device is not None and (host is None or device.slope_bytes * 2 >= host.slope_bytes):
            return "device", device
        return None if host is None else ("host", host)

    def drop(self, rest: int) -> None:
        """Forget what was gathered, and rest for so many windows."""
        if self.predicts is not None:
            self.predicts.remove()
        self.first = self.predicts = self.found = None
        self.rest, self.streak = rest, 0


class Counted:
    """`keras.Model.predict`, counted while there is a suspicion, and put back after."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls = model, 0
        self.own = vars(model).get("predict")
        before: Callable[..., Any] = model.predict

        @wraps(before)
        def predict(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return before(*args, **kwargs)

        model.predict = self.ours = predict

    @classmethod
    def install(cls) -> "Counted | None":
        keras: Any = sys.modules.get("keras")
        return cls(keras.Model) if hasattr(keras, "Model") else None

    def remove(self) -> None:
        if vars(self.model).get("predict") is not self.ours:
            return
        if self.own is None:
            del self.model.predict
        else:
            self.model.predict = self.own
