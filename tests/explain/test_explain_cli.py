"""`legroom explain` as a user sees it: exit codes, bad input, stdin, JSON, and nothing that a terminal would obey."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOGS = Path(__file__).parents[1] / "data" / "logs"
KEYS = (
    "schema cause causes failed_bytes device allocator tensor_shape dtype op layer limit_bytes in_use_bytes free_bytes "
    "largest_free_bytes advice"
)


def explain(*arguments, stdin=b"", **variables):
    command = [sys.executable, "-m", "legroom", "explain", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, input=stdin, env=os.environ | variables)


def test_json_has_exactly_what_was_promised():
    done = explain(LOGS / "torn_gpu.log", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(found) == KEYS.split()
    assert set(found["causes"][0]) == {"cause", "probability", "evidence"}
    assert set(found["causes"][0]["evidence"][0]) == {"line", "text"}
    assert set(found["advice"][0]) == {"title", "why", "how", "saves_bytes"}


def test_text_says_the_cause_the_picture_and_the_advice():
    done = explain(LOGS / "torn_gpu.log")
    text = done.stdout.decode()
    assert "torn into pieces" in text
    assert "largest hole" in text
    assert "TF_GPU_ALLOCATOR=cuda_malloc_async" in text
    assert "docs/causes/fragmentation.md" in text


def test_stdin_and_several_files():
    text = (LOGS / "tf_xla.log").read_bytes()
    assert json.loads(explain("--json", stdin=text).stdout)["cause"] == "batch_or_activations"
    assert json.loads(explain("--json", "-", stdin=text).stdout)["cause"] == "batch_or_activations"
    both = json.loads(explain("--json", LOGS / "tf_xla.log", LOGS / "torn_gpu.log").stdout)
    assert [each["cause"] for each in both["files"]] == ["batch_or_activations", "fragmentation"]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", 2, "empty"),
        (b"\n \n", 2, "empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(500), 2, "not a text file"),
        (bytes(range(32)) * 40, 2, "not a text file"),
        (b"Epoch 1/2\nloss: 0.3\n", 1, "no out-of-memory error"),
        (b"OOM when allocating tensor with shape[8,8] and type float \xff\xfe\xe9\n", 0, "8, 8"),
    ],
)
def test_bad_input(tmp_path, data, code, words):
    (tmp_path / "a.log").write_bytes(data)
    done = explain(tmp_path / "a.log")
    assert done.returncode == code
    assert words in (done.stdout + done.stderr).decode()


def test_a_folder_and_a_file_that_is_not_there(tmp_path):
    folder, missing = explain(tmp_path), explain(tmp_path / "no.log")
    assert (folder.returncode, missing.returncode) == (2, 2)
    assert b"folder" in folder.stderr
    assert b"Traceback" not in folder.stderr + missing.stderr


def test_utf_16_as_powershell_writes_it(tmp_path):
    (tmp_path / "a.log").write_bytes(
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\r\n".encode("utf-16")
    )
    assert json.loads(explain(tmp_path / "a.log", "--json").stdout)["failed_bytes"] == 2 * 1024**3


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\x1bP1$r\x1b\\\x08\x7f"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_escapes_never_reach_the_terminal(options):
    text = (
        f"{ESCAPES}OOM when allocating tensor with shape[64,8,8]{ESCAPES} and type float on {ESCAPES}GPU:0 by allocator {ESCAPES}a\n"
        f'  File "{ESCAPES}train.py", line 3, in {ESCAPES}f\n\t [[{{{{node {ESCAPES}model/{ESCAPES}conv/Conv2D}}}}]] [Op:x{ESCAPES}]\n'
        f"MemoryError: Unable to allocate 1 GiB for an array with shape (3, 3) and data type <U{ESCAPES}3\n"
    )
    done = explain(*options, stdin=text.encode("utf-8", "surrogatepass"), FORCE_COLOR="", NO_COLOR="1", TERM="xterm")
    out = json.dumps(json.loads(done.stdout), ensure_ascii=False) if options else done.stdout.decode()
    for sign in ("\x1b", "\x9b", "\x07", "\x08", "\x7f", "\u202e"):
        assert sign not in out
    assert done.returncode in (0, 1)


TRAIN = """
import numpy as np, keras
from keras import layers
convolutions = [layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(6)]
model = keras.Sequential([keras.Input((64, 64, 3)), *convolutions, layers.GlobalAveragePooling2D(), layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(np.zeros((512, 64, 64, 3), "float32"), np.zeros((512,), "int32"), batch_size=256)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_advice_is_verified_by_a_plan(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = explain(LOGS / "fit_batch.log", "--script", tmp_path / "train.py", "--json")
    found = json.loads(done.stdout)
    assert found["advice"][0]["title"].startswith("Apply the plan: microbatch"), done.stderr
    assert found["advice"][0]["saves_bytes"] > 500 * 1024**2
    assert "batch of at most" in found["advice"][1]["title"]
