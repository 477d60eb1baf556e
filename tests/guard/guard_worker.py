"""Real out-of-memory errors, many in one process: TensorFlow's allocator has a limit here, and ballast takes what is left of it.

Run as a script: cases as JSON on stdin, one line of JSON for each on stdout. `bench/guard.py` runs the whole series with it, the
tests a sample.
"""

import gc
import json
import os
import sys
import time

LIMIT_MB = 96
KIB = 1024
DEVICE = os.environ.get("LEGROOM_GUARD_DEVICE", "CPU:0")  # GPU:0 for bench/guard.py --gpu


def environment(limit_mb=LIMIT_MB, backend="tensorflow"):
    """The variables of a process in which memory can run out."""
    device = {"CUDA_VISIBLE_DEVICES": "-1"} if DEVICE == "CPU:0" else {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    return (
        os.environ
        | device
        | {
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "TF_CPU_ALLOCATOR_USE_BFC": "1",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mb),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "KERAS_BACKEND": backend,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONWARNINGS": "ignore",
            "NO_COLOR": "1",
        }
    )


def in_use():
    import tensorflow as tf

    return tf.config.experimental.get_memory_info(DEVICE)["current"]


class Ballast:
    """Takes all memory but one piece of a given size, and gives it back.

    TensorFlow waits ten seconds before it refuses, so nothing is asked for that is not there: the pool is made one region first.
    """

    PIECES = (256 * KIB, 16 * KIB, 1 * KIB, 256)

    def __init__(self):
        import tensorflow as tf

        self.limit = int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) * KIB * KIB
        with tf.device("CPU:0"):
            self.shapes = {size: tf.constant([size]) for size in self.PIECES}
        self.held = []
        self.missed = 0
        tf.raw_ops.Empty(shape=[self.limit - 2 * KIB * KIB], dtype=tf.uint8, init=False)

    def take(self, size):
        import tensorflow as tf

        return tf.raw_ops.Empty(shape=self.shapes[size], dtype=tf.uint8, init=False)

    def fill(self, free_bytes, finest=16 * KIB):
        """Leave a piece of about so much, and next to nothing else."""
        import tensorflow as tf

        try:
            left = [self.take(size) for size in self.pieces_of(free_bytes)]  # given back in the end
            for size in self.PIECES:
                while size >= finest and self.limit - in_use() >= 4 * size:  # what is free may lie in several pieces
                    self.held.append(self.take(size))
            left.clear()
        except tf.errors.ResourceExhaustedError:
            self.missed += 1

    def pieces_of(self, size_bytes):
        """One large piece would take more than it asks for: what is left of a chunk stays with it, up to as much again."""
        for size in self.PIECES:
            count, size_bytes = divmod(size_bytes, size)
            yield from [size] * count

    def drop(self):
        self.held.clear()


def make_model(case):
    import keras

    keras.utils.clear_session(free_memory=False)
    gc.collect()
    keras.utils.set_random_seed(7)
    keras.config.set_floatx(case.get("dtype", "float32"))
    keras.config.set_dtype_policy(case.get("dtype", "float32"))
    layers = keras.layers
    if case["model"] == "dense":
        parts = [
            keras.Input((256,)),
            layers.Dense(512, activation="relu"),
            layers.Dense(512, activation="relu"),
            layers.Dense(4),
        ]
    elif case["model"] == "tiny":
        parts = [keras.Input((16,)), layers.Dense(32, activation="relu"), layers.Dense(4)]
    else:
        parts = [keras.Input((512, 8))]  # no convolutions: on a CPU their workspaces do not depend on the batch
        for _ in range(4):
            parts.append(layers.Dense(24, activation="relu", use_bias=case["model"] != "norm"))
            if case["model"] == "norm":
                parts.append(layers.BatchNormalization())
        parts += [layers.GlobalAveragePooling1D(), layers.Dense(4)]
    model = keras.Sequential(parts)
    optimizer = make_optimizer(case)
    eager = case.get("mode") == "eager"
    model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=eager, jit_compile=case.get("mode") == "xla")
    return model


def make_optimizer(case):
    import keras

    known = {
        "sgd": lambda: keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True),
        "adam": lambda: keras.optimizers.Adam(1e-3),
        "adamw": lambda: keras.optimizers.AdamW(
            keras.optimizers.schedules.ExponentialDecay(1e-3, 3, 0.9), weight_decay=0.01, global_clipnorm=0.1
        ),
        "ema": lambda: keras.optimizers.Adam(1e-3, use_ema=True, ema_overwrite_frequency=3, clipnorm=0.1),
        "accumulating": lambda: keras.optimizers.Adam(1e-3, gradient_accumulation_steps=3),
        "scaled": lambda: keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(1e-3), initial_scale=8.0, dynamic_growth_steps=3
        ),
    }
    return known[case.get("optimizer", "sgd")]()


