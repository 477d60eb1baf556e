"""The process that stands beside the script's: starts it, passes signals on, sees why it ended, and starts it again.

The script keeps the terminal, its input and its output; nothing is read from or written to them but Legroom's own lines on stderr.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from legroom.records.run import Way, event_from_json
from legroom.running.ended import Ended, Memory, read_oom_kills, why
from legroom.running.settings import VARIABLE, Settings, to_text
from legroom.running.speech import say
from legroom.running.store import AGAIN, BEGIN_AGAIN, Store
from legroom.running.untrained import has_not_trained, is_before_import, too_early, too_small
from legroom.units import format_duration

LOOK_SECONDS = 0.25
SITE = Path(__file__).resolve().parent / "site"
PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
    if hasattr(signal, name)
)
FROM_A_PROCESS = 0  # SI_USER: sent by somebody, and not by the terminal to us and the script alike


@dataclass
class Attempt:
    """How one start of the script went."""

    ended: Ended
    seconds: float
    stopped: bool = False  # somebody wanted it to end


@dataclass
class Supervisor:
    """Runs a command until it ends by itself, at most `restarts` times anew."""

    command: Sequence[str]
    settings: Settings
    restarts: int = 5
    environment: Mapping[str, str] = field(default_factory=dict)
    output: Any = None  # where the script's stdout goes, if not where ours does
    attempts: list[Attempt] = field(default_factory=list)

    def run(self) -> int:
        """The script's own exit code; 128 and the signal's number where it was killed for good."""
        done = 0
        while True:
            attempt = self.once()
            self.attempts.append(attempt)
            ended = attempt.ended
            if ended.code == BEGIN_AGAIN and (self.settings.home / AGAIN).exists():
                (self.settings.home / AGAIN).unlink()
                self.settings = replace(self.settings, attempt=self.settings.attempt + 1, resume=True)
                continue
            if not ended.can_go_on or attempt.stopped:
                return ended.code if ended.code >= 0 else 128 - ended.code
            if ended.signal != "SIGKILL" and is_before_import(self.settings.home):
                say(f"{ended.message} {too_early()}")
                return 128 - ended.code
            if ended.signal != "SIGKILL" and has_not_trained(self.settings):
                say(f"{ended.message} {too_small(self.settings)}")
                return 128 - ended.code
            if done >= self.restarts:
                say(
                    f"{ended.message} It was started again {times(done)} already, and is not started once more (--restarts)."
                )
                return 128 - ended.code
            done += 1
            self.settings = self.smaller(ended)
            say(f"{ended.message} {self.where()} (restart {done} of {self.restarts}{self.way_text()}).")

    def once(self) -> Attempt:
        started = time.monotonic()
        before = read_oom_kills()
        variables = {**os.environ, **self.environment, VARIABLE: to_text(self.settings)}
        variables["PYTHONPATH"] = os.pathsep.join([str(SITE), *filter(None, [variables.get("PYTHONPATH")])])
        blocked = hasattr(signal, "sigtimedwait")
        waited = {*PASSED_ON, signal.SIGCHLD} if blocked else set()
        old = signal.pthread_sigmask(signal.SIG_BLOCK, waited) if blocked else set()

        def unblock() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

        try:
            child = subprocess.Popen(  # this process has one thread
                self.command,
                env=variables,
                stdout=self.output,
                preexec_fn=unblock if blocked else None,  # noqa: PLW1509
            )
            seen, stopped = self.wait(child, waited)
        finally:
            if blocked:
                signal.pthread_sigmask(signal.SIG_SETMASK, old)
        seen = replace(seen, oom_kills=max(read_oom_kills() - before, 0))
        crash = ""
        with suppress(OSError):
            crash = self.settings.crash.read_text(errors="replace")
        return Attempt(why(child.returncode, seen, crash), time.monotonic() - started, stopped)

    def wait(self, child: "subprocess.Popen[bytes]", waited: set[int]) -> tuple[Memory, bool]:
        """Until it has ended: its memory, and whether it was told to end."""
        seen, stopped, looked = Memory(), False, 0.0
        process: Any = None
        with suppress(psutil.Error):
            process = psutil.Process(child.pid)
        while child.poll() is None:
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                seen = seen if process is None else look(process, seen)
            if not waited:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK_SECONDS)
                continue
            info = signal.sigtimedwait(waited, LOOK_SECONDS)
            if info is None or info.si_signo == signal.SIGCHLD:
                continue
            stopped = stopped or info.si_signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
            if info.si_code == FROM_A_PROCESS and info.si_signo != signal.SIGWINCH:
                with suppress(ProcessLookupError):
                    child.send_signal(info.si_signo)
        return seen, stopped

    def smaller(self, ended: Ended) -> Settings:
        """The next attempt: where device memory may have been the cause, its steps take less."""
        way = self.last_way()
        if ended.signal != "SIGKILL":
            way = Way(2 * way.micro_batches, way.recomputed)
        return replace(self.settings, attempt=self.settings.attempt + 1, resume=True, way=way)

    def last_way(self) -> Way:
        """How steps were run last, as the guard has written it."""
        found = self.settings.way
        with suppress(OSError, ValueError, KeyError, TypeError):
            for line in self.settings.events.read_text().splitlines():
                event = event_from_json(json.loads(line))
                if event.kind in ("changed", "does_not_fit") and event.where not in ("evaluation", "prediction"):
                    found = event.way
        return found

    def where(self) -> str:
        """From where it goes on."""
        store = Store(self.settings.home)
        newest = store.newest()
        if newest is None:
            return "It had not come to the end of an epoch: it begins again"
        number, kind = newest
        facts = store.facts(number, kind)
        which = f" of training {number + 1}" if number else ""
        if facts is None:
            return "It begins again"
        if kind == "done":
            return f"It goes on after training {number + 1}"
        age = format_duration(max(time.time() - float(facts["time"]), 0))
        step = f", step {facts['step']}" if facts["step"] else ""
        return f"It goes on at epoch {facts['epoch'] + 1}{step}{which}, kept {age} ago"

    def way_text(self) -> str:
        count = self.settings.way.micro_batches
        return f", in {count} micro-batches" if count > 1 else ""


def look(process: Any, seen: Memory) -> Memory:
    """The memory of a process and of those it has started."""
    try:
        family = [process, *process.children(recursive=True)]
        used = 0
        for member in family:
            with suppress(psutil.Error):
                used += int(member.memory_info().rss)
    except psutil.Error:
        return seen
    return Memory(used, max(used, seen.peak_bytes), int(psutil.virtual_memory().available))


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def command_for(script: str, arguments: Sequence[str], *, module: bool) -> list[str]:
    """As the user would have started it, with this Python."""
    return [sys.executable, *(["-m"] if module else []), script, *arguments]
