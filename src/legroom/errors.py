"""What can go wrong, and the exit code each kind of it means (see docs/how-it-works.md).

An error says what happened, what was received, and what to do next. `hint` is the last of these, on a line of its own.
"""


class LegroomError(Exception):
    """Base of every error that Legroom raises on purpose; the front door prints it without a traceback."""

    exit_code = 1
    _keras_call_info_injected = (
        True  # or Keras (3.15.1) raises another one in its place, with the arguments of the layer below the hint
    )

    def __init__(self, message: str, hint: str | None = None) -> None:
        Exception.__init__(self, message)  # not super(): some of these are errors of a framework's, too
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class InputError(LegroomError):
    """The user's input was wrong: a misspelt GPU, an unreadable size, a script that never trains."""

    exit_code = 2


class DoesNotFit(InputError):
    """No plan makes the training fit that was asked for: the answer is "no", as `legroom plan` says it."""

    exit_code = 1


class MissingError(LegroomError):
    """Something that Legroom needs is not here, or not possible here: the oracle, a framework, an operating system."""

    exit_code = 3


class EngineError(LegroomError):
    """An engine could not answer: the compiler failed or ran out of time. No number is shown instead."""

    exit_code = 3