def make_data(case):
    import numpy

    random = numpy.random.default_rng(case.get("seed", 0))
    shape = {"dense": (256,), "tiny": (16,)}.get(case["model"], (512, 8))
    count = case["batch"] * case["steps"]
    dtype = case.get("dtype", "float32")
    return random.random((count, *shape)).astype(dtype), random.random((count, 4)).astype(dtype)


def state_of(model):
    """Everything that training changes, by kind."""
    import numpy

    def arrays(variables):
        return [numpy.array(variable.value.numpy()) for variable in variables]

    return {
        "weights": arrays(model.trainable_variables),
        "statistics": arrays(model.non_trainable_variables),
        "slots": arrays([v for v in model.optimizer.variables if len(v.shape)]),
        "counters": arrays([v for v in model.optimizer.variables if not len(v.shape)]),
        "metrics": arrays(model.metrics_variables),
    }


def differences(found, wanted):
    """The worst difference of each kind, relative to the tensor's largest number; counters must be equal."""
    import numpy

    worst = {}
    for kind, arrays in wanted.items():
        worst[kind] = 0.0
        largest = max([float(numpy.abs(array).max()) for array in arrays if array.size] or [1.0])
        for mine, other in zip(found[kind], arrays, strict=True):
            if mine.shape != other.shape:
                worst[kind] = float("inf")
            elif mine.size and not numpy.array_equal(mine, other):
                scale = max(float(numpy.abs(other).max()), 1e-3 * largest, 1e-30)
                worst[kind] = max(worst[kind], float(numpy.abs(mine.astype("f8") - other).max()) / scale)
    return worst


def recorder(states, ballast=None, plan=None):
    """A callback that keeps the state after each step, and fills memory before those that a plan names."""
    import keras

    class Recorder(keras.callbacks.Callback):
        done = 0

        def on_train_batch_begin(self, batch, logs=None):
            if plan and self.done in plan:
                ballast.fill(plan[self.done])

        def on_train_batch_end(self, batch, logs=None):
            if ballast is not None:
                ballast.drop()
            self.done += 1
            states.append(state_of(self.model))

    return Recorder()


def fit(model, case, callbacks):
    x, y = make_data(case)
    return model.fit(x, y, batch_size=case["batch"], shuffle=False, verbose=0, callbacks=callbacks)


def train(model, case, callbacks, guard=None):
    """One epoch, in `fit` or in a loop of one's own; `guard` is a function that hands back what happened."""
    import legroom

    if case.get("mode", "").startswith("loop"):
        return loop(model, case, callbacks, guard)
    if guard is None:
        return fit(model, case, callbacks)
    callback = legroom.Guard(verbose=False, allow=case.get("allow", ()))
    guard.append(callback)
    return fit(model, case, [callback, *callbacks])


def own_step(model):
    """A training step of one's own, with two metrics that hang on the model."""
    import tensorflow as tf

    optimizer = model.optimizer

    def step(x, y):
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            loss = tf.reduce_mean((predicted - y) ** 2)
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        model.seen.update_state(loss)
        model.missed.update_state(y, predicted)
        return loss

    return step


def loop(model, case, callbacks, guard):
    """A loop of one's own, whose step is `@tf.function`, compiled, or plain."""
    import keras
    import tensorflow as tf

    import legroom

    model.seen = keras.metrics.Mean("seen")
    model.missed = keras.metrics.MeanAbsoluteError("missed")
    step = own_step(model)
    if case["mode"] != "loop eager":
        step = tf.function(step, jit_compile=case["mode"] == "loop xla")
    if guard is not None:
        step = legroom.train_step(step, guard=True, verbose=False, allow=case.get("allow", ()))
        guard.append(step)
    x, y = make_data(case)
    for callback in callbacks:
        callback.set_model(model)
    for number in range(case["steps"]):
        rows = slice(number * case["batch"], (number + 1) * case["batch"])
        batch = tf.constant(x[rows]), tf.constant(y[rows])
        for callback in callbacks:
            callback.on_train_batch_begin(number)
        step(*batch)
        for callback in reversed(callbacks):
            callback.on_train_batch_end(number)


