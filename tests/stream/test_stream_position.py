"""Positions: after any number of batches, and through a checkpoint."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.data.position import Course, Position, from_state, to_state
from legroom.errors import InputError

COURSES = st.builds(Course, st.integers(1, 200), st.integers(1, 50), st.booleans()).filter(lambda c: c.batches())


@given(COURSES, st.integers(0, 300), st.integers(0, 300))
def test_batches_add_up(course, first, second):
    begin = Position()
    assert course.after(course.after(begin, first), second) == course.after(begin, first + second)


@given(COURSES, st.integers(0, 400))
def test_as_many_batches_as_were_walked(course, count):
    epoch, samples = 0, 0
    for _ in range(count):
        samples += course.batch_size
        if course.batches(samples) == 0 or samples >= course.length:
            epoch, samples = epoch + 1, 0
    assert course.after(Position(), count) == Position(epoch, samples)


@given(COURSES, st.integers(0, 400))
def test_a_state_comes_back_from_json(course, count):
    position = course.after(Position(), count)
    state = json.loads(json.dumps(to_state(position, 3, True, course.length)))
    assert from_state(state, 3, True, course.length) == position


@pytest.mark.parametrize(
    "change", [{"seed": 4}, {"length": 9}, {"shuffle": False}, {"samples": 99}, {"epoch": -1}, {"schema": 7}]
)
def test_a_state_of_another_stream_is_refused(change):
    state = {**to_state(Position(1, 4), 3, True, 10), **change}
    with pytest.raises(InputError):
        from_state(state, 3, True, 10)


def test_a_generator_has_no_end():
    assert Course(None, 4).batches() is None
    assert Course(None, 4).after(Position(2, 8), 3) == Position(2, 20)
