"""Split models under `fit`: state and logs after twenty steps, undoing, refusals, and what is said of random layers."""

from typing import Any

import numpy as np
import pytest

from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow


def model_of(layers: list[Any], **settings: Any) -> Any:
    import keras

    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile(**({"optimizer": "sgd", "loss": "mse"} | settings))
    return model


def dense(**settings: Any) -> Any:
    import keras

    return model_of([keras.layers.Dense(6, "tanh"), keras.layers.Dense(3)], **settings)


def fitted(optimizer: str, mode: str, count: int | None, **settings: Any) -> tuple[int, list[Any], dict[str, Any]]:
    """Iterations, all variables (weights, slots, metrics) and the history after twenty steps with uneven batches."""
    import keras

    from legroom.changes.microbatch import split

    keras.utils.set_random_seed(5)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(97, 8)), random.integers(0, 3, 97)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    layers = [keras.layers.Dense(16, "tanh", kernel_regularizer="l2"), keras.layers.Dense(3)]
    made = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[optimizer](0.01)
    model = model_of(
        layers,
        optimizer=made,
        loss=loss,
        metrics=["accuracy", "sparse_categorical_crossentropy"],
        run_eagerly=mode == "eager",
        jit_compile=mode in ("xla", "jax"),
        **settings,
    )
    if count is not None:
        split(model, count)
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    history = model.fit(x, y, batch_size=10, epochs=2, verbose=0, shuffle=False, class_weight=weights).history
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return int(model.optimizer.iterations.numpy()), [keras.ops.convert_to_numpy(v) for v in variables], history


def compared(optimizer: str, mode: str, floatx: str, **settings: Any) -> dict[str, Any]:
    import keras

    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(floatx)
    try:
        whole, split = fitted(optimizer, mode, None, **settings), fitted(optimizer, mode, 4, **settings)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    assert whole[2].keys() == split[2].keys()
    state = [np.max(np.abs(a - b) / (np.abs(a) + 1e-2)) for a, b in zip(whole[1], split[1], strict=True) if a.size]
    logs = [np.max(np.abs(np.subtract(whole[2][name], split[2][name]))) for name in whole[2]]
    return {"iterations": [whole[0], split[0]], "state": float(max(state)), "logs": float(max(logs))}


def refused_on_jax() -> str:
    import keras

    from legroom.changes.microbatch import split

    class Own(keras.Model):
        def train_step(self, state: Any, data: Any) -> Any:
            return super().train_step(state, data)

    inputs = keras.Input((8,))
    model = Own(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", "mse")
    try:
        split(model, 2)
    except InputError as error:
        return str(error)
    return "not refused"


@pytest.mark.parametrize("mode", ["graph", "eager", pytest.param("xla", marks=pytest.mark.slow)])
def test_twenty_steps_of_adam_leave_the_same_state(mode: str) -> None:
    found = compared("adam", mode, "float64")
    assert found["iterations"] == [20, 20]
    assert found["state"] <= 1e-8
    assert found["logs"] <= 1e-6


def test_twenty_steps_of_sgd_in_single_precision_leave_the_same_state() -> None:
    found = compared("sgd", "graph", "float32")
    assert found["iterations"] == [20, 20]
    assert found["state"] <= 1e-4
    assert found["logs"] <= 1e-4


def test_several_steps_in_one_execution() -> None:
    found = compared("adam", "graph", "float64", steps_per_execution=5)
    assert found["iterations"] == [20, 20]
    assert found["state"] <= 1e-8


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_recurrent_layers_in_batches_of_unknown_size(compiled: bool) -> None:
    """TensorFlow does not know the shape of a GRU's gradients there."""
    import keras

    from legroom.changes.microbatch import split

    x, y = np.random.default_rng(0).normal(size=(2, 11, 5, 3)).astype("float32")
    found = []
    for count in (None, 3):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.GRU(4, return_sequences=True, use_cudnn=False), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((5, 3)), *layers])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=compiled)
        if count is not None:
            split(model, count)
        model.fit(x, y, batch_size=4, verbose=0, shuffle=False)
        found.append(model.get_weights())
    for whole, part in zip(*found, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_adam_sees_the_same_entries_of_sparse_gradients(compiled: bool) -> None:
    """Keras squares each entry by itself, so that a token which is there twice must stay two entries."""
    import keras

    from legroom.changes.microbatch import split

    ids, y = np.random.default_rng(0).integers(0, 3, (11, 5)), np.random.default_rng(1).normal(size=(11, 20))
    found = []
    for count in (None, 3):
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((5,), dtype="int32"), keras.layers.Embedding(6, 4), keras.layers.Flatten()]
        )
        model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=compiled)
        if count is not None:
            split(model, count)
        model.fit(ids, y, batch_size=4, epochs=2, verbose=0, shuffle=False)
        found.append([variable.numpy() for variable in (*model.weights, *model.optimizer.variables)])
    for whole, part in zip(*found, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-4, atol=1e-6)


