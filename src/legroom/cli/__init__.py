"""The front door: one file a verb. Errors of Legroom's own become text on stderr and an exit code, never a traceback."""

import signal
import sys
import traceback

import click

from legroom import __version__
from legroom.cli.doctor import doctor
from legroom.cli.estimate import estimate
from legroom.cli.explain import explain
from legroom.cli.gpus import gpus
from legroom.cli.oracle import oracle
from legroom.cli.output import print_json
from legroom.cli.plan import plan
from legroom.cli.run import run
from legroom.errors import LegroomError
from legroom.report.errors import error_view, print_error

EPILOG = """\b
Exit codes: 0 done; 1 the answer is no (it does not fit); 2 the input was wrong;
3 something that Legroom needs is missing; of run, otherwise the script's own."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="legroom")
def commands() -> None:
    """Train any Keras or TensorFlow model in the memory you have.

    \b
    legroom estimate train.py --gpu t4     will it fit? answered without the GPU
    legroom plan train.py --gpu t4         the cheapest change that makes it fit
    legroom run train.py                   the script as it is, guarded and resumed
    legroom explain train.log              why memory ran out, and what to do first
    legroom gpus                           the cards that Legroom knows
    legroom doctor                         what this machine has
    legroom oracle install                 the XLA compilers, in an environment of their own
    """


for command in (estimate, plan, run, explain, gpus, doctor, oracle):
    commands.add_command(command)


def main() -> None:
    """Run a verb and leave with its exit code."""
    for ending in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, ending):
            signal.signal(getattr(signal, ending), lambda number, frame: sys.exit(128 + number))
    asked: set[str] = set()  # --json, as soon as it has been read
    try:
        code = commands.main(standalone_mode=False, obj=asked)
    except LegroomError as error:
        print_error(error.message, error.hint)
        if asked:
            print_json(error_view(error.message, error.hint, error.exit_code))
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.NoSuchOption):
            run_it = error.ctx is not None and error.ctx.info_name == "run"
            example = (
                "its name, e.g. legroom run train.py" if run_it else "--, e.g. legroom estimate train.py --gpu t4 --"
            )
            click.echo(f"What belongs to the script goes after {example} --epochs 3", err=True)
        sys.exit(2)
    except Exception:  # noqa: BLE001 - a mistake of ours must not look like the answer "no" (exit code 1)
        traceback.print_exc()
        message, hint = (
            "This is a mistake in Legroom itself.",
            "Report it with what is above and `legroom doctor --json`.",
        )
        print_error(message, hint)
        if asked:
            print_json(error_view(message, hint, 3))
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)
