"""What of a training's data lies in the memory of the device that it trains on, beside the batch in the step.

TensorFlow makes an eager tensor of every array that `fit` or `from_tensor_slices` is given, and an eager tensor goes to the
GPU, whole, for as long as the training lasts; only int32 and strings stay on the host. On a CPU the data pipeline's own
buffers lie in the same allocator as the step. Keras on JAX sends batches only.
"""

from dataclasses import replace

from legroom.engines.host.assemble import data_holdings
from legroom.engines.host.holdings import Holding, Machine
from legroom.engines.host.sources import stages_of
from legroom.engines.host.span import exactly
from legroom.engines.host.stages import ArrayFacts, Data
from legroom.records import Framework

LASTING = ("own", "made", "kept", "running")


def on_device(data: Data, framework: Framework, machine: Machine | None) -> list[Holding]:
    """The data in the device's memory; `machine` is the host where that is the device too."""
    if framework != "tensorflow":
        return []
    if machine is not None:
        found = pooled(data, machine)
    else:
        own = tuple(facts for facts in data.tensors if not facts.on_host)
        found = [tensors_of(own, "tensors of the script's own", "alive while it trains"), *sent(data)]
    return [item for item in found if item.bytes.high]


def sent(data: Data) -> list[Holding]:
    """What TensorFlow sends to a GPU when it makes tensors of arrays."""
    share = 1.0 - (0.0 if data.validation is not None else data.validation_split)
    why = "TensorFlow puts the whole arrays on the GPU, for as long as fit() runs"
    arrays = () if data.streamed is not None else tuple(facts for facts in data.arrays if not facts.on_host)
    found = [tensors_of(arrays, "arrays given to fit()", why, 1.0 if validates_again(data) else share)]
    if data.pipeline is not None:
        for stage in stages_of(data.pipeline.stage):
            found.append(Holding(stage.name, exactly(stage.device_bytes), "the whole tensors behind the dataset"))
    if data.validation is not None and (data.validation.kind == "dataset" or validates_again(data)):
        found += sent(data.validation)
    return found


def kept_in_ram(data: Data) -> Data:
    """As `legroom.changes.host_data` leaves it: no array that `fit` was given goes to the device; tensors are where they are."""
    arrays = tuple(facts if facts.kind == "tensor" else replace(facts, on_host=True) for facts in data.arrays)
    validation = None if data.validation is None else kept_in_ram(data.validation)
    return replace(data, arrays=arrays, validation=validation)


def validates_again(data: Data) -> bool:
    """Validation's arrays become tensors after the first epoch: later ones train beside them."""
    return data.epochs is None or data.epochs > 1


def pooled(data: Data, machine: Machine) -> list[Holding]:
    """What the pipeline holds in the CPU's allocator while a step runs."""
    found, _ = data_holdings(data, "tensorflow", machine)
    tensors = tuple(facts for facts in data.arrays if facts.kind == "tensor")
    return [
        tensors_of((*data.tensors, *tensors), "tensors of the script's own", "alive while it trains"),
        *(
            Holding(item.name, item.bytes if item.pooled is None else item.pooled, item.why, item.phase)
            for item in found
            if item.phase in LASTING
        ),
    ]


def tensors_of(arrays: tuple[ArrayFacts, ...], name: str, why: str, share: float = 1.0) -> Holding:
    size = sum(int(facts.standard_bytes * share) for facts in arrays)
    return Holding(name, exactly(size), why)
