"""Eager training steps in functions, and tapes that are no training: what is captured, what is let run, what is refused."""

import pathlib
import re
import traceback

import pytest
from eager_scripts import SETUP, TRAIN, indent, line_of

from legroom.errors import MissingError

pytestmark = pytest.mark.tensorflow
SEEDS = pathlib.Path(__file__).parents[3] / "shared" / "seeds"


@pytest.mark.parametrize(
    ("define", "call", "shapes"),
    [
        ("def train_step(x, y):", "train_step(x, y)", [(8, 6), (8, 3)]),
        ("def train_step(x, *rest, y, **more):", "train_step(x, 1, y=y, z=2)", [(8, 6), (8, 3)]),
        ("def train_step(net, x, y, scale=1.0):", "train_step(model, x, y)", [(8, 6), (8, 3)]),
        ("def train_step(batch):\n    x, y = batch", "train_step((x, y))", [(8, 6), (8, 3)]),
        ("def train_step(x, y):\n    x = tf.concat([x, x], -1)[:, :6]", "train_step(x, y)", [(8, 6), (8, 3)]),
        ("def train_step():\n    x, y = next(batches)", "train_step()", [(8, 6), (8, 3)]),
        ("def train_step(x, y):\n    x = x[..., None]\n    x = x[..., 0]", "train_step(x, y)", [(8, 6), (8, 3)]),
    ],
)
def test_a_function_that_is_called_for_each_batch(run, define, call, shapes):
    done = run(f"{define}{indent(TRAIN)}    return loss\nbatches = iter(dataset)\nfor x, y in dataset:\n    {call}")
    assert (done.specs(), done.step.step.batch, done.changes) == (shapes, 8, [True, True])
    assert "first" in done.step.step.layers


def test_a_method_with_private_names_and_super(run):
    done = run(
        "class Base:\n    def scale(self, y):\n        return y * 2\n"
        "class Trainer(Base):\n    def __init__(self):\n        self.__net = model\n        self.data = dataset\n"
        "    def run(self):\n        for x, y in self.data:\n            y = super().scale(y)\n            z = super().scale(y)\n"
        + indent(TRAIN.replace("model", "self.__net").replace("- y", "- z"), 3)
        + "\nTrainer().run()"
    )
    assert (done.step.step.batch, done.changes) == (8, [True, True])
    assert "first" in done.step.step.layers


def test_a_method_for_each_batch(run):
    done = run(
        "class Trainer:\n    def __init__(self):\n        self.net = model\n    def step(self, x, y):"
        + indent(TRAIN.replace("model", "self.net"), 2)
        + "\nfor x, y in dataset:\n    Trainer().step(x, y)"
    )
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])
    assert "first" in done.step.step.layers
    assert done.step.step.source.startswith("eager function step train.py:")


def test_a_closure_and_a_lambda(run):
    done = run(
        "def make(net):\n    def step(x, y):"
        + indent(TRAIN.replace("model", "net"), 2)
        + "\n    return step\nother = make(keras.Sequential([keras.layers.Dense(3)]))\nstep = make(model)\n"
        "go = lambda pair: step(*pair)\nfor pair in dataset:\n    go(pair)"
    )
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])


GRADIENTS = """
def gradients_of(x, y):
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return loss, tape.gradient(loss, model.trainable_variables)
"""


@pytest.mark.parametrize(
    "text",
    [
        "for x, y in dataset:\n    loss, g = gradients_of(x, y)\n    optimizer.apply(g, model.trainable_variables)",
        "def update(g):\n    optimizer.apply(g, model.trainable_variables)\n"
        "for x, y in dataset:\n    loss, g = gradients_of(x, y)\n    update(g)",
        "for x, y in dataset:\n    loss, g = gradients_of(x, y)\n"
        "    for v, d in zip(model.trainable_variables, g):\n        v.assign_sub(0.1 * d)",
        "for x, y in dataset:\n    with tf.device('/CPU:0'):\n        try:\n            loss, g = gradients_of(x, y)\n"
        "            optimizer.apply(g, model.trainable_variables)\n        finally:\n            pass",
    ],
)
def test_a_helper_that_returns_gradients(run, text):
    done = run(GRADIENTS + text)
    assert done.step.step.source == f"eager loop train.py:{line_of(done, 'for x, y in dataset:')}"
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])
    assert "first" in done.step.step.layers


