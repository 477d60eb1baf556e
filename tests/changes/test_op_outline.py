"""Steps that go another way than when they were tried out, by something in Python that nobody watches: told by their operations."""

import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from loop_bench import EXACT, Bench, arrays, difference, in_slices, mean, precision

from legroom.changes.microbatch import split
from legroom.changes.op_outline import MOST, Outline, Outlines, outlined
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow
WORD: ContextVar[str] = ContextVar("WORD", default="easy")
NAME = "LEGROOM_TEST_WAY"


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    precision("float64")
    os.environ[NAME] = ""
    WORD.set("easy")
    yield
    precision("float32")
    os.environ.pop(NAME)


def run(function: Callable[..., Any], *given: Any) -> frozenset[int]:
    with outlined(traced=False) as outline:
        function(*given)
    return frozenset(outline.labels)


def test_the_size_of_a_batch_is_no_matter() -> None:
    bench = Bench()
    step = bench.step(mean)
    step(*arrays())
    assert run(step, *arrays(6)) == run(step, *arrays(9))


@pytest.mark.parametrize("other", [lambda t: t[:2], lambda t: t * 2, lambda t: ops.sum(t, axis=1)])
def test_another_computation_is_another(other: Callable[..., Any]) -> None:
    import tensorflow as tf

    given = tf.ones((3, 4))
    assert run(lambda t: ops.sum(t, axis=0), given) != run(other, given)


def test_what_is_traced_is_not_heard_as_if_it_ran() -> None:
    import tensorflow as tf

    with outlined(traced=False) as ran, outlined(traced=True) as traced:
        tf.function(lambda t: tf.nn.relu(t) * 2).get_concrete_function(tf.TensorSpec([2]))
    assert not ran.labels
    assert traced.labels


def test_of_many_ways_only_what_is_new_counts() -> None:
    def of(*labels: int) -> Outline:
        outline = Outline(traced=False)
        outline.labels.update(labels)
        return outline

    known = Outlines()
    for number in range(MOST):
        known.add(of(number, number + 1))
    assert known.has(of(0, 5))
    assert not known.has(of(0, MOST + 5))
    few = Outlines()
    few.add(of(0, 5))
    assert not few.has(of(0))


class Settings:
    held: "Settings | None" = None

    @classmethod
    def get(cls) -> "Settings":
        cls.held = cls.held or cls()
        return cls.held


def environment(bench: Bench) -> tuple[Callable[[], Any], Callable[[], Any]]:
    os.environ[NAME] = ""
    return lambda: os.environ[NAME], lambda: os.environ.update({NAME: "hard"})


def context(bench: Bench) -> tuple[Callable[[], Any], Callable[[], Any]]:
    WORD.set("easy")
    return lambda: WORD.get() == "hard", lambda: WORD.set("hard")


def single(bench: Bench) -> tuple[Callable[[], Any], Callable[[], Any]]:
    settings = Settings.get()
    vars(settings).pop("hard", None)
    return lambda: hasattr(Settings.get(), "hard"), lambda: setattr(settings, "hard", True)


def of_the_model(bench: Bench) -> tuple[Callable[[], Any], Callable[[], Any]]:
    bench.model.phase = "easy"
    return lambda: bench.model.phase == "hard", lambda: setattr(bench.model, "phase", "hard")


def counter(bench: Bench) -> tuple[Callable[[], Any], Callable[[], Any]]:
    calls = iter(range(1000))
    limit = [10**6]
    return lambda: next(calls) > limit[0], lambda: limit.insert(0, -1)


def dictionary(bench: Bench) -> tuple[Callable[[], Any], Callable[[], Any]]:
    class Attributes(dict):  # type: ignore[type-arg]
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__

    settings = Attributes(hard=False)
    return lambda: settings.hard, lambda: settings.update(hard=True)


WAYS = (environment, context, single, of_the_model, counter, dictionary)


