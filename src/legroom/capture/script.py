"""Running a user's script up to its first training step, and stopping it cleanly there."""

import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from legroom.capture.hooks import OnCaptured, install
from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.errors import InputError, LegroomError

MAX_STOPS = 3  # a script that swallows the stop with a bare `except:` and trains on is ended the hard way


class StopScript(BaseException):
    """Unwinds the user's script from its training call; a BaseException so that `except Exception` lets it pass."""


def run_script(path: Path, arguments: Sequence[str], on_captured: OnCaptured) -> None:
    """Run the script as `python path arguments…` would, until it trains. Returns when it was captured and stopped.

    Raises InputError when it ends, raises or exits before it trains.
    """
    stops = 0

    def stop(step: KerasStep | FunctionStep) -> None:
        nonlocal stops
        stops += 1
        if stops == 1:
            on_captured(step)
        if stops > MAX_STOPS:
            sys.stdout.flush()
            os._exit(0)
        raise StopScript

    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    install(stop)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except StopScript:
        return
    except LegroomError:
        raise
    except SystemExit as error:
        if stops == 0:
            code = error.code if error.code is not None else 0
            raise InputError(
                f"{path} called sys.exit({code!r}) before it trained.",
                "Pass the arguments it needs after the script's name, e.g. `legroom estimate train.py -- --data tiny`.",
            ) from None
    except BaseException as error:
        if stops == 0:
            raise InputError(
                f"{path} raised {type(error).__name__} before it trained: {first_line(error)}\n{user_frames(error)}",
                "Run the script by itself and mend it first.",
            ) from error
    if stops == 0:
        raise InputError(
            f"{path} ended without training: no fit, no train_on_batch and no @tf.function step with a GradientTape was called.",
            'Check that training is not behind `if __name__ == "...":` or a flag, or use module:function that returns (model, batch).',
        )


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else "(no message)"


def user_frames(error: BaseException) -> str:
    """Where in the user's own files it happened; Legroom's frames and the standard library's are left out."""
    here = Path(__file__).resolve().parents[1]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).resolve().is_relative_to(here) and "runpy" not in frame.filename
    ]
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return "\n".join(f"  at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in own[-3:])