def measurer(found):
    """A callback that finds how much a step takes beside what stays between steps."""
    import keras
    import tensorflow as tf

    class Measurer(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            tf.config.experimental.reset_memory_stats(DEVICE)
            self.base = in_use()

        def on_train_batch_end(self, batch, logs=None):
            found.append(tf.config.experimental.get_memory_info(DEVICE)["peak"] - self.base)

    return Measurer()


def undisturbed(case, kept):
    """The states of a run without ballast, and how much a step takes; the same for all runs with this model and this data."""
    rest = {name: value for name, value in case.items() if name not in ("fills", "name", "allow")}
    key = json.dumps(rest, sort_keys=True)
    if key not in kept:
        plain, guarded, needs = [], [], []
        train(make_model(case), case, [recorder(plain)])
        train(make_model(case), case, [recorder(guarded), measurer(needs)], [])
        same = max(max(differences(a, b).values()) for a, b in zip(guarded, plain, strict=True))
        kept[key] = (guarded, max(needs[1:]), same)
    return kept[key]


def run_case(case, kept, ballast):
    """One training with ballast at some steps: `fills` are pairs of a step and a share of what a step needs."""
    from legroom.guard.retry import GaveUp

    started = time.monotonic()
    wanted, need, same = undisturbed(case, kept)
    plan = {step: int(share * need) for step, share in case["fills"]}
    model, states, gave_up = make_model(case), [], None
    guards, watcher = [], recorder(states, ballast, plan)
    try:
        train(model, case, [watcher], guards)
    except GaveUp as error:
        gave_up = error.message
        ballast.drop()
        states.append(state_of(model))
        wanted = [*wanted[: watcher.done], wanted[watcher.done - 1]] if watcher.done else states
    worst = {}
    for found, right in zip(states, wanted, strict=True):
        for kind, value in differences(found, right).items():
            worst[kind] = max(worst.get(kind, 0.0), value)
    (guard,) = guards
    failures = guard.run.of_kind("out_of_memory")
    return {
        "name": case.get("name", ""),
        "ooms": len(failures),
        "where": sorted({event.where for event in failures}),
        "careful": guard.run.careful_updates,
        "way": [guard.run.way.micro_batches, guard.run.way.recomputed],
        "gave_up": gave_up,
        "worst": worst,
        "iterations": int(model.optimizer.iterations),
        "steps": watcher.done,
        "plain": same,
        "need": need,
        "seconds": time.monotonic() - started,
    }


def whole_or_none(case, model, room):
    """One attempt of a guarded step, with no second one."""
    import keras
    import tensorflow as tf

    from legroom.guard.function_step import FunctionGraphStep, Written
    from legroom.guard.function_update import JointUpdate
    from legroom.guard.training import EagerStep, GraphStep
    from legroom.guard.update import Update
    from legroom.records.run import Way

    if case.get("mode") != "loop":
        return (EagerStep if case.get("mode") == "eager" else GraphStep)(model, room, Update(model, room))
    model.seen, model.missed = keras.metrics.Mean("seen"), keras.metrics.MeanAbsoluteError("missed")
    function = tf.function(own_step(model))
    runner = FunctionGraphStep(Written(function.python_function, function), Way(), JointUpdate(None, room))

    def step(data):
        return runner((data, {}))

    step.update = runner.update
    return step


def run_exhaustive(case, ballast):
    """Each amount of memory that a step could find, 256 bytes apart or more: it is done as a whole, or not at all."""
    import tensorflow as tf

    from legroom.engines.out_of_memory import oom_of
    from legroom.guard.forgetting import forget
    from legroom.guard.room import Room
    from legroom.guard.transaction import StepFailed

    model, room = make_model(case), Room()
    step = whole_or_none(case, model, room)
    x, y = make_data(case)
    data = (tf.constant(x), tf.constant(y))
    step(data)
    everything = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    start = [variable.value.numpy() for variable in everything]
    before = state_of(model)
    step(data)
    after = state_of(model)
    tf.config.experimental.reset_memory_stats(DEVICE)
    base = in_use()
    step(data)
    peak = tf.config.experimental.get_memory_info(DEVICE)["peak"] - base
    found = {"ops": set(), "phases": {}, "wrong": [], "tried": 0, "failed": 0, "careful": 0}
    for free in range(case.get("least", 0), int(1.3 * peak), case.get("apart", 256)):
        for variable, value in zip(everything, start, strict=True):
            variable.assign(value)
        room.refused = None
        ballast.fill(free, finest=256)
        found["tried"] += 1
        error = None
        try:
            step(data)
        except StepFailed as failed:
            error, phase = failed.error, failed.phase
        ballast.drop()
        if error is not None:
            found["failed"] += 1
            found["ops"].add(oom_of(error).op)
            found["phases"][phase] = found["phases"].get(phase, 0) + 1
            forget(error)
            error = None
            worst = differences(state_of(model), before)
            if any(worst.values()):
                found["wrong"].append([free, "not put back", worst])
            step(data)
        worst = differences(state_of(model), after)
        if max(worst.values()) > case.get("tolerance", 0.0):
            found["wrong"].append([free, "not the same step", worst])
    return {**found, "ops": sorted(found["ops"]), "peak": peak, "careful": step.update.careful}


def limit_gpu():
    """A GPU's memory as small as the CPU's, and the same numbers each time."""
    import tensorflow as tf

    (card,) = tf.config.list_physical_devices("GPU")
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]))
    tf.config.set_logical_device_configuration(card, [limit])
    tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(False)


def main():
    if DEVICE != "CPU:0":
        limit_gpu()
    kept, ballast = {}, Ballast()
    for line in sys.stdin:
        case = json.loads(line)
        result = run_exhaustive(case, ballast) if case.get("exhaustive") else run_case(case, kept, ballast)
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