def test_embeddings_keep_their_sparse_gradients() -> None:
    import keras
    import tensorflow as tf

    from legroom.changes.microbatch import split

    model = keras.Sequential(
        [keras.Input((5,), dtype="int32"), keras.layers.Embedding(1000, 4), keras.layers.Flatten()]
    )
    model.compile("sgd", "mse", jit_compile=False)
    split(model, 2)
    seen = []
    apply = model.optimizer.apply
    model.optimizer.apply = lambda grads, variables=None: (seen.extend(grads), apply(grads, variables))
    model.train_on_batch(np.ones((7, 5), "int32"), np.ones((7, 20)))
    assert isinstance(seen[0], tf.IndexedSlices)
    assert seen[0].values.shape[0] in (None, 35)


def test_half_precision_with_a_scaled_loss() -> None:
    import keras

    from legroom.changes.microbatch import split

    found = []
    x, y = np.random.default_rng(0).normal(size=(2, 12, 8)).astype("float32")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        for count in (None, 4):
            keras.utils.set_random_seed(1)
            model = model_of(
                [keras.layers.Dense(8, "tanh"), keras.layers.Dense(8)], optimizer=keras.optimizers.SGD(1.0)
            )
            assert type(model.optimizer).__name__ == "LossScaleOptimizer"
            before = model.get_weights()
            if count is not None:
                split(model, count)
            model.train_on_batch(x, y)
            found.append([a - b for a, b in zip(model.get_weights(), before, strict=True)])
    finally:
        keras.config.set_dtype_policy("float32")
    for whole, part in zip(*found, strict=True):
        assert np.linalg.norm(whole) > 0
        assert np.linalg.norm(whole - part) <= 5e-3 * np.linalg.norm(whole)


def test_undo_gives_the_model_back_and_may_be_called_twice() -> None:
    from legroom.changes.microbatch import split

    model = dense()
    before = dict(model.__dict__)
    undo = split(model, 2)
    assert "train_step" in model.__dict__
    undo()
    again = split(model, 3)
    undo()
    assert "train_step" in model.__dict__, "an old undo must leave a newer split alone"
    again()
    again()
    assert model.__dict__.keys() == before.keys()
    assert model.train_function is None
    model.train_on_batch(np.ones((4, 8)), np.ones((4, 3)))


def test_a_split_model_is_not_split_again() -> None:
    from legroom.changes.microbatch import split

    model = dense()
    split(model, 2)
    with pytest.raises(InputError, match="split already, into 2") as caught:
        split(model, 4)
    assert caught.value.hint is not None
    assert "Undo" in caught.value.hint


@pytest.mark.parametrize("count", [0, -1, 2.0, True])
def test_counts_that_make_no_sense(count: Any) -> None:
    from legroom.changes.microbatch import split

    with pytest.raises(InputError, match="cannot be cut into"):
        split(dense(), count)


def test_models_without_an_update_to_hold_back() -> None:
    import keras

    from legroom.changes.microbatch import split

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    with pytest.raises(InputError, match="has not been compiled"):
        split(model, 2)


def masked_mean(y_true: Any, y_pred: Any) -> Any:
    """Divides by what the labels say: no mean over samples."""
    from keras import ops

    kept = ops.cast(y_true != 0, "float32")
    return ops.sum(ops.square(y_true - y_pred) * kept) / ops.sum(kept)


