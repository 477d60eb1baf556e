"""The catalogue: what must hold of every card in it, and a few cards that people know by heart."""

import pickle
from dataclasses import asdict, fields

import pytest

from legroom.gpus import LIMITS, PRECISIONS, Gpu, catalogue, find
from legroom.gpus.cardfile import _FILLED
from legroom.units import GIB

CARDS = catalogue()
every_card = pytest.mark.parametrize("gpu", CARDS, ids=lambda gpu: gpu.key)


def test_has_enough_cards() -> None:
    assert len(CARDS) >= 45


def test_keys_are_unique_and_short() -> None:
    keys = [gpu.key for gpu in CARDS]
    assert len(set(keys)) == len(keys)
    assert all(key == key.lower() and " " not in key for key in keys)


def test_every_known_compute_capability_has_a_card() -> None:
    assert {gpu.compute_capability for gpu in CARDS} == set(LIMITS)


def test_is_read_once() -> None:
    assert catalogue() is CARDS


@every_card
def test_numbers_are_positive(gpu: Gpu) -> None:
    numbers = (gpu.memory_bytes, gpu.sm_count, gpu.clock_ghz, gpu.bandwidth_bytes_per_second, gpu.l2_bytes)
    assert all(number > 0 for number in (*numbers, gpu.cores_per_sm, *gpu.rates.values()))


@every_card
def test_reported_memory_is_a_little_less_than_nominal(gpu: Gpu) -> None:
    # ECC takes a sixteenth where it is on, the driver up to 0.4 GiB more; B200 and GB200 are sold in decimal GB.
    assert 0.9 * gpu.nominal_bytes < gpu.memory_bytes < gpu.nominal_bytes


@every_card
def test_memory_source_is_said(gpu: Gpu) -> None:
    assert gpu.memory_source in ("log", "nominal")


@every_card
def test_nothing_is_assumed(gpu: Gpu) -> None:
    assert gpu.assumed == ()


@every_card
def test_fp32_rate_is_that_of_its_cores(gpu: Gpu) -> None:
    cores = gpu.sm_count * gpu.cores_per_sm
    assert gpu.rates["fp32"] == pytest.approx(cores * 2 * gpu.clock_ghz * 1e9, rel=0.01)


@every_card
def test_bf16_and_tf32_begin_with_ampere(gpu: Gpu) -> None:
    assert set(gpu.rates) <= set(PRECISIONS)
    assert ("bf16" in gpu.rates) == ("tf32" in gpu.rates) == (gpu.compute_capability >= (8, 0))


@every_card
def test_survives_pickling(gpu: Gpu) -> None:
    assert pickle.loads(pickle.dumps(gpu)) == gpu


def test_turns_into_plain_data() -> None:
    assert asdict(CARDS[0])["rates"]["fp32"] > 0


def test_cards_are_hashable() -> None:
    assert len(set(CARDS)) == len(CARDS)


def test_filled_fields_are_fields_of_a_card() -> None:
    assert set(_FILLED.values()) <= {field.name for field in fields(Gpu)}


@pytest.mark.parametrize(
    ("key", "architecture", "cores", "nominal_gib"),
    [
        ("t4", "Turing", 2560, 16),
        ("p100", "Pascal", 3584, 16),
        ("v100-16gb", "Volta", 5120, 16),
        ("a100-40gb", "Ampere", 6912, 40),
        ("rtx3090", "Ampere", 10496, 24),
        ("rtx4090", "Ada", 16384, 24),
        ("h100", "Hopper", 16896, 80),
        ("rtx5090", "Blackwell", 21760, 32),
    ],
)
def test_is_the_chip_that_the_vendor_sells(key: str, architecture: str, cores: int, nominal_gib: int) -> None:
    gpu = find(key)
    assert (gpu.architecture, gpu.sm_count * gpu.cores_per_sm) == (architecture, cores)
    assert gpu.nominal_bytes == nominal_gib * GIB


@pytest.mark.parametrize(
    ("key", "gigabytes_per_second"),
    [("t4", 320), ("v100-16gb", 900), ("a100-40gb", 1555), ("a100-80gb-pcie", 1935), ("rtx4090", 1008), ("h100", 3350)],
)
def test_bandwidth_is_the_vendors(key: str, gigabytes_per_second: float) -> None:
    assert find(key).bandwidth_bytes_per_second == pytest.approx(gigabytes_per_second * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("key", "precision", "teraflops"),
    [
        ("t4", "fp16", 65),
        ("v100-16gb", "fp16", 125),
        ("a100-80gb", "tf32", 156),
        ("a100-80gb", "bf16", 312),
        ("rtx3090", "fp16", 71),
        ("rtx4090", "bf16", 165),
        ("l4", "fp16", 121),
        ("h100", "bf16", 989),
    ],
)
def test_tensor_rate_is_dense_with_fp32_accumulation(key: str, precision: str, teraflops: float) -> None:
    assert find(key).rates[precision] == pytest.approx(teraflops * 1e12, rel=0.02)
