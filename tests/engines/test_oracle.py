"""The oracle's worker against the real compiler, on small programs; what it does when the compiler does not answer."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace

import psutil
import pytest

from legroom.engines import cache
from legroom.engines.xla.client import Oracle
from legroom.engines.xla.environment import Environment, install
from legroom.engines.xla.releases import Release, release_for
from legroom.errors import EngineError, InputError, MissingError
from legroom.gpus import find
from legroom.records import Lowered, Step, Tensor

RELEASE = Release("0.9.0", True)
T4 = find("t4")

SQUARE = b"""
module @square {
  func.func public @main(%x: tensor<1024x1024xf32>) -> tensor<f32> {
    %product = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%product init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}
"""


def lowered(program=SQUARE):
    step = Step(
        framework="jax", framework_version="0.9.0", keras_version="", source="test", execution="xla", execution_reason="",
        batch=1024, parameters=(Tensor("x", (1024, 1024), "float32", "input"),),
    )  # fmt: skip
    return Lowered(step, program, "stablehlo", str(hash(program)))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LEGROOM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def oracle():
    with Oracle(RELEASE, limit_seconds=120) as made:
        yield made


@pytest.mark.oracle
def test_a_program_is_compiled_once_and_then_remembered(oracle):
    first = oracle.compile(lowered(), T4)
    again = oracle.compile(lowered(), T4)
    assert oracle.compiled == 1
    assert first == again
    assert 4 * 2**20 < first.total_bytes < 64 * 2**20
    assert first.flops >= 2 * 1024**3


@pytest.mark.oracle
def test_the_worker_is_started_once_and_reused(oracle):
    oracle.compile(lowered(), T4)
    process = oracle.process
    oracle.compile(lowered(), find("a100"))
    assert (oracle.process, oracle.compiled) == (process, 2)


@pytest.mark.oracle
def test_another_card_is_another_question(oracle):
    oracle.compile(lowered(), T4)
    oracle.compile(lowered(), replace(T4, memory_bytes=2**30))
    assert oracle.compiled == 2


@pytest.mark.oracle
def test_a_program_that_the_compiler_refuses_gives_no_number(oracle):
    with pytest.raises(EngineError, match="The compiler failed"):
        oracle.compile(lowered(b"module { this is no program }"), T4)
    assert oracle.compile(lowered(), T4).total_bytes > 0


@pytest.mark.oracle
def test_a_compilation_past_its_limit_is_killed_and_said():
    with Oracle(RELEASE, limit_seconds=0.0) as oracle, pytest.raises(EngineError, match="did not finish within 0 s"):
        oracle.compile(lowered(), T4)


@pytest.mark.oracle
def test_a_worker_that_dies_is_said_and_replaced(oracle):
    oracle.compile(lowered(), T4)
    oracle.process.kill()
    oracle.process.wait()
    assert oracle.compile(lowered(), find("l4")).total_bytes > 0


@pytest.mark.oracle
def test_closing_it_ends_the_compilation_too(oracle):
    worker = oracle.start()
    request = {
        "id": 1,
        "program": "/dev/zero",
        "format": "stablehlo",
        "target": "",
        "options": [],
        "limit_seconds": 100,
    }
    with tempfile.TemporaryDirectory() as folder:
        oracle.send(worker, request | {"dump": f"{folder}/dump", "log": f"{folder}/log"})
        while not (children := psutil.Process(worker.pid).children()):
            time.sleep(0.01)
        oracle.close()
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert (len(gone), alive) == (1, [])


@pytest.mark.oracle
def test_no_setting_of_the_users_reaches_the_compiler(monkeypatch, oracle):
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    assert oracle.compile(lowered(), T4).total_bytes > 0


@pytest.mark.oracle
@pytest.mark.skipif(os.geteuid() != 0, reason="hiding a folder from a process takes root")
def test_it_compiles_where_no_cuda_is(tmp_path):
    """In a mount namespace in which every CUDA toolkit of this machine is an empty folder."""
    code = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_oracle import *
        with Oracle(RELEASE, 120) as oracle:
            print(oracle.compile(lowered(), T4).total_bytes)
        """
    )
    script = tmp_path / "hidden.py"
    script.write_text(code)
    hide = 'for folder in /usr/local/cuda* /opt/cuda*; do [ -d "$folder" ] && mount -t tmpfs none "$folder"; done; '
    hide += (
        'for tool in ptxas nvlink nvcc; do path=$(command -v $tool) && mount --bind /dev/null "$path"; done; exec "$@"'
    )
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", hide, "-", sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr:
        pytest.skip("no mount namespaces here")
    with Oracle(RELEASE, 120) as oracle:
        assert done.stdout.strip() == str(oracle.compile(lowered(), T4).total_bytes), done.stderr[-2000:]


def test_an_oracle_that_is_not_installed_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("LEGROOM_HOME", str(tmp_path))
    with Oracle(RELEASE) as oracle, pytest.raises(MissingError, match=r"legroom oracle install --release 0\.9\.0"):
        oracle.compile(lowered(), T4)


def test_other_systems_are_told_what_to_use_instead(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(MissingError, match="WSL2"):
        Environment("0.9.0").require()


def test_a_release_that_does_not_exist_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("LEGROOM_HOME", str(tmp_path))
    with pytest.raises(InputError, match="Cannot read 'newest'"):
        install(Release("newest", True))
    assert not Environment("newest").installed


@pytest.mark.parametrize(
    ("framework", "version", "expected", "matches"),
    [
        ("tensorflow", "2.21.0", "0.9.0", True),
        ("tensorflow", "2.21.0-rc1", "0.9.0", True),
        ("tensorflow", "2.18.1", "0.9.0", False),
        ("jax", "0.10.2", "0.10.2", True),
        ("jax", "0.9.0", "0.9.0", True),
        ("jax", "0.7.2", "0.9.0", False),
    ],
)
def test_each_framework_has_its_release(framework, version, expected, matches):
    release = release_for(framework, version)
    assert (release.version, release.matches, release.note is None) == (expected, matches, matches)


def test_two_writers_leave_one_whole_answer():
    answers = [{"rows": [number] * 20000} for number in range(8)]
    writers = [threading.Thread(target=cache.write, args=("a" * 64, answer)) for answer in answers]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert cache.read("a" * 64) in answers
    assert len(list(cache.path_of("a" * 64).parent.iterdir())) == 1


def test_a_broken_answer_is_as_good_as_none():
    cache.write("b" * 64, 1)
    cache.path_of("b" * 64).write_text('{"schema": 2, "answ')
    assert cache.read("b" * 64) is None
    cache.path_of("b" * 64).write_text(json.dumps({"schema": 0, "answer": 1}))
    assert cache.read("b" * 64) is None
