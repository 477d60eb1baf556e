"""Actions on live models, alone and together: what is learned, and the way back."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.tensorflow

HEAD = """
    import warnings
    import keras, numpy as np
    from keras import layers as L
    from legroom.changes.actions import perform
    from legroom.records.plan import Action

    random = np.random.default_rng(0)
    x, y = random.normal(size=(24, 12, 12, 4)).astype("float32"), random.normal(size=(24, 2)).astype("float32")
    DROPOUT = Action("dropout")
    REMAT = Action("remat", (("blocks", (("a", "drop_a", "b"), ("drop_b", "flat", "c"))),))

    def build(optimizer=None, rate=0.3, **mode):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((12, 12, 4)), L.Conv2D(8, 3, activation="relu", name="a"),
            L.Dropout(rate, name="drop_a"), L.Conv2D(8, 3, activation="relu", name="b"),
            L.SpatialDropout2D(rate, name="drop_b"), L.Flatten(name="flat"), L.Dense(16, name="c"), L.Dense(2, name="d")])
        model.compile(optimizer or keras.optimizers.SGD(0.01), "mse", **mode)
        return model

    def trained(model, epochs=2):
        model.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
        return [np.asarray(v) for v in model.variables]

    def same(one, two, tolerance=1e-5):
        return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(one, two, strict=True))
