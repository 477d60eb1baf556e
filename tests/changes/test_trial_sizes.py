"""What changes from some size of the batch on, or with an odd size, is found where losses, models and steps are tried out; and what is not finite is not."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from loop_bench import Bench, arrays, difference, in_slices, precision

from legroom.changes.cutting import LEAST, LONG, MANY, NUMBERS, cut_many, rows_for
from legroom.changes.microbatch import split
from legroom.changes.microbatch_samples import check_samples
from legroom.errors import InputError, LegroomError

X, Y = np.random.default_rng(0).random((2, 12, 6)).astype("float32")
Y = Y[:, :3]
NEITHER = "neither a mean over the samples nor a sum"


def each(y: Any, p: Any) -> Any:
    return ops.mean(ops.square(y - p), axis=-1)


def hardest(y: Any, p: Any) -> Any:
    return ops.mean(ops.top_k(each(y, p), min(8, y.shape[0]))[0])


def last_eight(y: Any, p: Any) -> Any:
    return ops.mean(each(y, p)[-8:])


def trimmed(y: Any, p: Any) -> Any:
    values = ops.sort(each(y, p))
    return ops.mean(values[: values.shape[0] - values.shape[0] // 10])


def from_eight_on(y: Any, p: Any) -> Any:
    return ops.mean(ops.square(y - p)) if y.shape[0] >= 8 else ops.mean(ops.abs(y - p))


def neighbours(y: Any, p: Any) -> Any:
    return ops.mean(ops.square(p[::2] - p[1::2]))


def every_other(y: Any, p: Any) -> Any:
    return ops.mean(each(y, p) * ops.cast(ops.arange(ops.shape(p)[0]) % 2, p.dtype))


def in_pairs(y: Any, p: Any) -> Any:
    pairs = ops.reshape(p, (-1, 2, 3))
    return ops.mean(ops.square(pairs[:, 0] - pairs[:, 1]))


def masked_rows(y: Any, p: Any) -> Any:
    """Of a sample that is masked altogether it is no number."""
    kept = ops.cast(y != 0, p.dtype)
    return ops.sum(ops.square(y - p) * kept, axis=-1) / ops.sum(kept, axis=-1)


def mean_of_masked_rows(y: Any, p: Any) -> Any:
    return ops.mean(masked_rows(ops.round(y), p))


REFUSED = (hardest, last_eight, trimmed, from_eight_on, neighbours, every_other, in_pairs)
TAKEN = (masked_rows, mean_of_masked_rows)


def network(*middle: Any) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((6,)), *middle, layers.Dense(3)])


def loss_said(loss: Any) -> str:
    model = network()
    model.compile("sgd", loss)
    try:
        split(model, 2)
        model.train_on_batch(X, Y)
    except LegroomError as error:
        return str(error)
    return ""


@pytest.mark.tensorflow
@pytest.mark.parametrize("loss", REFUSED)
def test_losses_by_the_size_of_the_batch_are_refused(loss: Any) -> None:
    assert "in slices of the batch" in loss_said(loss)


@pytest.mark.tensorflow
def test_what_a_loss_raises_on_odd_numbers_is_its_reason() -> None:
    assert "on an odd number of samples it raises" in loss_said(in_pairs)


@pytest.mark.tensorflow
@pytest.mark.parametrize("loss", TAKEN)
def test_samples_that_are_masked_altogether_are_no_reason(loss: Any) -> None:
    assert loss_said(loss) == ""


@pytest.mark.jax
def test_on_jax_too() -> None:
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_trial_sizes as here
print("FOUND " + json.dumps([here.loss_said(loss) for loss in (here.hardest, here.every_other, here.in_pairs, *here.TAKEN)]))
"""
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code, str(pathlib.Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.split("FOUND ")[1])
    assert ["in slices of the batch" in one for one in said] == [True, True, True, False, False]


class Own(layers.Layer):  # type: ignore[misc]
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def call(self, x: Any) -> Any:
        return self.function(x)


def centred(x: Any) -> Any:
    return x - ops.mean(x, axis=0)


def deviations_in_fours(x: Any) -> Any:
    """As in StyleGAN."""
    groups = ops.reshape(x, (4, -1, 6))
    spread = ops.mean(ops.std(groups, axis=0), axis=-1, keepdims=True)
    return ops.concatenate([x, ops.tile(spread, (4, 1))], axis=-1)


def centred_from_seven_on(x: Any) -> Any:
    return centred(x) if (x.shape[0] or 0) > 6 else x


def of_positive(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import tensorflow as tf

    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
            return function(x)

    return call


def of_shares(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import tensorflow as tf

    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_near(tf.reduce_sum(x, -1), 1.0, rtol=1e-3)]):
            return function(x)

    return call


def without_memory(function: Callable[[Any], Any], rows: int) -> Callable[[Any], Any]:
    import tensorflow as tf

    def call(x: Any) -> Any:
        if (x.shape[0] or 0) >= rows:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return function(x)

    return call


def never(x: Any) -> Any:
    if x.shape[0]:
        raise ValueError("These are no words of mine.")
    return x


