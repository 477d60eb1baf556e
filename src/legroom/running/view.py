"""A run as plain data, for `legroom run --json`."""

import json
from contextlib import suppress
from typing import Any

from legroom.running.supervisor import Supervisor


def run_view(code: int, supervisor: Supervisor) -> dict[str, Any]:
    """Every start of the script, and what the guard has written of them."""
    return {
        "schema": 1,
        "exit_code": code,
        "restarts": len(supervisor.attempts) - 1,
        "budget_bytes": supervisor.settings.budget_bytes,
        "attempts": [
            {
                "exit_code": attempt.ended.code if attempt.ended.code >= 0 else None,
                "signal": attempt.ended.signal or None,
                "out_of_memory": attempt.ended.memory,
                "message": attempt.ended.message or None,
                "seconds": round(attempt.seconds, 3),
            }
            for attempt in supervisor.attempts
        ],
        "events": events(supervisor),
    }


def events(supervisor: Supervisor) -> list[Any]:
    found = []
    with suppress(OSError):
        for line in supervisor.settings.events.read_text().splitlines():
            with suppress(ValueError):  # cut off by a kill
                found.append(json.loads(line))
    return found
