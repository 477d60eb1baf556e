"""Dropout without a stored mask: the same numbers, the same gradients, less memory."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.tensorflow

TRAINED = """
    import sys
    import keras, numpy as np
    from keras import layers as L
    from legroom.changes.dropout import forget_masks

    def build():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((12, 12, 4)), L.Conv2D(8, 3), L.Dropout(0.3), L.Conv2D(8, 3),
                                  L.SpatialDropout2D(0.5), L.Flatten(), L.Dense(16), L.Dropout(0.2), L.Dense(2)])
        model.compile(keras.optimizers.SGD(0.01), "mse", **MODE)
        return model

    def weights(model):
        random = np.random.default_rng(0)
        x, y = random.normal(size=(20, 12, 12, 4)).astype("float32"), random.normal(size=(20, 2)).astype("float32")
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return [np.asarray(v) for v in [*model.variables]]

    for MODE in MODES:
        plain = weights(build())
        changed = build()
        undo = forget_masks(changed)
        again = weights(changed)
        assert all(np.isfinite(a).all() for a in plain)
        assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(plain, again, strict=True)), MODE
        undo(); undo()
        assert not any("call" in vars(layer) for layer in changed._flatten_layers())
    print("SAME")
"""


def run(code: str, **environment: str) -> str:
    env = os.environ | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_weights_statistics_and_seeds_come_out_the_same_on_tensorflow():
    modes = "[dict(jit_compile=False), dict(run_eagerly=True), dict(jit_compile=True)]"
    assert "SAME" in run(TRAINED.replace("MODES", modes), KERAS_BACKEND="tensorflow")


def test_weights_statistics_and_seeds_come_out_the_same_on_jax():
    assert "SAME" in run(TRAINED.replace("MODES", "[{}]"), KERAS_BACKEND="jax")


def test_a_class_derived_from_dropout_is_left_alone():
    code = """
        import keras
        from legroom.changes.dropout import dropouts_of

        class Dropout(keras.layers.Dropout):
            def call(self, inputs, training=False):
                return super().call(inputs, training=True)

        model = keras.Sequential([keras.Input((4,)), Dropout(0.5), keras.layers.Dropout(0.5, name="kept")])
        print("FOUND", [layer.name for layer in dropouts_of(model)])
    """
    assert "FOUND ['kept']" in run(code, KERAS_BACKEND="tensorflow")


def test_the_masks_are_not_in_memory():
    layers = 48
    code = """
        import keras, tensorflow as tf
        from keras import layers as L
        from legroom.changes.dropout import forget_masks

        def peak(change):
            keras.utils.set_random_seed(0)
            parts = [part for _ in range(LAYERS) for part in (L.Dropout(0.1), L.Activation("linear"))]
            model = keras.Sequential([keras.Input((1 << 20,)), L.BatchNormalization(), *parts, L.Dense(1)])
            model.compile("sgd", "mse", jit_compile=False)
            if change: forget_masks(model)
            x, y = tf.ones((4, 1 << 20)), tf.ones((4, 1))
            model.train_on_batch(x, y)
            tf.config.experimental.reset_memory_stats("CPU:0")
            model.train_on_batch(x, y)
            return tf.config.experimental.get_memory_info("CPU:0")["peak"] >> 20

        print("PEAKS", peak(False), peak(True))
    """.replace("LAYERS", str(layers))
    env = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "4000"}
    env |= {"TF_NUM_INTEROP_THREADS": "1"}  # one order of operations, so that the peak is not the machine's
    said = run(code, KERAS_BACKEND="tensorflow", **env)
    plain, changed = (int(word) for word in said.split("PEAKS")[1].split())
    assert changed < plain - layers / 2 * 4  # half of the masks of 4 Mi numbers, a byte each