def model_said(function: Callable[[Any], Any]) -> str:
    model = keras.Sequential([Own(function), layers.Dense(3)])
    model.build((None, 6))
    model.compile("sgd", "mse", run_eagerly=True)
    try:
        check_samples(model, keras.KerasTensor((12, 6)), 6)
    except LegroomError as error:
        return str(error)
    return ""


@pytest.mark.tensorflow
def test_models_that_look_at_several_samples_are_found_with_what_they_take() -> None:
    for function in (deviations_in_fours, of_positive(centred), of_shares(centred)):
        assert "looks at several samples" in model_said(function)


@pytest.mark.tensorflow
def test_and_those_that_do_so_in_large_batches() -> None:
    assert "depends on the size of the batch" in model_said(centred_from_seven_on)


@pytest.mark.tensorflow
def test_models_that_take_some_inputs_only_are_taken_where_they_keep_samples_apart() -> None:
    for function in (of_positive(ops.sqrt), of_shares(ops.log)):
        assert model_said(function) == ""


@pytest.mark.tensorflow
def test_a_model_that_takes_no_made_up_samples_is_refused_with_its_reason() -> None:
    assert "on made-up ones it raises" in model_said(never)
    assert "These are no words of mine." in model_said(never)


@pytest.mark.tensorflow
def test_where_there_is_no_memory_for_six_samples_two_are_tried() -> None:
    assert "looks at several samples" in model_said(without_memory(centred, 6))
    assert model_said(without_memory(ops.tanh, 6)) == ""
    assert model_said(without_memory(centred, 1)) == ""  # nor for two


@pytest.fixture
def doubles() -> Any:
    precision("float64")
    yield
    precision("float32")


def training(loss: Any, result: Any = None, rows: int = 24, count: int = 3) -> Any:
    return in_slices(Bench().step(loss, result=result), count)(*arrays(rows))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("loss", [hardest, last_eight, trimmed, from_eight_on])
def test_steps_by_the_size_of_the_batch_are_refused(loss: Any) -> None:
    with pytest.raises(InputError, match=NEITHER):
        training(loss)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("doubles")
def test_and_what_they_return() -> None:
    with pytest.raises(InputError, match=r"value that it returns \(number 1\)"):
        training(lambda y, p: ops.mean(each(y, p)), lambda loss, y, p: p[:8])


@pytest.mark.tensorflow
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("seed", range(3))  # the first slice's sum may be the largest, or the smallest
def test_and_what_their_metrics_count(seed: int) -> None:
    average = keras.metrics.Mean()
    result = lambda loss, y, p: average.update_state(p[:8]) and loss  # noqa: E731
    step = in_slices(Bench().step(lambda y, p: ops.mean(each(y, p)), result=result), 3)
    with pytest.raises(InputError, match="what does not add up over the slices"):
        step(*arrays(24, seed))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("loss", [neighbours, every_other])
def test_steps_that_go_by_pairs_are_cut_between_them(loss: Any) -> None:
    whole, cut = Bench(), Bench()
    sliced = in_slices(cut.step(loss), 3)
    for rows in (24, 12):
        whole.step(loss)(*arrays(rows))
        sliced(*arrays(rows))
    assert difference(whole.weights, cut.weights) < 1e-11


@pytest.mark.tensorflow
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("loss", [neighbours, every_other])
def test_and_not_through_one_of_them(loss: Any) -> None:
    sliced = in_slices(Bench().step(loss), 4)
    sliced(*arrays(24))
    with pytest.raises(InputError, match=NEITHER):
        sliced(*arrays(12))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("doubles")
def test_what_a_step_raises_on_odd_numbers_is_its_reason() -> None:
    with pytest.raises(InputError, match="could not be tried out on an odd number of samples"):
        training(in_pairs, rows=12, count=4)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(96, None), (12, 3), (24, 8), (13, 13), (1000, 250), (7, 4)])
def test_many_rows_are_cut_into_slices_of_which_one_is_small(rows: int, size: int | None, even: bool) -> None:
    cutting = cut_many(rows, None if even and (size or 0) % 2 else size, even=even)
    stops = [stop for _, stop in cutting.cuts]
    sizes = [stop - start for start, stop in cutting.cuts]
    assert [0, *stops[:-1]] == [start for start, _ in cutting.cuts]
    assert cutting.rows == stops[-1] == rows - (rows % 2 if even else 0)
    assert len(sizes) > 1
    assert min(sizes) <= 5
    assert not even or not any(one % 2 for one in sizes)
    assert sum(cutting.shares) == pytest.approx(1)


def test_as_many_are_tried_as_there_is_time_and_memory_for() -> None:
    assert rows_for(10, 0.001) == MANY
    assert rows_for(10, 0.001, 40) == 40
    assert rows_for(10, 0.001, 6) == 0
    assert rows_for(10, 0.9 * LONG) == LEAST
    assert rows_for(10, 1.1 * LONG) == 0
    assert rows_for(NUMBERS // 20, 0.001) == 20
    assert rows_for(NUMBERS, 0.001) == 0
