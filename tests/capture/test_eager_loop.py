"""Eager training loops as people write them: each is stopped at its first tape, and what was captured is run."""

import pytest
from eager_scripts import TRAIN, indent, line_of

from legroom.capture.batch import ArraySpec

pytestmark = pytest.mark.tensorflow


def test_a_loop_of_the_module(run):
    done = run("for epoch in range(2):\n    for x, y in dataset:" + indent(TRAIN, 2))
    step = done.step.step
    assert (step.source, step.execution, step.batch) == (
        f"eager loop train.py:{line_of(done, 'for x, y in dataset:')}",
        "eager",
        8,
    )
    assert step.execution_reason == "a GradientTape outside any @tf.function"
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])
    assert "first" in step.layers
    assert step.notes == ()
    assert done.step.at_batch(16).args == (ArraySpec((16, 6), "float32"), ArraySpec((16, 3), "float32"))


@pytest.mark.parametrize(
    "loop",
    [
        "for step, (x, y) in enumerate(dataset):",
        "for epoch in range(2):\n  for step, (x, y) in enumerate(dataset.take(2)):",
        "for i in range(0, 32, 8):\n    x, y = X[i : i + 8], Y[i : i + 8]",
        "for i in range(4):\n    choice = np.random.choice(32, 8)\n    x = X[choice]\n    y = Y[choice]",
        "batches = iter(dataset)\nwhile True:\n    try:\n        x, y = next(batches)\n    except StopIteration:\n        break",
        "for batch in dataset:\n    x, y = batch",
        "for batch in dataset.map(lambda x, y: {'x': x, 'y': y}):\n    x, y = batch['x'], batch['y']",
        "for x, y in dataset:\n    x = x[..., :6]\n    y /= 2",
        "for x, y in dataset:\n    if x.shape[0] < 4:\n        continue",
        "for x, y in dataset:\n    count: int = 1\n    global total\n    total = count",
    ],
)
def test_loops_of_many_kinds(run, loop):
    body = loop + indent(TRAIN, 1 if "\n  for" not in loop else 2)
    done = run(body)
    assert done.step.step.batch == 8
    assert sorted(done.specs()) == [(8, 3), (8, 6)]
    assert done.changes == [True, True]


def test_what_the_loop_does_to_its_batch_before_the_tape_is_not_done_twice(run):
    images = "pixels = tf.data.Dataset.from_tensor_slices((np.ones((32, 2, 3), 'uint8'), Y)).batch(8)\n"
    done = run(
        images + "for x, y in pixels:\n    x = tf.cast(tf.reshape(x, (8, 6)), tf.float32)[..., tf.newaxis]\n"
        "    x = tf.squeeze(x, -1)" + indent(TRAIN)
    )
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])


def test_a_loop_without_a_batch_of_its_own(run):
    done = run("x, y = X, Y\nfor _ in range(3):" + indent(TRAIN))
    assert (done.step.args, done.step.step.batch, done.changes) == ((), None, [True, True])
    assert "takes no arrays" in done.step.step.notes[0]


def test_a_single_step_of_the_module(run):
    done = run("x, y = X, Y" + TRAIN + "raise SystemError('went on')")
    assert (done.step.step.batch, done.specs(), done.changes) == (32, [(32, 6), (32, 3)], [True, True])


def test_a_loop_in_a_function_with_a_closure(run):
    done = run(
        "def train(net, epochs):\n    factor = 2.0\n    def scaled(value):\n        return value * factor\n"
        "    for epoch in range(epochs):\n        for x, y in dataset:\n            y = scaled(y)\n"
        + indent(TRAIN.replace("model", "net"), 3)
        + "\n            history = [float(loss) for _ in (1,)]\n            if history[0] < 0:\n                return history\n"
        "train(model, 2)"
    )
    assert (done.step.step.batch, done.changes) == (8, [True, True])
    assert "first" in done.step.step.layers


