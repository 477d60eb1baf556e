"""Whether a line that says that memory ran out says it of an incident that is already known: TensorFlow repeats itself up to five times."""

from legroom.explain.incidents import ALIGNMENT, HOST_KINDS, Incident
from legroom.explain.readers import tensorflow, xla
from legroom.explain.sizes import tensor_bytes
from legroom.records.diagnosis import Fact

SOON = 60  # lines


def is_about(incident: Incident, fact: Fact) -> bool:
    """Whether a line that says again that memory ran out says it of this incident."""
    kind, text = fact.value, fact.text
    if kind == "pool":
        return False if incident.kinds - {"copy", "dataset"} else fact.line <= incident.last_line + 3
    if kind == "tensor":
        return same_tensor(incident, text)
    if "device" in (kind, incident.kind) and kind not in HOST_KINDS:
        return not incident.is_on_host and fact.line <= incident.last_line + SOON
    if kind in HOST_KINDS:
        return incident.is_on_host and close_enough(incident, fact)
    if kind in ("copy", "dataset"):
        return incident.kind in ("copy", "dataset", "pool", "tensor")
    if kind in ("xla", "load", "reserve", "hbm", "autotune", "constant", "torch"):
        return incident.kind not in HOST_KINDS and same_request(incident, fact)
    return False


def same_tensor(incident: Incident, text: str) -> bool:
    if incident.kind not in ("pool", "tensor", "copy", "dataset"):
        return False
    if incident.shape is None:
        return sizes_agree(incident, text)
    return f"[{','.join(map(str, incident.shape))}]" in text.replace(" ", "") or "hape" not in text


def sizes_agree(incident: Incident, text: str) -> bool:
    """Whether the tensor of this line is what the pool was asked for; two threads may run out one after the other."""
    said = dict(tensorflow.failure(text))
    size, asked = tensor_bytes(said.get("shape"), said.get("dtype"), 4), incident.failed_bytes
    return size is None or asked is None or abs(size - asked) <= max(ALIGNMENT, 0.01 * asked)


def close_enough(incident: Incident, fact: Fact) -> bool:
    """Host incidents repeat themselves: the kernel in four lines, Python in a chain of exceptions."""
    if incident.kind == "killed" or fact.value == "killed":
        return fact.value == incident.kind or fact.line <= incident.last_line + 60
    return (
        incident.failed_bytes is None
        or "Unable to allocate" not in fact.text
        or incident.opened.text[-60:] == fact.text[-60:]
    )


def same_request(incident: Incident, fact: Fact) -> bool:
    """XLA's error is printed by the runtime, by the framework and by Python; its number tells it."""
    if incident.kind == fact.value and fact.value in ("hbm", "torch", "constant", "autotune", "load"):
        return incident.opened.text[-40:] == fact.text[-40:] or fact.value not in ("torch",)
    size = incident.failed_bytes
    if fact.value in ("xla", "reserve"):
        if size is not None and str(size) in fact.text:
            return True
        return (
            incident.kind in ("pool", "xla", "reserve", "autotune")
            and fact.line <= incident.last_line + 400
            and fits(incident, fact)
        )
    return fact.value == "autotune" and incident.kind in ("pool", "xla")


def fits(incident: Incident, fact: Fact) -> bool:
    """Whether the sizes named by the two can be one: `9.60GiB` in one line, bytes in another."""
    size = next((value for name, value in xla.read(fact.text) if name == "failed_bytes"), None)
    known = incident.failed_bytes
    return size is None or known is None or abs(size - known) <= 0.01 * max(size, known)
