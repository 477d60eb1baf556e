"""In the script's own process, before its first line: hooks for Keras, the budget made real, and what is said of an error."""

import faulthandler
import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from legroom.capture.hooks import AfterImport
from legroom.capture.limited import allocator_settings, hold_to
from legroom.errors import LegroomError
from legroom.front.child import end_with_parent
from legroom.running.settings import Settings, taken_from_environment
from legroom.running.untrained import FRAMEWORKS, expect_import, imported
from legroom.units import MIB, format_bytes

ON_CPU = "LEGROOM_RUN_ON_CPU"  # there is no GPU here: a budget is the CPU allocator's limit


def begin() -> None:
    """Called by Python itself when it starts (`site/sitecustomize.py`)."""
    settings = taken_from_environment()
    if settings is None:
        return
    end_with_parent()
    write_crashes(settings)
    expect_import(settings.home)
    on_cpu = os.environ.pop(ON_CPU, "") == "1"
    if settings.budget_bytes is not None and on_cpu:
        hold_to(allocator_settings(settings.budget_bytes))
    watch(settings, on_cpu=on_cpu)
    explain_what_ends_it()


def write_crashes(settings: Settings) -> None:
    """Where Python was when native code crashed goes to a file; the supervisor reads it."""
    with suppress(OSError):
        faulthandler.enable(settings.crash.open("w"), all_threads=False)


def watch(settings: Settings, *, on_cpu: bool) -> None:
    """Right after Keras and TensorFlow are imported, whenever that is."""

    from legroom.running.current import CurrentRun, Here
    from legroom.running.fits import Fits
    from legroom.running.functions import Functions
    from legroom.running.store import Store
    from legroom.running.untrained import expect_training

    store = Store(settings.home)
    fits = Fits(settings, store)
    functions = Functions(settings, fits)
    Here.run = CurrentRun(settings, store, fits)

    def keras_came(module: Any) -> None:
        fits.install()
        if settings.ram_bytes is not None:
            from legroom.data.unmodified import install

            install(settings.ram_bytes)

    def tensorflow_came(module: Any) -> None:
        functions.install()
        expect_training(settings)
        if settings.budget_bytes is not None and not on_cpu:
            limit_gpus(module, settings.budget_bytes)

    sys.meta_path.insert(0, AfterImport({"keras": keras_came, "tensorflow": tensorflow_came}))
    # The one that asks first: a framework that crashes while it is imported has been asked for.
    sys.meta_path.insert(0, AfterImport({name: lambda module: imported(settings.home) for name in FRAMEWORKS}))


def limit_gpus(tf: Any, budget_bytes: int) -> None:
    """Each GPU as one logical device of that much; memory growth, which TensorFlow cannot combine with it, is left out."""
    from legroom.running.speech import say

    try:
        cards = tf.config.list_physical_devices("GPU")
        for card in cards:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=budget_bytes // MIB)
            tf.config.set_logical_device_configuration(card, [limit])
    except (RuntimeError, ValueError) as error:
        say(f"the budget could not be made TensorFlow's limit: {error}")
        return
    if not cards:
        say(f"TensorFlow sees no GPU: the budget of {format_bytes(budget_bytes)} is planned for, but is no limit.")
        return

    def left_out(device: Any, enable: bool) -> None:
        say("memory growth is left out: the budget is the limit.")

    tf.config.experimental.set_memory_growth = left_out


def explain_what_ends_it() -> None:
    """An error of Legroom's own without a traceback; an out-of-memory error of others with its explanation after it."""
    before = sys.excepthook

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, LegroomError):
            from legroom.report.errors import print_error

            print_error(error.message, error.hint)
            return
        before(kind, error, trace)
        if isinstance(error, KeyboardInterrupt):
            return  # Python ends by SIGINT after it, unless more code is compiled before: the exit code would be 1
        with suppress(Exception):
            explain(error)

    sys.excepthook = ended


def explain(error: BaseException) -> None:
    from rich.console import Console

    from legroom.explain.diagnose import explain_error
    from legroom.report.diagnosis import diagnosis_text

    found = explain_error(error)
    if found.cause not in ("unknown", "not_an_error"):
        sys.stderr.flush()
        Console(stderr=True, highlight=False).print(diagnosis_text(found))
