"""The batch that would have fitted, from a tensor's shape and what the pool holds."""

from dataclasses import dataclass
from math import prod

from legroom.explain.roles import is_weight_shape
from legroom.records.diagnosis import Diagnosis

MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class SmallerBatch:
    """A batch size, and what it leaves of what the step had asked for up to the failure."""

    batch: int
    smaller: int
    saves_bytes: int


def smaller_batch(found: Diagnosis) -> SmallerBatch | None:
    """At most what fits, as later layers ask for more; None where the shape holds no batch.

    Chunks whose size is a multiple of the batch are taken to grow with it, and the rest to stay: weights, slots, constants.
    """
    shape, failed = found.tensor_shape, found.failed_bytes
    if (
        shape is None
        or len(shape) < 2
        or not failed
        or not 1 < shape[0] <= MOST
        or is_weight_shape(shape)
        or 0 in shape
    ):
        return None
    batch = shape[0]
    growing = failed + sum(size * count for size, count in held(found) if grows_with(size, batch, failed))
    if found.limit_bytes is None or (found.in_use_bytes is None and failed <= found.limit_bytes):
        smaller = batch // 2
    else:
        fixed = max(0, (found.in_use_bytes or 0) - (growing - failed))
        smaller = max(0, found.limit_bytes - fixed) * batch // growing
    smaller = min(smaller, batch - 1)
    if smaller < 1:
        return None
    smaller -= smaller % 8 if smaller > 16 else 0
    return SmallerBatch(batch, smaller, growing - growing * smaller // batch)


def held(found: Diagnosis) -> tuple[tuple[int, int], ...]:
    return found.pool.held if found.pool is not None else ()


def grows_with(size: int, batch: int, failed: int) -> bool:
    """Large pieces that divide by the batch; small ones do by chance."""
    return size >= failed // 64 and size >= 4096 and size % batch == 0


def one_example_bytes(found: Diagnosis) -> int | None:
    if found.tensor_shape is None or not found.failed_bytes or prod(found.tensor_shape) == 0:
        return None
    return found.failed_bytes // found.tensor_shape[0] if found.tensor_shape else None
