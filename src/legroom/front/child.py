"""The other process of `legroom estimate SCRIPT`: runs the user's script, and lowers its step when asked.

Started by `legroom.front.source.ScriptSource` as `python -m legroom.front.child REQUESTS ANSWERS FOLDER TARGET [ARGUMENTS…]` with two
inherited pipes. The script's own output goes where it always goes; only JSON lines go through the pipes. When the pipe of
requests closes, the script is let go: it unwinds from its training call and ends.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from legroom.errors import EngineError, InputError, LegroomError
from legroom.front.source import LocalSource, step_to_json


def main() -> None:
    requests, answers = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
    folder, target, arguments = Path(sys.argv[3]), sys.argv[4], sys.argv[5:]
    try:
        if is_script(target):
            from legroom.capture.script import run_script

            run_script(Path(target), arguments, lambda captured: serve(captured, requests, answers, folder))
        else:
            from legroom.capture.factory import capture_factory

            serve(capture_factory(target), requests, answers, folder)
    except LegroomError as error:
        reply(answers, failure(error))
    except BrokenPipeError:
        return


def is_script(target: str) -> bool:
    return target.endswith(".py") or os.sep in target or ":" not in target


def serve(captured: Any, requests: TextIO, answers: TextIO, folder: Path) -> None:
    """Answer questions about the captured step until nobody asks any more."""
    source = LocalSource(captured)
    reply(answers, {"step": step_to_json(source.step)})
    for line in requests:
        request = json.loads(line)
        try:
            reply(answers, answer(source, request, folder))
        except LegroomError as error:
            reply(answers, failure(error))
        except MemoryError:
            reply(answers, failure(EngineError("This machine ran out of memory while the step was traced.")))


def answer(source: LocalSource, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    batch = request["batch"]
    if request["do"] == "fingerprint":
        return {"fingerprint": source.fingerprint(batch)}
    if request["do"] == "lower":
        major, minor = request["capability"]
        lowered = source.lower(batch, (major, minor))
        path = folder / f"program-{batch}"
        path.write_bytes(lowered.program)
        return {
            "step": step_to_json(lowered.step),
            "program": str(path),
            "format": lowered.format,
            "identity": lowered.identity,
        }
    raise InputError(f"Unknown request {request['do']!r}.")


def reply(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def failure(error: LegroomError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}


if __name__ == "__main__":
    main()