def ranked(y_true: Any, y_pred: Any) -> Any:
    """A value for each sample, but of all the samples."""
    from keras import ops

    return ops.mean(ops.square(y_true - y_pred), axis=-1) / ops.max(y_pred)


@pytest.mark.parametrize("loss", [masked_mean, ranked, "Dice"])
def test_losses_that_are_of_the_whole_batch_are_refused_by_name(loss: Any) -> None:
    import keras

    from legroom.changes.microbatch import split

    name = "dice" if loss == "Dice" else loss.__name__
    with pytest.raises(InputError, match=f"loss '{name}' cannot be computed in slices"):
        split(dense(loss=keras.losses.Dice() if loss == "Dice" else loss), 2)


def test_added_losses_that_are_of_the_whole_batch_are_refused_by_layer() -> None:
    import keras

    from legroom.changes.microbatch import split

    class Spread(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(keras.ops.std(x))
            return x

    model = model_of([keras.layers.Dense(3), Spread(name="spread")])
    split(model, 2)
    with pytest.raises(InputError, match="'spread' makes with add_loss"):
        model.train_on_batch(np.ones((4, 8)), np.ones((4, 3)))


def step_of(reduce: str) -> Any:
    """A model whose own train step takes the mean, the sum or the largest of its losses."""
    import keras
    import tensorflow as tf

    class Own(keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data[:2]
            with tf.GradientTape() as tape:
                loss = getattr(tf, reduce)(tf.reduce_sum(tf.square(self(x, training=True) - y), -1))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    inputs = keras.Input((8,))
    model = Own(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.0)(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


@pytest.mark.parametrize("reduce", ["reduce_mean", "reduce_sum"])
def test_a_train_step_of_ones_own_may_take_the_mean_or_the_sum(reduce: str) -> None:
    import keras

    from legroom.changes.microbatch import split

    x, y = np.random.default_rng(0).normal(size=(2, 10, 8)).astype("float32")
    found = []
    for count in (None, 4):
        keras.utils.set_random_seed(1)
        model = step_of(reduce)
        if count is not None:
            split(model, count)
        model.train_on_batch(x, y[:, :3])
        found.append(model.get_weights())
        assert int(model.optimizer.iterations.numpy()) == 1
    for whole, part in zip(*found, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-4, atol=1e-5)


def test_train_steps_that_cannot_be_cut_are_refused() -> None:
    from legroom.changes.microbatch import split

    model = step_of("reduce_max")
    split(model, 2)
    with pytest.raises(InputError, match="neither a mean"):
        model.train_on_batch(np.ones((4, 8), "float32"), np.ones((4, 3), "float32"))


def test_what_is_said_of_layers() -> None:
    import keras

    from legroom.changes.microbatch import exactness

    layers = keras.layers
    assert exactness(dense()) == ("exact", ())
    assert exactness(model_of([layers.Reshape((2, 4)), layers.LSTM(3)])) == ("exact", ())
    said, reasons = exactness(model_of([layers.Dropout(0.5, name="drop"), layers.Dense(3)]))
    assert (said, len(reasons)) == ("equivalent", 1)
    assert "drop" in reasons[0]
    inner = keras.Sequential([layers.Dense(4), layers.BatchNormalization(name="norm")])
    said, reasons = exactness(model_of([inner, layers.Dropout(0.5), layers.Dense(3)]))
    assert (said, len(reasons)) == ("inexact", 1)
    assert "norm" in reasons[0]
    inner.trainable = False
    assert exactness(model_of([inner, layers.Dense(3)]))[0] == "exact"


def test_a_direct_train_step_traces() -> None:
    import tensorflow as tf

    from legroom.changes.microbatch import split

    model = dense()
    split(model, 4)
    specs = [tf.TensorSpec((16, 8)), tf.TensorSpec((16, 3))]
    graph = tf.function(lambda x, y: model.train_step((x, y))).get_concrete_function(*specs).graph
    bodies = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    assert len(bodies) == 1
    assert bodies[0].get_attr("parallel_iterations") == 1


def mean_error(y_true: Any, y_pred: Any) -> Any:
    from keras import ops

    return ops.mean(ops.square(y_true - y_pred))


def metric_of(kind: str) -> Any:
    """A metric of the user's that takes one number a batch: by `super()`, of another metric, or in a `tf.function`."""
    import keras
    import tensorflow as tf

    class Own(keras.metrics.Mean):
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return super().update_state(mean_error(y_true, y_pred))

    class Holding(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="holding")
            self.mean = keras.metrics.Mean()

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return self.mean.update_state(mean_error(y_true, y_pred))

        def result(self) -> Any:
            return self.mean.result()

    class Traced(Own):
        update_state = tf.function(Own.update_state)

    return {"own": Own, "holding": Holding, "traced": Traced}[kind]()


@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
def test_one_number_a_batch_weighs_so_behind_compute_metrics_of_ones_own(run_eagerly: bool) -> None:
    import keras

    from legroom.changes.microbatch import split

    class Own(keras.Model):
        def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return super().compute_metrics(x, y, y_pred, sample_weight)

    random = np.random.default_rng(0)
    x, y = random.normal(size=(10, 8)) * np.linspace(0.1, 4, 10)[:, None], random.normal(size=(10, 3))
    found = []
    for count in (None, 4):
        keras.utils.set_random_seed(1)
        given = keras.Input((8,))
        model = Own(given, keras.layers.Dense(3)(given))
        model.compile("sgd", "mse", metrics=[mean_error], run_eagerly=run_eagerly, jit_compile=False)
        if count is not None:
            split(model, count)
        found.append(model.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0).history)
    for name in found[0]:
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-5)


@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("kind", ["own", "holding", "traced"])
def test_one_number_a_batch_in_a_metric_of_ones_own_weighs_what_its_slice_does(kind: str, run_eagerly: bool) -> None:
    import keras

    from legroom.changes.microbatch import split

    random = np.random.default_rng(0)
    x, y = random.normal(size=(10, 8)) * np.linspace(0.1, 4, 10)[:, None], random.normal(size=(10, 3))
    found = []
    for count in (None, 4):  # 3, 3, 3 and 1 samples
        keras.utils.set_random_seed(1)
        model = dense(metrics=[metric_of(kind)], run_eagerly=run_eagerly, jit_compile=False)
        if count is not None:
            split(model, count)
        history = model.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0, validation_data=(x, y)).history
        found.append(history)
    assert found[0].keys() == found[1].keys()
    for name in found[0]:
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-5)


