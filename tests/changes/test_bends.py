"""Numbers of the whole batch that go through what bends: losses, models and steps are told by what lies on its other side."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from loop_bench import EXACT, Bench, arrays, difference, in_slices, precision
from loop_bench import mean as mean_loss

from legroom.changes.bends import PLACES, Bends, bent, of_the_batch
from legroom.changes.made_up import ROWS
from legroom.errors import InputError

JAX = """
import json, test_bends
print("FOUND " + json.dumps([test_bends.losses_said(), test_bends.models_said()]))
"""


def test_the_batch_and_one_of_its_slices_come_out_on_different_sides():
    for pattern in range(4):
        sides = [bool(Bends(pattern, place).sides(0, ())) for place in PLACES]
        assert len(set(sides)) == 2
    assert {tuple(bool(Bends(pattern).sides(number, ())) for number in range(2)) for pattern in range(4)} == {
        (True, True), (True, False), (False, False), (False, True),
    }  # fmt: skip


def test_only_what_has_no_row_for_each_sample_is_one():
    met = [[("Maximum", ()), ("Relu", (rows, 3)), ("Abs", (3,)), ("Sign", (rows,))] for rows in (ROWS, 4, 2)]
    assert of_the_batch(met) == {0: ("Maximum", ()), 2: ("Abs", (3,))}
    assert of_the_batch([met[0], met[1][:-1]]) == {}


@pytest.mark.parametrize(
    ("kind", "values", "sides"),
    [
        ("either", (1.0, 2.0), (1.0, 2.0)),
        ("absolute", (-3.0,), (-3.0, 3.0)),
        ("rectified", (-3.0,), (-3.0, 0.0)),
        ("clipped", (9.0, 0.0, 1.0), (9.0, 0.0)),
        ("clamped", (0.0, 9.0, 1.0), (9.0, 0.0)),
        ("sign", (5.0,), (1.0, -1.0)),
        ("step", (5.4,), (5.0, 6.0)),
    ],
)
def test_what_comes_out_on_either_side(kind, values, sides):
    given = [np.float32(one) for one in values]
    found = tuple(float(bent(kind, given, np.float32(5.0), np.array(side))) for side in (True, False))
    assert found == sides


def losses():
    """Losses of labels and predictions, most of which are linear in the mean that they have on made-up samples."""
    from keras import ops

    def mean(y, p):
        return ops.mean((p - y) ** 2)

    refused = {
        "floor": lambda y, p: ops.maximum(mean(y, p), 1e-3),
        "floor beside it": lambda y, p: mean(y, p) + ops.maximum(ops.mean(p**2), 1e-3),
        "floors": lambda y, p: mean(y, p) + ops.sum(ops.maximum(ops.mean(p**2, 0), 1e-3)),
        "flood": lambda y, p: ops.abs(mean(y, p) - 1e-3) + 1e-3,
        "margin": lambda y, p: ops.relu(mean(y, p) - 1e-3),
        "smaller": lambda y, p: ops.minimum(mean(y, p), 90 + ops.mean(p**2)),
        "largest": lambda y, p: ops.max(ops.stack([mean(y, p), ops.mean(p**2) - 90])),
        "clip": lambda y, p: ops.clip(mean(y, p), 0, 90),
        "where": lambda y, p: ops.where(mean(y, p) > 90, 0.5, 1.0) * mean(y, p),
        "cond": lambda y, p: ops.cond(mean(y, p) < 90, lambda: mean(y, p), lambda: 0.5 * mean(y, p)),
        "elu": lambda y, p: ops.elu(mean(y, p) - 1e-3),
    }
    taken = {
        "each sample": lambda y, p: ops.mean(ops.maximum(ops.mean((p - y) ** 2, -1), 1e-3)),
        "size": lambda y, p: ops.sum((p - y) ** 2) / ops.maximum(ops.cast(ops.shape(y)[0], "float32"), 1.0),
        "unused": lambda y, p: mean(y, p) + 0 * ops.maximum(mean(y, p), 1e-3),
    }
    return refused, taken


def said_of(model):
    """What training it says, in slices."""
    from legroom.changes.microbatch import split

    x, y = np.random.default_rng(0).normal(size=(2, 12, 3)).astype("float32")
    try:
        split(model, 2)
        model.train_on_batch(x, y)
    except InputError as error:
        return str(error)
    return ""


def losses_said():
    """Of the losses, given to `compile`, as a model's own, and added by a layer."""
    import keras

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return self.mine(y, y_pred)

    class Adding(keras.layers.Layer):
        def call(self, x):
            self.add_loss(self.mine(0.1, x))
            return x

    def model_with(loss, where):
        given = keras.Input((3,))
        adding = Adding()
        adding.mine = loss
        made = keras.layers.Dense(3)(given)
        model = (Own if where == "own" else keras.Model)(given, adding(made) if where == "added" else made)
        model.mine = loss
        model.compile("sgd", loss if where == "compiled" else "mse")
        return model

    refused, taken = losses()
    tried = {f"{name}, compiled": said_of(model_with(loss, "compiled")) for name, loss in refused.items()}
    for name in ("floor beside it", "cond"):
        tried |= {f"{name}, {where}": said_of(model_with(refused[name], where)) for where in ("own", "added")}
    return [tried, {name: said_of(model_with(loss, "compiled")) for name, loss in taken.items()}]


