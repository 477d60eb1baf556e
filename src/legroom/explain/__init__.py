"""A log or an exception in, a Diagnosis out: readers find facts, `story` puts them together, `causes` reckons, `advice` says what to do.

`legroom.explain` is both this room and the function that opens it, so the module itself can be called.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from legroom.records.diagnosis import Diagnosis


class _CallableRoom(ModuleType):
    """A module that answers `legroom.explain(error_or_text)`."""

    def __call__(self, error_or_text: "BaseException | str | bytes") -> "Diagnosis":
        """Say why memory ran out and what to do, from an exception or from the text of a log."""
        from legroom.explain.diagnose import explain

        return explain(error_or_text)


sys.modules[__name__].__class__ = _CallableRoom
