"""Scripts that leak and scripts that do not, each in a process of its own; a few of them here, all in bench/monitor.py."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
QUICK = ("leak_jax_list", "leak_retrace_value", "healthy_jax", "healthy_replay")
ALL = sorted(path.stem for path in [*SCRIPTS.glob("leak_[!v]*.py"), *SCRIPTS.glob("healthy_*.py")])


def findings(name):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py")], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])["findings"]


def check(name):
    said = re.match(r'"""(leaks|healthy)(?:: (\w+))?\.', (SCRIPTS / f"{name}.py").read_text())
    found = findings(name)
    if said[1] == "healthy":
        assert [one for one in found if one["leak"]] == []
        assert [one["kind"] for one in found] == ([said[2]] if said[2] else [])
    else:
        assert [one["kind"] for one in found] == [said[2]]
        assert found[0]["step"] <= 300


@pytest.mark.tensorflow
@pytest.mark.jax
@pytest.mark.parametrize("name", QUICK)
def test_a_script(name):
    check(name)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.jax
@pytest.mark.parametrize("name", [name for name in ALL if name not in QUICK])
def test_the_other_scripts(name):
    check(name)


def test_there_are_eight_of_each():
    assert [sum(name.startswith(group) for name in ALL) for group in ("leak", "healthy")] == [8, 8]
