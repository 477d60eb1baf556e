"""What of the data lies on the device: by made-up descriptions, and read from real objects."""

import json
import pathlib

import numpy as np
import pytest

from legroom.capture.placement import watch_placement
from legroom.engines.host.describe import describe
from legroom.engines.host.holdings import Machine
from legroom.engines.host.on_device import on_device
from legroom.engines.host.resize import resized
from legroom.engines.host.span import exactly, total
from legroom.engines.host.stages import ArrayFacts, Data, Pipeline, Stage

MACHINE = Machine(2, 10**9, 10**9)
X = ArrayFacts("numpy", 8000, 4000, 100)
LABELS = ArrayFacts("numpy", 400, 400, 100, on_host=True)


def on_gpu(data: Data, framework: str = "tensorflow") -> int:
    return total([item.bytes for item in on_device(data, framework, None)]).size  # type: ignore[arg-type]


def test_tensorflow_puts_arrays_on_the_gpu_but_for_int32():
    assert on_gpu(Data("arrays", arrays=(X, LABELS), epochs=1)) == 4000


def test_jax_sends_batches_only():
    assert on_gpu(Data("arrays", arrays=(X,)), "jax") == 0


def test_arrays_for_validation_are_there_from_the_second_epoch_on():
    once = Data("arrays", arrays=(X,), validation=Data("arrays", arrays=(X,)), epochs=1)
    assert on_gpu(once) == 4000
    assert on_gpu(Data("arrays", arrays=(X,), validation=Data("arrays", arrays=(X,)), epochs=2)) == 8000


def test_a_split_is_on_the_gpu_in_two_parts():
    assert on_gpu(Data("arrays", arrays=(X,), validation_split=0.25, epochs=1)) == 3000
    assert on_gpu(Data("arrays", arrays=(X,), validation_split=0.25, epochs=2)) == 4000


def test_a_script_s_own_tensors_count():
    tensor = ArrayFacts("tensor", 700, 700, 7)
    assert on_gpu(Data("none", tensors=(tensor,))) == 700


def source(size: int) -> Stage:
    return Stage(
        "source", "from_tensor_slices", exactly(size // 10), cardinality=10, kept_bytes=size, device_bytes=size
    )


def test_a_dataset_s_tensors_are_on_the_gpu_and_its_buffers_are_not():
    shuffle = Stage("shuffle", "shuffle(10)", exactly(1000), cardinality=10, count=10, inputs=(source(10_000),))
    assert on_gpu(Data("dataset", Pipeline(shuffle))) == 10_000


def test_on_a_cpu_the_buffers_lie_in_the_same_allocator():
    shuffle = Stage("shuffle", "shuffle(10)", exactly(1000), cardinality=10, count=10, inputs=(source(10_000),))
    found = {
        item.name: item.bytes.size for item in on_device(Data("dataset", Pipeline(shuffle)), "tensorflow", MACHINE)
    }
    assert found["from_tensor_slices"] == 10_000
    assert found["shuffle(10)"] >= 10_000
    assert "tf.data's first run" not in found


def test_the_batch_in_the_step_is_not_counted_again():
    stage = Stage(
        "batch", "batch(4)", exactly(4000), cardinality=1, count=4, inputs=(Stage("range", "range", exactly(1000)),)
    )
    found = on_device(Data("dataset", Pipeline(stage, optimized=False), batch=exactly(4000)), "tensorflow", MACHINE)
    assert "the consumer's batch" not in {item.name for item in found if item.bytes.size}


def test_another_batch_size_scales_what_comes_after_the_batching():
    before = Stage("shuffle", "shuffle(10)", exactly(1000), cardinality=40, count=10)
    batch = Stage("batch", "batch(4)", exactly(4000), cardinality=10, count=4, inputs=(before,))
    data = Data(
        "dataset", Pipeline(Stage("prefetch", "prefetch(2)", exactly(4000), cardinality=10, count=2, inputs=(batch,)))
    )
    stage = resized(data, 2.5).pipeline.stage  # type: ignore[union-attr]
    assert (stage.element.size, stage.count, stage.cardinality) == (10_000, 2, 4)
    assert (stage.inputs[0].element.size, stage.inputs[0].count) == (10_000, 10)
    assert stage.inputs[0].inputs[0] == before


@pytest.mark.tensorflow
def test_what_is_read_from_real_arrays_and_datasets():
    import tensorflow as tf

    x, y = np.zeros((64, 10), "float64"), np.zeros((64,), "int32")
    assert on_gpu(describe(x, y, epochs=1)) == 64 * 10 * 4  # Keras makes its floats 32 bits wide
    assert on_gpu(describe(tf.data.Dataset.from_tensor_slices((x, y)).batch(8), epochs=1)) == 64 * 10 * 8


@pytest.mark.tensorflow
def test_what_a_real_gpu_held_is_what_is_said():
    """bench/device/placement.py on an H200: MiB in use after the first epoch's fourth step and the last one's."""
    import importlib.util

    root = pathlib.Path(__file__).parents[3] / "bench"
    spec = importlib.util.spec_from_file_location("placement", root / "device" / "placement.py")
    placement = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(placement)
    watch_placement()
    measured = [json.loads(line) for line in (root / "data" / "h200_placement.jsonl").read_text().splitlines()]
    said = []
    for row in measured:
        arguments, epochs = placement.given(row["case"])
        x = arguments.pop("x")
        found = [on_gpu(describe(x, arguments.pop("y", None), epochs=count, **arguments)) for count in (1, epochs)]
        said.append({**row, "first_mib": found[0] >> 20, "last_mib": found[1] >> 20})
    assert said == measured
