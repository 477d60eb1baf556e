"""The other process of `legroom estimate SCRIPT`: runs the user's script, and lowers its step when asked.

Started by `legroom.front.source.ScriptSource` as `python -m legroom.front.child REQUESTS ANSWERS FOLDER TARGET [ARGUMENTS…]` with two
inherited pipes. The script's own output goes where it always goes; only JSON lines go through the pipes. When the pipe of
requests closes, the script is let go: it unwinds from its training call and ends. Private name used, of Python 3.11's own:
`atexit._run_exitfuncs`.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from legroom.capture.frames import describe
from legroom.capture.limited import hold_to_the_limit
from legroom.engines.op.codec import work_to_json
from legroom.engines.op.grappler import Device
from legroom.engines.out_of_memory import oom_of
from legroom.errors import EngineError, InputError, LegroomError
from legroom.front.local_source import LocalSource
from legroom.front.source import step_to_json
from legroom.records.alternative import Alternative
from legroom.records.plan import action_from_json, action_to_json
from legroom.records.portrait import portrait_to_json
from legroom.records.rehearsal import rehearsal_to_json

CLAIMED = "claimed"
PR_SET_PDEATHSIG = 1
PATIENCE = (
    100_000  # new objects before Python looks for garbage: with its own 700, that is a fifth of importing TensorFlow
)


def main() -> None:
    end_with_parent()
    gc.set_threshold(PATIENCE)
    handles = [int(argument) for argument in sys.argv[1:3]]
    for handle in handles:
        os.set_inheritable(handle, False)  # or what the script starts in the background would keep them open
    requests, answers = os.fdopen(handles[0]), os.fdopen(handles[1], "w")
    folder, target, arguments = Path(sys.argv[3]), sys.argv[4], sys.argv[5:]
    sys.path.pop(0)  # the current folder, which `python -m` has put there and `python train.py` would not
    hold_to_the_limit()
    try:
        from legroom.capture.script import Stop, StopScript, run_script

        def hand_over(captured: Any) -> None:
            claim(folder)
            serve(captured, requests, answers, folder)

        if is_script(target):
            run_script(Path(target), arguments, hand_over)
            return
        from legroom.capture.factory import capture_factory
        from legroom.capture.hooks import install

        stop = Stop(hand_over)
        install(stop)
        try:
            captured = capture_factory(target)
        except StopScript:
            if stop.error is not None:
                raise stop.error from None
            return
        stop.training = True
        hand_over(captured)
    except LegroomError as error:
        if not (folder / CLAIMED).exists():  # else a process that the script has forked was captured, and is answering
            reply(answers, failure(error))
    except BrokenPipeError:
        return


def claim(folder: Path) -> None:
    """Of several processes that a script has forked, the first to train is captured; the others end here."""
    try:
        (folder / CLAIMED).touch(exist_ok=False)
    except FileExistsError:
        os._exit(0)


def end_with_parent() -> None:
    """On Linux: end when Legroom's process ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_script(target: str) -> bool:
    return target.endswith(".py") or os.sep in target or ":" not in target


def require_target(target: str) -> None:
    """A script must be there; a module is looked for in the child."""
    if not is_script(target):
        return
    path = Path(target)
    if path.is_dir():
        raise InputError(f"{target} is a folder.", "Name the training script in it, e.g. train.py.")
    if not path.is_file():
        raise InputError(f"There is no script {target!r}.", "Name a training script, or module:function.")


def serve(captured: Any, requests: TextIO, answers: TextIO, folder: Path) -> None:
    """Answer questions about the captured step until nobody asks any more."""
    source = LocalSource(captured, is_script=True)
    reply(answers, {"step": step_to_json(source.step)})
    for line in requests:
        request = json.loads(line)
        try:
            reply(answers, answer(source, request, folder))
        except LegroomError as error:
            reply(answers, failure(error))
        except MemoryError:
            reply(answers, failure(EngineError("This machine ran out of memory while the step was traced.")))
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - from the user's own code, whatever it is
            reply(answers, failure(InputError(f"The training step could not be traced: {describe(error)}")))


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
    if request["do"] == "observe":
        return {"observed": source.observe().as_dict()}
    if request["do"] == "work":
        capability = request["device"].pop("capability")
        device = Device(None if capability is None else (capability[0], capability[1]), **request["device"])
        made = source.work(batch, device)
        path = folder / f"work-{batch}"
        path.write_text(json.dumps(work_to_json(made.work)))
        return {"step": step_to_json(made.step), "work": str(path)}
    if request["do"] == "change":
        effect = source.change([action_from_json(action) for action in request["actions"]])
        return {**asdict(effect), "step": step_to_json(source.step)}
    if request["do"] == "possible":
        return {"actions": [action_to_json(action) for action in source.possible()]}
    if request["do"] == "segments":
        return {"segments": source.segments(batch)}
    if request["do"] == "portrait":
        portrait = source.portrait()
        return {"portrait": None if portrait is None else portrait_to_json(portrait)}
    if request["do"] == "alternatives":
        return {"alternatives": [asdict(one) for one in source.alternatives(request["holders"])]}
    if request["do"] == "imagine":
        wanted = request["alternative"]
        source.imagine(Alternative(**{**wanted, "size": tuple(wanted["size"])}))
        return {"step": step_to_json(source.step)}
    if request["do"] == "rehearse":
        from legroom.engines.rehearsal import rehearse_step

        return {"rehearsal": rehearsal_to_json(rehearse_step(source.resized(batch), request["steps"]))}
    raise InputError(f"Unknown request {request['do']!r}.")


def reply(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def failure(error: LegroomError) -> dict[str, Any]:
    """An error on its way through the pipe; a rehearsal wants to know whether memory had run out behind it."""
    oom = oom_of(error)
    said = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    return {**said, "out_of_memory": None if oom is None else asdict(oom)}


def leave() -> None:
    """End at once, as the script wished to: taking TensorFlow's objects apart first would take a second."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
    leave()
