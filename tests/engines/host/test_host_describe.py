"""Live datasets, arrays and generators, described: the right stages and sizes, nothing run, and never an error."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from legroom.engines.host.assemble import host_estimate
from legroom.engines.host.base import Process
from legroom.engines.host.describe import describe
from legroom.engines.host.stages import AUTOTUNE, INFINITE, data_from

pytestmark = pytest.mark.tensorflow
Dataset = tf.data.Dataset


def stages(data):
    found, stage = [], data.pipeline.stage
    while stage is not None:
        found.append(stage)
        stage = stage.inputs[0] if stage.inputs else None
    return found


def never(*_):
    raise AssertionError("the pipeline was run")


def test_a_usual_pipeline_is_read_stage_by_stage_and_not_run():
    def load(index):
        return tf.ensure_shape(tf.numpy_function(never, [index], tf.float32), (32, 32, 3)), index

    dataset = Dataset.range(1000).map(load, num_parallel_calls=AUTOTUNE).shuffle(100).batch(8).prefetch(AUTOTUNE)
    prefetch, batch, shuffle, mapped, source = stages(describe(dataset))
    assert [prefetch.kind, batch.kind, shuffle.kind, mapped.kind, source.kind] == [
        *("prefetch", "batch", "shuffle", "map", "range"),
    ]
    assert (prefetch.count, batch.count, shuffle.count, mapped.parallel) == (AUTOTUNE, 8, 100, AUTOTUNE)
    assert shuffle.element.size == 32 * 32 * 3 * 4 + 8
    assert batch.element.size == 8 * shuffle.element.size
    assert (source.cardinality, batch.cardinality) == (1000, 125)
    assert mapped.stateful


def test_sources_know_their_tensors_and_whether_they_were_given():
    array, tensor = np.zeros((10, 16), "float32"), tf.zeros((10, 16))
    made, given = Dataset.from_tensor_slices(array), Dataset.from_tensor_slices(tensor)
    assert describe(made).pipeline.stage.kept_bytes == 640
    assert not describe(made).pipeline.stage.given
    assert describe(given).pipeline.stage.given
    assert describe(made).pipeline.stage.aliased_bytes == 64


def test_an_interleave_is_read_with_the_pipeline_inside():
    dataset = Dataset.range(8).interleave(
        lambda i: Dataset.range(100).shuffle(20).batch(4), cycle_length=3, block_length=2, num_parallel_calls=AUTOTUNE
    )
    stage = describe(dataset).pipeline.stage
    assert (stage.kind, stage.count, stage.block, stage.parallel) == ("interleave", 3, 2, AUTOTUNE)
    assert (stage.inner.kind, stage.inner.count) == ("batch", 4)
    assert (stage.inner.inputs[0].kind, stage.inner.inputs[0].count) == ("shuffle", 20)


def test_a_captured_array_is_found():
    array = np.ones((1000, 1000), "float32")
    stage = describe(Dataset.range(10).map(lambda i: tf.gather(array, i))).pipeline.stage
    assert stage.constant_bytes == 4_000_000


def test_options_are_read():
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.ram_budget = 10**9
    options.threading.private_threadpool_size = 7
    options.experimental_optimization.apply_default_optimizations = False
    pipeline = describe(Dataset.range(3).with_options(options)).pipeline
    assert (pipeline.autotune, pipeline.optimized, pipeline.threads) == (False, False, 7)
    assert pipeline.ram_budget_bytes == 10**9


def test_open_dimensions_are_bounded_or_sampled():
    dataset = Dataset.range(50).map(lambda i: tf.fill([tf.cast(i, tf.int32) + 100], 1.0))
    unseen, seen = describe(dataset), describe(dataset, may_sample=True)
    assert unseen.pipeline.stage.element.low == 4
    assert unseen.pipeline.stage.element.high == 4096
    assert "not known" in unseen.notes[0]
    assert seen.pipeline.stage.element.size == 404


def test_sampling_leaves_shuffles_empty():
    pulled = []

    def generate():
        for i in range(100):
            pulled.append(i)
            yield np.ones(i + 1, "float32")

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec((None,), tf.float32)).shuffle(100)
    data = describe(dataset.padded_batch(2), may_sample=True)
    assert data.pipeline.stage.element.size >= 8
    assert len(pulled) < 50


def test_strings_in_files_are_bounded_by_the_files(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("hello\n" * 100)
    stage = describe(tf.data.TextLineDataset(str(path)).cache(), may_sample=True).pipeline.stage
    assert stage.kind == "cache"
    assert 100 * 29 < stage.whole.size < 100 * 300
    assert stage.element.size == 29


def saved(tmp_path):
    Dataset.range(10).save(str(tmp_path / "saved"))
    return Dataset.load(str(tmp_path / "saved"))


def ragged(_):
    return Dataset.from_tensor_slices(tf.ragged.constant([[1, 2], [3], []])).batch(2)


def sparse(_):
    return Dataset.from_tensor_slices(tf.sparse.from_dense([[1, 0], [0, 2]])).batch(1)


def distributed(_):
    return tf.distribute.OneDeviceStrategy("cpu:0").experimental_distribute_dataset(Dataset.range(8).batch(2))


def unknown_rank(_):
    return Dataset.from_generator(lambda: iter([1, 2]), output_types=tf.float32)


def broken(_):
    def fail():
        raise ValueError("no data here")
        yield 1

    return Dataset.from_generator(fail, output_signature=tf.TensorSpec((None,), tf.float32)).shuffle(4).cache()


ODD = {
    "empty": lambda _: Dataset.from_tensor_slices(np.zeros((0, 4), "float32")).batch(4),
    "infinite": lambda _: Dataset.range(4).repeat().shuffle(10).batch(2),
    "infinite cache": lambda _: Dataset.range(4).repeat().cache(),
    "filtered": lambda _: Dataset.range(9).filter(lambda i: i > 3).shuffle(100).cache(),
    "windowed": lambda _: Dataset.range(9).window(3).flat_map(lambda w: w.batch(3)),
    "bare windows": lambda _: Dataset.range(9).window(3),
    "zipped dict": lambda _: Dataset.zip({"a": Dataset.range(3), "b": Dataset.range(3).batch(1)}),
    "concatenated": lambda _: Dataset.range(3).concatenate(Dataset.range(4)),
    "sampled": lambda _: Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(3)]),
    "grouped": lambda _: Dataset.range(9).group_by_window(lambda i: i % 2, lambda _, d: d.batch(2), 2),
    "scanned": lambda _: Dataset.range(9).scan(0, lambda s, i: (s, i)),
    "unbatched": lambda _: Dataset.range(9).batch(3).unbatch(),
    "rebatched": lambda _: Dataset.range(9).batch(3).rebatch(2),
    "ragged batch": lambda _: Dataset.range(4).map(tf.range).ragged_batch(2),
    "strings": lambda _: Dataset.from_tensor_slices(["a", "bcd"]).batch(2),
    "file cache": lambda folder: Dataset.range(3).cache(str(folder / "cache")),
    "counted": lambda _: tf.data.Dataset.counter().take(3),
    "random": lambda _: Dataset.random(seed=1).take(3),
    "snapshot": lambda folder: Dataset.range(3).snapshot(str(folder / "snapshot")),
    **{function.__name__: function for function in (saved, ragged, sparse, distributed, unknown_rank, broken)},
}


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_whatever_comes_there_is_an_estimate(name, sampling, tmp_path):
    data = describe(ODD[name](tmp_path), may_sample=sampling)
    assert data_from(json.loads(json.dumps(data.as_dict()))) == data
    estimate = host_estimate(data, Process("tensorflow", cores=2))
    assert 0 < estimate.low_bytes <= estimate.peak_bytes <= estimate.high_bytes


def test_an_infinite_dataset_says_so():
    assert describe(Dataset.range(4).repeat()).pipeline.stage.cardinality == INFINITE


def test_arrays_of_every_kind(tmp_path):
    mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(10, 4))
    data = describe([np.zeros((10, 4)), mapped[2:], tf.zeros((10, 2))], np.zeros(10, "int64"), batch_size=5)
    assert [facts.kind for facts in data.arrays] == ["numpy", "memmap", "tensor", "numpy"]
    assert (data.arrays[0].size_bytes, data.arrays[0].standard_bytes) == (320, 160)
    assert data.batch_size == 5
    assert "memory-mapped" in data.notes[0]


def test_validation_data_is_described_too():
    data = describe(np.zeros((8, 2)), np.zeros(8), validation_data=(np.zeros((4, 2)), np.zeros(4)))
    assert data.validation.kind == "arrays"
    assert describe(Dataset.range(3), validation_data=Dataset.range(2)).validation.kind == "dataset"


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return np.zeros((4, 8), "float32"), np.zeros(4, "int32")


def test_a_pydataset_with_its_queue():
    data = describe(Batches(workers=3, max_queue_size=7, use_multiprocessing=True), may_sample=True)
    assert (data.kind, data.workers, data.queue, data.batches, data.multiprocessing) == ("pydataset", 3, 7, 5, True)
    assert data.batch.size == 4 * 8 * 4 + 16
    assert "not known" in describe(Batches()).notes[0]


def test_generators():
    def generate():
        while True:
            yield np.zeros((4, 8), "float32"), np.zeros(4, "int32")

    assert describe(generate(), may_sample=True).batch.size == 144
    assert "not known" in describe(generate()).notes[0]
    assert describe(iter(()), may_sample=True).notes == ("The generator yields nothing.",)
    assert describe(None).kind == "none"
