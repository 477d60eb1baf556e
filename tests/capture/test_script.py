"""Scripts of users, run in a child process up to their first training step."""

import contextlib
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from legroom.capture.script import as_module
from legroom.errors import InputError, MissingError
from legroom.front.source import ScriptSource

pytestmark = pytest.mark.tensorflow

MODEL = """
import numpy as np, keras
from keras import layers
model = keras.Sequential([keras.Input((6,)), layers.Dense(3, name="first"), layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = np.zeros((64, 6), "float32"), np.zeros((64,), "int32")
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def test_a_script_is_held_at_fit_and_its_finally_blocks_run(script, tmp_path):
    path = script(
        MODEL
        + f"""
try:
    model.fit(x, y, batch_size=16)
finally:
    open({str(tmp_path / "cleaned")!r}, "w").write(str(int(model.optimizer.iterations)))
open({str(tmp_path / "went-on")!r}, "w")
"""
    )
    with ScriptSource(path) as source:
        assert (source.step.source, source.step.batch, source.step.execution) == ("fit", 16, "xla")
        assert not (tmp_path / "cleaned").exists()
    assert (tmp_path / "cleaned").read_text() == "0"
    assert not (tmp_path / "went-on").exists()


def test_a_script_that_swallows_everything_is_ended_all_the_same(script):
    path = script(
        MODEL
        + """
while True:
    try:
        model.train_on_batch(x, y)
    except:
        pass
