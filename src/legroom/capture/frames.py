"""Where in the user's own code something happened, for error messages."""

import re
import traceback
from pathlib import Path

ANSI = re.compile(r"\x1b\[[0-9;]*m")  # Keras writes its messages in bold
AUTOGRAPH = "__autograph_generated_file"  # TensorFlow's rewriting of the user's function, in a file that is gone by now


REASON = re.compile(r"\w*(Error|Exception)\b")
AROUND = re.compile(
    r"\AException encountered when calling .*?\x1b\[1m(.*?)\x1b\[0m", re.DOTALL
)  # what Keras writes around an error in a layer


def reason_of(error: BaseException) -> str | None:
    """Of an error in a function that TensorFlow has rewritten, the reason and the user's line; its text begins with neither."""
    lines = [line.strip() for line in ANSI.sub("", str(error)).splitlines() if line.strip()]
    if not lines or not lines[0].startswith("in user code:"):
        return None
    places = [line for line in lines if line.startswith('File "') and "site-packages" not in line]
    reason = next((line for line in reversed(lines) if REASON.match(line)), lines[-1])
    return f"{reason} ({places[-1]})" if places else reason


def first_line(error: BaseException) -> str:
    rewritten = reason_of(error)
    if rewritten is not None:
        return rewritten[:300]
    around = AROUND.search(str(error))
    text = ANSI.sub("", around[1] if around else str(error)).strip()
    return text.splitlines()[0][:300] if text else "(no message)"


def user_frames(error: BaseException) -> str:
    """The last lines of the user's files that it went through; Legroom's frames and the standard library's are left out."""
    here = Path(__file__).resolve().parents[1]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).resolve().is_relative_to(here)
        and "runpy" not in frame.filename
        and AUTOGRAPH not in frame.filename
    ]
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return "\n".join(f"  at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in own[-3:])


def describe(error: BaseException) -> str:
    """`KeyError: 'x'` and where it came from."""
    return f"{type(error).__name__}: {first_line(error)}\n{user_frames(error)}".rstrip()
