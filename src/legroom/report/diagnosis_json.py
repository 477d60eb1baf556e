"""A Diagnosis as JSON for programs: null is what the log does not say."""

from dataclasses import asdict
from typing import Any

from legroom.records.diagnosis import Cause, Diagnosis
from legroom.report.view import SCHEMA


def diagnosis_view(found: Diagnosis) -> dict[str, Any]:
    """The whole answer as plain data."""
    return {
        "schema": SCHEMA,
        "cause": found.cause,
        "causes": [cause_view(cause) for cause in found.causes],
        "failed_bytes": found.failed_bytes,
        "device": found.device,
        "allocator": found.allocator,
        "tensor_shape": None if found.tensor_shape is None else list(found.tensor_shape),
        "dtype": found.dtype,
        "op": found.op,
        "layer": found.layer,
        "limit_bytes": found.limit_bytes,
        "in_use_bytes": found.in_use_bytes,
        "free_bytes": found.free_bytes,
        "largest_free_bytes": found.largest_free_bytes,
        "advice": [asdict(advice) for advice in found.advice],
    }


def cause_view(cause: Cause) -> dict[str, Any]:
    return {
        "cause": cause.cause,
        "probability": cause.probability,
        "evidence": [asdict(evidence) for evidence in cause.evidence],
    }
