"""The host's half of an estimate: RAM of the training process, beside what its step takes of the device."""

from legroom.engines.host.assemble import host_estimate
from legroom.engines.host.base import Process
from legroom.engines.host.observe import Observed
from legroom.front.target import gpu_of_this_machine
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


def has_room(estimate: Estimate, gpu: str | None) -> bool:
    """Whether the process fits this machine's RAM, where it is on this machine that it would train."""
    trains_elsewhere = gpu is not None and gpu_of_this_machine() is None
    return estimate.host is None or trains_elsewhere or estimate.host.peak_bytes <= estimate.host.limit_bytes
