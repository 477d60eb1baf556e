"""The host's half of an estimate: RAM of the training process, beside what its step takes of the device."""

from dataclasses import replace

from legroom.engines.host.assemble import host_estimate, machine_of
from legroom.engines.host.base import Process
from legroom.engines.host.limits import read_limits
from legroom.engines.host.observe import Observed
from legroom.engines.host.on_device import on_device
from legroom.engines.host.resize import resized
from legroom.front.target import Card, gpu_of_this_machine
from legroom.memory.data import DeviceData
from legroom.records import Estimate, HostEstimate, Step


def host_of(step: Step, observed: Observed, estimate: Estimate) -> HostEstimate:
    """What the process that was observed will take when it trains as estimated."""
    unmade = max(0, estimate.breakdown["weights"] - observed.made_bytes)  # the others are resident already
    more = max(0, estimate.peak_bytes - observed.made_bytes) if estimate.on_cpu else None
    process = Process(
        framework=step.framework,
        weights_bytes=unmade,
        device_peak_bytes=more,
        current_rss_bytes=observed.resident_bytes,
        execution="xla" if estimate.engine == "xla" else estimate.execution,
        layers=observed.layers,
        gpu=not estimate.on_cpu,
    )
    return host_estimate(observed.data, process)


def at_batch(observed: Observed, step: Step, batch: int | None) -> Observed:
    """What was observed, as it would be with batches of another size."""
    if batch is None or not step.batch or batch == step.batch:
        return observed
    return replace(observed, data=resized(observed.data, batch / step.batch))


def data_on(card: Card, step: Step, observed: Observed) -> list[DeviceData]:
    """What of the data lies in the card's memory, or in the CPU's allocator, while the step runs."""
    machine = machine_of(read_limits(), card.cores) if card.is_cpu else None
    found = on_device(observed.data, step.framework, machine)
    return [DeviceData(item.name, item.bytes.low, item.bytes.size, item.bytes.high, item.why) for item in found]


def has_room(estimate: Estimate, gpu: str | None) -> bool:
    """Whether the process fits this machine's RAM, where it is on this machine that it would train."""
    trains_elsewhere = gpu is not None and gpu_of_this_machine() is None
    return estimate.host is None or trains_elsewhere or estimate.host.peak_bytes <= estimate.host.limit_bytes