def models_said():
    """Of models with layers that look at a number of the whole batch, forward or backward, and with such that do not."""
    import keras
    from keras import ops

    def layer(function):
        class Own(keras.layers.Layer):
            def call(self, x):
                return function(x)

        return Own()

    def model_with(function):
        given = keras.Input((3,))
        model = keras.Model(given, keras.layers.Dense(3)(layer(function)(keras.layers.Dense(3)(given))))
        model.compile("sgd", "mse")
        return model

    def floored(x):
        return x / ops.stop_gradient(ops.maximum(ops.max(ops.abs(x)), 1e3))

    refused = {
        "branch": lambda x: ops.cond(ops.mean(x) > 50.0, lambda: 2 * x, lambda: x),
        "choice": lambda x: ops.where(ops.mean(x) > 50.0, 2 * x, x),
        "floor": floored,
        "clipped gradient": with_gradient(lambda d: d / ops.maximum(ops.norm(d), 0.01)),
        "large gradient": with_gradient(lambda d: d / ops.maximum(ops.norm(d), 90.0)),
        "scaled gradient": with_gradient(lambda d: d * ops.shape(d)[0]),
    }
    taken = {
        "each sample": lambda x: ops.where(ops.mean(x, -1, keepdims=True) > 0, 2 * x, x),
        "reversed gradient": with_gradient(lambda d: -0.5 * d),
        "gradient of each entry": with_gradient(lambda d: ops.clip(d, -0.01, 0.01)),
    }
    return [{name: said_of(model_with(one)) for name, one in some.items()} for some in (refused, taken)]


def with_gradient(backward):
    """What it is given, with a gradient of its own."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        same = jax.custom_vjp(lambda x: 1.0 * x)
        same.defvjp(lambda x: (1.0 * x, None), lambda _, d: (backward(d),))
        return same
    import tensorflow as tf

    return tf.custom_gradient(lambda x: (tf.identity(x), backward))


def check_losses(found):
    refused, taken = found
    assert [name for name, why in refused.items() if "slices of the batch" not in why] == []
    assert {name: why for name, why in taken.items() if why} == {}


def check_models(found):
    refused, taken = found
    words = {name: "samples at once" if "gradient" in name else "a number of the whole batch" for name in refused}
    assert [name for name, why in refused.items() if words[name] not in why] == []
    assert {name: why for name, why in taken.items() if why} == {}


@pytest.mark.tensorflow
def test_losses_that_bend_at_a_number_of_the_batch_are_refused():
    check_losses(losses_said())


@pytest.mark.tensorflow
def test_models_that_look_at_a_number_of_the_batch_are_refused():
    check_models(models_said())


@pytest.mark.jax
def test_so_are_both_on_jax():
    paths = os.pathsep.join((os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")))
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", JAX], env=env, capture_output=True, text=True, check=False)
    rows = [line[6:] for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert rows, done.stderr[-2000:]
    found = json.loads(rows[0])
    check_losses(found[0])
    check_models(found[1])


@pytest.fixture
def doubles():
    precision("float64")
    yield
    precision("float32")


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["floor beside it", "flood", "smaller", "where", "cond", "elu", "stopped", "sign"])
def test_steps_that_bend_at_a_number_of_the_batch_are_refused(name, doubles):
    import tensorflow as tf

    def stopped(y, p):
        found = tf.reduce_mean(p**2)
        return mean_loss(y, p) + tf.where(found > 90.0, tf.stop_gradient(found), found)

    def sign(y, p):
        return tf.stop_gradient(tf.sign(tf.reduce_mean(p) + 90.0)) * mean_loss(y, p)

    loss = {"stopped": stopped, "sign": sign}.get(name) or losses()[0][name]
    with pytest.raises(InputError, match="bends at a number of the whole batch"):
        in_slices(tf.function(Bench().step(loss)))(*arrays())


@pytest.mark.tensorflow
def test_what_bends_beside_the_gradients_is_no_reason(doubles):
    """Clipped gradients, assertions, a logged value, a divisor made of the size, a loop as long as its samples say."""
    import tensorflow as tf

    def make(bench):
        variables = bench.model.trainable_variables

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                p = bench.model(x)
                tf.debugging.assert_less(tf.reduce_mean(p), tf.constant(1e6, p.dtype))
                size = tf.maximum(tf.cast(tf.shape(x)[0], p.dtype), 1.0)
                loss = tf.reduce_sum((p - y) ** 2) / size
                turns = 1 + tf.cast(0 * tf.reduce_max(y), tf.int32)
                _, loss = tf.while_loop(
                    lambda turn, _: turn < turns, lambda turn, loss: (turn + 1, 2 * loss), [0, loss]
                )
            gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, variables), 0.5)
            gradients = [tf.clip_by_norm(one, 0.4) for one in gradients]
            small = tf.where(norm > 1e-3, tf.constant(1.0, norm.dtype), 0.5)
            bench.optimizer.apply_gradients(zip([small * one for one in gradients], variables, strict=True))
            tf.print(tf.maximum(loss, 0.1), output_stream="file:///dev/null")
            return loss

        return step

    one, other = Bench(), Bench()
    whole, parts = make(one), in_slices(make(other))
    for seed in range(3):
        assert float(parts(*arrays(seed=seed))) == pytest.approx(float(whole(*arrays(seed=seed))), rel=1e-9)
    assert difference(one.weights, other.weights) < EXACT
