"""`legroom run` and scripts that have nothing to do with Keras: everything passes through."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def run(folder, source, *options, arguments=(), text=None, name="train.py", env=None):
    (folder / name).write_text(source)
    command = [sys.executable, "-m", "legroom", "run", *options, name, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, input=text, env={**os.environ, **(env or {})}, check=False
    )


def test_output_input_arguments_and_exit_code_are_the_scripts(tmp_path):
    source = "import sys; print(sys.argv[1:], input()); print('aside', file=sys.stderr); sys.exit(7)"
    done = run(tmp_path, source, arguments=["--epochs", "3", "-x", "--help"], text="typed\n")
    assert done.stdout == "['--epochs', '3', '-x', '--help'] typed\n"
    assert done.stderr == "aside\n"
    assert done.returncode == 7


def test_the_script_is_main_in_its_own_folder(tmp_path):
    (tmp_path / "other.py").write_text("value = 5\n")
    source = (
        "import other, sys, os; print(__name__, os.path.basename(__file__), sys.path[0] == os.getcwd(), other.value)"
    )
    assert run(tmp_path, source).stdout == "__main__ train.py True 5\n"


def test_nothing_of_legroom_is_left_in_the_environment(tmp_path):
    source = "import os; print([n for n in os.environ if 'LEGROOM' in n], os.environ.get('PYTHONPATH'))"
    assert run(tmp_path, source, env={"PYTHONPATH": "elsewhere"}).stdout == "[] elsewhere\n"


def test_the_users_own_sitecustomize_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 3\n")
    assert run(tmp_path, "print(mine)", env={"PYTHONPATH": str(tmp_path)}).stdout == "3\n"


def test_an_error_has_the_scripts_own_traceback(tmp_path):
    done = run(tmp_path, "def work():\n    raise ValueError('mine')\nwork()\n")
    plain = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, plain.stderr)


def test_an_interrupted_script_ends_as_python_does(tmp_path):
    source = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it\n"
    source += "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    done = run(tmp_path, source)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_os_exit_ends_it_with_its_code(tmp_path):
    assert run(tmp_path, "import os; os._exit(5)").returncode == 5


def test_a_module(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/train.py").write_text("import sys; print(__name__, sys.argv[1:])\n")
    command = [sys.executable, "-m", "legroom", "run", "-m", "package.train", "--epochs", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "__main__ ['--epochs', '3']\n"


def test_nothing_is_left_behind(tmp_path):
    run(tmp_path, "pass")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_a_script_that_is_not_there(tmp_path):
    command = [sys.executable, "-m", "legroom", "run", "nowhere.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no script 'nowhere.py'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    done = run(tmp_path, "pass", "--checkpoints", "file/states")
    assert done.returncode == 2
    assert "States cannot be kept" in done.stderr


@pytest.mark.parametrize("options", [["--budget", "much"], ["--checkpoint-every", "soon"], ["--allow", "anything"]])
def test_wrong_options(tmp_path, options):
    done = run(tmp_path, "pass", *options)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_misspelt_option_is_not_taken_for_the_script(tmp_path):
    done = run(tmp_path, "pass", "--budgt", "1GiB")
    assert done.returncode == 2
    assert "--budgt" in done.stderr
    assert "goes after its name" in done.stderr


def test_a_kill_is_explained_and_the_script_started_again(tmp_path):
    source = """
import os, pathlib, signal
if not pathlib.Path("once").exists():
    pathlib.Path("once").touch()
    os.kill(os.getpid(), signal.SIGKILL)
print("done")
"""
    done = run(tmp_path, source, "--json")
    view = json.loads(done.stdout)
    assert done.returncode == 0
    assert "was killed (SIGKILL)" in done.stderr
    assert "restart 1 of 5" in done.stderr
    assert [attempt["signal"] for attempt in view["attempts"]] == ["SIGKILL", None]


CRASH = "import os, signal; print('started', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"


def test_a_crash_before_any_framework_is_not_tried_again(tmp_path):
    done = run(tmp_path, CRASH)
    assert done.stdout.count("started") == 1
    assert done.returncode == 128 + signal.SIGSEGV
    assert "Neither Keras nor TensorFlow nor JAX had been imported by then" in done.stderr


def test_at_most_so_many_restarts(tmp_path):
    (tmp_path / "jax.py").touch()  # a stand-in: it is only about the name
    done = run(tmp_path, f"import jax; {CRASH}", "--restarts", "2")
    assert done.stdout.count("started") == 3
    assert done.returncode == 128 + signal.SIGSEGV
    assert "2 times already" in done.stderr


def start(folder, source, *options):
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "legroom", "run", *options, "train.py"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_script(tmp_path, number):
    source = f"""
import signal, sys, time
signal.signal({int(number)}, lambda *given: (print("heard", flush=True), sys.exit(3)))
print("started", flush=True)
time.sleep(60)
"""
    process = start(tmp_path, source)
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert out == "heard\n"
    assert process.returncode == 3


def test_who_ends_it_is_obeyed(tmp_path):
    process = start(tmp_path, "import time; print('started', flush=True); time.sleep(60)")
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_script_ends_with_its_supervisor(tmp_path):
    source = "import os, time; print('started', flush=True); print(os.getpid(), flush=True); time.sleep(60)"
    process = start(tmp_path, source)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        status = (tmp_path.__class__(f"/proc/{pid}/stat")).read_text() if os.path.exists(f"/proc/{pid}/stat") else "Z"
        if " Z " in status:
            return
        time.sleep(0.1)
    pytest.fail("the script lives on")


def test_two_runs_of_one_script_at_a_time(tmp_path):
    source = "import time; print('started', flush=True); time.sleep(60)"
    first, second = start(tmp_path, source), start(tmp_path, source)
    names = sorted(path.name for path in (tmp_path / ".legroom").iterdir() if path.is_dir())
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=20)
    assert names == ["train", "train-2"]
