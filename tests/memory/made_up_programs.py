"""Programs that no compiler wrote: a few buffers in two small allocations, overlapping as they like."""

from hypothesis import strategies as st

from legroom.records.program import CATEGORIES, Allocation, Buffer, Instruction, Program

MOMENTS = 8
SIZE = 12


def make_program(buffers, moments=MOMENTS, sizes=(SIZE, SIZE)):
    return Program(
        schedule=tuple(Instruction(f"i{m}", "fusion") for m in range(moments)),
        allocations=tuple(Allocation(i, size, "temporary") for i, size in enumerate(sizes)),
        buffers=tuple(buffers),
        total_bytes=sum(sizes),
    )


@st.composite
def buffers(draw):
    offset = draw(st.integers(0, SIZE - 1))
    birth = draw(st.integers(0, MOMENTS - 1))
    return Buffer(
        name=draw(st.sampled_from("abcdef")),
        allocation=draw(st.integers(0, 1)),
        offset_bytes=offset,
        size_bytes=draw(st.integers(0, SIZE - offset)),
        birth=birth,
        death=draw(st.integers(birth, MOMENTS + 1)),
        category=draw(st.sampled_from(CATEGORIES)),
        layer=draw(st.sampled_from(["", "dense", "conv"])),
    )


programs = st.lists(buffers(), max_size=12).map(make_program)
