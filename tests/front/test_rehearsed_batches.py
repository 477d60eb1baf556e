"""The largest batch by running batches, on made-up steps whose peaks are known, and once for real."""

import itertools
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import legroom
from legroom.errors import EngineError, InputError
from legroom.front.rehearsed_batches import SURE_STEPS, find_largest
from legroom.records.rehearsal import OomFact, Rehearsal

MIB = 2**20
OUT = OomFact("op", None, "", None, "out of memory")


class Machine:
    """A step of `fixed + slope x batch` bytes; under a limit that it nearly fills it may need a little more (`torn`)."""

    def __init__(self, fixed: int, slope: int, batch: int, torn: float = 0.0) -> None:
        self.fixed, self.slope, self.batch, self.torn = fixed, slope, batch, torn
        self.ran_out = 0
        self.runs = 0

    def peak(self, batch: int) -> int:
        return self.fixed + self.slope * batch

    def largest(self, budget: int) -> int:
        return max(0, int((budget / (1 + self.torn) - self.fixed) // self.slope))

    def __call__(self, batch: int | None, limit: int, steps: int) -> Rehearsal:
        batch = self.batch if batch is None else batch
        self.runs += 1
        peak = self.peak(batch)
        if peak * (1 + self.torn) > limit:
            self.ran_out += 1
            return Rehearsal(batch, "graph", limit, out_of_memory=OUT)
        return Rehearsal(batch, "graph", limit, peak, peak, (peak,) * steps, self.fixed)


steps_of_any_size = st.builds(Machine, st.integers(MIB, 500 * MIB), st.integers(1000, 20 * MIB), st.integers(1, 256))


@settings(max_examples=300)
@given(steps_of_any_size, st.integers(0, 400))
def test_it_is_within_two_percent_of_the_largest_and_never_more(machine: Machine, more: int) -> None:
    budget = machine.peak(1) + more * machine.slope
    found = find_largest(machine, budget, 100 * budget, 3)
    assert found.max_batch is not None
    assert found.max_batch <= machine.largest(budget)
    assert 1.01 * (found.max_batch + 0.5) / 0.99 + 1 >= machine.largest(budget)
    assert len(found.step_peaks) == SURE_STEPS
    assert "leave some room" in found.notes[-1]


@given(st.integers(MIB, 500 * MIB), st.integers(100_000, 20 * MIB), st.integers(4, 400))
def test_with_twice_the_room_only_what_is_next_to_the_answer_runs_out(fixed: int, slope: int, more: int) -> None:
    machine = Machine(fixed, slope, batch=2)
    budget = machine.peak(2) + more * slope
    find_largest(machine, budget, 100 * budget, 3)
    assert machine.ran_out <= 1
    assert machine.runs <= 12


@pytest.mark.parametrize("torn", [0.02, 0.4, -0.05, -0.2])
def test_under_the_budget_itself_less_or_more_may_fit_than_in_a_wide_pool(torn: float) -> None:
    machine = Machine(100 * MIB, MIB, 8, torn=torn)
    found = find_largest(machine, 400 * MIB, 4000 * MIB, 3)
    assert found.fits
    assert found.max_batch is not None
    assert 0.97 * machine.largest(400 * MIB) <= found.max_batch <= machine.largest(400 * MIB)


def test_what_trains_in_one_process_but_not_in_the_next_is_made_smaller() -> None:
    moods = itertools.cycle([0, 0, 8 * MIB])  # every third process starts in an order that takes more

    class Moody(Machine):
        def peak(self, batch: int) -> int:
            return super().peak(batch) + next(moods)

    machine = Moody(100 * MIB, MIB, 8)
    found = find_largest(machine, 400 * MIB, 4000 * MIB, 3)
    assert found.max_batch is not None
    assert 100 + 8 + found.max_batch <= 400


def test_where_not_one_sample_fits_it_is_zero() -> None:
    found = find_largest(Machine(100 * MIB, 50 * MIB, 8), 120 * MIB, 4000 * MIB, 3)
    assert found.max_batch == 0
    assert not found.fits


def test_a_model_that_does_not_fit_and_a_batch_that_is_not_known() -> None:
    building = OomFact("", None, "", None, "", during="building")
    with pytest.raises(InputError, match="no batch does"):
        find_largest(lambda *_: Rehearsal(4, "graph", MIB, out_of_memory=building), MIB, MIB, 3)
    with pytest.raises(EngineError, match="not known"):
        find_largest(lambda *_: Rehearsal(None, "graph", MIB, 5, 5, (5,), 5), MIB, MIB, 3)


@pytest.mark.slow  # twelve processes
@pytest.mark.tensorflow
def test_a_real_one(tmp_path) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import numpy as np, keras, tensorflow as tf
        from keras import layers
        tf.config.threading.set_inter_op_parallelism_threads(1)  # one order of operations: the same peak in every run
        model = keras.Sequential([keras.Input((32, 32, 3)), *(layers.Dense(32, "relu") for _ in range(4)), layers.Flatten(), layers.Dense(2)])
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(np.zeros((64, 32, 32, 3), "float32"), np.zeros((64, 2), "float32"), batch_size=16)
        """)
    )
    limit = 96 * MIB
    found = legroom.rehearse(str(tmp_path / "train.py"), limit=limit, max_batch=True)
    assert found.fits
    assert found.max_batch is not None
    assert found.batch == found.max_batch > 16
    larger = legroom.rehearse(str(tmp_path / "train.py"), limit=2 * limit, batch_size=int(1.06 * found.max_batch) + 1)
    assert max(larger.step_peaks) > limit
