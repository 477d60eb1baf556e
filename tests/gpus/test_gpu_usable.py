"""What a framework can use of a card, against what frameworks said in public logs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.errors import InputError
from legroom.gpus import Framework, Gpu, catalogue, find, usable_bytes, usable_memory
from legroom.units import GIB, MIB

FRAMEWORKS: tuple[Framework, ...] = ("tensorflow", "jax")
every_card = pytest.mark.parametrize("gpu", catalogue(), ids=lambda gpu: gpu.key)
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)

# "Created device … with N MB memory: … name: …" (N in MiB), on cards with nothing else on them.
TENSORFLOW_LOGS = [
    ("t4", 13942), ("t4", 13840), ("t4", 13764), ("t4", 13757), ("t4", 13664), ("t4", 13627), ("t4", 13589),
    ("p100", 15397), ("p100", 15403), ("p100", 15511),
    ("v100-16gb", 14518), ("v100-16gb", 14635), ("v100-16gb", 14784),
    ("v100-32gb", 30965), ("v100-32gb", 30985), ("v100-32gb", 31134),
    ("a100-40gb", 38139), ("a100-40gb", 38341), ("a100-40gb", 38366),
    ("a100-40gb-pcie", 38283), ("a100-40gb-pcie", 38482), ("a100-80gb", 79197),
    ("rtx3090", 21770), ("rtx3090", 22182), ("rtx3090", 22289), ("rtx3090", 22455),
    ("rtx-a5000", 22233), ("rtx-a5000", 22476), ("rtx-a6000", 46673), ("rtx-a6000", 46720),
    ("l4", 20549), ("l4", 20795), ("l4", 20967), ("rtx4090", 22288), ("rtx5090", 29177),
    ("h100", 78763), ("h200", 138533),
]  # fmt: skip


@pytest.mark.parametrize(("key", "logged_mib"), TENSORFLOW_LOGS)
def test_tensorflow_is_within_three_percent_of_the_log(key: str, logged_mib: int) -> None:
    assert usable_bytes(find(key), "tensorflow") == pytest.approx(logged_mib * MIB, rel=0.03)


def test_jax_takes_three_quarters_to_the_byte() -> None:
    # "XLA backend allocating 3825205248 bytes on device 0 for BFCAllocator" on a slice of 4864 MiB.
    slice_of_a100 = replace(find("a100-40gb"), memory_bytes=4864 * MIB, sm_count=14)
    assert usable_bytes(slice_of_a100, "jax") == 3_825_205_248


def test_h200_context_is_near_the_measured_one() -> None:
    assert usable_memory(find("h200"), "tensorflow").context_bytes == pytest.approx(531 * MIB, rel=0.1)


@every_card
@every_framework
def test_parts_add_up(gpu: Gpu, framework: Framework) -> None:
    parts = usable_memory(gpu, framework)
    assert parts.context_bytes + parts.reserve_bytes + parts.usable_bytes == parts.total_bytes == gpu.memory_bytes


@every_card
@every_framework
def test_less_than_the_total_but_most_of_it(gpu: Gpu, framework: Framework) -> None:
    assert 0.5 * gpu.memory_bytes < usable_bytes(gpu, framework) < gpu.memory_bytes


@pytest.mark.parametrize(
    ("key", "reserve_mib"),
    [
        ("p100", 500),
        ("v100-16gb", 1050),
        ("t4", 1050),
        ("a100-40gb", 1536),
        ("rtx4090", 1536),
        ("h100", 1800),
        ("b200", 1800),
        ("rtx5090", 1800),
    ],
)
def test_tensorflow_reserve_follows_the_compute_capability(key: str, reserve_mib: int) -> None:
    assert usable_memory(find(key), "tensorflow").reserve_bytes == reserve_mib * MIB


def test_tensorflow_reserve_of_a_small_card() -> None:
    small = replace(find("gtx1650"), memory_bytes=2 * GIB)
    assert usable_memory(small, "tensorflow").reserve_bytes == 225 * MIB


@given(st.sampled_from(catalogue()), st.integers(1, 256 * GIB), st.sampled_from(FRAMEWORKS))
def test_parts_of_any_memory_add_up_and_are_not_negative(gpu: Gpu, memory: int, framework: Framework) -> None:
    parts = usable_memory(replace(gpu, memory_bytes=memory), framework)
    assert parts.context_bytes + parts.reserve_bytes + parts.usable_bytes == memory
    assert min(parts.context_bytes, parts.reserve_bytes, parts.usable_bytes) >= 0


def test_unknown_framework() -> None:
    with pytest.raises(InputError, match="'torch'") as raised:
        usable_bytes(find("t4"), "torch")  # type: ignore[arg-type]
    assert "tensorflow or jax" in (raised.value.hint or "")
