"""Training steps that a user wrote, in slices: weights as with the whole batch, and what cannot be is refused."""

import numpy as np
import pytest
from loop_bench import (
    CLASSES,
    EXACT,
    FEATURES,
    ROWS,
    Bench,
    arrays,
    clipped,
    difference,
    in_slices,
    mean,
    precision,
    total,
)

import legroom
from legroom.changes.actions import perform
from legroom.errors import InputError
from legroom.records.plan import Action

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def doubles():
    precision("float64")
    yield
    precision("float32")


def wrapped(mode):
    """A step as it is written in this mode, and the same in slices."""
    import tensorflow as tf

    signature = [tf.TensorSpec((None, FEATURES), tf.float64), tf.TensorSpec((None, CLASSES), tf.float64)]
    over = {
        "eager": lambda step: step,
        "graph": tf.function,
        "compiled": tf.function(jit_compile=True),
        "signature": tf.function(input_signature=signature),
        "compiled signature": tf.function(input_signature=signature, jit_compile=True),
        "below": tf.function,
    }[mode]
    if mode == "below":
        return over, lambda step: over(in_slices(step))
    return over, lambda step: in_slices(over(step))


@pytest.mark.parametrize(
    "mode",
    ["eager", "graph", "compiled", "signature", "below", pytest.param("compiled signature", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(("loss", "change"), [(mean, clipped), (total, lambda g: g)], ids=["mean, clipped", "sum"])
def test_weights_losses_and_iterations_are_those_of_the_whole_batch(mode, loss, change):
    plain, sliced = wrapped(mode)
    one, other = Bench(), Bench()
    whole, parts = plain(one.step(loss, change)), sliced(other.step(loss, change))
    for rows in (11, 11, 8, 1):
        batch = arrays(rows, seed=rows)
        assert float(parts(*batch)) == pytest.approx(float(whole(*batch)), rel=1e-12)
    assert difference(one.weights, other.weights) < EXACT
    assert int(other.optimizer.iterations) == 4
    assert difference(one.weights, Bench().weights) > 1e-3


def test_float32_agrees_to_its_precision():
    import tensorflow as tf

    precision("float32")
    one, other = Bench(), Bench()
    batch = [array.astype("float32") for array in arrays()]
    for _ in range(3):
        tf.function(one.step(mean))(*batch)
        in_slices(tf.function(other.step(mean)))(*batch)
    assert difference(one.weights, other.weights) < 1e-3


@pytest.mark.parametrize("graph", [False, True])
def test_arguments_of_any_kind(graph):
    """Nested batches are cut; a rate, a flag, and an array of another size are not; what is returned is put together."""
    import tensorflow as tf

    def make(bench):
        def step(data, rate, *, weights, training=False):
            with tf.GradientTape() as tape:
                p = bench.model(data["x"], training=training)
                each = tf.reduce_sum(weights * (p - data["more"][0]) ** 2, -1)
                loss = tf.reduce_mean(each) * rate
            gradients = tape.gradient(loss, bench.model.trainable_variables)
            bench.optimizer.apply(gradients, bench.model.trainable_variables)
            right = tf.reduce_sum(tf.cast(tf.argmax(p, -1) == tf.argmax(data["more"][0], -1), tf.int32))
            return {"loss": loss, "each": each, "right": right, "rate": rate, "none": None}

        return tf.function(step) if graph else step

    one, other = Bench(), Bench()
    x, y = arrays()
    data = {"x": tf.constant(x), "more": (tf.constant(y),)}
    given = {"weights": tf.constant([1.0, 2.0, 3.0], tf.float64), "training": True}
    rate = tf.constant(0.5, tf.float64)
    whole = make(one)(data, rate, **given)
    parts = in_slices(make(other))(data, rate, **given)
    assert difference(one.weights, other.weights) < EXACT
    assert parts["none"] is None
    for name in ("loss", "each", "right", "rate"):
        assert parts[name].dtype == whole[name].dtype
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12)


@pytest.mark.parametrize("graph", [False, True])
def test_metrics_see_the_whole_batch_and_counters_count_once(graph):
    import keras
    import tensorflow as tf

    def make(bench):
        bench.loss = keras.metrics.Mean()
        bench.accuracy = keras.metrics.CategoricalAccuracy()
        bench.count = tf.Variable(0)
        bench.average = tf.Variable(bench.model.trainable_variables[0].numpy())

        def step(x, y):
            with tf.GradientTape() as tape:
                p = bench.model(x)
                loss = total(y, p)
            variables = bench.model.trainable_variables
            bench.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            bench.count.assign_add(1)
            bench.average.assign(0.9 * bench.average + 0.1 * variables[0])
            bench.loss.update_state(loss)
            bench.accuracy.update_state(y, p)
            return bench.loss.result()

        return tf.function(step) if graph else step

    one, other = Bench(), Bench()
    whole, parts = make(one), in_slices(make(other))
    for seed in (1, 2):
        assert float(parts(*arrays(seed=seed))) == pytest.approx(float(whole(*arrays(seed=seed))), rel=1e-6)
    assert int(other.count) == 2
    assert float(other.loss.count) == 2
    assert float(other.accuracy.result()) == pytest.approx(float(one.accuracy.result()))
    assert float(other.accuracy.count) == 2 * ROWS
    np.testing.assert_allclose(other.average, one.average, atol=EXACT)


def test_weights_updated_by_hand():
    import tensorflow as tf

    def make(weight):
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = mean(y, x @ weight)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
            return loss

        return step

    one, other = (tf.Variable(np.ones((FEATURES, CLASSES))) for _ in range(2))
    make(one)(*arrays())
    in_slices(make(other))(*arrays())
    np.testing.assert_allclose(other, one, atol=EXACT)


def adversarial(one, two):
    """A GAN's step: two tapes, two updates, and a gradient by data inside one of them."""
    import keras
    import tensorflow as tf

    critic_optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def step(real, noise):
        with tf.GradientTape() as generator_tape, tf.GradientTape() as critic_tape:
            fake = one.model(noise)
            with tf.GradientTape() as inner:
                inner.watch(real)
                score = two.model(real)
            slope = tf.norm(inner.gradient(score, real) + 1e-6, axis=-1)
            lost = tf.reduce_mean(two.model(tf.pad(fake, [[0, 0], [0, 2]])))
            gain = tf.reduce_mean(score) - lost + tf.reduce_mean((slope - 1.0) ** 2)
        first, second = one.model.trainable_variables, two.model.trainable_variables
        one_gradients = generator_tape.gradient(lost, first)
        two_gradients = critic_tape.gradient(gain, second)
        one.optimizer.apply_gradients(zip(one_gradients, first, strict=True))
        critic_optimizer.apply_gradients(zip(two_gradients, second, strict=True))
        return lost, gain

    return step, critic_optimizer


def test_several_optimizers_with_a_gradient_penalty():
    import tensorflow as tf

    pairs = [(Bench(), Bench()) for _ in range(2)]
    x, z = arrays()[0], arrays(seed=3)[0]
    whole, _ = adversarial(*pairs[0])
    made, optimizer = adversarial(*pairs[1])
    parts = in_slices(made)
    for _ in range(2):
        whole(tf.constant(x), tf.constant(z))
        parts(tf.constant(x), tf.constant(z))
    assert int(optimizer.iterations) == int(pairs[1][0].optimizer.iterations) == 2
    for one, other in zip(*pairs, strict=True):
        assert difference(one.weights, other.weights) < EXACT


def by_hand(one, two):
    """Weights that no optimizer updates: a sparse gradient, an average that follows, and what is returned is read before."""
    import tensorflow as tf

    table = tf.Variable(tf.reshape(tf.range(40.0, dtype=tf.float64) / 40, (8, FEATURES)))
    scale = tf.Variable(tf.ones((FEATURES,), tf.float64))
    unused = tf.Variable(2.0, dtype=tf.float64)

    @tf.custom_gradient
    def joined(*tensors):
        return tensors, lambda *upstream: upstream

    @tf.function
    def step(x, y):
        rows = tf.cast(tf.abs(x[:, 0]) * 3, tf.int32) % 8
        with tf.GradientTape() as tape, tf.GradientTape() as other:
            tape.watch([table, scale])
            loss = tf.reduce_mean((one.model((x + tf.gather(table, rows)) * scale) - y) ** 2)
            distance = tf.reduce_mean(two.model(x) * unused)
        weights = one.model.trainable_variables
        far = tf.reduce_mean(two.model(x) ** 2)
        sparse, own, *gradients = tape.gradient(loss, [table, scale, *weights])
        others = other.gradient(distance, two.model.trainable_variables)
        own, size = joined(own, tf.reduce_sum(scale**2))
        one.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        table.scatter_sub(tf.IndexedSlices(0.1 * sparse.values, sparse.indices))
        scale.assign_sub(0.1 * own)
        two.optimizer.apply_gradients(zip(others, two.model.trainable_variables, strict=True))
        for follower, weight in zip(two.model.trainable_variables, weights, strict=True):
            follower.assign(0.9 * follower + 0.1 * weight)
        unused.assign_add(0.5)
        return loss, distance, far, size

    return step, (table, scale, unused)


def test_weights_that_are_updated_by_hand():
    import tensorflow as tf

    pairs = [(Bench(), Bench()) for _ in range(2)]
    graph, whole_variables = by_hand(*pairs[0])
    whole = graph.python_function  # in TensorFlow's own graph a weight may change before it is read
    made, variables = by_hand(*pairs[1])
    parts = in_slices(made)
    x, y = map(tf.constant, arrays())
    for _ in range(3):
        assert np.allclose(whole(x, y), parts(x, y), rtol=1e-12, atol=0)
    for one, other in zip(*pairs, strict=True):
        assert difference(one.weights, other.weights) < EXACT
    assert difference([one.numpy() for one in whole_variables], [one.numpy() for one in variables]) < EXACT


def keras_step(*actions):
    """A layer that two branches share, of which one has no gradient."""
    import keras

    layers = keras.layers

    def make(one, _):
        keras.utils.set_random_seed(1)
        shared, given = layers.Dense(FEATURES, name="shared"), keras.Input((FEATURES,))
        held = layers.Lambda(keras.ops.stop_gradient)(shared(shared(given)))
        ends = [layers.Dense(CLASSES, name=name)(part) for name, part in (("first", shared(given)), ("second", held))]
        model = keras.Model(given, ends)
        model.compile("adam", "mse", metrics=[["mae"], ["mae"]])
        perform(model, actions)
        return lambda x, y: model.train_on_batch(x, [y, y]), ()

    return make


def unordered(graph):
    """The assignments of a graph that ran which do not come after whatever reads their variable, nor before it."""
    nodes = {node.name: node for node in graph.node}

    def source(name):
        return name.lstrip("^").split(":")[0]

    def before(name):
        seen, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one in nodes and one not in seen:
                seen.add(one)
                waiting += map(source, nodes[one].input)
        return seen

    def variable(name):
        found = source(nodes[name].input[0])
        while nodes[found].op in ("Enter", "Switch", "Identity", "Merge"):
            found = source(nodes[found].input[0])
        return found

    reads = [name for name in nodes if nodes[name].op in ("ReadVariableOp", "ResourceGather")]
    changes = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterSub")
    assigns = [name for name in nodes if nodes[name].op in changes]
    assert assigns
    return [
        (read, assign)
        for assign in assigns
        for read in reads
        if variable(read) == variable(assign) and read not in before(assign) and assign not in before(read)
    ]


IN_TWO = Action("microbatch", (("count", 2),))
RECOMPUTED = Action("remat", (("blocks", (("shared",),)),))


@pytest.mark.parametrize(
    "make",
    [adversarial, by_hand, keras_step(IN_TWO), keras_step(IN_TWO, RECOMPUTED)],
    ids=["adversarial", "by-hand", "keras-slices", "keras-both"],
)
def test_no_weight_is_updated_before_whatever_reads_it_has_run(make):
    """TensorFlow's optimiser drops control edges, in plain steps too."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    step, _ = make(Bench(), Bench())
    x, other = arrays()[0], arrays(seed=3)[0 if make is adversarial else 1]
    context.enable_run_metadata()
    try:
        (in_slices(step) if hasattr(step, "python_function") else step)(tf.constant(x), tf.constant(other))
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    parts = [part for graph in graphs for part in graph.partition_graphs]
    assert unordered(max(parts, key=lambda part: len(part.node))) == []


@pytest.mark.parametrize("graph", [False, True])
def test_sparse_gradients_stay_sparse(graph):
    import keras
    import tensorflow as tf

    kinds = []

    def make():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Embedding(20, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = mean(y, model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            kinds.append(type(gradients[0]).__name__)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        return model, tf.function(step) if graph else step

    x, y = np.arange(22).reshape(11, 2) % 20, np.ones((11, 1))  # models that are built by their first step
    (one, whole), (other, parts) = make(), make()
    whole(x, y)
    in_slices(parts)(x, y)
    assert set(kinds) == {"IndexedSlices"}
    assert difference(one.get_weights(), other.get_weights()) < EXACT


def test_inner_functions_and_control_flow():
    """Gradients taken in a tf.function inside the step, and a loop over tensors that AutoGraph turns into a graph's."""
    import tensorflow as tf

    def make(bench):
        @tf.function
        def update(x, y):
            with tf.GradientTape() as tape:
                loss = tf.constant(0.0, tf.float64)
                for power in tf.range(2):
                    if power > 0:
                        loss += mean(y, bench.model(x))
            variables = bench.model.trainable_variables
            bench.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        @tf.function
        def step(x, y):
            return update(x, y) * 2.0

        return step

    one, other = Bench(), Bench()
    whole, parts = make(one), in_slices(make(other))
    for _ in range(2):
        assert float(parts(*arrays())) == pytest.approx(float(whole(*arrays())), rel=1e-12)
    assert difference(one.weights, other.weights) < EXACT
    assert int(other.optimizer.iterations) == 2


def test_a_loss_scale_is_undone_once():
    import keras
    import tensorflow as tf

    precision("float32")
    keras.config.set_dtype_policy("mixed_float16")
    benches = [Bench(), Bench()]

    def make(bench):
        bench.optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=64.0)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = mean(y, tf.cast(bench.model(x), tf.float32))
                scaled = bench.optimizer.scale_loss(loss)
            variables = bench.model.trainable_variables
            bench.optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
            return loss

        return step

    batch = [array.astype("float32") for array in arrays()]
    whole, parts = make(benches[0]), in_slices(make(benches[1]))
    for _ in range(2):
        whole(*batch)
        parts(*batch)
    assert difference(benches[0].weights, benches[1].weights) < 2e-3
    assert int(benches[1].optimizer.inner_optimizer.iterations) == 2


def test_random_layers_are_equivalent_and_normalisation_is_asked_for():
    import keras

    bench = Bench(lambda: keras.layers.Dropout(0.5))
    step = in_slices(bench.step(mean))
    step(*arrays())
    assert step.legroom_step.effect().exactness == "equivalent"

    bench = Bench(keras.layers.BatchNormalization)
    with pytest.raises(InputError, match="statistics from the slice") as refused:
        in_slices(bench.step(mean))(*arrays())
    assert "batchnorm-split" in str(refused.value)
    before = bench.weights
    step = in_slices(bench.step(mean), allow=("batchnorm-split",))
    step(*arrays())
    assert step.legroom_step.effect().exactness == "inexact"
    assert difference(bench.weights, before) > 1e-3


def masked(y, p):
    import tensorflow as tf

    mask = tf.cast(y > 0, p.dtype)
    return tf.reduce_sum(mask * (p - y) ** 2) / tf.reduce_sum(mask)


def without_minus_one(y, p):
    import tensorflow as tf

    mask = tf.cast(y != -1.0, p.dtype)
    return tf.reduce_sum(mask * (p - y) ** 2) / tf.reduce_sum(mask)


def contrastive(y, p):
    import tensorflow as tf

    return tf.reduce_mean((p @ tf.transpose(p)) ** 2)


@pytest.mark.parametrize("loss", [masked, without_minus_one, contrastive])
def test_losses_that_are_neither_means_nor_sums_are_refused(loss):
    bench = Bench()
    before = bench.weights
    with pytest.raises(InputError, match="neither a mean over the samples nor a sum"):
        in_slices(bench.step(loss))(*arrays())
    assert difference(bench.weights, before) == 0


def test_gradients_divided_by_the_size_of_a_slice_are_refused():
    import tensorflow as tf

    bench = Bench()

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = total(y, bench.model(x))
        variables = bench.model.trainable_variables
        gradients = [g / tf.cast(tf.shape(x)[0], g.dtype) for g in tape.gradient(loss, variables)]
        bench.optimizer.apply(gradients, variables)

    with pytest.raises(InputError, match="changes its gradients"):
        in_slices(step)(*arrays())


def test_weights_used_again_after_their_update_are_refused():
    import tensorflow as tf

    bench = Bench()
    step = bench.step(mean)

    def twice(x, y):
        step(x, y)
        return step(x, y)

    with pytest.raises(InputError, match="computes with them again"):
        in_slices(tf.function(twice))(*arrays())


def test_a_rate_and_a_counter_are_assigned_once_before_the_gradients_too():
    import tensorflow as tf

    def make(bench):
        bench.count, inner = tf.Variable(0, dtype=tf.int64), bench.step(mean)

        @tf.function
        def step(x, y, rate):
            bench.count.assign_add(1)
            bench.optimizer.learning_rate = rate
            loss = inner(x, y)
            return loss, tf.identity(bench.count)

        return step

    one, other = Bench(), Bench()
    whole, parts = make(one), in_slices(make(other))
    for rate in (0.1, 0.01):
        given = (*arrays(), tf.constant(rate, tf.float64))
        assert int(whole(*given)[1]) == int(parts(*given)[1])
    assert int(other.count) == 2
    assert difference(one.weights, other.weights) < EXACT


def test_assignments_that_cannot_be_made_once_are_refused():
    import tensorflow as tf

    bench, seen = Bench(), tf.Variable(0.0, dtype=tf.float64, name="seen")
    hidden = tf.Variable(1.0, dtype=tf.float64, trainable=False)
    inner = bench.step(mean)

    def before(x, y):
        seen.assign_add(1.0)
        return bench.step(lambda y, p: mean(y, p) * seen)(x, y)

    def unseen(x, y):
        hidden.assign_add(1.0)
        return bench.step(lambda y, p: mean(y, p) * hidden)(x, y)  # TensorFlow reads it where nobody can listen

    def after(x, y):
        loss = inner(x, y)
        seen.assign_add(loss)
        return loss

    with pytest.raises(InputError, match=r"'seen.*computes gradients or values with it"):
        in_slices(before)(*arrays())
    with pytest.raises(InputError, match="cannot be run in slices"):
        in_slices(unseen)(*arrays())
    with pytest.raises(InputError, match=r"'seen.*depends on the samples"):
        in_slices(after)(*arrays())
    assert (float(seen), float(hidden)) == (0.0, 1.0)


def test_updates_that_nobody_can_hold_back_are_refused_and_undone():
    import tensorflow as tf

    bench = Bench()
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    before = bench.weights

    def step(x, y):
        variables = [variable.value for variable in bench.model.trainable_variables]
        with tf.GradientTape() as tape:
            loss = mean(y, bench.model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    with pytest.raises(InputError, match="cannot be held back"):
        in_slices(step)(*arrays())
    assert difference(bench.weights, before) == 0


def test_values_that_cannot_be_put_together_are_refused():
    import tensorflow as tf

    step = Bench().step(mean, result=lambda loss, y, p: tf.math.reduce_std(p))
    with pytest.raises(InputError, match="value that it returns"):
        in_slices(step)(*arrays())


def test_noise_of_a_fixed_size_is_refused_and_noise_of_the_slices_is_equivalent():
    import tensorflow as tf

    bench = Bench()

    def step_of(rows):
        return lambda x, y: bench.step(mean_of(tf.random.normal((rows(x), FEATURES), dtype=tf.float64)))(x, y)

    def mean_of(noise):
        return lambda y, p: mean(y, p) + tf.reduce_mean(bench.model(noise) ** 2)

    with pytest.raises(InputError, match="random numbers for 11 samples"):
        in_slices(step_of(lambda x: ROWS))(*arrays())
    step = in_slices(step_of(lambda x: tf.shape(x)[0]))
    step(*arrays())
    assert step.legroom_step.effect().exactness == "equivalent"


def test_functions_that_are_no_training_steps_are_refused():
    import tensorflow as tf

    bench = Bench()

    def only_gradients(x, y):
        with tf.GradientTape() as tape:
            loss = mean(y, bench.model(x))
        return tape.gradient(loss, bench.model.trainable_variables)

    with pytest.raises(InputError, match="updates nothing"):
        in_slices(only_gradients)(*arrays())
    with pytest.raises(InputError, match="takes no gradients"):
        in_slices(lambda x, y: mean(y, bench.model(x)))(*arrays())
    with pytest.raises(InputError, match="takes no batch"):
        in_slices(bench.step(mean))(1, 2)
    with pytest.raises(InputError, match="RaggedTensor"):
        in_slices(bench.step(mean))(tf.ragged.constant([[1.0], [1.0, 2.0]]), 1)
    with pytest.raises(InputError, match="split already"):
        in_slices(in_slices(bench.step(mean)))
    with pytest.raises(InputError, match="cannot be cut into 0"):
        in_slices(bench.step(mean), 0)
    with pytest.raises(InputError, match="either micro_batches or a plan"):
        legroom.train_step(bench.step(mean))


def test_a_plan_is_done_to_the_step_and_to_its_model():
    import tensorflow as tf

    from legroom.records.plan import Action, Plan

    one, other = Bench(), Bench()
    names = tuple(layer.name for layer in other.model.layers[:2])
    actions = (Action("microbatch", (("count", 3),)), Action("remat", (("blocks", (names,)),)))
    step = legroom.train_step(plan=Plan(actions, 1, 1, 1, True, 1.0))(tf.function(other.step(mean)))
    tf.function(one.step(mean))(*arrays())
    step(*arrays())
    assert difference(one.weights, other.weights) < EXACT


def test_nothing_is_left_replaced():
    import keras
    import tensorflow as tf

    names = [(tf.GradientTape, "gradient"), (keras.Layer, "__call__"), (keras.optimizers.Adam, "apply")]
    before = [getattr(owner, name) for owner, name in names]
    in_slices(Bench().step(mean))(*arrays())
    with pytest.raises(InputError):
        in_slices(Bench().step(masked))(*arrays())
    assert [getattr(owner, name) for owner, name in names] == before


def test_a_head_of_zeros_gives_the_same_loss_for_every_slice_at_first_and_not_later():
    import keras
    import tensorflow as tf

    precision("float32")

    def losses(count):
        keras.utils.set_random_seed(2)
        layers = keras.layers
        head = layers.Dense(2, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(16, "gelu"), head])
        optimizer, seen = keras.optimizers.SGD(0.5, momentum=0.9), keras.metrics.Mean()

        def step(x, y):
            with tf.GradientTape() as tape:
                logits = model(x, training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            seen.update_state(loss)
            return loss

        step = tf.function(step) if count == 1 else legroom.train_step(tf.function(step), micro_batches=count)
        random = np.random.default_rng(0)
        found = []
        for _ in range(4):
            x = random.normal(size=(24, FEATURES)).astype("float32")
            found.append(float(step(tf.constant(x), tf.constant(np.arange(24, dtype="int32") % 2))))
        return [*found, float(seen.result())]

    np.testing.assert_allclose(losses(4), losses(1), rtol=1e-5)


def test_gradients_have_their_variables_shape_where_the_batch_is_of_any_size():
    import keras
    import tensorflow as tf

    def weights(count):
        keras.utils.set_random_seed(1)
        layers = keras.layers
        model = keras.Sequential(
            [keras.Input((4, 3)), layers.Dense(6, "tanh"), layers.GlobalAveragePooling1D(), layers.Dense(1)]
        )
        optimizer = keras.optimizers.SGD(0.1)

        @tf.function(input_signature=[tf.TensorSpec([None, 4, 3], tf.float64), tf.TensorSpec([None, 1], tf.float64)])
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        run = legroom.train_step(micro_batches=count)(step) if count > 1 else step
        x = np.random.default_rng(0).normal(size=(8, 4, 3))
        for rows in (8, 6):
            run(x[:rows], x[:rows, 0, :1])
        return [variable.numpy() for variable in model.variables]

    for one, other in zip(weights(1), weights(2), strict=True):
        np.testing.assert_allclose(other, one, rtol=EXACT)


def test_gradients_that_cancel_out_are_no_reason():
    """Samples of both signs: the batch's gradient is a hundredth of its slices', and so much larger is rounding in it."""
    import keras
    import tensorflow as tf

    precision("float32")
    weight = tf.Variable(tf.fill([4000], 0.37))
    optimizer = keras.optimizers.SGD(0.1)
    signs = np.array([1, 1, 1, -1, -1, -1], "float32")[:, None]
    rows = signs * (1.0 + 1e-4 * np.random.default_rng(0).normal(size=(6, 4000))).astype("float32")

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.reduce_sum(tf.sin(x) * weight, -1))
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    legroom.train_step(micro_batches=2)(step)(tf.constant(rows))
    wanted = 0.37 - 0.1 * np.sin(rows.astype("float64")).mean(0)
    np.testing.assert_allclose(weight.numpy(), wanted, atol=1e-6)


def words(keep, ids=11, loss=None):
    """A step that predicts ids from ids, with a mean over those that `keep` says."""
    import keras
    import tensorflow as tf

    precision("float32")
    layers = keras.layers
    model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(ids, 5), layers.Dense(ids)])
    optimizer = keras.optimizers.SGD(0.1)

    def step(x, y):
        with tf.GradientTape() as tape:
            values = keras.losses.sparse_categorical_crossentropy(tf.clip_by_value(y, 0, ids - 1), model(x), True)
            kept = tf.cast(keep(y), values.dtype)
            mean = tf.reduce_sum(values * kept) / tf.maximum(tf.reduce_sum(kept), 1.0)
            mean = mean if loss is None else loss(values, y)
        optimizer.apply_gradients(
            zip(tape.gradient(mean, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return mean

    return step


def ids(low=4, high=11):
    random = np.random.default_rng(0)
    return random.integers(low, high, (8, 6)).astype("int32"), random.integers(low, high, (8, 6)).astype("int32")


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("padding", [3, 50256, -100])
def test_padding_that_the_first_batch_does_not_have_is_refused(padding, graph):
    import tensorflow as tf

    step = words(lambda y: y != padding)
    with pytest.raises(InputError, match="neither a mean over the samples nor a sum"):
        in_slices(tf.function(step) if graph else step)(*ids())


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("above", [True, False])
def test_a_threshold_that_no_sample_is_beyond_is_refused(above, graph):
    import tensorflow as tf

    def thresholded(y, p):
        kept = tf.cast(y > -1000 if above else y < 500, p.dtype)
        return tf.reduce_sum((p - y) ** 2 * kept) / tf.reduce_sum(kept)

    step = Bench().step(thresholded)
    with pytest.raises(InputError, match="neither a mean over the samples nor a sum"):
        in_slices(tf.function(step) if graph else step)(*arrays())


def test_a_mean_that_compares_its_samples_is_none_the_worse_for_it():
    import tensorflow as tf

    def weighed(values, y):
        heavy = tf.where(tf.logical_or(y == 3, y > 50256), 2.0, 1.0)
        return tf.reduce_mean(values * heavy * tf.cast(y != 7, values.dtype))

    step = in_slices(tf.function(words(lambda y: y == y, loss=weighed)))  # noqa: PLR0124
    assert float(step(*ids())) > 0


def test_what_an_embedding_does_not_have_is_no_reason():
    import tensorflow as tf

    step = in_slices(tf.function(words(lambda y: y == y, loss=lambda values, y: tf.reduce_mean(values))))  # noqa: PLR0124
    for _ in range(2):
        assert float(step(*ids())) > 0


def test_numbers_for_metrics_with_a_weight_are_those_of_the_whole_batch():
    import keras
    import tensorflow as tf

    batch, found = arrays(), []
    for slices in (1, 4):
        summed, weighed = keras.metrics.Mean(), keras.metrics.Mean()

        def result(loss, y, p, summed=summed, weighed=weighed):
            summed.update_state(loss, sample_weight=tf.shape(y)[0])
            kept = tf.cast(y > 0, p.dtype)
            mean = tf.reduce_sum((p - y) ** 2 * kept) / tf.reduce_sum(kept)
            weighed.update_state(mean, sample_weight=tf.reduce_sum(kept))
            return loss

        in_slices(tf.function(Bench().step(total, result=result)), slices)(*batch)
        found.append((float(summed.result()), float(weighed.result()), float(weighed.count)))
    assert found[1] == pytest.approx(found[0], rel=1e-12)


def sure(y, p):
    """A mean over the samples that the model is not sure of yet, which at first are all."""
    import tensorflow as tf

    kept = tf.cast(tf.reduce_max(tf.nn.softmax(p), axis=-1) < 0.9, p.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(tf.reduce_sum((p - y) ** 2, -1) * kept), tf.reduce_sum(kept))


@pytest.mark.parametrize("mode", ["eager", "graph", "below"])
def test_a_threshold_for_what_the_model_is_sure_of_is_refused(mode):
    _, sliced = wrapped(mode)
    with pytest.raises(InputError, match="cannot be run in slices"):
        sliced(Bench().step(sure))(*arrays())


@pytest.mark.parametrize("mode", ["eager", "graph", "compiled", "below"])
@pytest.mark.parametrize("limit", [1e9, 1.8])
def test_an_update_only_where_its_gradients_are_small_enough(mode, limit):
    import tensorflow as tf

    plain, sliced = wrapped(mode)

    def guarded(bench):
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = mean(y, bench.model(x, training=True))
            gradients = tape.gradient(loss, bench.model.trainable_variables)
            if tf.linalg.global_norm(gradients) < limit:
                bench.optimizer.apply_gradients(zip(gradients, bench.model.trainable_variables, strict=True))
            return loss

        bench.optimizer.build(bench.model.trainable_variables)
        return step

    one, other = Bench(), Bench()
    whole, parts = plain(guarded(one)), sliced(guarded(other))
    for seed in range(6):
        x, y = arrays(seed=seed)
        batch = tf.constant(x), tf.constant((0.2 if seed % 2 else 1.0) * y)
        assert float(parts(*batch)) == pytest.approx(float(whole(*batch)), rel=1e-12)
    assert difference(one.weights, other.weights) < EXACT
    assert int(other.optimizer.iterations) == int(one.optimizer.iterations)
    assert (int(one.optimizer.iterations) == 6) == (limit > 2)


def test_a_share_that_is_none_or_all_when_it_is_tried_is_the_batchs_own():
    import keras
    import tensorflow as tf

    found = []
    for slices in (1, 4):
        share = keras.metrics.Mean()

        def result(loss, y, p, share=share):
            share.update_state(tf.reduce_mean(tf.cast(y > 100.0, p.dtype)))
            return loss

        x, y = arrays()
        y[2], y[9] = 200, 300
        step = in_slices(tf.function(Bench().step(total, result=result)), slices)
        step(x, np.zeros_like(y))
        step(x, y)
        found.append(float(share.result()))
    assert found[1] == pytest.approx(found[0], rel=1e-12)


def test_several_means_in_one_array_are_each_put_together():
    import tensorflow as tf

    batch = arrays()
    result = lambda loss, y, p: tf.reduce_mean((p - y) ** 2, axis=0)  # noqa: E731
    whole, parts = (in_slices(Bench().step(mean, result=result), slices)(*batch) for slices in (1, 4))
    assert difference([whole.numpy()], [parts.numpy()]) < EXACT


def test_a_truth_that_depends_on_the_samples_is_refused():
    import tensorflow as tf

    step = Bench().step(mean, result=lambda loss, y, p: tf.reduce_any(y > 1.5))
    x, y = arrays()
    y[:] = 0
    y[0] = 2
    with pytest.raises(InputError, match="value that it returns"):
        in_slices(step)(x, y)


@pytest.mark.parametrize("graph", [False, True])
def test_an_optimizer_that_adds_gradients_up_over_several_steps(graph):
    import keras
    import tensorflow as tf

    one, other = Bench(), Bench()
    for bench in (one, other):
        bench.optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    steps = [tf.function(bench.step(mean)) if graph else bench.step(mean) for bench in (one, other)]
    parts = in_slices(steps[1])
    for seed in range(4):
        steps[0](*arrays(seed=seed))
        parts(*arrays(seed=seed))
    assert difference(one.weights, other.weights) < EXACT
    assert int(one.optimizer.iterations) == int(other.optimizer.iterations) == 2


def test_gradients_that_are_clipped_by_a_norm_that_is_no_number_in_a_trial():
    """Trials with weights and samples 30 times as large; the squares of their gradients are infinite in single precision."""
    import tensorflow as tf

    def steep(y, p):
        return tf.reduce_mean(tf.exp(tf.cast(tf.abs(p) * 1.2, tf.float32))) + tf.cast(mean(y, p), tf.float32)

    def clipped(gradients):
        return tf.clip_by_global_norm([tf.cast(one, tf.float32) for one in gradients], 1.0)[0]

    precision("float32")
    one, other = Bench(), Bench()
    whole, parts = one.step(steep, clipped), in_slices(other.step(steep, clipped))
    batch = [array.astype("float32") for array in arrays()]
    whole(*batch)
    parts(*batch)
    assert difference(one.weights, other.weights) < 1e-5


@pytest.mark.parametrize("graph", [False, True])
def test_an_argument_that_is_as_long_as_the_last_batch_is_none_of_it(graph):
    import tensorflow as tf

    weights = np.linspace(0.5, 1.5, CLASSES)

    def made():
        bench = Bench()
        own = bench.step(lambda y, p: tf.reduce_mean(tf.constant(weights) * (p - y) ** 2))

        def step(x, y, each):
            return own(x, y * tf.reshape(tf.cast(each, y.dtype), (1, CLASSES)))

        return bench, tf.function(step) if graph else step

    (one, whole), (other, step) = made(), made()
    parts = in_slices(step)
    for rows in (7, CLASSES):
        x, y = arrays(rows)
        whole(x, y, tf.constant(weights))
        parts(x, y, tf.constant(weights))
    assert difference(one.weights, other.weights) < EXACT
