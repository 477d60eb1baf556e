"""Python imports this when it starts, before the script: `legroom run` has put its folder on PYTHONPATH.

It takes that folder away again, lets the user's own sitecustomize run, and hands over to `legroom.running.child`.
"""

import os
import sys
import traceback


def take_away() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in given if entry and os.path.abspath(entry) != here]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)


def run_the_users_own() -> None:
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


take_away()
run_the_users_own()
try:
    from legroom.running.child import begin

    begin()
except Exception:  # noqa: BLE001 - Python itself would only print it, and run the script unguarded
    traceback.print_exc()
    print("legroom: the script was not started: this is a mistake in Legroom itself.", file=sys.stderr, flush=True)
    os._exit(3)
