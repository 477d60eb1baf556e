"""Sparse gradients in slices: rows that samples look up go one after the other, tables that are looked up alike for every batch are added up."""

import numpy as np
import pytest
from loop_bench import precision

import legroom
from legroom.changes.lookups import is_table
from legroom.errors import InputError

ROWS, WORDS, LENGTH, CLASSES = 12, 20, 5, 3


@pytest.mark.parametrize("entries", [{2: 7, 3: 7}, {6: 6, 4: 6}])
def test_what_has_as_many_entries_for_any_number_of_samples_is_a_table(entries):
    assert is_table(entries, "positions")


@pytest.mark.parametrize("entries", [{2: 10, 3: 15}, {6: 6, 4: 4, 2: 2}, {2: None, 3: None}])
def test_what_has_entries_for_each_sample_is_none(entries):
    assert not is_table(entries, "words")


@pytest.mark.parametrize("entries", [{2: 11, 3: 16}, {2: -1, 3: -1}, {2: 4, 3: None}])
def test_what_is_neither_is_refused(entries):
    with pytest.raises(InputError, match="'words' are looked up neither"):
        is_table(entries, "words")


def model_of(length, **settings):
    """Words and positions, as a small transformer looks them up."""
    import keras
    from keras import layers, ops

    class Positions(layers.Layer):
        def __init__(self):
            super().__init__(name="both")
            self.words, self.places = layers.Embedding(WORDS, 4), layers.Embedding(WORDS, 4)

        def call(self, tokens):
            return self.words(tokens) + self.places(ops.arange(0, ops.shape(tokens)[-1]))

    keras.utils.set_random_seed(3)
    inputs = keras.Input((length,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Dense(4, "tanh")(Positions()(inputs)))
    model = keras.Model(inputs, layers.Dense(CLASSES)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01, clipnorm=0.5), loss, **settings)
    return model


def arrays(rows=ROWS):
    random = np.random.default_rng(0)
    return random.integers(0, WORDS, (rows, LENGTH)).astype("int32"), random.integers(0, CLASSES, rows)


def trained(count, length=LENGTH, **settings):
    from legroom.changes.microbatch import split

    model = model_of(length, **settings)
    if count is not None:
        split(model, count)
    model.fit(*arrays(3 * ROWS - 2), batch_size=ROWS, epochs=2, verbose=0, shuffle=False)
    return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]


@pytest.fixture
def doubles():
    precision("float64")
    yield
    precision("float32")


@pytest.mark.tensorflow
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize(
    "settings",
    [{"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}, {"jit_compile": False, "length": None}],
    ids=["eager", "graph", "compiled", "any length"],
)
def test_positions_are_learned_as_with_the_whole_batch(doubles, settings, count):
    pairs = zip(trained(None, **settings), trained(count, **settings), strict=True)

    assert max(np.max(np.abs(one - other)) for one, other in pairs) < 1e-11


@pytest.mark.tensorflow
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_positions_are_learned_alike_in_a_step_of_ones_own(doubles, mode):
    import tensorflow as tf

    def weights(count):
        model = model_of(LENGTH)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = model.loss(y, model(x, training=True))
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 0.3)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        step = legroom.train_step(micro_batches=count)(step) if count else step
        step = tf.function(step) if mode == "graph" else step
        for _ in range(4):
            step(*map(tf.constant, arrays()))
        return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]

    assert max(np.max(np.abs(one - other)) for one, other in zip(weights(None), weights(3), strict=True)) < 1e-11


@pytest.mark.tensorflow
def test_a_weight_that_samples_and_positions_share_is_refused():
    import keras
    from keras import layers, ops

    from legroom.changes.microbatch import split

    class Shared(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(WORDS, 4, name="shared")

        def call(self, tokens):
            return self.table(tokens) + self.table(ops.arange(0, LENGTH))

    model = keras.Sequential([keras.Input((LENGTH,), dtype="int32"), Shared(), layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    split(model, 2)
    with pytest.raises(InputError, match="are looked up neither once for each sample nor alike"):
        model.fit(*arrays(), batch_size=ROWS, verbose=0)


@pytest.mark.tensorflow
def test_an_array_with_one_row_beside_a_batch_is_refused():
    import keras
    import tensorflow as tf

    from legroom.changes.microbatch import split

    first, second = keras.Input((3,)), keras.Input((3,))
    model = keras.Model([first, second], keras.layers.Dense(1)(first + second))
    model.compile("sgd", "mse", jit_compile=False)
    split(model, 2)
    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 3)), np.ones((8, 1)))).batch(4)
    with pytest.raises(InputError, match="different first dimensions: 1, any"):
        model.fit(data.map(lambda x, y: ((x, tf.ones((1, 3))), y)), verbose=0)


@pytest.mark.tensorflow
def test_a_weight_that_a_layer_overwrites_is_refused():
    import keras

    from legroom.changes.microbatch import split

    class Shrinks(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1],), name="kernel")

        def call(self, x):
            self.kernel.assign(0.9 * self.kernel)
            return x * self.kernel

    model = keras.Sequential([keras.Input((3,)), Shrinks(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    split(model, 2)
    with pytest.raises(InputError, match="kernel' is changed at every call"):
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