"""
    )
    with ScriptSource(path) as source:
        assert source.step.source == "train_on_batch"
    assert source.process.returncode == 0


def test_arguments_and_name_reach_the_script(script):
    path = script(
        """
        import sys
        if __name__ == "__main__":
            raise ValueError(" ".join(sys.argv[1:]))
        """
    )
    with pytest.raises(InputError, match="ValueError before it trained: --fast 3"):
        ScriptSource(path, ["--fast", "3"])


def test_what_it_raises_is_shown_with_its_line(script):
    with pytest.raises(InputError, match=r"train\.py:3 in <module>: table\['x'\]"):
        ScriptSource(script("\ntable = {}\ntable['x']\n"))


def test_a_script_that_never_trains(script):
    with pytest.raises(InputError, match="ended without training"):
        ScriptSource(script("print('hello')"))


def test_a_script_that_exits(script):
    with pytest.raises(InputError, match=r"sys\.exit\(4\) before it trained"):
        ScriptSource(script("import sys; sys.exit(4)"))


def test_a_script_that_dies(script):
    with pytest.raises(InputError, match="killed by signal 9"):
        ScriptSource(script("import os; os.kill(os.getpid(), 9)"))


def test_a_script_with_a_syntax_error(script):
    with pytest.raises(InputError, match="SyntaxError"):
        ScriptSource(script("def broken(:\n"))


def test_a_plain_tf_function_step_is_captured_and_not_run(script):
    path = script(
        """
        import numpy as np, tensorflow as tf
        model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(3, name="first")])
        optimizer = tf.keras.optimizers.Adam()

        @tf.function
        def scale(x):
            return x * 2

        @tf.function
        def train_step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        x = scale(np.ones((12, 6), "float32"))
        assert x[0, 0] == 2
        train_step(x, np.ones((12, 3), "float32"))
        raise SystemError("trained")
        """
    )
    with ScriptSource(path) as source:
        assert (source.step.batch, source.step.execution) == (12, "graph")
        lowered = source.lower(24, (7, 5))
    roles = [tensor.role for tensor in lowered.step.parameters]
    assert lowered.step.batch == 24
    assert [t.shape for t in lowered.step.parameters if t.role == "input"] == [(24, 6), (24, 3)]
    assert roles.count("weight") == 2
    assert [t.layer for t in lowered.step.parameters if t.role == "optimizer"].count("first") == 4


def test_a_step_that_is_a_method_is_traced_with_autograph(script):
    path = script(
        """
        import numpy as np, tensorflow as tf

        class Trainer:
            def __init__(self):
                self.model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(3, name="first")])
                self.optimizer = tf.keras.optimizers.SGD()
                self.count = tf.Variable(0, trainable=False)

            @tf.function
            def step(self, x, y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self.model(x) - y) ** 2)
                gradients = tape.gradient(loss, self.model.trainable_variables)
                if self.count % 2 == 0:
                    gradients = [gradient / 2 for gradient in gradients]
                self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
                self.count.assign_add(1)

        trainer = Trainer()
        trainer.step(np.ones((12, 6), "float32"), np.ones((12, 3), "float32"))
        """
    )
    from legroom.records.plan import Action

    with ScriptSource(path) as source:
        assert "first" in source.step.layers
        assert source.change((Action("microbatch", (("count", 2),)),)).exactness == "exact"


def test_a_loop_over_a_dataset_inside_a_graph_is_refused(script):
    path = script(
        """
        import numpy as np, tensorflow as tf
        weight = tf.Variable(1.0)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(weight * x)
            weight.assign_sub(tape.gradient(loss, weight))

        @tf.function
        def epoch(dataset):
            for x in dataset:
                step(x)

        epoch(tf.data.Dataset.from_tensor_slices(np.ones((12, 6), "float32")).batch(4))
        """
    )
    with pytest.raises(InputError, match="'epoch' loops over a dataset"), ScriptSource(path):
        pass


def test_an_eager_step_is_captured_and_not_run(script):
    path = script(
        """
        import keras, numpy as np, tensorflow as tf
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, name="first")])
        optimizer = keras.optimizers.SGD()
        while True:
            try:
                for x in tf.data.Dataset.from_tensor_slices(np.ones((32, 6), "float32")).batch(8):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(model(x))
                    raise SystemError("trained")
                    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            except SystemError:
                raise
            except:
                pass
        """
    )
    with ScriptSource(path) as source:
        assert (source.step.source, source.step.execution, source.step.batch) == ("eager loop train.py:7", "eager", 8)
        assert "first" in source.step.layers
    assert source.process.returncode == 0


def test_eager_training_that_is_not_understood_is_refused_rather_than_done(script):
    path = script(
        """
        import keras, tensorflow as tf
        v = keras.Variable(1.0)
        with tf.GradientTape() as tape:
            loss = v * v
        gradient = tape.gradient(loss, v.value)
        update = getattr(keras.optimizers.SGD(), "apply")
        try:
            update([gradient], [v])
        except Exception:
            pass
        """
    )
    with pytest.raises(MissingError, match=r"in a loop of its own, outside any @tf\.function \(train\.py:9\)"):
        ScriptSource(path)


def test_asking_whether_keras_is_there_does_not_blind_the_hooks(script):
    path = script("import importlib.util\nassert importlib.util.find_spec('keras')\n" + MODEL + "\nmodel.fit(x, y)")
    with ScriptSource(path) as source:
        assert source.step.source == "fit"


def test_a_mistake_in_the_users_own_step_is_shown_with_its_line(script):
    path = script(
        MODEL
        + """
class Mine(keras.Sequential):
    def train_step(self, *args):
        return {}["loss"]
