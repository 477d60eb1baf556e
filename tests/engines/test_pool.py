"""A compiled step in TensorFlow's pool: made-up programs, and three that ran out of memory on an H200."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.bfc import Bfc
from legroom.engines.xla.pool import CompiledSteps, run_in, settle_in
from legroom.records import Allocation, Program, Step, Tensor, Trial
from legroom.units import GIB, MIB


def weight(*shape):
    return Tensor("w", shape, "float32", "weight")


def slots(*shape, count=2):
    return [Tensor(f"m{i}", shape, "float32", "optimizer") for i in range(count)]


def made_up(parameters, temporary, *, makes_slots=True):
    step = Step("tensorflow", "", "", "", "xla", "", 1, tuple(parameters), makes_slots=makes_slots)
    total = temporary + sum(tensor.size_bytes for tensor in parameters)
    return step, Program((), (Allocation(0, temporary, "temporary"),), (), total)


def pool(limit):
    return Bfc(limit, growth=False, garbage_collection=True)


def large_chunks(step, program, limit):
    """The sizes in the order of addresses, of what is over 8 MB, when the first step has found no room."""
    allocator = pool(limit)
    assert run_in(step, program, allocator).failure is not None
    return [(chunk.size_bytes, chunk.in_use) for chunk in allocator.chunks() if chunk.size_bytes > 8e6]


@given(
    sizes=st.lists(st.integers(1, 2**22), min_size=1, max_size=6), temporary=st.integers(1, 2**32), makes=st.booleans()
)
def test_the_pool_holds_at_least_what_the_compiler_counts(sizes, temporary, makes):
    parameters = [
        Tensor("x", (8,), "float32"),
        *map(weight, sizes),
        *(slot for size in sizes for slot in slots(size)),
    ]
    step, program = made_up(parameters, temporary, makes_slots=makes)
    found = run_in(step, program, pool(2**46))
    assert found.failure is None
    assert found.peak_bytes >= program.total_bytes


def test_slots_that_begin_as_one_tensor_are_held_beside_it_in_the_first_step():
    parameters = [weight(2048, 2048), *slots(2048, 2048)]
    there, made = (
        run_in(*made_up(parameters, GIB, makes_slots=makes), pool(8 * GIB)).peak_bytes for makes in (False, True)
    )
    assert made - there == 16 * MIB


def test_a_slot_of_a_shape_of_its_own_is_held_once():
    parameters = [weight(2048, 2048), *slots(2048, 2048, count=1)]
    there, made = (
        run_in(*made_up(parameters, GIB, makes_slots=makes), pool(8 * GIB)).peak_bytes for makes in (False, True)
    )
    assert made == there


def test_temporaries_that_take_the_last_hole_whole_leave_no_room_for_slots():
    """As on the card: 70 MiB would be over, and 4 bytes find no room."""
    parameters = [weight(1000), *slots(1000)]
    step, program = made_up(parameters, 8 * GIB - 70 * MIB)
    found = run_in(step, program, pool(8 * GIB))
    assert found.failure is not None
    assert found.failure.asked_by == "m0"
    assert found.failure.free_bytes == 0
    assert run_in(*made_up(parameters, 8 * GIB - 130 * MIB), pool(8 * GIB)).failure is None


def test_slots_that_are_there_already_leave_the_last_hole_to_the_temporaries():
    step, program = made_up([weight(1000), *slots(1000)], 8 * GIB - 70 * MIB, makes_slots=False)
    assert run_in(step, program, pool(8 * GIB)).failure is None


def test_a_batch_is_held_for_a_step_only():
    step, program = made_up([Tensor("x", (2**28,), "float32"), weight(1000)], GIB)
    steps = CompiledSteps(step, program, pool(8 * GIB), 0.0)
    steps.place()
    before = steps.allocator.in_use_bytes
    for _ in range(3):
        steps.step()
        assert steps.allocator.in_use_bytes == before


def test_doubt_about_the_temporaries_is_told_as_such():
    step, program = made_up([weight(1000), *slots(1000)], 8 * GIB - 200 * MIB)
    sure, doubted = (settle_in(step, program, share, 8 * GIB, pool) for share in (0.0, 0.02))
    assert sure.failure is None
    assert doubted.failure is not None
    assert 0 < doubted.failure.more_bytes <= 0.02 * 8 * GIB
    assert not doubted.failure.is_sure
    assert doubted.high_bytes > doubted.peak_bytes >= program.total_bytes


@given(share=st.floats(0, 0.05), part=st.floats(0, 1), spare=st.integers(0, 700), slot=st.integers(1, 2**25))
def test_what_fits_with_larger_temporaries_fits_with_all_that_are_smaller(share, part, spare, slot):
    step, program = made_up([weight(1000), *slots(slot)], 2 * GIB)
    limit = 2 * GIB + spare * MIB
    if settle_in(step, program, share, limit, pool).failure is None:
        assert run_in(step, program, pool(limit), part * share).failure is None


def test_constants_are_held_all_the_time():
    step, program = made_up([weight(1000)], GIB)
    with_constants = replace(
        program,
        allocations=(*program.allocations, Allocation(1, 2 * GIB, "constant")),
        total_bytes=program.total_bytes + 2 * GIB,
    )
    assert run_in(step, with_constants, pool(8 * GIB)).peak_bytes >= with_constants.total_bytes
    assert run_in(step, with_constants, pool(2 * GIB)).failure is not None


def wide_dense(batch, temporary):
    """bench/zoo.py's: three layers of 8,192 units over 2,048 features, with Adam."""
    shapes = [
        (2048, 8192),
        (8192,),
        (8192, 8192),
        (8192,),
        (8192, 8192),
        (8192,),
        (8192, 8192),
        (8192,),
        (8192, 10),
        (10,),
    ]
    variables = [weight(*shape) for shape in shapes]
    optimizer = [slot for shape in shapes for slot in slots(*shape)]
    batches = [Tensor("x", (batch, 2048), "float32"), Tensor("y", (batch,), "int32")]
    return made_up([*batches, *variables, *optimizer], temporary)


