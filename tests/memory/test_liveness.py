"""Held bytes and their owners, against brute force."""

from hypothesis import given
from hypothesis import strategies as st
from made_up_programs import MOMENTS, buffers, make_program, programs

from legroom.memory.liveness import held_bytes, shares_at
from legroom.records.program import Buffer


def owners_of_bytes(program, moment):
    """For every byte the buffer that holds it: the last born, then the last in order."""
    owners = {}
    for position, b in enumerate(program.buffers):
        if b.birth <= moment <= b.death:
            for byte in range(b.offset_bytes, b.offset_bytes + b.size_bytes):
                now = owners.get((b.allocation, byte))
                if now is None or (b.birth, position) > (program.buffers[now].birth, now):
                    owners[b.allocation, byte] = position
    return owners


@given(programs)
def test_curve_is_the_union_of_what_lives(program):
    assert held_bytes(program) == [len(owners_of_bytes(program, m)) for m in range(MOMENTS)]


@given(programs)
def test_curve_stays_between_nothing_and_the_allocations(program):
    assert all(0 <= held <= program.total_bytes for held in held_bytes(program))


@given(programs, st.integers(0, MOMENTS - 1))
def test_every_byte_belongs_to_one_buffer(program, moment):
    expected: dict[int, int] = {}
    for owner in owners_of_bytes(program, moment).values():
        expected[owner] = expected.get(owner, 0) + 1
    assert shares_at(program, moment) == expected


@given(st.lists(buffers(), max_size=12))
def test_every_buffer_is_dead_at_the_end(parts):
    """With moments after the last death the curve comes back to nothing."""
    program = make_program(parts, moments=MOMENTS + 3)
    assert held_bytes(program)[-1] == 0


def test_an_in_place_update_counts_once_and_belongs_to_the_new_value():
    old = Buffer("old", 0, 0, 10, 0, 3, "activations")
    new = Buffer("new", 0, 0, 10, 3, 5, "gradients")
    program = make_program([old, new])
    assert held_bytes(program)[:7] == [10, 10, 10, 10, 10, 10, 0]
    assert shares_at(program, 3) == {1: 10}


def test_nothing_at_all():
    assert held_bytes(make_program([], moments=0)) == []
    assert shares_at(make_program([]), 0) == {}


def test_many_buffers_take_little_time():
    parts = [
        Buffer(f"b{i}", 0, (i * 7919) % 10_000_000, 4096 + i % 977, i, i + 500, "activations") for i in range(10_000)
    ]
    program = make_program(parts, moments=10_000, sizes=(20_000_000, 1))
    assert max(held_bytes(program)) <= 20_000_000
