"""The same steps on JAX, in a process of its own: the backend is chosen once a process."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.jax

CODE = """
import json, sys
import jax, keras, numpy as np
from test_remat_gradients import CASES, made, worst
from legroom.changes.remat import rematerialise, segments_of

QUICK, EAGER = json.loads(sys.argv[1]), ("subclassed",)
found = {"tolerances": {}, "worst": {}, "eager": {}}
for name in QUICK or CASES:
    if name == "float64":
        jax.config.update("jax_enable_x64", True)
    found["tolerances"][name] = CASES[name]().tolerance
    found["worst"][name] = worst(name, "graph")
    if name in EAGER and not QUICK:
        found["eager"][name] = worst(name, "eager")
case = made("nested", "graph", True)
case.model.optimizer.build(case.model.trainable_variables)
state = [[v.value for v in part] for part in (
    case.model.trainable_variables, case.model.non_trainable_variables, case.model.optimizer.variables, case.model.metrics_variables)]
found["program"] = str(jax.make_jaxpr(case.model.train_step)(tuple(state), (case.x, case.y))).count("prevent_cse")
print("FOUND " + json.dumps(found))
"""


def found_on_jax(names: list[str]) -> Any:
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    here = str(pathlib.Path(__file__).parent)
    env["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [env.get("PYTHONPATH")])])
    command = [sys.executable, "-c", CODE, json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0][6:])


QUICK = ["nested", "subclassed", "masks_that_are_taken_off", "more_than_tensors"]


@pytest.fixture(scope="module")
def found() -> Any:
    return found_on_jax(QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_a_step_is_the_same(found: Any, name: str) -> None:
    assert found["worst"][name] <= found["tolerances"][name]


def test_the_program_has_its_checkpoints(found: Any) -> None:
    assert found["program"] > 0


@pytest.mark.slow
def test_every_step_is_the_same() -> None:
    found = found_on_jax([])
    wrong = {name: value for name, value in found["worst"].items() if value > found["tolerances"][name]}
    assert wrong == {}
    assert max(found["eager"].values()) <= 1e-3
