"""A plan knows its model: made again it is recognised, in this process and in another; another model is refused."""

import inspect
import json
import subprocess
import sys
import textwrap

import pytest

import legroom
from legroom.errors import InputError
from legroom.records.plan import Action, Plan

pytestmark = pytest.mark.tensorflow


def make(width=8, optimizer="sgd", loss="mse", extra=False, named="head", size=16, frozen=False):
    import keras
    from keras import layers as L

    inner = keras.Sequential([keras.Input((size, size, width)), L.Conv2D(width, 3, padding="same"), L.ReLU()])
    inputs = keras.Input((size, size, 3))
    x = L.Conv2D(width, 3, padding="same", activation="relu")(inputs)
    x = inner(x) + x
    x = L.Conv2D(width, 3, padding="same")(x)
    x = L.LayerNormalization()(x) if extra else x
    x = L.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, L.Dense(1, name=named)(x))
    model.layers[1].trainable = not frozen
    model.compile(optimizer, loss)
    return model


def plan_of(model, *actions):
    from legroom.changes.portrait import portrait_of

    return Plan(tuple(actions), 1, 1, 1, True, 1.0, made_for=portrait_of(model))


def blocks_of(model, *names):
    from legroom.changes.remat import segments_of

    known = [segment.name for segment in segments_of(model)]
    start = next(i for i, name in enumerate(known) if name.startswith(names[0]))
    return Action("remat", (("blocks", (tuple(known[start : start + 2]),)),))


def test_the_same_model_made_again_is_recognised_by_position():
    first = make()
    plan = plan_of(first, blocks_of(first, "sequential"))
    second = make()
    assert [layer.name for layer in first.layers] != [layer.name for layer in second.layers]
    legroom.apply(plan, second)
    legroom.undo(second)


def test_blocks_are_called_by_this_models_names():
    from legroom.front.matching import actions_for

    first, second = make(), make()
    action = blocks_of(first, "sequential")
    (found,) = actions_for(plan_of(first, action), second)
    assert found != action
    assert found == blocks_of(second, "sequential")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"width": 9}, "the weights of 'conv2d"),
        ({"optimizer": "adam"}, "trained with SGD; this one is trained with Adam"),
        ({"loss": "mae"}, "the loss mean_squared_error; this one has mean_absolute_error"),
        ({"extra": True}, "this one has 'layer_normalization"),
        ({"named": "block_3"}, "this one has no layer 'head': in its place is 'block_3'"),
        ({"size": 32}, "inputs of float32"),
        ({"frozen": True}, "frozen float32"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(changes, says):
    plan = plan_of(make(), Action("microbatch", (("count", 2),)))
    other = make(**changes)
    with pytest.raises(InputError, match="This plan was made for") as raised:
        legroom.apply(plan, other)
    assert says in raised.value.message
    assert "force=True" in raised.value.hint
    assert "train_step" not in vars(other)
    legroom.apply(plan, other, force=True)
    assert "train_step" in vars(other)
    legroom.undo(other)


def test_a_loss_is_the_same_by_any_of_its_names():
    import keras

    plan = plan_of(make(), Action("microbatch", (("count", 2),)))
    for loss in (keras.losses.MeanSquaredError(), keras.losses.mean_squared_error, "mean_squared_error"):
        model = legroom.apply(plan, make(loss=loss))
        assert "train_step" in vars(model)
        legroom.undo(model)


def test_a_subclassed_model_is_recognised_before_it_is_built():
    import keras
    import numpy as np

    class Own(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.inner = [keras.layers.Dense(units), keras.layers.Dense(1)]

        def call(self, x):
            return self.inner[1](self.inner[0](x))

    def compiled(units):
        model = Own(units)
        model.compile("sgd", "mse")
        return model

    first, unbuilt, other = compiled(3), compiled(3), compiled(4)
    first(np.zeros((2, 5), "float32"))
    other(np.zeros((2, 5), "float32"))
    plan = plan_of(first, Action("microbatch", (("count", 2),)))
    legroom.undo(legroom.apply(plan, unbuilt))
    with pytest.raises(InputError, match=r"float32\[5,3\]"):
        legroom.apply(plan, other)


def test_what_is_no_model_and_what_is_no_plan():
    with pytest.raises(InputError, match="received a int"):
        legroom.apply(plan_of(make()), 3)
    with pytest.raises(InputError, match="Expected a plan"):
        legroom.apply({}, make())


def test_a_plan_is_applied_in_another_process(tmp_path):
    import numpy as np

    make()  # so that names are counted differently here and there
    model = make()
    batch = (np.ones((16, 16, 16, 3), "float32"), np.ones((16, 1), "float32"))
    plain = legroom.estimate(model, batch, engine="op", jit_compile=False)
    planning = legroom.plan(model, batch, budget=int(plain.high_bytes * 0.8), engine="op", jit_compile=False)
    assert planning.best is not None
    assert planning.made_for is not None
    legroom.save_plan(planning, tmp_path / "plan.json")
    code = inspect.getsource(make) + textwrap.dedent(
        """
        import json, legroom
        plan = legroom.load_plan("plan.json")
        legroom.apply(plan, make())
        from legroom.changes.portrait import portrait_of
        print(json.dumps(portrait_of(make()).fingerprint))
        """
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == planning.made_for.fingerprint
