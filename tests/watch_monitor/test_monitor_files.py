"""The monitor in a real fit and in a loop: its logs, its lines after a kill, TensorBoard's files."""

import json
import signal
import subprocess
import sys

import pytest

import legroom
from legroom.errors import InputError

LOOP = """
import sys, time
import legroom
with legroom.Watch(file=sys.argv[1]) as watch:
    while True:
        watch.step()
        if watch.steps == 60:
            print("ready", flush=True)
        time.sleep(0.025 if watch.steps > 40 else 0.001)
"""


def test_the_lines_survive_a_kill(tmp_path):
    path = tmp_path / "memory.jsonl"
    child = subprocess.Popen([sys.executable, "-c", LOOP, str(path)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) >= 60
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(line["host_bytes"] > 0 and line["in_use_bytes"] is None for line in lines)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        legroom.Watch(file=tmp_path / "nowhere" / "memory.jsonl").start()


@pytest.mark.tensorflow
def test_fit_has_it_in_its_logs_in_a_file_and_in_tensorboard(tmp_path):
    import keras
    import numpy as np
    import tensorflow as tf

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.ones((2048, 64), "float32")
    monitor = legroom.Monitor(file=tmp_path / "memory.jsonl", log_dir=tmp_path / "board")
    predict = keras.Model.predict
    history = model.fit(x, x[:, :1], batch_size=512, epochs=3, verbose=0, callbacks=[monitor]).history
    assert keras.Model.predict is predict
    shown = history.get("peak_mib") or history["host_mib"]
    assert len(shown) == 3
    assert min(shown) > 0
    lines = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert monitor.sample.step == 12
    assert monitor.findings == []
    (board,) = (tmp_path / "board" / "memory").iterdir()
    tags = {value.tag for event in tf.compat.v1.train.summary_iterator(str(board)) for value in event.summary.value}
    assert "memory/host_bytes" in tags
    model.fit(x, x[:, :1], batch_size=512, verbose=0, callbacks=[monitor])
    assert monitor.sample.step == 16
    assert len((tmp_path / "memory.jsonl").read_text().splitlines()) == 16
