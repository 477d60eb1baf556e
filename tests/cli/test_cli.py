"""The front door as a user sees it: exit codes, messages, JSON."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

SMALL = """
import numpy as np, keras
from keras import layers
model = keras.Sequential([keras.Input((64,)), layers.Dense(256, activation="relu", name="wide"), layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(np.zeros((4096, 64), "float32"), np.zeros((4096,), "int32"), batch_size=1024)
"""


def legroom(*arguments, cwd=None, **variables):
    command = [sys.executable, "-m", "legroom", *map(str, arguments)]
    env = os.environ | {"NO_COLOR": "1"} | variables
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=env, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "train.py").write_text(SMALL)
    (folder / "mymodels.py").write_text(
        textwrap.dedent(
            """
            def build():
                import numpy as np, keras
                model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="only")])
                model.compile("sgd", "mse")
                return model, (np.zeros((16, 8), "float32"), np.zeros((16, 4), "float32"))
            def unbuilt():
                import keras
                return keras.Sequential([keras.layers.Dense(4)]), None
            def uncompiled():
                import numpy as np, keras
                return keras.Sequential([keras.layers.Dense(4)]), np.zeros((4, 4))
            def nothing():
                return 3
            number = 3
            """
        )
    )
    return folder


@pytest.mark.oracle
@pytest.mark.tensorflow
def test_an_estimate_as_json_says_all_that_was_promised(folder):
    done = legroom("estimate", "train.py", "--gpu", "t4", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    promised = (
        "schema engine gpu batch peak_bytes low_bytes high_bytes first_step_peak_bytes usable_bytes fits max_batch "
    )
    promised += "breakdown layers seconds"
    assert set(promised.split()) <= set(found)
    assert found["schema"] == 1
    assert (found["engine"], found["batch"], found["fits"], found["max_batch"]) == ("xla", 1024, True, None)
    assert sum(found["breakdown"].values()) == found["peak_bytes"]
    assert sum(layer["peak_bytes"] for layer in found["layers"]) == found["peak_bytes"]
    assert found["low_bytes"] <= found["peak_bytes"] <= found["high_bytes"]
    assert found["breakdown"]["weights_bytes"] == 4 * (64 * 256 + 256 + 256 * 10 + 10)
    assert {"wide"} <= {layer["name"] for layer in found["layers"]}


@pytest.mark.oracle
@pytest.mark.tensorflow
def test_a_step_that_does_not_fit_exits_with_1_and_the_largest_batch_is_found(folder):
    done = legroom(
        "estimate",
        "train.py",
        "--gpu",
        "t4",
        "--budget",
        "100MiB",
        "--batch",
        "100000",
        "--max-batch",
        "--json",
        cwd=folder,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["fits"], found["batch"], found["usable_bytes"]) == (False, 100000, 100 * 2**20)
    one_more = legroom(
        "estimate", "train.py", "--gpu", "t4", "--budget", "100MiB", "--batch", found["max_batch"], cwd=folder
    )
    assert one_more.returncode == 0, one_more.stdout


@pytest.mark.oracle
@pytest.mark.jax
def test_the_same_script_on_jax(folder):
    done = legroom("estimate", "train.py", "--gpu", "a100", cwd=folder, KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    assert "that JAX can use of" in done.stdout
    assert "wide" in done.stdout


@pytest.mark.tensorflow
def test_without_a_gpu_the_step_is_sized_for_this_cpu_and_needs_no_oracle(folder, tmp_path):
    done = legroom("estimate", "train.py", "--json", cwd=folder, LEGROOM_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["engine"], found["gpu"]) == ("op", "this machine's CPU")
    assert sum(found["breakdown"].values()) == found["peak_bytes"]


@pytest.mark.tensorflow
def test_a_budget_below_the_weights_does_not_fit_and_names_what_had_no_room(folder):
    done = legroom("estimate", "train.py", "--budget", "100KiB", "--json", cwd=folder)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert not found["fits"]
    assert found["out_of_memory"]["asked_bytes"] > found["out_of_memory"]["largest_free_bytes"]


@pytest.mark.oracle
@pytest.mark.tensorflow
def test_a_function_that_returns_a_model_and_a_batch(folder):
    done = legroom("estimate", "mymodels:build", "--budget", "1GiB", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["batch"] == 16


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["estimate", "train.py", "--gpu", "t44"], 2, "t4"),
        (["estimate", "train.py", "--gpu", "t4", "--budget", "lots"], 2, "8GiB"),
        (["estimate", "train.py", "--gpu", "t4", "--batch", "0"], 2, "at least one example"),
        (["estimate", "train.py", "--gpu", "t4", "--batch", "many"], 2, "not a valid integer"),
        (["estimate", "train.py", "--engine", "xla"], 2, "--gpu t4"),
        (["estimate", "train.py", "--engine", "tpu"], 2, "'auto', 'xla', 'op'"),
        (["estimate", "nosuch.py", "--gpu", "t4"], 2, "There is no script"),
        (["estimate", ".", "--gpu", "t4"], 2, "Name the training script"),
        (["estimate", "nosuch:build", "--gpu", "t4"], 2, "no module 'nosuch'"),
        (["estimate", "mymodels:nosuch", "--gpu", "t4"], 2, "no function 'nosuch'"),
        (["estimate", "mymodels:number", "--gpu", "t4"], 2, "no function 'number'"),
        (["estimate", "mymodels:nothing", "--gpu", "t4"], 2, "expected (model, batch)"),
        (["estimate", "mymodels:unbuilt", "--gpu", "t4"], 2, "no arrays"),
        (["estimate", "mymodels:uncompiled", "--gpu", "t4"], 2, "has not been compiled"),
        (["gpus", "voodoo2"], 2, "legroom gpus"),
        (["gpus", "nosuch.toml"], 2, "nosuch.toml"),
        (["oracle", "install", "--release", "latest"], 2, "0.9.0"),
        (["frobnicate"], 2, "No such command"),
        (["estimate"], 2, "Missing argument"),
    ],
)
def test_a_mistake_gets_a_clear_answer(folder, arguments, code, says):
    done = legroom(*arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.tensorflow
def test_a_missing_oracle_exits_with_3_and_the_command_that_installs_it(folder, tmp_path):
    done = legroom(
        "estimate", "train.py", "--gpu", "t4", cwd=folder, LEGROOM_HOME=str(tmp_path), LEGROOM_CACHE=str(tmp_path)
    )
    assert done.returncode == 3, done.stderr
    assert "legroom oracle install" in done.stderr
    assert done.stdout == ""


def test_the_catalogue_as_json():
    found = json.loads(legroom("gpus", "--json").stdout)
    assert len(found["gpus"]) >= 35
    assert all(card["usable_tensorflow_bytes"] < card["memory_bytes"] for card in found["gpus"])


def test_the_doctor_names_what_is_missing(tmp_path):
    done = legroom("doctor", LEGROOM_HOME=str(tmp_path))
    assert done.returncode == 3
    assert "legroom oracle install" in done.stdout


def test_help_has_examples():
    assert "legroom estimate train.py --gpu t4" in legroom("estimate", "--help").stdout
    plan = legroom("plan", "--help").stdout
    for example in ("--gpu t4 --no-max-batch ", "--gpu t4 --advice ", "--json > plan.json\n", 'plan="plan.json")'):
        assert example in plan


@pytest.mark.parametrize(
    ("verb", "wrong"), [("estimate", "nothere.py"), ("run", "nothere.py"), ("gpus", "t44"), ("explain", "nothere.log")]
)
def test_an_error_is_an_object_too_where_json_is_asked_for(verb, wrong):
    done = legroom(verb, "--json", wrong)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["exit_code"]) == (2, 2)
    assert error["message"] in " ".join(done.stderr.split())
    assert error["hint"]
