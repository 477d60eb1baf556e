"""`@legroom.train_step` on a method: each object has a step of its own."""

import copy
import functools
import gc
import json
import pickle
import sys
import weakref

import numpy as np
import pytest

import legroom
from legroom.changes.remat_hooks import hooked
from legroom.errors import InputError
from legroom.front.methods import FIELD
from legroom.records.plan import Action, Plan

pytestmark = pytest.mark.tensorflow

ROWS = 32
BLOCK = ("first", "second")
guarded = functools.partial(legroom.train_step, guard=True, verbose=False)


class Trainer:
    """A model, its optimizer, and a step that classes made of it decorate."""

    def __init__(self, seed=1, most=None):
        import keras
        import tensorflow as tf

        class Narrow(keras.layers.Layer):
            def call(self, x):
                if tf.executing_eagerly() and x.shape[0] > most:
                    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9]")
                return x

        keras.utils.set_random_seed(seed)
        layers = keras.layers
        hidden = [layers.Dense(3, activation="tanh", name=name) for name in BLOCK]
        room = [] if most is None else [Narrow()]
        self.model = keras.Sequential([keras.Input((4,)), *room, *hidden, layers.Dense(1)])
        self.optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

    def plain(self, x, y):
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss


def trainer(decorate, **fields):
    return type("Decorated", (Trainer,), {"step": decorate(Trainer.plain), **fields})


def batch():
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    return tf.constant(x), tf.constant(x[:, :1])


def losses(step, count=3):
    return [float(step(*batch())) for _ in range(count)]


def in_graph(**options):
    import tensorflow as tf

    return lambda step: legroom.train_step(tf.function(step), **options)


def below(**options):
    import tensorflow as tf

    return lambda step: tf.function(legroom.train_step(step, **options))


SPLIT, GUARD = {"micro_batches": 2}, {"guard": True, "verbose": False}


@pytest.mark.parametrize(
    "decorate",
    [
        *(lambda: legroom.train_step(**SPLIT), lambda: in_graph(**SPLIT), lambda: below(**SPLIT)),
        *(lambda: legroom.train_step(**GUARD), lambda: in_graph(**GUARD), lambda: below(**GUARD)),
        lambda: in_graph(**SPLIT, **GUARD),
    ],
    ids=["split", "split graph", "split below", "guard", "guard graph", "guard below", "split guard graph"],
)
def test_each_object_trains_its_own_model(decorate):
    kind = trainer(decorate())
    one, other = kind(1), kind(2)
    assert losses(one.step) == pytest.approx(losses(Trainer(1).plain), rel=1e-5)
    assert losses(other.step) == pytest.approx(losses(Trainer(2).plain), rel=1e-5)


@pytest.mark.parametrize("decorate", [lambda: guarded, lambda: in_graph(**SPLIT)], ids=["guard", "split graph"])
def test_it_is_the_same_step_each_time(decorate):
    one = trainer(decorate())()
    assert one.step is one.step


def test_what_one_object_runs_out_of_memory_for_the_other_does_not():
    kind = trainer(guarded)
    one, other = kind(most=8), kind()
    losses(one.step, 1)
    losses(other.step, 1)
    assert (one.step.run.way.micro_batches, other.step.run.way.micro_batches) == (4, 1)


def test_the_record_of_all_objects_is_one_file(tmp_path):
    kind = trainer(functools.partial(guarded, report=tmp_path / "run.jsonl"))
    for one in (kind(most=16), kind(most=16)):
        losses(one.step, 1)
    written = [json.loads(line)["kind"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert written == ["out_of_memory", "changed"] * 2


def test_called_through_the_class_it_is_the_objects_step():
    kind = trainer(guarded)
    one = kind()
    losses(functools.partial(kind.step, one), 2)
    assert one.step.run.steps == 2


def test_with_a_signature_too():
    import tensorflow as tf

    signature = [tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])]
    kind = trainer(lambda step: legroom.train_step(tf.function(step, input_signature=signature), **SPLIT))
    one = kind()
    found = [*losses(one.step, 1), *losses(functools.partial(kind.step, one), 1)]
    assert found == pytest.approx(losses(Trainer().plain, 2), rel=1e-5)


def test_a_derived_class_has_a_step_beside_its_bases():
    base = trainer(guarded)

    class Derived(base):
        @guarded
        def step(self, x, y):
            return x

    one = Derived()
    one.step(*batch())
    assert float(super(Derived, one).step(*batch())) == pytest.approx(losses(Trainer().plain, 1)[0])


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_has_a_step_of_its_own(copied, monkeypatch):
    kind = trainer(guarded)
    monkeypatch.setattr(sys.modules[__name__], kind.__name__, kind, raising=False)  # where pickle looks for it
    one = kind()
    losses(one.step, 1)
    other = copied(one)
    losses(other.step, 2)
    assert (one.step.run.steps, other.step.run.steps) == (1, 2)


def of_its_class():
    return trainer(guarded)()


def holding_its_step():
    one = Trainer()
    one.step = guarded(one.plain)
    return one


@pytest.mark.parametrize("make", [of_its_class, holding_its_step], ids=["of its class", "its own"])
def test_a_deep_copy_trains_its_own_model(make):
    one, plain = make(), Trainer()
    assert losses(one.step, 1) == pytest.approx(losses(plain.plain, 1))
    assert losses(copy.deepcopy(one).step) == pytest.approx(losses(copy.deepcopy(plain).plain))
    assert losses(one.step) == pytest.approx(losses(plain.plain))


@pytest.mark.parametrize(
    "decorate",
    [lambda: guarded, lambda: in_graph(**GUARD), lambda: in_graph(**SPLIT)],
    ids=["guard", "guard graph", "split graph"],
)
def test_an_object_that_nobody_needs_goes(decorate):
    one = trainer(decorate())()
    losses(one.step, 1)
    seen = weakref.ref(one)
    del one
    gc.collect()
    assert seen() is None


def test_an_object_that_can_keep_nothing_is_refused():
    class Slots:
        __slots__ = ("total",)

        @guarded
        def step(self, x):
            return x

    with pytest.raises(InputError, match="__slots__") as refused:
        Slots().step(1)
    assert "__dict__" in refused.value.hint


def test_an_object_that_cannot_be_referred_to_weakly_has_its_step():
    class Strong:
        __slots__ = ("__dict__",)

        @guarded
        def step(self, x):
            return x + 1

    assert Strong().step(np.ones(1)) == 2


def test_an_object_that_cannot_be_hashed_or_set_has_its_step():
    class Frozen:
        __hash__ = None

        def __setattr__(self, name, value):
            raise AttributeError(name)

        @guarded
        def step(self, x):
            return x + 1

    assert Frozen().step(np.ones(1)) == 2


def test_a_class_method_gets_the_class_that_it_is_called_on():
    class Base:
        rate = 2

        @classmethod
        @guarded
        def step(cls, x):
            return cls.rate * x

    class Derived(Base):
        rate = 3

    assert (Base.step(np.ones(1)), Derived.step(np.ones(1)), Base.step(np.ones(1))) == (2, 3, 2)


def test_a_static_method_gets_nothing_before_its_arguments():
    class Kind:
        @staticmethod
        @guarded
        def step(x):
            return 2 * x

    assert (Kind.step(np.ones(1)), Kind().step(np.ones(1))) == (2, 2)


def test_a_method_that_is_bound_already_is_not_bound_again():
    one = Trainer()
    kind = type("Kind", (), {"step": guarded(one.plain)})
    assert losses(kind().step) == pytest.approx(losses(Trainer().plain))


def test_it_is_one_step_for_all_objects_then():
    kind = type("Kind", (), {"step": guarded(Trainer().plain)})
    for _ in range(2):
        losses(kind().step, 1)
    assert kind.step.run.steps == 2


def test_a_step_that_is_split_already_is_not_guarded_besides():
    with pytest.raises(InputError, match="split already") as refused:
        trainer(lambda step: guarded(in_graph(**SPLIT)(step)))
    assert "guard=True, micro_batches" in refused.value.hint


@pytest.mark.parametrize("over", ["eager", "graph"])
def test_a_plan_is_done_to_each_objects_model(over):
    import tensorflow as tf

    plan = Plan((Action("remat", (("blocks", (BLOCK,)),)),), 1, 1, 1, True, 1.0)
    decorate = legroom.train_step(plan=plan)
    kind = trainer(decorate if over == "eager" else lambda step: decorate(tf.function(step)))
    one, other = kind(1), kind(2)
    losses(one.step, 1)
    before = is_changed(other.model)
    losses(other.step, 1)
    assert (is_changed(one.model), before, is_changed(other.model)) == (True, False, True)


def is_changed(model):
    return hooked(model._functional)


def test_nothing_is_left_on_an_object_whose_step_was_not_asked_for():
    assert FIELD not in vars(trainer(guarded)())


def test_keras_does_not_take_the_steps_for_a_part_of_the_model():
    import keras

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        @guarded
        def step(self, x, y):
            return self(x)

    model = Model()
    model.step(*batch())
    assert FIELD in vars(model)
    assert [layer.name for layer in model._flatten_layers(include_self=False)] == [model.dense.name]