def test_a_tape_that_is_handed_on(run):
    done = run(
        "def forward(x, y):\n    with tf.GradientTape() as tape:\n        loss = tf.reduce_mean((model(x) - y) ** 2)\n"
        "    return tape, loss\ndef backward(tape, loss):\n"
        "    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)\n"
        "for x, y in dataset:\n    backward(*forward(x, y))"
    )
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])


SALIENCY = """
def saliency(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        score = tf.reduce_sum(model(x))
    return tape.gradient(score, x)
"""


@pytest.mark.parametrize("inside", ["", "def main():\n"])
def test_a_tape_that_is_no_training_runs_and_the_loop_after_it_is_captured(run, inside):
    text = "seen = saliency(tf.constant(X))\nassert seen.shape == (32, 6)\nfor x, y in dataset:" + indent(TRAIN)
    done = run(SALIENCY + (inside + indent(text) + "\nmain()" if inside else text))
    assert done.step.step.source == f"eager loop train.py:{line_of(done, 'for x, y in dataset:')}"
    assert done.changes == [True, True]


def test_a_tape_without_gradients_or_without_training_runs_to_the_end(run):
    unused = "def update(g):\n    optimizer.apply(g, model.trainable_variables)\nsaliency(tf.constant(X))\n"
    done = run(
        SALIENCY + unused + "for x, y in dataset:\n    saliency(x)\n    with tf.GradientTape():\n        model(x)\n"
    )
    assert (done.step, done.error) == (None, None)
    assert "saliency" in done.names


def test_an_optimizer_that_is_hidden_is_refused_with_its_line(run):
    done = run(
        GRADIENTS + "loss, g = gradients_of(X, Y)\ngetattr(optimizer, 'app' + 'ly')(g, model.trainable_variables)"
    )
    assert isinstance(done.error, MissingError)
    where = line_of(done, "getattr(optimizer, 'app' + 'ly')(g, model.trainable_variables)")
    assert f"in a loop of its own, outside any @tf.function (train.py:{where})" in done.error.message


def test_a_mistake_in_the_step_is_shown_with_its_line(run, tmp_path):
    with pytest.raises(AttributeError) as raised:
        run("for x, y in dataset:" + indent(TRAIN) + "    loss.missing\n")
    script = tmp_path / "0" / "train.py"
    last = [row for row in traceback.extract_tb(raised.value.__traceback__) if row.filename == str(script)][-1]
    line = script.read_text().splitlines().index("    loss.missing") + 1
    assert (last.lineno, last.line, last.name) == (line, "loss.missing", "<module>")


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the articles are not here")
def test_the_articles_that_accumulate_gradients(run):
    def program(article, number):
        text = next(SEEDS.glob(f"{article}_*.txt")).read_text()
        return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]

    with pytest.raises(RuntimeError, match=r"`variable \+= value`"):  # a mistake of the article's
        run(program("004", 1), setup="")
    mended = program("004", 1).replace("[i] += gradients[i]", "[i].assign_add(gradients[i])")
    done = run(mended, setup="")
    assert (done.step.step.batch, done.specs(), done.changes) == (32, [(32, 100), (32,)], [False, False])
    assert done.step.step.source.startswith("eager function train_step train.py:")
    assert "under a condition" in done.step.step.notes[0]

    needed = "learning_rate, step = 0.1, 0\ndataset = dataset.map(lambda x, y: x)\n"
    done = run(program("002", 1), setup=SETUP + needed)
    assert (done.specs(), done.changes) == ([(8, 6)], [True, True])
