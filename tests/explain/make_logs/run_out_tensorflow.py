"""TensorFlow on a CPU that really runs out of memory, one way for each name. `record.py` sets the limit of its allocator."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers

CPU = "CPU:0"


def eager_activations():
    x = tf.random.normal([64, 96, 96, 32])
    kernel = tf.random.normal([3, 3, 32, 32])
    kept = []
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        for _ in range(40):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            kept.append(x)
    tape.gradient(x, kernel)


def cnn(size=64, width=32, blocks=6):
    inputs = keras.Input((size, size, 3))
    x = inputs
    for number in range(blocks):
        x = layers.Conv2D(width, 3, padding="same", activation="relu", name=f"block_{number}")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, name="classes")(x))


def fit_batch():
    model = cnn()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros([256, 64, 64, 3]), tf.zeros([256], tf.int32))).repeat(3)
    model.fit(data, epochs=1)


def fit_attention():
    inputs = keras.Input((512, 64))
    x = layers.MultiHeadAttention(8, 8, name="attend", flash_attention=False)(inputs, inputs)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros([64, 512, 64]), tf.zeros([64, 512, 1]))).repeat(3)
    model.fit(data)


def custom_step():
    model = cnn(48, 48, 5)
    model.build((None, 48, 48, 3))
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    print("step 0", float(train_step(tf.zeros([192, 48, 48, 3]), tf.zeros([192], tf.int32))))


def huge_eager():
    print(tf.zeros([100_000, 50_000]).shape)


def huge_distances():
    @tf.function
    def distances(x):
        return tf.reduce_sum(tf.square(x[:, None, :] - x[None, :, :]), -1)

    print(distances(tf.random.normal([8000, 8])).shape)


def dense_weights():
    model = keras.Sequential(
        [keras.Input((16384,)), layers.Dense(8192, name="first"), layers.Dense(16384, name="second")]
    )
    model.summary()


def adam_slots():
    model = keras.Sequential([keras.Input((8192,)), layers.Dense(8192, name="wide"), layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros([4, 8192]), tf.zeros([4, 1]))).repeat(3)
    model.fit(data)


def embedding_weights():
    model = keras.Sequential(
        [
            keras.Input((16,)),
            layers.Embedding(1_000_000, 128, name="words"),
            layers.Embedding(2_000_000, 128, name="pairs"),
        ]
    )
    print(model.count_params())


def torn_regular():
    held = [tf.zeros([1024 * 1024]) for _ in range(200)]
    held = held[::2]
    big = tf.zeros([200, 256 * 1024])
    print(len(held), big.shape)


def torn_mixed():
    sizes = np.random.default_rng(7).integers(1, 9, 300)
    held = [tf.ones([int(size) * 128 * 1024]) for size in sizes]
    for place in range(0, len(held), 3):
        held[place] = held[place + 1] = None
    image = tf.ones([40, 1024, 1024, 2])
    print(image.shape)


def kept_losses():
    history = []
    x = tf.random.normal([32, 64, 64, 16])
    kernel = tf.random.normal([3, 3, 16, 16])
    for step in range(1000):
        x = tf.nn.conv2d(x, kernel, 1, "SAME") * 0.01
        history.append(x)
        if step % 10 == 0:
            print(
                f"step {step}: memory {tf.config.experimental.get_memory_info(CPU)['current'] / 2**20:.1f} MB",
                flush=True,
            )


def kept_predictions():
    predictions = []
    model = keras.Sequential([keras.Input((256,)), layers.Dense(1024)])
    for _ in range(100_000):
        predictions.append(model(tf.zeros([64, 256])))


def models_in_a_loop():
    models = []
    for trial in range(50):
        print(f"Trial {trial}: building", flush=True)
        model = keras.Sequential([keras.Input((2048,)), layers.Dense(2048), layers.Dense(2048)])
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(tf.data.Dataset.from_tensors((tf.zeros([8, 2048]), tf.zeros([8, 2048]))), epochs=2, verbose=2)
        print("memory in use:", tf.config.experimental.get_memory_info(CPU)["current"], "bytes", flush=True)
        models.append(model)


def retraced():
    @tf.function
    def scaled(x, by):
        return x * by

    kept = []
    for by in range(400):
        scaled(tf.zeros([8]), by)
        kept.append(tf.zeros([256 * 1024]) + by)


def retraced_shapes():
    kept = []

    @tf.function
    def scaled(x):
        return x * 2.0

    for rows in range(1, 900):
        kept.append(scaled(tf.zeros([rows, 4096])))


def retraced_only():
    @tf.function
    def scaled(x, by):
        return x * by

    for by in range(20):
        scaled(tf.zeros([8]), by)
    print("done")


def map_too_large():
    data = (
        tf.data.Dataset.range(100)
        .map(lambda number: tf.zeros([20_000, 224, 224, 3]) + tf.cast(number, tf.float32))
        .batch(4)
    )
    for batch in data:
        print(batch.shape)


def shuffled_batches():
    images = tf.data.Dataset.range(1_000_000).map(lambda number: tf.zeros([128, 128, 3]) + tf.cast(number, tf.float32))
    data = images.batch(64).shuffle(10_000)
    model = keras.Sequential([keras.Input((128, 128, 3)), layers.GlobalAveragePooling2D(), layers.Dense(1)])
    model.compile("sgd", "mse")
    for batch in data:
        model.predict(batch)


def generator_error():
    def examples():
        for number in range(1000):
            if number == 3:
                yield np.zeros((10_000_000, 1000, 1000))
            yield np.zeros((8, 8))

    for each in tf.data.Dataset.from_generator(examples, tf.float64):
        print(each.shape)


def large_allocation():
    x = tf.zeros([int(sys.argv[2]), 1024, 1024])
    print(x.shape, "trained on")


def tensor_proto():
    data = np.zeros((300_000, 1000), "float64")

    @tf.function
    def first(number):
        return tf.constant(data)[number]

    print(first(3))


def graph_def():
    with tf.Graph().as_default() as graph:
        for number in range(3):
            tf.constant(np.zeros((200, 1024, 1024), "float32"), name=f"table_{number}")
        graph.as_graph_def()


def images_until_killed():
    images = tf.data.Dataset.range(1_000_000).map(lambda number: tf.zeros([64, 64, 3]) + tf.cast(number, tf.float32))

    def slowly(image):
        time.sleep(0.002)
        return image

    data = images.map(lambda image: tf.numpy_function(slowly, [image], tf.float32)).batch(64).shuffle(10_000)
    for batch in data:
        print(batch.shape)


def xla_step():
    @tf.function(jit_compile=True)
    def step(x):
        pairs = tf.sin(x[:, None] * x[None, :])
        return tf.sort(pairs, axis=0) + tf.sort(pairs, axis=1)

    print(step(tf.random.normal([9000])).shape)


def predict_batch():
    model = cnn(96, 16, 4)
    print(model.predict(tf.zeros([512, 96, 96, 3]), batch_size=512, verbose=1).shape)


def lstm_batch():
    model = keras.Sequential(
        [keras.Input((400, 32)), layers.LSTM(512, return_sequences=True, name="long"), layers.Dense(1)]
    )
    model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros([256, 400, 32]), tf.zeros([256, 400, 1]))).repeat(2)
    model.fit(data, verbose=2)


def eager_double():
    x = tf.ones([96, 256, 256, 4], tf.float64)
    kept = [x]
    for _ in range(10):
        kept.append(tf.nn.relu(kept[-1] * 2.0))


def validation_batch():
    model = cnn(64, 32, 4)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    small = tf.data.Dataset.from_tensors((tf.zeros([8, 64, 64, 3]), tf.zeros([8], tf.int32))).repeat(5)
    large = tf.data.Dataset.from_tensors((tf.zeros([512, 64, 64, 3]), tf.zeros([512], tf.int32)))
    model.fit(small, validation_data=large, epochs=1)


def plain_training():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros((256, 8)), np.zeros((256, 1)), epochs=3, verbose=2)


def wrong_shape():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
    model(tf.zeros([4, 9]))


def warned_training():
    size = int(sys.argv[2])
    for step in range(3):
        x = tf.zeros([size, 1024, 1024]) + float(step)
        print("step", step, float(tf.reduce_max(x)), flush=True)
        del x


def recovers_then_fails():
    for batch in (512, 256):
        try:
            tf.nn.relu(tf.zeros([batch, 512, 512, 2]) + 1.0)
        except tf.errors.ResourceExhaustedError as error:
            print("retrying with half the batch:", str(error)[:200], flush=True)
            time.sleep(0.01)
    tf.nn.relu(tf.zeros([224, 512, 512, 2]) + 1.0) + tf.zeros([224, 512, 512, 2])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