mine = Mine([keras.Input((6,)), layers.Dense(2)])
mine.compile("adam", "sparse_categorical_crossentropy")
mine.fit(x, y)
"""
    )
    with ScriptSource(path) as source, pytest.raises(InputError, match=r"(?s)KeyError.*train\.py"):
        source.lower(None, (8, 0))


def test_a_generative_step_on_x_alone_gets_x_alone(script):
    path = script(
        """
        import keras, numpy as np, tensorflow as tf
        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
            def call(self, x):
                return self.net(x)
            def train_step(self, images):
                noise = tf.random.normal(shape=(tf.shape(images)[0], 6))
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self(images + noise) - images) ** 2)
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                return {"loss": loss}
        model = Model()
        model.compile("adam")
        model.fit(np.zeros((64, 6), "float32"), batch_size=16)
        """
    )
    with ScriptSource(path) as source:
        lowered = source.lower(None, (8, 0))
    assert [tensor.shape for tensor in lowered.step.parameters if tensor.role == "input"] == [(16, 6)]


def test_huge_random_inputs_take_no_memory(script):
    path = script(
        """
        import psutil, tensorflow as tf
        before = psutil.Process().memory_info().rss
        x = tf.random.normal((256, 1024, 1024, 3))
        assert x.shape == (256, 1024, 1024, 3)
        raise ValueError(psutil.Process().memory_info().rss - before < 2**30)
        """
    )
    with pytest.raises(InputError, match="ValueError before it trained: True"):
        ScriptSource(path)


def test_a_model_without_a_call_is_built_by_its_train_step(script):
    path = script(
        """
        import keras, numpy as np, tensorflow as tf
        class Gan(keras.Model):
            def __init__(self):
                super().__init__()
                self.g = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, name="paint")])
                self.d = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
                self.second = keras.optimizers.Adam()
            def train_step(self, real):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(self.d(self.g(tf.random.normal((tf.shape(real)[0], 4)))) - self.d(real))
                gradients = tape.gradient(loss, self.g.trainable_variables)
                self.second.apply_gradients(zip(gradients, self.g.trainable_variables))
                return {"loss": loss}
        gan = Gan()
        gan.compile()
        gan.fit(np.zeros((64, 6), "float32"), batch_size=16)
        """
    )
    with ScriptSource(path) as source:
        lowered = source.lower(None, (8, 0))
    owners = [tensor.layer for tensor in lowered.step.parameters if tensor.role == "optimizer"]
    assert sum(owner.endswith("paint") for owner in owners) == 4


def test_of_a_script_that_forks_one_process_is_captured(script):
    path = script("import os\nos.fork()\n" + MODEL + "\nmodel.fit(x, y, batch_size=8)")
    with ScriptSource(path) as source:
        assert source.lower(None, (8, 0)).step.batch == 8


def test_under_a_strategy_it_runs_op_by_op(script):
    path = script(
        "import tensorflow as tf\nwith tf.distribute.MirroredStrategy().scope():\n"
        + textwrap.indent(MODEL, "    ")
        + "\nmodel.fit(x, y)"
    )
    with ScriptSource(path) as source:
        assert source.step.execution == "graph"
        assert "strategy" in source.step.execution_reason


def heed_interrupts():
    """Where tests run in the background, interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_when_it_is_interrupted(script, number):
    path = script("import subprocess, time\nsubprocess.Popen(['sleep', '777'])\ntime.sleep(300)")
    process = subprocess.Popen(
        [sys.executable, "-m", "legroom", "estimate", path, "--gpu", "t4"],
        stderr=subprocess.DEVNULL,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - only this test runs
    )
    this = psutil.Process(process.pid)
    children = []
    while not any("sleep" in child.name() for child in children):
        time.sleep(0.1)
        children = this.children(recursive=True)
    process.send_signal(number)
    process.wait(timeout=10)
    scripts = [child for child in children if number != signal.SIGKILL or "sleep" not in child.name()]
    _, alive = psutil.wait_procs(scripts, timeout=5)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    assert alive == []


@pytest.mark.parametrize("marked", [True, False], ids=["__init__.py", "without"])
def test_a_script_that_imports_from_its_own_package(tmp_path, monkeypatch, marked):
    package = tmp_path / "mine" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent) if marked else ():
        (folder / "__init__.py").touch()
    (package / "sizes.py").write_text("UNITS = 3\n")
    (package / "train.py").write_text("import sys\nfrom .sizes import UNITS\nassert __name__ == '__main__'\n")
    monkeypatch.chdir(tmp_path)
    assert as_module(package / "train.py") == (tmp_path, "mine.inner.train")
    assert as_module(package / "sizes.py") is None
    with pytest.raises(InputError, match="ended without training"), ScriptSource(str(package / "train.py")):
        pass
