"""Where lowered steps come from: what every source answers, and a script in a child process that has been stopped in its tracks."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from legroom import errors
from legroom.engines.host.observe import Observed, observed_from
from legroom.engines.op.codec import work_from_json
from legroom.engines.op.grappler import Device
from legroom.engines.op.lower import OpStep
from legroom.records import Lowered, Step, Tensor
from legroom.records.alternative import Alternative
from legroom.records.plan import Action, Effect, action_from_json, action_to_json
from legroom.records.portrait import Portrait, portrait_from_json

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}  # TensorFlow greets, and its optimiser grumbles
OWN_SETTINGS = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}  # nothing of a real GPU is touched


Say = Callable[[str], None]
Capability = tuple[int, int]  # a card's compute capability: what the frameworks ask it for while they trace


def be_silent(text: str) -> None:
    """Progress for nobody."""


class StepSource(Protocol):
    """A captured step that can be lowered for any batch size, for either engine."""

    step: Step

    @property
    def is_elsewhere(self) -> bool: ...  # in another process, so that this one can do something else meanwhile

    def fingerprint(self, batch: int | None) -> str | None: ...

    def lower(self, batch: int | None, capability: Capability) -> Lowered: ...

    def work(self, batch: int | None, device: Device) -> OpStep: ...

    def observe(self) -> Observed: ...

    def change(self, actions: Sequence[Action]) -> Effect: ...

    def possible(self) -> list[Action]: ...

    def segments(self, batch: int | None) -> list[dict[str, Any]]: ...

    def portrait(self) -> Portrait | None: ...

    def alternatives(self, holders: Sequence[str]) -> list[Alternative]: ...

    def imagine(self, alternative: Alternative) -> None: ...


def step_to_json(step: Step) -> dict[str, Any]:
    return asdict(step)


def step_from_json(data: dict[str, Any]) -> Step:
    parameters = tuple(Tensor(**{**row, "shape": tuple(row["shape"])}) for row in data["parameters"])
    return Step(**{**data, "parameters": parameters, "layers": tuple(data["layers"]), "notes": tuple(data["notes"])})


def visible() -> Any:
    """Where a script's output is shown: stderr, unless it is no real file, as in some notebooks."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL


class ScriptSource:
    """A script, run in a child process up to its first training step and held there until `close`.

    `environment` is set for the child on top of this process's own; `log` takes its stderr.
    """

    is_elsewhere = True

    def __init__(
        self,
        target: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="legroom-")
        to_child, self.requests = os.pipe()
        self.answers, from_child = os.pipe()
        command = [
            sys.executable,
            "-m",
            "legroom.front.child",
            str(to_child),
            str(from_child),
            self.folder.name,
            target,
            *arguments,
        ]
        env = {**QUIET, **os.environ, **OWN_SETTINGS, **(environment or {})}
        self.process = subprocess.Popen(
            command, pass_fds=(to_child, from_child), stdout=visible(), stderr=log, env=env, start_new_session=True
        )
        os.close(to_child)
        os.close(from_child)
        self.doing = "before it could be captured"
        self.is_asked = False
        self.answers_file = os.fdopen(self.answers)
        self.requests_file = os.fdopen(self.requests, "w")
        try:
            self.step: Step = step_from_json(self.receive()["step"])
        except BaseException:
            self.close(patience=0.5)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        self.close(patience=0.5 if interrupted else 20.0)

    def fingerprint(self, batch: int | None) -> str | None:
        return self.ask({"do": "fingerprint", "batch": batch})["fingerprint"]  # type: ignore[no-any-return]

    def lower(self, batch: int | None, capability: Capability) -> Lowered:
        answer = self.ask({"do": "lower", "batch": batch, "capability": capability})
        program = Path(answer["program"]).read_bytes()
        return Lowered(step_from_json(answer["step"]), program, answer["format"], answer["identity"])

    def work(self, batch: int | None, device: Device) -> OpStep:
        answer = self.ask({"do": "work", "batch": batch, "device": asdict(device)})
        work = work_from_json(json.loads(Path(answer["work"]).read_bytes()))
        return OpStep(step_from_json(answer["step"]), work)

    def observe(self) -> Observed:
        return observed_from(self.ask({"do": "observe", "batch": None})["observed"])

    def change(self, actions: Sequence[Action]) -> Effect:
        wanted = [action_to_json(action) for action in actions]
        answer = self.ask({"do": "change", "batch": None, "actions": wanted})
        self.step = step_from_json(answer["step"])
        return Effect(answer["exactness"], tuple(answer["reasons"]), tuple(answer["tried"]))

    def possible(self) -> list[Action]:
        return [action_from_json(action) for action in self.ask({"do": "possible", "batch": None})["actions"]]

    def segments(self, batch: int | None) -> list[dict[str, Any]]:
        return self.ask({"do": "segments", "batch": batch})["segments"]  # type: ignore[no-any-return]

    def portrait(self) -> Portrait | None:
        found = self.ask({"do": "portrait", "batch": None})["portrait"]
        return None if found is None else portrait_from_json(found)

    def alternatives(self, holders: Sequence[str]) -> list[Alternative]:
        found = self.ask({"do": "alternatives", "batch": None, "holders": list(holders)})["alternatives"]
        return [Alternative(**{**one, "size": tuple(one["size"])}) for one in found]

    def imagine(self, alternative: Alternative) -> None:
        answer = self.ask({"do": "imagine", "batch": None, "alternative": asdict(alternative)})
        self.step = step_from_json(answer["step"])

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        batch = "" if request["batch"] is None else f" at batch {request['batch']}"
        self.doing = f"while its step was looked at{batch}"
        with suppress(BrokenPipeError):  # the script's process is gone: `receive` says how
            self.requests_file.write(json.dumps(request) + "\n")
            self.requests_file.flush()
        return self.receive()

    def receive(self) -> dict[str, Any]:
        self.is_asked = True
        line = self.answers_file.readline()
        self.is_asked = False
        if not line:
            raise self.ended(self.process.wait())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self.failed(answer)
        return answer

    def ended(self, code: int) -> errors.LegroomError:
        """What it means that the child is gone without an answer."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = "Signal 9: the machine ran out of memory. 11 or 6: a native library crashed, as TensorFlow's do on absurd sizes."
        return errors.InputError(f"The script's process {how} {self.doing}.", hint if code < 0 else None)

    def failed(self, answer: dict[str, Any]) -> errors.LegroomError:
        """The child's error as one of this process."""
        kind: type[errors.LegroomError] = getattr(errors, answer["error"], errors.LegroomError)
        return kind(answer["message"], answer["hint"])

    def close(self, patience: float = 20.0) -> None:
        """Let the script unwind (its `finally` blocks run); end it, and whatever it has started, if it does not."""
        if self.is_asked:  # by another thread, which would hold the pipe as long as the script's process lives
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        for file in (self.requests_file, self.answers_file):
            with suppress(OSError):
                file.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()