def test_numbers_of_another_thread_are_not_weighed() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import keras

    from legroom.changes.microbatch_metrics import weighing_numbers

    metric = keras.metrics.Mean()
    with weighing_numbers(0.25), ThreadPoolExecutor(1) as pool:
        pool.submit(metric.update_state, 3.0).result()
    assert float(metric.count.numpy()) == 1.0


def test_statistics_that_are_unfrozen_later_are_refused() -> None:
    import keras

    from legroom.changes.microbatch import split

    norm = keras.layers.BatchNormalization(name="norm", trainable=False)
    model = model_of([keras.layers.Dense(4), norm, keras.layers.Dense(3)])
    split(model, 2)
    model.train_on_batch(np.ones((4, 8)), np.ones((4, 3)))
    norm.trainable = True
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match=r"norm takes its statistics from the slice, .* frozen"):
        model.train_on_batch(np.ones((4, 8)), np.ones((4, 3)))


def test_statistics_that_were_allowed_are_not_refused() -> None:
    import keras

    from legroom.changes.microbatch import split

    model = model_of([keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(3)])
    split(model, 2)
    assert np.isfinite(model.train_on_batch(np.ones((4, 8)), np.ones((4, 3))))


def test_a_refusal_inside_a_layer_is_told_in_its_own_words() -> None:
    import keras

    class Refusing(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            raise InputError("It cannot be done.", "Do without.")

    with pytest.raises(InputError) as caught:
        Refusing()(np.ones((2, 3)))
    assert str(caught.value) == str(InputError("It cannot be done.", "Do without."))