def test_wide_layers_lie_as_on_the_card_when_it_ran_out():
    """Compiled, batch 21,887, 8 GiB: the dump of the H200's allocator. The temporaries' size is given; small pieces are left out."""
    found = large_chunks(*wide_dense(21_887, 6_005_987_328), 8 * GIB)
    sizes = [size for size, _ in found]
    real = [133_102_336, 67_108_864, *[268_435_456] * 5, 6_005_987_328, 67_108_864, 67_108_864, *[268_435_456] * 2, 369_351_680]  # fmt: skip
    assert all(in_use for _, in_use in found)
    assert [abs(one - two) < 256 * 1024 for one, two in zip(sizes, real, strict=True)] == [True] * len(real)


def mlp(batch):
    """Compiled, 8 GiB: 694,894 trained on the H200 and 698,386 did not. The first product is tried beside the batch; temporaries as on the card."""
    step, program = made_up(
        [Tensor("x", (batch, 1000), "float32"), weight(1000, 512), *slots(1000, 512)],
        int(4_920_701_952 * batch / 698_386),
    )
    product = Trial((batch * 4000, 1000 * 512 * 4), batch * 512 * 4, 32 * MIB)
    return step, replace(program, trials=(product,))


def test_a_product_that_finds_no_room_when_it_is_tried_leaves_a_result_in_the_way():
    assert run_in(*mlp(694_894), pool(8 * GIB)).failure is None
    found = run_in(*mlp(698_386), pool(8 * GIB))
    failure = found.failure
    assert found.left_bytes == 698_386 * 512 * 4
    assert failure is not None
    assert failure.asked_bytes == 4_920_701_952
    assert failure.is_fragmentation is False
    assert failure.free_bytes < 5 * GIB


def test_what_is_tried_counts_for_nothing_where_it_finds_room():
    step, program = made_up([weight(1000), *slots(1000)], GIB)
    tried = replace(program, trials=(Trial((GIB, GIB), GIB, GIB),))
    assert run_in(step, tried, pool(8 * GIB)) == run_in(step, program, pool(8 * GIB))
