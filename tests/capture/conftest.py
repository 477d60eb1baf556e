"""Scripts that are run in this process up to their first eager training step."""

import contextlib
import runpy
import textwrap

import pytest
from eager_scripts import SETUP, Run

from legroom.capture import hooks
from legroom.capture.own_work import Watchers
from legroom.capture.script import Stop, StopScript


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a script in this process up to its first training step; the hooks are taken out again afterwards."""
    import keras
    import tensorflow as tf
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    hooked = ((tf.GradientTape, "__enter__"), (BaseOptimizer, "apply"), (BaseOptimizer, "stateless_apply"))
    originals = [(owner, name, getattr(owner, name)) for owner, name in hooked]

    def start(text, setup=SETUP):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        for owner, name, original in originals:
            monkeypatch.setattr(owner, name, original)
        monkeypatch.setattr(Watchers, "announce", [])
        path = tmp_path / str(len(list(tmp_path.iterdir()))) / "train.py"
        path.parent.mkdir()
        path.write_text(setup + textwrap.dedent(text))
        result = Run(path)

        def captured(step):
            result.step = step
            result.train()

        stop = Stop(captured)
        hooks.watch_tapes_entered(tf, hooks.Holding(stop))
        hooks.watch_optimizers(stop)
        with contextlib.suppress(StopScript):
            result.names = runpy.run_path(str(path), run_name="__main__")
        result.error = stop.error
        return result

    return start