def hardest(y: Any, p: Any) -> Any:
    """The harder half of its samples: it compares them."""
    import tensorflow as tf

    each = tf.reduce_mean((p - y) ** 2, -1)
    return tf.reduce_mean(tf.sort(each)[tf.shape(each)[0] // 2 :])


def steeper(y: Any, p: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(tf.abs(p - y) ** 3)


@pytest.mark.parametrize("way", WAYS)
def test_an_eager_step_that_begins_to_compare_samples_is_refused(way: Callable[..., Any]) -> None:
    bench = Bench()
    is_hard, make_hard = way(bench)
    step = in_slices(bench.step(lambda y, p: hardest(y, p) if is_hard() else mean(y, p)))
    for _ in range(2):
        step(*arrays())
    make_hard()
    before = bench.weights
    with pytest.raises(InputError, match="neither a mean over the samples nor a sum"):
        step(*arrays())
    assert difference(bench.weights, before) == 0
    assert int(bench.optimizer.iterations) == 2


@pytest.mark.parametrize("way", WAYS)
def test_an_eager_step_that_goes_on_adding_up_agrees(way: Callable[..., Any]) -> None:
    """Also its metric, which the slice that was run in vain had updated."""
    benches, found = (Bench(), Bench()), []
    for bench in benches:
        is_hard, make_hard = way(bench)
        metric = keras.metrics.MeanSquaredError()
        step = bench.step(
            lambda y, p, is_hard=is_hard: steeper(y, p) if is_hard() else mean(y, p),
            result=lambda loss, y, p, metric=metric: (metric.update_state(y, p), loss)[1],
        )
        step = in_slices(step) if bench is benches[1] else step
        losses = [float(step(*arrays())) for _ in range(2)]
        make_hard()
        losses += [float(step(*arrays())) for _ in range(3)]
        found.append((losses, float(metric.result())))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-12)
    assert difference(benches[0].weights, benches[1].weights) < EXACT


def test_a_mean_that_becomes_a_sum_is_summed() -> None:
    benches = Bench(), Bench()
    for bench in benches:
        plain = bench.step(lambda y, p: ops.sum((p - y) ** 2) if os.environ[NAME] else mean(y, p))
        step = in_slices(plain) if bench is benches[1] else plain
        for way in ("", "sum", "", "sum"):
            os.environ[NAME] = way
            step(*arrays())
    assert difference(benches[0].weights, benches[1].weights) < EXACT


def test_a_graph_that_is_traced_anew_is_tried_anew() -> None:
    import tensorflow as tf

    bench = Bench()
    step = in_slices(tf.function(bench.step(lambda y, p: hardest(y, p) if os.environ[NAME] else mean(y, p))), 3)
    step(*arrays(12))
    os.environ[NAME] = "hard"
    step(*arrays(12))  # what was traced goes on
    with pytest.raises(InputError, match="neither a mean over the samples nor a sum"):
        step(*arrays(9))


def fitted(loss: Callable[..., Any], count: int) -> tuple[list[Any], dict[str, list[float]]]:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(7, "tanh"), layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["mae"], run_eagerly=True)
    if count > 1:
        split(model, count)
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: os.environ.update({NAME: "x" * (epoch > 0)}))
    x, y = arrays(12)
    history = model.fit(x, y, batch_size=12, epochs=3, verbose=0, callbacks=[begin]).history
    return model.get_weights(), history


def test_fit_that_runs_eagerly_is_tried_anew() -> None:
    def loss(y: Any, p: Any) -> Any:
        return steeper(y, p) if os.environ[NAME] else mean(y, p)

    whole, parts = fitted(loss, 1), fitted(loss, 4)
    assert difference(whole[0], parts[0]) < EXACT
    for name in ("loss", "mae"):
        assert np.allclose(whole[1][name], parts[1][name], rtol=1e-12)
    with pytest.raises(InputError, match="cannot be computed in slices"):
        fitted(lambda y, p: hardest(y, p) if os.environ[NAME] else mean(y, p), 4)


def test_a_step_that_returns_more_later_on_agrees() -> None:
    benches, found = (Bench(), Bench()), []
    for bench in benches:

        def result(loss: Any, y: Any, p: Any) -> Any:
            return {"loss": loss, "error": ops.mean(ops.abs(y - p))} if os.environ[NAME] else {"loss": loss}

        step = bench.step(mean, result=result)
        step = in_slices(step) if bench is benches[1] else step
        logs = []
        for way in ("", "", "more", "more", ""):
            os.environ[NAME] = way
            logs.append({name: float(value) for name, value in step(*arrays()).items()})
        found.append(logs)
    assert [*map(pytest.approx, found[0])] == found[1]
    assert difference(benches[0].weights, benches[1].weights) < EXACT
