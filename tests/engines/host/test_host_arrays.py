"""Arrays, generators and PyDatasets, as described."""

import pytest

from legroom.engines.host.assemble import growth_of, host_estimate
from legroom.engines.host.base import Process
from legroom.engines.host.holdings import Machine
from legroom.engines.host.limits import Limit, Limits
from legroom.engines.host.span import exactly
from legroom.engines.host.stages import ArrayFacts, Data

MB = 1_000_000
MACHINE = Machine(2, 16 * 10**9, 8 * 10**9)
LIMITS = Limits((Limit(16 * 10**9, "made up"),))


def arrays(kind="numpy", size=400 * MB, standard=400 * MB, **changes):
    facts = ArrayFacts(kind, size, standard, 1000)
    return Data("arrays", arrays=(facts,), batch=exactly(MB), **changes)


@pytest.mark.parametrize(
    ("data", "framework", "expected"),
    [
        (arrays(), "tensorflow", 817 * MB),
        (arrays(size=400 * MB, standard=200 * MB), "tensorflow", 617 * MB),
        (arrays(kind="tensor"), "tensorflow", 21 * MB),
        (arrays(validation_split=0.2), "tensorflow", 657 * MB),
        (arrays(validation=arrays(size=200 * MB, standard=200 * MB)), "tensorflow", 838 * MB),
        (arrays(), "jax", 24 * MB),
        (arrays(kind="memmap"), "tensorflow", 1217 * MB),
    ],
)
def test_what_fit_adds_to_arrays(data, framework, expected):
    """The numbers are those measured (bench/host.py)."""
    assert growth_of(data, framework, MACHINE).size == pytest.approx(expected, rel=0.03)


def test_own_arrays_are_counted_unless_the_process_has_them_already():
    before = host_estimate(arrays(), Process("tensorflow"), LIMITS)
    after = host_estimate(arrays(), Process("tensorflow", current_rss_bytes=2 * 10**9), LIMITS)
    assert any(part.name == "arrays" for part in before.parts)
    assert not any(part.name == "arrays" for part in after.parts)
    assert any(part.size_bytes == 2 * 10**9 for part in after.parts)


def test_a_queue_holds_its_batches_and_processes_more():
    threads = Data("pydataset", batch=exactly(8 * MB), workers=4, queue=10)
    processes = Data("pydataset", batch=exactly(8 * MB), workers=4, queue=10, multiprocessing=True)
    assert growth_of(threads, "tensorflow", MACHINE).size == pytest.approx(140 * MB, rel=0.1)
    estimate = host_estimate(processes, Process("tensorflow"), LIMITS)
    assert any(part.name == "worker processes" for part in estimate.parts)
    assert "use_multiprocessing" in estimate.notes[0]


def test_the_device_is_ram_where_it_is_the_cpu():
    cpu = host_estimate(arrays(), Process("tensorflow", 10, device_peak_bytes=10**9, layers=50), LIMITS)
    gpu = host_estimate(arrays(), Process("tensorflow", 10, gpu=True), LIMITS)
    assert any(part.name == "the training step" for part in cpu.parts)
    assert any(part.name == "CUDA libraries" for part in gpu.parts)


def test_no_data_is_a_base_and_nothing_more():
    estimate = host_estimate(Data("none", notes=("fit() was given no data.",)), Process("jax"), LIMITS)
    assert estimate.notes == ("fit() was given no data.",)
    assert estimate.fits
