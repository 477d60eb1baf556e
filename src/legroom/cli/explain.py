"""`legroom explain`: why memory ran out, and what to do first."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from legroom.cli.output import answers, json_option, print_json, progress
from legroom.errors import InputError
from legroom.explain.checked import verified_advice
from legroom.explain.diagnose import explain_stream
from legroom.front.child import require_target
from legroom.front.estimating import Estimator
from legroom.front.planning import Planner
from legroom.front.source import ScriptSource
from legroom.front.target import choose_card
from legroom.records.diagnosis import Diagnosis
from legroom.records.plan import Planning
from legroom.report.diagnosis import diagnosis_text
from legroom.report.diagnosis_json import diagnosis_view

EPILOG = """\b
Examples:
  legroom explain train.log
  python train.py 2>&1 | legroom explain
  sudo dmesg | legroom explain
  legroom explain train.log --json
  legroom explain train.log --script train.py --gpu t4     the advice, verified
  legroom explain monday.log tuesday.log

Without a FILE, or with -, the log is read from stdin. It may be cut, coloured,
and full of other output. Exit code 0: the cause is known; 1: there is no
out-of-memory error in it, or its cause is not known."""
NO_ANSWER = ("unknown", "not_an_error")


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--script", metavar="TARGET", help="The training script: the advice is verified by estimate and plan.")
@click.option("--gpu", metavar="NAME", help="With --script: the card that it was trained on.")
@click.option("--budget", metavar="SIZE", help="With --script: what may be used of it (without: what the log says).")
@json_option()
def explain(files: tuple[str, ...], script: str | None, as_json: bool, **chosen: Any) -> int:
    """Say why an out-of-memory error happened and what to do first, from a log or from what is piped in."""
    if script is not None:
        require_target(script)
    names = files or ("-",)
    found = [(name, explained(name)) for name in names]
    if script is not None:
        found = [(name, verify(each, script, chosen["gpu"], chosen["budget"])) for name, each in found]
    if as_json:
        views = [diagnosis_view(each) for _, each in found]
        print_json(
            views[0]
            if len(views) == 1
            else {"schema": 1, "files": [{"file": name} | view for (name, _), view in zip(found, views, strict=True)]}
        )
    else:
        for place, (name, each) in enumerate(found):
            if place:
                answers().print()
            answers().print(diagnosis_text(each, name if len(found) > 1 else ""))
    return 1 if any(each.cause in NO_ANSWER for _, each in found) else 0


def explained(name: str) -> Diagnosis:
    """The diagnosis of one file, or of stdin."""
    if name == "-":
        if sys.stdin.isatty():
            click.echo("Paste the error, then press Ctrl-D on a line of its own.", err=True)
        return explain_stream(sys.stdin.buffer, "What was piped in")
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{name} is a folder.", f"Name the log in it, e.g. legroom explain {path / 'train.log'}")
    try:
        with path.open("rb") as stream:
            return explain_stream(stream, name)
    except OSError as error:
        raise InputError(
            f"Cannot read {name}: {error.strerror or error}.", "Name a log, or pipe it: legroom explain < train.log"
        ) from error


def verify(found: Diagnosis, script: str, gpu: str | None, budget: str | None) -> Diagnosis:
    """The advice put to the test: the script's step estimated and planned for the memory that the log names."""
    usable = budget if budget is not None else found.limit_bytes if gpu is None else None
    card = choose_card(gpu, usable)
    with progress() as say:
        say(f"running {script} up to its first training step")
        with ScriptSource(script, ()) as source, Estimator(source, card, "auto", say=say, limit=900.0) as estimator:
            planning: Planning = Planner(estimator, None, [], say=say).run(max_batch=True)
    asked = " ".join([script, *([f"--gpu {gpu}"] if gpu else []), *([f"--budget {usable}"] if usable else [])])
    return replace(found, advice=verified_advice(found.advice, planning, asked))