def test_a_gan_with_two_tapes_and_a_gradient_penalty(run):
    done = run(
        """
        generator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, name="paint")])
        second = keras.optimizers.Adam()
        for step, (real, _) in enumerate(dataset):
            noise = tf.random.normal((tf.shape(real)[0], 4))
            with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
                fake = generator(noise)
                with tf.GradientTape() as inner:
                    inner.watch(fake)
                    score = model(fake)
                penalty = tf.reduce_mean(inner.gradient(score, fake) ** 2)
                d_loss = tf.reduce_mean(score - model(real)) + penalty
                g_loss = -tf.reduce_mean(score)
            optimizer.apply(d_tape.gradient(d_loss, model.trainable_variables), model.trainable_variables)
            if step % 5 == 4:
                second.apply(g_tape.gradient(g_loss, generator.trainable_variables), generator.trainable_variables)
        """
    )
    step = done.step.step
    assert (done.specs(), done.changes) == ([(8, 6)], [True, True])
    assert {"first", "paint"} <= set(step.layers)
    assert "this is the step of step=4" in step.notes[0]


def test_several_critic_steps_and_then_the_generators(run):
    done = run(
        """
        generator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6)])
        def play(real):
            for _ in range(3):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(model(generator(tf.ones((8, 4)))) - model(real))
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            with tf.GradientTape() as tape:
                loss = -tf.reduce_mean(model(generator(tf.ones((8, 4)))))
            second.apply(tape.gradient(loss, generator.trainable_variables), generator.trainable_variables)
        second = keras.optimizers.Adam()
        for real, _ in dataset:
            play(real)
        """
    )
    assert done.step.step.source.startswith("eager function play train.py:")
    assert (done.specs(), done.changes) == ([(8, 6)], [True, True])


ACCUMULATE = """
total = None
for step, (x, y) in enumerate(dataset):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    total = gradients if total is None else [a + b for a, b in zip(total, gradients)]
    {count}
    if {condition}:
        optimizer.apply(total, model.trainable_variables)
        total = None
"""


@pytest.mark.parametrize("condition", ["step % 4 == 0", "(step + 1) % 4 == 0", "not step % 4 and step > 0"])
def test_accumulated_gradients_are_sized_in_a_step_that_applies_them(run, condition):
    done = run(ACCUMULATE.format(count="pass", condition=condition))
    assert done.changes == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        "step = 1\nfor x, y in dataset:"
        + indent(TRAIN).replace("    optimizer", "    if step % 3 == 0:\n        optimizer")
        + "    step += 1",
        "step, batches = 0, iter(dataset)\nwhile step < 4:\n    step += 1\n    x, y = next(batches)"
        + indent(TRAIN).replace("    optimizer", "    if step % 3 == 0:\n        optimizer"),
    ],
)
def test_a_counter_of_the_loops_own(run, text):
    done = run(text)
    assert (done.specs(), done.changes[0]) == ([(8, 6), (8, 3)], True)
    assert "this is the step of step=3" in done.step.step.notes[0]


def test_blocks_around_the_tape_and_functions_made_in_the_loop(run):
    done = run(
        """
        def train():
            n = 0
            for x, y in dataset:
                best = None
                def closure():
                    nonlocal best, n
                    best, n = 3, n + 1
                    return tf.reduce_mean((model(x) - y) ** 2)
                match n:
                    case _:
                        with tf.GradientTape() as tape:
                            loss = closure()
                        g = tape.gradient(loss, model.trainable_variables)
                        optimizer.apply_gradients(zip(g, model.trainable_variables))
                assert best == 3 and n > 0
        train()
        """
    )
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])


def test_a_condition_that_cannot_be_foreseen_is_said(run):
    done = run("count = 0" + ACCUMULATE.format(count="count += 1", condition="count % 2 == 0"))
    assert done.changes == [False, True]
    assert "under a condition (train.py:" in done.step.step.notes[0]


def test_micro_batches_inside_a_step(run):
    done = run(
        "for x, y in dataset:\n    total = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]\n"
        "    for a, b in zip(tf.split(x, 2), tf.split(y, 2)):\n"
        + indent(TRAIN.replace("model(x) - y", "model(a) - b").replace("optimizer", "# "), 2)
        + "        for t, g in zip(total, gradients):\n            t.assign_add(g)\n"
        "    optimizer.apply([t.value() for t in total], model.trainable_variables)"
    )
    assert (done.specs(), done.changes) == ([(8, 6), (8, 3)], [True, True])
