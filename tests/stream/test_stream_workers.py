"""Worker processes: the same batches in the same order for any number of them; one that dies is named, and nothing hangs."""

import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from made_sources import COUNT, X, Y, make
from worker_samples import Numbers, doubled, named, process, slow

import legroom
from legroom.errors import InputError, LegroomError


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))


def stream(source, **arguments):
    return legroom.stream(source, **{"batch_size": 8, "ram": "16MiB", "verbose": False, **arguments})


def rows(found):
    return [[np.array(part) for part in batch] for batch in found]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_batches_as_without(workers, tmp_path):
    for source, more in (
        (Numbers(), {}),
        ((X, Y), {"transform": doubled}),
        (make("npy", tmp_path)[0], {"transform": doubled}),
    ):
        plain, worked = stream(source, **more), stream(source, workers=workers, **more)
        for one, other in zip(rows(plain), rows(worked), strict=True):
            assert all(
                np.array_equal(*pair) and pair[0].dtype == pair[1].dtype for pair in zip(one, other, strict=True)
            )


def test_every_sample_once_in_every_epoch():
    found = stream(Numbers(), workers=2)
    first, second = ([int(n) for batch in found for n in batch[1]] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


def test_text_and_samples_of_different_lengths():
    texts, arrays = next(iter(stream((X, Y), transform=named, workers=2, shuffle=False)))
    assert list(texts[:2]) == ["number 0", "number 1"]
    assert arrays.shape == (8, 3, 5)


def test_samples_are_made_elsewhere_by_several():
    processes = {int(number) for batch in stream((X, Y), transform=process, workers=3) for number in batch}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 3


def test_a_worker_that_is_killed_is_named():
    found, seen = stream(Numbers(kill=51), workers=2, shuffle=False), []
    begun = time.monotonic()
    with pytest.raises(
        LegroomError, match=r"was killed \(SIGKILL\) while it made 8 samples, from 48 of the Numbers to 55"
    ):
        seen.extend(int(n) for batch in found for n in batch[1])
    assert seen == list(range(48))
    assert found.state()["samples"] == 48
    assert time.monotonic() - begun < 30


def test_a_worker_killed_from_outside_is_replaced_when_the_stream_goes_on():
    found = stream((X, Y), transform=slow, workers=1, shuffle=False)
    running = iter(found)
    next(running)
    found.source.alive[0].process.kill()
    with pytest.raises(LegroomError, match="SIGKILL"):
        list(running)
    state = found.state()
    found.restore(state)
    assert sum(len(batch[1]) for batch in found) == COUNT - state["samples"]


def test_a_sample_that_fails_is_named():
    with pytest.raises(InputError, match="Sample 20 of the Numbers could not be read: ValueError: no such number"):
        list(stream(Numbers(fail=20), workers=2, shuffle=False))


def test_what_cannot_be_sent():
    with pytest.raises(InputError, match="cannot be sent to worker processes"):
        stream((X, Y), transform=lambda row: row, workers=2)
    with pytest.raises(InputError, match="here is none"):
        stream((X, Y), workers=2)
    with pytest.raises(InputError, match="here is none"):
        stream(lambda: iter(()), workers=2)


def test_they_are_gone_with_the_stream():
    found = stream(Numbers(), workers=2)
    next(iter(found))
    processes = [worker.process for worker in found.source.alive]
    del found
    assert [process.wait(10) for process in processes] == [0, 0]


def test_they_are_gone_with_a_parent_that_is_killed(tmp_path):
    code = f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import legroom, worker_samples
        found = legroom.stream(worker_samples.Numbers(), batch_size=8, ram="16MiB", workers=2, verbose=False)
        next(iter(found))
        print(*(worker.process.pid for worker in found.source.alive), flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    left = {int(number) for number in done.stdout.split()}
    assert len(left) == 2, done.stderr
    until = time.monotonic() + 10
    while left and time.monotonic() < until:
        left = {number for number in left if os.path.exists(f"/proc/{number}/exe") and runs(number)}
        time.sleep(0.05)
    assert not left


def runs(number):
    with open(f"/proc/{number}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


SCRIPT = """
import numpy as np, legroom
def halved(row):
    return row / 2
def main():
    found = legroom.stream(np.arange(64, dtype="float32")[:, None], batch_size=8, ram="16MiB", shuffle=False,
                           transform=halved, workers=2)
    print(float(sum(batch.sum() for batch in found)))
{call}
"""


def test_a_function_of_the_script_itself(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(call='if __name__ == "__main__":\n    main()'))
    done = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1008.0", done.stderr
    assert "2 worker processes hold up to" in done.stderr


def test_a_script_without_a_guard_is_told_so(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(call="main()"))
    done = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, check=False)
    assert done.returncode
    assert "A worker process makes a stream with workers of its own" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr
