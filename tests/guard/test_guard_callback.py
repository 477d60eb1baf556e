"""The guard around Keras' own functions. Memory "runs out" here where a layer says so: real errors are in test_guard_training."""

import json

import keras
import numpy
import pytest
import tensorflow as tf

import legroom
from legroom.changes.microbatch import split
from legroom.errors import InputError
from legroom.guard.retry import GaveUp

pytestmark = pytest.mark.tensorflow

X = numpy.random.default_rng(0).random((50, 6)).astype("float32")
Y = numpy.random.default_rng(1).random((50, 1)).astype("float32")
WEIGHT = numpy.random.default_rng(2).random(50).astype("float32")


class Narrow(keras.layers.Layer):
    """Takes so many samples at once, and no more."""

    rows = 1000

    def call(self, x):
        if tf.executing_eagerly() and x.shape[0] > Narrow.rows:
            raise tf.errors.ResourceExhaustedError(
                None, None, "OOM when allocating tensor with shape[9,9] and type float"
            )
        return x


@pytest.fixture(autouse=True)
def wide():
    Narrow.rows = 1000


def make(optimizer="sgd", eager=False, extra=(), metrics=("mae",), **options):
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(8, activation="relu"), Narrow(), *extra, keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(optimizer, "mse", metrics=list(metrics), run_eagerly=eager, jit_compile=False, **options)
    return model


def same(one, other, tolerance=0.0):
    pairs = zip(
        [*one.variables, *one.optimizer.variables, *one.metrics_variables],
        [*other.variables, *other.optimizer.variables, *other.metrics_variables],
        strict=True,
    )
    return all(numpy.allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance) for a, b in pairs)


def fit(model, guard=None, **arguments):
    callbacks = [guard] if guard is not None else []
    arguments = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0, **arguments}
    return model.fit(X, Y, callbacks=callbacks + arguments.pop("callbacks", []), **arguments)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_guarded_fit_is_bit_by_bit_the_plain_one(eager, steps):
    results = []
    for guard in (None, legroom.Guard()):
        model = make("adam", eager, steps_per_execution=steps)
        history = fit(model, guard, sample_weight=WEIGHT, validation_split=0.2)
        results.append((model, history.history))
    assert same(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


def test_keras_functions_are_put_back():
    model, guard = make(), legroom.Guard()
    fit(model)
    own = model.train_function
    fit(model, guard)
    assert model.train_function is own
    assert guard.run.events == ()
    assert guard.run.steps == 8


def test_a_step_that_fails_is_taken_again_in_more_micro_batches(capsys):
    plain, guarded, guard = make(eager=True), make(eager=True), legroom.Guard()
    fit(plain)
    Narrow.rows = 4
    fit(guarded, guard)
    assert same(plain, guarded, 1e-5)
    assert [event.way.micro_batches for event in guard.run.of_kind("changed")] == [2, 4]
    assert guard.run.way.micro_batches == 4
    assert "train_step" not in guarded.__dict__
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("legroom: ")]
    assert len(lines) == 2
    assert "in 4 micro-batches of 4" in lines[1]


def test_larger_steps_are_tried_again_only_if_asked():
    Narrow.rows = 8
    guard = legroom.Guard(retry_larger=2, verbose=False)
    model = make(eager=True)
    fit(model, guard)
    kinds = [event.kind for event in guard.run.events]
    assert kinds[:2] == ["out_of_memory", "changed"]
    assert "larger" in kinds
    assert int(model.optimizer.iterations) == 8


def test_no_room_for_one_sample_is_said_and_all_is_as_before(tmp_path):
    model = make("adam", eager=True)
    fit(model, epochs=1)
    before = [variable.numpy().copy() for variable in [*model.variables, *model.optimizer.variables]]
    Narrow.rows = 0
    with pytest.raises(GaveUp, match="nothing is left to try"):
        fit(model, legroom.Guard(report=tmp_path / "run.jsonl", verbose=False))
    after = [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]
    assert all(numpy.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert "train_step" not in model.__dict__
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert events[0]["kind"] == "out_of_memory"
    assert events[0]["asked_bytes"] == 324
    assert events[-1]["kind"] == "gave_up"
    Narrow.rows = 1000
    fit(model)


def test_batch_normalisation_is_cut_only_if_allowed():
    extra = [keras.layers.BatchNormalization()]
    Narrow.rows = 8
    with pytest.raises(GaveUp, match="batchnorm-split"):
        fit(make(eager=True, extra=extra), legroom.Guard(verbose=False))
    guard = legroom.Guard(allow="batchnorm-split", verbose=False)
    fit(make(eager=True, extra=[keras.layers.BatchNormalization()]), guard)
    assert guard.run.way.micro_batches == 2


def test_evaluate_and_predict_are_cut_and_put_together():
    model, guard = make(eager=True), legroom.Guard(verbose=False)
    fit(model)
    wanted = model.evaluate(X, Y, sample_weight=WEIGHT, batch_size=16, verbose=0)
    outputs = model.predict(X, batch_size=16, verbose=0)
    Narrow.rows = 3
    found = model.evaluate(X, Y, sample_weight=WEIGHT, batch_size=16, verbose=0, callbacks=[guard])
    assert numpy.allclose(found, wanted, rtol=1e-5)
    assert numpy.allclose(model.predict(X, batch_size=16, verbose=0, callbacks=[guard]), outputs, rtol=1e-5)
    assert {event.where for event in guard.run.of_kind("changed")} == {"evaluation", "prediction"}


def test_validation_stays_cut_in_the_epochs_that_follow():
    model, guard = make(eager=True), legroom.Guard(verbose=False)
    Narrow.rows = 16
    fit(model, guard, epochs=3, validation_data=(X, Y), validation_batch_size=32)
    assert len(guard.run.of_kind("out_of_memory")) == 1
    model.compile("sgd", "mse", run_eagerly=True)
    model.evaluate(X, Y, batch_size=32, verbose=0, callbacks=[guard])
    assert len(guard.run.of_kind("out_of_memory")) == 1


def test_validation_is_traced_once_for_all_epochs():
    traced = []

    class Counted(keras.Model):
        def test_step(self, data):
            traced.append(1)
            return super().test_step(data)

    inputs = keras.Input((6,))
    model = Counted(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    fit(model, legroom.Guard(verbose=False), epochs=4, validation_data=(X[:32], Y[:32]), validation_batch_size=16)
    assert len(traced) <= 2


def test_memory_that_runs_out_in_a_callback_is_passed_on(capsys):
    class Greedy(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    model, guard = make(), legroom.Guard()
    with pytest.raises(tf.errors.ResourceExhaustedError):
        fit(model, guard, callbacks=[Greedy()])
    assert guard.run.events[-1].where == "callback"
    assert type(model.train_function).__name__ == "function"
    assert "in a callback" in capsys.readouterr().err


def test_memory_that_runs_out_in_the_data_is_passed_on():
    def batches():
        yield X[:16], Y[:16]
        raise MemoryError("no room")

    model, guard = make(), legroom.Guard(verbose=False)
    data = tf.data.Dataset.from_generator(batches, output_signature=(tf.TensorSpec((16, 6)), tf.TensorSpec((16, 1))))
    with pytest.raises(tf.errors.ResourceExhaustedError):
        model.fit(data, verbose=0, callbacks=[guard])
    assert guard.run.events[-1].where == "data"
    assert int(model.optimizer.iterations) == 1


class Twice(keras.Model):
    """A step whose log needs the weights after the update."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.narrow = Narrow()

    def call(self, x):
        return self.narrow(self.dense(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"after": tf.reduce_mean((self(x) - y) ** 2)}


@pytest.mark.parametrize("eager", [False, True])
def test_a_step_that_uses_its_update_is_not_guarded_unless_copies_are_asked_for(eager):
    results = []
    for guard in (None, legroom.Guard(verbose=False), legroom.Guard(copies=True, verbose=False)):
        keras.utils.set_random_seed(5)
        model = Twice()
        model.compile("sgd", run_eagerly=eager, jit_compile=False)
        history = fit(model, guard)
        results.append((history.history, [weight.copy() for weight in model.get_weights()], guard))
    assert results[0][0] == results[1][0] == results[2][0]
    assert all(numpy.array_equal(a, b) for a, b in zip(results[0][1], results[2][1], strict=True))
    assert [event.kind for event in results[1][2].run.events] == ["not_guarded"]
    assert results[2][2].run.events == ()
    assert results[2][2].run.careful_updates == 8


def test_sparse_gradients_are_held_and_applied():
    tokens = numpy.random.default_rng(0).integers(0, 30, (48, 5))

    def train(guard):
        keras.utils.set_random_seed(1)
        parts = [keras.layers.Embedding(30, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((5,)), *parts])
        model.compile("adam", "mse", jit_compile=False)
        model.fit(tokens, Y[:48], batch_size=16, epochs=2, shuffle=False, verbose=0, callbacks=guard)
        return model

    assert same(train([]), train([legroom.Guard()]))


def test_legroom_fit_takes_a_guard():
    Narrow.rows = 8
    history = legroom.fit(make(eager=True), X, Y, guard=True, batch_size=16, verbose=0)
    assert history.legroom_run.way.micro_batches == 2


def test_wrong_options_are_refused(tmp_path):
    with pytest.raises(InputError, match="mixed"):
        legroom.Guard(allow=["mixed"])
    with pytest.raises(InputError, match="after 0 steps"):
        legroom.Guard(retry_larger=0)
    with pytest.raises(InputError, match="cannot be written"):
        legroom.Guard(report=tmp_path / "nowhere" / "run.jsonl")


class OwnStep(keras.Model):
    """As in Keras' guide."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_a_train_step_of_ones_own_is_guarded_in_slices_too(eager):
    found = []
    for guard in (None, legroom.Guard()):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((6,))
        model = OwnStep(inputs, keras.layers.Dense(1)(Narrow()(keras.layers.Dense(8, activation="tanh")(inputs))))
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], run_eagerly=eager, jit_compile=False)
        if guard is not None:
            Narrow.rows = 10
            if not eager:
                split(model, 2)
        found.append((model, fit(model, guard).history))
    (plain, logs), (guarded, guarded_logs) = found
    assert same(plain, guarded, 1e-5)
    assert guarded_logs.keys() == logs.keys()
    assert all(guarded_logs[name] == pytest.approx(logs[name], rel=1e-4) for name in logs)
    assert {event.kind for event in guard.run.events} == ({"out_of_memory", "changed"} if eager else set())


@pytest.mark.parametrize("options", [{}, {"eager": True}, {"jit_compile": True}], ids=["graph", "eager", "compiled"])
def test_each_of_several_losses_is_logged_as_without_it(options):
    histories = []
    for guard in (None, legroom.Guard()):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((6,))
        model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(inputs) for name in "ab"})
        eager = options.get("eager", False)
        model.compile("sgd", {"a": "mse", "b": "mae"}, run_eagerly=eager, jit_compile=options.get("jit_compile", False))
        targets = {"a": Y, "b": 100 * numpy.arange(50, dtype="float32")[:, None]}
        callbacks = [] if guard is None else [guard]
        fitted = model.fit(
            X,
            targets,
            batch_size=16,
            epochs=2,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
            validation_data=(X, targets),
        )
        histories.append(fitted.history)
    assert histories[1].keys() == histories[0].keys()
    assert all(histories[1][name] == pytest.approx(histories[0][name], rel=1e-5) for name in histories[0])
