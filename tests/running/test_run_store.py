"""States on disk: what was written comes back, and half a file is none."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.running.store import DONE_KEPT, State, Store

SHAPES = st.lists(st.integers(0, 4), max_size=3)
DTYPES = st.sampled_from(["float32", "float64", "int64", "uint8", "bool"])


@given(st.lists(st.tuples(SHAPES, DTYPES), max_size=5), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_a_state_comes_back(tmp_path_factory, kinds, facts):
    random = np.random.default_rng(0)
    arrays = [(random.random(shape) * 9).astype(dtype) for shape, dtype in kinds]
    store = Store(tmp_path_factory.mktemp("store"))
    store.write(0, "epoch", State(facts, arrays))
    found = store.read(0, "epoch")
    assert found is not None
    assert found.facts == facts
    for mine, other in zip(found.arrays, arrays, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


def test_types_that_numpy_does_not_know(tmp_path):
    array = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    Store(tmp_path).write(0, "midway", State({}, [array]))
    (found,) = Store(tmp_path).read(0, "midway").arrays
    assert found.dtype == array.dtype
    assert (found == array).all()


@pytest.mark.parametrize("keep", [0, 1, 10, -1, -20])
def test_a_file_that_is_cut_off_is_no_state(tmp_path, keep):
    store = Store(tmp_path)
    store.write(0, "epoch", State({"epoch": 3}, [np.ones(100)]))
    path = store.path(0, "epoch")
    path.write_bytes(path.read_bytes()[:keep])
    assert store.read(0, "epoch") is None


def test_a_changed_byte_is_noticed(tmp_path):
    store = Store(tmp_path)
    store.write(0, "epoch", State({}, [np.ones(100)]))
    path = store.path(0, "epoch")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    assert store.read(0, "epoch") is None


def test_the_end_of_an_epoch_replaces_what_was_kept_inside_it(tmp_path):
    store = Store(tmp_path)
    store.write(0, "midway", State({}, []))
    store.write(0, "epoch", State({}, []))
    assert store.newest() == (0, "epoch")
    store.write(0, "midway", State({}, []))
    assert store.newest() == (0, "midway")
    store.write(0, "done", State({}, []))
    assert store.newest() == (0, "done")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit-0.done"]


def test_only_the_last_finished_trainings_are_kept(tmp_path):
    store = Store(tmp_path)
    for number in range(DONE_KEPT + 3):
        store.write(number, "done", State({}, []))
    assert len(list(tmp_path.iterdir())) == DONE_KEPT
    assert store.newest() == (DONE_KEPT + 2, "done")