"""


def run(code: str, backend: str = "tensorflow") -> str:
    env = os.environ | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "KERAS_BACKEND": backend,
    }
    text = textwrap.dedent(HEAD) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_dropout_without_masks_inside_recomputed_blocks_is_exact():
    run("""
        for mode in (dict(jit_compile=False), dict(run_eagerly=True), dict(jit_compile=True)):
            plain = trained(build(**mode))
            model = build(**mode)
            done = perform(model, [DROPOUT, REMAT])
            assert done.effect.exactness == "exact"
            assert same(plain, trained(model)), mode
            done.undo()
            assert not any("call" in vars(layer) for layer in model._flatten_layers())
    """)


@pytest.mark.slow
def test_dropout_without_masks_inside_recomputed_blocks_is_exact_on_jax():
    run(
        """
        plain, model = trained(build()), build()
        perform(model, [DROPOUT, REMAT])
        assert same(plain, trained(model))
        """,
        backend="jax",
    )


def test_compiled_or_not_is_the_same_but_for_random_numbers_and_can_be_undone():
    run("""
        plain = trained(build(rate=0.0, jit_compile=False))
        model = build(rate=0.0, jit_compile=False)
        done = perform(model, [Action("compile", (("jit_compile", True),))])
        assert (model.jit_compile, done.effect.exactness) == (True, "exact")
        assert same(plain, trained(model))
        assert model.train_function is not None
        done.undo()
        assert model.jit_compile is False and model.train_function is None
        model = build(jit_compile=True)
        done = perform(model, [Action("compile", (("jit_compile", False),))])
        assert (model.jit_compile, done.effect.exactness) == (False, "equivalent") and "other random numbers" in done.effect.reasons[0]
        trained(model)
        done.undo()
        assert model.jit_compile is True
    """)


def test_what_keras_cannot_compile_is_refused():
    run("""
        from legroom.errors import InputError
        class Own(L.Layer):
            def __init__(self): super().__init__(); self.supports_jit = False
            def call(self, x): return x
        model = keras.Sequential([keras.Input((4,)), Own(), L.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        try:
            perform(model, [Action("compile", (("jit_compile", True),))])
            raise SystemExit("not refused")
        except InputError as error:
            assert "cannot compile" in error.message
    """)


FLOAT16 = """
    half = Action("mixed_precision", (("policy", "mixed_float16"),))
    made = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    plain = build(keras.optimizers.Adam(0.01), rate=0.0, **MODE)
    assert type(plain.optimizer).__name__ == "LossScaleOptimizer"
    plain = trained(plain)
    keras.config.set_dtype_policy(made)
    model = build(keras.optimizers.Adam(0.01), rate=0.0, **MODE)
    own = model.optimizer
    done = perform(model, [half])
    assert done.effect.exactness == "inexact"
    assert type(model.optimizer).__name__ == "LossScaleOptimizer" and model.optimizer.inner_optimizer is own
    assert same(plain, trained(model), 1e-3)  # as Keras has it when the model is made in mixed_float16
    steps = int(own.iterations)
    done.undo()
    assert model.optimizer is own and str(model.layers[0].dtype_policy.name) == "float32"
    assert np.isfinite(trained(model)[0]).all()
    assert int(own.iterations) == steps + 6
    done = perform(model, [half, Action("microbatch", (("count", 2),))])  # with the slots it has by now
    assert np.isfinite(trained(model)[0]).all()
"""


@pytest.mark.parametrize("mode", ["dict(jit_compile=False)", "dict(jit_compile=True)"])
def test_float16_scales_the_loss_as_keras_does(mode):
    run(FLOAT16.replace("MODE", mode))


@pytest.mark.slow
def test_float16_scales_the_loss_as_keras_does_on_jax():
    run(FLOAT16.replace("MODE", "{}"), backend="jax")


OTHER = """
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)
    for rate in (0.01, schedule):
        for name in ("SGD", "Lion", "Adafactor"):
            plain = trained(build(getattr(keras.optimizers, name)(rate, clipnorm=0.5), rate=0.0))
            model = build(keras.optimizers.Adam(rate, clipnorm=0.5), rate=0.0)
            own = model.optimizer
            done = perform(model, [Action("optimizer", (("kind", name),))])
            assert done.effect.exactness == "inexact" and "learns differently" in done.effect.reasons[0]
            assert type(model.optimizer).__name__ == name and model.optimizer.clipnorm == 0.5
            assert same(plain, trained(model)), name
            done.undo()
            assert model.optimizer is own and int(own.iterations) == 0
            trained(model)
            done = perform(model, [Action("optimizer", (("kind", name),)), Action("microbatch", (("count", 2),))])
            assert int(model.optimizer.iterations) == 6
            trained(model)
            assert int(model.optimizer.iterations) == 12
            done.undo()
"""


def test_another_optimizer_trains_as_if_it_had_been_compiled_in():
    run(OTHER)


@pytest.mark.slow
def test_another_optimizer_on_jax():
    run(OTHER, backend="jax")


def test_what_a_step_offers():
    run("""
        from legroom.capture.keras_fit import capture_model
        from legroom.capture.factory import batch_tree
        from legroom.changes.possible import possible_actions

        def offered(model, raw_jit):
            captured = capture_model(model, batch_tree((x[:8], y[:8])), raw_jit=raw_jit).built()
            return [(a.name, *(value for _, value in a.settings)) for a in possible_actions(captured, model)]

        assert offered(build(jit_compile=False), False) == [("dropout",), ("compile", True)]
        assert offered(build(rate=0.0, jit_compile=True), True) == [("compile", False)]
        assert offered(build(rate=0.0), "auto") == [("compile", False)]  # as on a GPU
        assert offered(build(rate=0.0, run_eagerly=True), None) == []
        from dataclasses import replace
        given = replace(capture_model(build(rate=0.0, run_eagerly=True), batch_tree((x, y))), given={"x": x, "y": y})
        assert possible_actions(given.built(), given.model) == [Action("host_data")]
        adam = offered(build("adam", rate=0.0, run_eagerly=True), None)
        assert adam == [("optimizer", "Lion"), ("optimizer", "Adafactor"), ("optimizer", "SGD")]
        assert offered(build("lion", rate=0.0, run_eagerly=True), None) == [("optimizer", "SGD")]
    """)


def test_arrays_kept_in_ram_give_the_same_batches_from_tensors_on_the_cpu():
    run("""
        import tensorflow as tf
        from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

        own, made, seen = ArrayDataAdapter.get_tf_dataset, tf.data.Dataset.from_tensors, []
        tf.data.Dataset.from_tensors = lambda *a, **k: (seen.append(tf.constant(0.0).device or "CPU:0"), made(*a, **k))[1]

        def weights(change):
            model = build(rate=0.0, jit_compile=False)
            done = perform(model, [Action("host_data")] if change else [])
            model.fit(x, y, batch_size=5, epochs=3, validation_split=0.25, verbose=0)  # shuffled
            model.fit(x, y, batch_size=8, validation_data=(x, y), sample_weight=np.arange(24.0), verbose=0)
            assert model.predict(x, verbose=0).shape == (24, 2)
            done.undo()
            assert not {"fit", "evaluate", "predict"} & {*vars(model)}
            assert ArrayDataAdapter.get_tf_dataset is own
            return [np.asarray(v) for v in model.variables]

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
        with tf.device("CPU:1"):  # where a GPU would be
            plain = weights(False)
            assert any(device.endswith("CPU:1") for device in seen), seen
            seen.clear()
            changed = weights(True)
        assert seen and all(device.endswith("CPU:0") for device in seen), seen
        assert same(plain, changed)
    """)


def test_a_flag_that_the_process_was_not_started_with_is_named():
    from legroom.changes.actions import missing_settings
    from legroom.records.plan import Action

    flag = "--xla_gpu_memory_limit_slop_factor=9"
    held = Action("xla_memory", (("limit_bytes", 10**9), ("percent", 9), ("flag", flag)))
    assert missing_settings([held], {"XLA_FLAGS": f"--xla_dump_to=/tmp {flag}"}) == ()
    assert f"XLA_FLAGS={flag}" in missing_settings([held], {})[0]


@pytest.mark.parametrize(("share", "missing"), [("0.95", 0), ("0.92", 0), ("0.75", 1), ("much", 1), (None, 1)])
def test_a_pool_that_the_process_was_not_started_with_is_named(share, missing):
    from legroom.changes.actions import missing_settings
    from legroom.records.plan import Action

    name = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    pool = Action("pool", (("setting", f"{name}=0.92"), ("usable_bytes", 10**10)))
    assert len(missing_settings([pool], {} if share is None else {name: share})) == missing


def test_a_loop_of_its_own_is_not_put_into_float16():
    run("""
        from legroom.errors import InputError
        from legroom.front.function_step import perform_on_step

        try:
            perform_on_step(None, [Action("mixed_precision", (("policy", "mixed_float16"),))], {})
            raise SystemExit("not refused")
        except InputError as error:
            assert "scaled" in error.message
    """)


def test_what_is_the_users_own_is_named_as_tried():
    run("""
        import tensorflow as tf
        SLICES = Action("microbatch", (("count", 2),))
        def own_loss(y, p):
            return tf.reduce_mean(tf.square(y - p))

        class Own(L.Layer):
            def call(self, x):
                return tf.nn.relu(x)

        def tried(model, loss="mse"):
            model.compile("sgd", loss)
            return perform(model, [SLICES]).effect.tried

        assert tried(build()) == ()
        assert tried(build(), own_loss) == ("loss 'own_loss'",)
        assert tried(keras.Sequential([keras.Input((4,)), Own(name="own"), L.Dense(2)])) == ("layer 'own'",)
        assert tried(keras.Sequential([keras.Input((4,)), L.Lambda(tf.tanh, name="tanh"), L.Dense(2)])) == ("layer 'tanh'",)
        inputs = keras.Input((4, 4))
        mean = keras.Model(inputs, L.Dense(2)(keras.ops.mean(inputs, 1)))
        assert tried(mean) == ("operation 'mean'",)

        class Loss(keras.Model):
            def call(self, x):
                return x
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return tf.reduce_mean(tf.square(y - y_pred))

        class Step(keras.Sequential):
            def train_step(self, data):
                return super().train_step(data)

        assert tried(Loss(name="it")) == ("model 'it'", "compute_loss() of Loss")
        assert tried(Step([L.Dense(2)])) == ("train_step() of Step",)
    """)
