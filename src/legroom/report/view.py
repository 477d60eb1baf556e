"""An Estimate as the JSON that every verb speaks: integers of bytes in keys that end in `_bytes`."""

from dataclasses import asdict
from typing import Any

from legroom.records import Estimate, HostEstimate

SCHEMA = 1


def estimate_view(estimate: Estimate) -> dict[str, Any]:
    """The whole answer as plain data."""
    return {
        "schema": SCHEMA,
        "engine": estimate.engine,
        "engine_version": estimate.engine_version,
        "framework": estimate.framework,
        "framework_version": estimate.framework_version,
        "execution": estimate.execution,
        "gpu": estimate.gpu,
        "batch": estimate.batch,
        "peak_bytes": estimate.peak_bytes,
        "low_bytes": estimate.low_bytes,
        "high_bytes": estimate.high_bytes,
        "first_step_peak_bytes": estimate.first_step_peak_bytes,
        "program_bytes": estimate.program_bytes,
        "resident_bytes": estimate.resident_bytes,
        "reserved_bytes": estimate.reserved_bytes,
        "usable_bytes": estimate.usable_bytes,
        "fits": estimate.fits,
        "out_of_memory": None if estimate.out_of_memory is None else asdict(estimate.out_of_memory),
        "max_batch": estimate.max_batch,
        "host": None if estimate.host is None else host_view(estimate.host),
        "breakdown": {f"{name}_bytes": size for name, size in estimate.breakdown.items()},
        "layers": [{"name": layer.name, "peak_bytes": layer.peak_bytes} for layer in estimate.layers],
        "curve": [
            {"moment": point.moment, "instruction": point.instruction, "held_bytes": point.held_bytes}
            for point in estimate.curve
        ],
        "flops": estimate.flops,
        "moved_bytes": estimate.moved_bytes,
        "launches": estimate.launches,
        "from_cache": estimate.from_cache,
        "notes": list(estimate.notes),
        "seconds": round(estimate.seconds, 3),
    }


def host_view(host: HostEstimate) -> dict[str, Any]:
    """The host's half."""
    return {
        "peak_bytes": host.peak_bytes,
        "low_bytes": host.low_bytes,
        "high_bytes": host.high_bytes,
        "limit_bytes": host.limit_bytes,
        "limit_reason": host.limit_reason,
        "fits": host.fits,
        "parts": [asdict(part) for part in host.parts],
        "notes": list(host.notes),
    }
