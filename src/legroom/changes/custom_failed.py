"""What is said of a training step that fails on a few samples: the user's own mistake is shown as it is, for another he is told where it happened."""

import re

from legroom.capture.frames import reason_of, user_frames
from legroom.changes.made_up import ROWS
from legroom.errors import InputError

ANY_SIZE = "It is tried eagerly, on a few samples: let sizes come from the batch, as tf.shape(x)[0], and loops take what they return."
OWN = (NameError, ImportError, SyntaxError, RecursionError)  # with any batch
CALLED = re.compile(r"missing \d+ required|unexpected keyword argument|positional arguments? but|multiple values for")


def failure(error: BaseException | None) -> BaseException:
    """What to raise."""
    if error is None:
        return InputError(
            f"The training step could not be tried out on {ROWS} samples: its numbers were not finite", ANY_SIZE
        )
    if isinstance(error, OWN) or (isinstance(error, TypeError) and CALLED.search(str(error))):
        return error
    why = reason_of(error) or f"{one_line(error)}{place_of(error)}"
    return InputError(f"The training step could not be tried out on {ROWS} samples: {why}", ANY_SIZE)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def place_of(error: BaseException) -> str:
    """The last of the user's own lines, where there is one."""
    lines = [line.strip() for line in user_frames(error).splitlines() if "site-packages" not in line]
    return f" ({lines[-1]})" if lines else ""
