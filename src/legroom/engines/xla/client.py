"""The oracle as the rest of Legroom sees it: a program and a target in, its `Program` out.

The worker is started once and reused; it and its compilations are killed on a time limit. Answers come from the cache
where the same program was compiled for the same target by the same release before.
"""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from legroom.engines import cache
from legroom.engines.codec import program_from_json, program_to_json
from legroom.engines.xla.convolutions import read_questions, tuned_bytes, write_results
from legroom.engines.xla.environment import Environment
from legroom.engines.xla.releases import Release
from legroom.engines.xla.schedule import load_dump, read_program
from legroom.errors import EngineError
from legroom.gpus import Gpu, target_description
from legroom.records import Lowered, Program

WORKER = Path(__file__).with_name("worker.py")
LIMIT_SECONDS = 900.0
GRACE_SECONDS = 30.0
START_SECONDS = 120.0

Options = tuple[tuple[str, Any], ...]
# Matrix products go to cuBLAS: without a card to try on, XLA would keep Triton's default configuration, which takes up to
# 30% less or more than what is chosen on one, and fails to compile some programs (docs/accuracy.md).
OPTIONS: Options = (("xla_gpu_enable_triton_gemm", False),)

# XLA recomputes what it can to hold a program's temporaries to this share of 80% of the card less arguments and results
# (gpu_hlo_schedule.cc); it is 95 by default.
LIMIT_PERCENT = "xla_gpu_memory_limit_slop_factor"


class Oracle:
    """One worker of one release. Use it as a context manager; it starts on its first real question."""

    def __init__(self, release: Release, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.release = release
        self.environment = Environment(release.version)
        self.limit_seconds = limit_seconds
        self.options = OPTIONS
        self.compiled = 0
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and whatever it is compiling."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self.process = None

    def key_of(self, lowered: Lowered, gpu: Gpu) -> str:
        """What the answer is kept under: everything that it depends on."""
        roles = [asdict(tensor) for tensor in lowered.step.parameters]
        program = (lowered.identity, lowered.format, roles, lowered.step.layers, lowered.step.optimizer)
        return cache.key_of("program", *program, target_description(gpu), self.release.version, self.options)

    def compile(self, lowered: Lowered, gpu: Gpu) -> Program:
        """The program as the compiler would lay it out in the card's memory."""
        key = self.key_of(lowered, gpu)
        kept = read_program_kept(key)
        if kept is not None:
            return kept
        program = self.ask(lowered, gpu)
        cache.write(key, program_to_json(program))
        return program

    def ask(self, lowered: Lowered, gpu: Gpu) -> Program:
        """Compile it, and once more with workspaces for its convolutions if it has any."""
        with tempfile.TemporaryDirectory(prefix="legroom-") as name:
            folder = Path(name)
            (folder / "program").write_bytes(lowered.program)
            log = self.run(folder, "first", lowered.format, gpu, self.options)
            dump = folder / "first"
            questions = read_questions(log)
            results = write_results(questions, gpu)
            if results is not None:
                (folder / "results.pbtxt").write_text(results)
                options = (*self.options, ("xla_gpu_load_autotune_results_from", str(folder / "results.pbtxt")))
                self.run(folder, "second", lowered.format, gpu, options)
                dump = folder / "second"
            program = read_program(load_dump(dump), lowered.step, questions)
            return replace(program, tuned_bytes=tuned_bytes(questions))

    def run(self, folder: Path, name: str, form: str, gpu: Gpu, options: Options) -> str:
        """One compilation; its dump goes to `folder/name`. Returns what the compiler logged."""
        worker = self.start()
        self.compiled += 1
        log = folder / f"{name}.log"
        request = {
            "id": self.compiled,
            "program": str(folder / "program"),
            "format": form,
            "target": target_description(gpu),
            "options": options,
            "dump": str(folder / name),
            "log": str(log),
            "limit_seconds": self.limit_seconds,
        }
        self.send(worker, request)
        answer = self.receive(worker, self.limit_seconds + GRACE_SECONDS)
        text = log.read_text(errors="replace") if log.exists() else ""
        if answer["status"] != "ok":
            raise EngineError(*explain_failure(answer, text, self.limit_seconds))
        return text

    def start(self) -> "subprocess.Popen[str]":
        if self.process is not None and self.process.poll() is None:
            return self.process
        self.environment.require()
        self.process = subprocess.Popen(
            [str(self.environment.python), "-I", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment.variables(),
            text=True,
            start_new_session=True,  # so that it and its compilation end together, and Ctrl-C is ours to handle
        )
        ready = self.receive(self.process, START_SECONDS)
        if ready.get("status") != "ready":
            raise EngineError(
                "The XLA oracle did not start.",
                f"Make it anew: legroom oracle install --release {self.release.version} --force",
            )
        return self.process

    def send(self, worker: "subprocess.Popen[str]", request: dict[str, Any]) -> None:
        assert worker.stdin is not None
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
        except BrokenPipeError as error:
            raise self.died() from error

    def receive(self, worker: "subprocess.Popen[str]", seconds: float) -> dict[str, Any]:
        assert worker.stdout is not None
        deadline = time.monotonic() + seconds
        ready, _, _ = select.select([worker.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            self.close()
            raise EngineError(f"The XLA oracle did not answer within {seconds:.0f} s and was stopped.")
        line = worker.stdout.readline()
        if not line:
            raise self.died()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def died(self) -> EngineError:
        code = self.process.wait() if self.process is not None else None
        self.close()
        return EngineError(
            f"The XLA oracle's worker ended unexpectedly (exit code {code}).",
            f"Make it anew: legroom oracle install --release {self.release.version} --force",
        )


def read_program_kept(key: str) -> Program | None:
    """The program kept under that key, or None."""
    kept = cache.read(key)
    return None if kept is None else program_from_json(kept)


def explain_failure(answer: dict[str, Any], log: str, limit_seconds: float) -> tuple[str, str | None]:
    """What to tell when the compiler gave no answer."""
    if answer["status"] == "timeout":
        return (
            f"The compiler did not finish within {limit_seconds:.0f} s and was stopped; no size is known.",
            "Give it longer with --time-limit 3600, or estimate a smaller batch.",
        )
    text = log or str(answer.get("error", ""))
    lines = [
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith(("I0000", "WARNING: All log", "  File", "W1", "I1"))
    ]
    reason = next(
        (line for line in reversed(lines) if "Error" in line or "Check failed" in line or "INTERNAL" in line), None
    )
    died = f"was killed by signal {answer['signal']}" if answer.get("signal") else "failed"
    return f"The compiler {died}: {(reason or (lines[-1] if lines else 'it left no message'))[:600]}", None
