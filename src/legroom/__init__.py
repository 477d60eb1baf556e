"""Legroom: train any Keras or TensorFlow model in the memory you have."""

from typing import TYPE_CHECKING, Any

from legroom.errors import LegroomError

if TYPE_CHECKING:
    from legroom.front.estimating import estimate
    from legroom.front.rehearsing import rehearse
    from legroom.records import Estimate
    from legroom.records.rehearsal import Rehearsal

__version__ = "0.1.0"
__all__ = ["Estimate", "LegroomError", "Rehearsal", "__version__", "estimate", "rehearse"]


def __getattr__(name: str) -> Any:
    """The front door opens when it is used: `import legroom` itself stays light."""
    if name == "estimate":
        from legroom.front.estimating import estimate

        return estimate
    if name == "Estimate":
        from legroom.records import Estimate

        return Estimate
    if name == "rehearse":
        from legroom.front.rehearsing import rehearse

        return rehearse
    if name == "Rehearsal":
        from legroom.records.rehearsal import Rehearsal

        return Rehearsal
    raise AttributeError(f"module 'legroom' has no attribute {name!r}")
