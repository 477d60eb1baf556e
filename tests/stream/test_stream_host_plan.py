"""The plan's half about RAM: what a process takes as it is, what it would take with its data on demand, and how that is said."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from legroom.engines.host.assemble import host_estimate
from legroom.engines.host.base import Process
from legroom.engines.host.limits import Limit, Limits
from legroom.engines.host.on_device import on_device
from legroom.engines.host.span import exactly
from legroom.engines.host.stages import ArrayFacts, Data, Pipeline, Stage, data_from
from legroom.front.host_plan import budgeted, may_fit, streams, written
from legroom.front.streaming import is_streamed, streamed
from legroom.plans.pipelines import author_changes
from legroom.records.host import HostAction, HostPlan
from legroom.records.plan import Plan, Planning
from legroom.report.host_plan import host_parts
from legroom.report.plan_json import NotAPlan, planning_from, planning_view

MIB = 2**20
LIMITS = Limits((Limit(8 * 2**30, "made up"),))
ARRAYS = Data("arrays", arrays=(ArrayFacts("numpy", 400 * MIB, 400 * MIB, 1600),), batch=exactly(8 * MIB))
SAMPLE = Stage("map", "map", exactly(MIB), cardinality=2000)
BATCH = Stage("batch", "batch(32)", exactly(32 * MIB), cardinality=63, count=32, inputs=(SAMPLE,))
SHUFFLE = Stage("shuffle", "shuffle(40)", exactly(32 * MIB), cardinality=63, count=40, inputs=(BATCH,))


def peak(data, framework="tensorflow"):
    return host_estimate(data, Process(framework, current_rss_bytes=500 * MIB), LIMITS).peak_bytes


def dataset(stage):
    return Data("dataset", Pipeline(stage))


def test_streamed_arrays_are_not_copied():
    assert peak(ARRAYS) - peak(streamed(ARRAYS, "tensorflow", 64 * MIB)) > 700 * MIB
    assert peak(streamed(ARRAYS, "tensorflow", 64 * MIB)) < 700 * MIB


def test_a_mapped_array_is_read_and_not_mapped():
    mapped = replace(ARRAYS, arrays=(ArrayFacts("memmap", 400 * MIB, 400 * MIB, 1600),))
    assert peak(streamed(mapped, "tensorflow", 64 * MIB)) == peak(streamed(ARRAYS, "tensorflow", 64 * MIB))


def test_streamed_arrays_do_not_go_to_the_gpu():
    assert sum(item.bytes.size for item in on_device(ARRAYS, "tensorflow", None)) == 400 * MIB
    assert on_device(streamed(ARRAYS, "tensorflow", 64 * MIB), "tensorflow", None) == []


def test_validation_arrays_are_streamed_too():
    both = streamed(replace(ARRAYS, validation=ARRAYS), "tensorflow", 64 * MIB)
    assert both.validation.streamed == both.streamed


@pytest.mark.parametrize("kind", ["tensor", "list"])
def test_what_fit_leaves_to_keras_is_not_said_to_be_streamed(kind):
    other = replace(ARRAYS, arrays=(ArrayFacts(kind, 400 * MIB, 400 * MIB, 1600),))
    assert not is_streamed(other)
    assert streamed(other, "tensorflow", 64 * MIB) == other
    assert not is_streamed(replace(ARRAYS, arrays=(ArrayFacts("numpy", 10 * MIB, 10 * MIB, 16),)))


def test_a_description_goes_through_json():
    data = streamed(ARRAYS, "tensorflow", 64 * MIB)
    assert data_from(json.loads(json.dumps(data.as_dict()))) == data


def test_a_shuffle_of_batches_is_said_with_what_it_costs():
    (change,) = author_changes(dataset(SHUFFLE))
    assert change.name == "shuffle_first"
    assert change.how == "shuffle(40).batch(32) instead of batch(32).shuffle(40)"
    assert peak(dataset(SHUFFLE)) - peak(change.data) == pytest.approx(40 * 31 * MIB, rel=0.1)


def test_a_large_buffer_and_a_cache():
    large = replace(SHUFFLE, element=exactly(MIB), count=1500, cardinality=2000, inputs=(SAMPLE,))
    (change,) = author_changes(dataset(large))
    assert (change.name, change.how.split(";")[0]) == ("smaller_buffer", "shuffle(150) instead of shuffle(1500)")
    assert peak(dataset(large)) - peak(change.data) == pytest.approx(1350 * MIB, rel=0.05)
    cache = Stage("cache", "cache()", exactly(MIB), cardinality=2000, inputs=(SAMPLE,))
    (change,) = author_changes(dataset(replace(BATCH, inputs=(cache,))))
    assert change.name == "no_cache"
    assert peak(dataset(replace(BATCH, inputs=(cache,)))) - peak(change.data) == pytest.approx(2000 * MIB, rel=0.05)


def test_a_dataset_of_copies():
    source = Stage("source", "from_tensor_slices", exactly(MIB), cardinality=300, kept_bytes=300 * MIB)
    (change,) = streams(dataset(replace(BATCH, inputs=(source,))))
    assert 'legroom.stream((x, y), batch_size=32, ram="128MiB")' in change.how
    assert change.unmade_bytes >= 300 * MIB
    assert list(streams(dataset(replace(BATCH, inputs=(replace(source, given=True),))))) == []


def test_budgets_from_the_largest_on():
    assert [change.how.split()[3] for change in budgeted(ARRAYS, "tensorflow")][:2] == ["2GiB", "1GiB"]
    assert {change.name for change in budgeted(ARRAYS, "tensorflow")} == {"stream"}
    assert {change.name for change in budgeted(dataset(BATCH), "tensorflow")} == {"ram_budget"}
    assert list(budgeted(Data("none"), "tensorflow")) == []
    assert [written(size) for size in (2**30, 64 * MIB, 64 * MIB + 1)] == ["1GiB", "64MiB", "65MiB"]


STREAM = HostAction("stream", "arrays read batch by batch", "legroom run --ram 64MiB", "legroom", 900, 950, True)
TIGHT = HostPlan(1800, 2000, 1000, "--ram", False, (STREAM,))
PLANNING = Planning("T4", 32, 20, Plan((), 30, 29, 31, False, 1.0), (), None, host=TIGHT)


def test_a_plan_with_a_host_side_goes_through_json():
    view = json.loads(json.dumps(planning_view(PLANNING)))
    assert view["schema"] == 1
    assert set(view["host"]["actions"][0]) >= {"name", "title", "how", "peak_bytes"}
    assert planning_from(view) == PLANNING
    assert planning_from({**view, "host": None}).host is None
    assert planning_from({key: value for key, value in view.items() if key != "host"}).host is None
    with pytest.raises(NotAPlan, match="'host' is no plan for RAM"):
        planning_from({**view, "host": {"peak": 1}})


def test_who_can_make_it_fit():
    assert may_fit(None)
    assert may_fit(TIGHT)
    assert not may_fit(replace(TIGHT, actions=(replace(STREAM, by="author"),)))
    assert not may_fit(replace(TIGHT, actions=()))
    assert may_fit(replace(TIGHT, fits=None, limit_bytes=None))
    assert host_parts(replace(TIGHT, fits=True)) == []
    assert "there are 1000 B" in str(host_parts(TIGHT)[0])


SCRIPT = """
import keras, numpy as np
x, y = np.ones((3000, 64, 256), "float32"), np.zeros(3000, "float32")
model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=16, verbose=0)
"""


def legroom(folder, *arguments):
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    command = [sys.executable, "-m", "legroom", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.tensorflow
def test_plan_and_estimate_of_a_script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = legroom(tmp_path, "plan", "train.py", "--ram", "1100MiB", "--no-max-batch", "--json")
    host = json.loads(done.stdout)["host"]
    assert done.returncode == 0, done.stderr
    assert (host["limit_bytes"], host["fits"]) == (1100 * MIB, False)
    (action,) = host["actions"]
    assert (action["name"], action["by"], action["fits"]) == ("stream", "legroom", True)
    assert host["peak_bytes"] - action["peak_bytes"] > 1.8 * 3000 * 64 * 256 * 4
    said = json.loads(legroom(tmp_path, "estimate", "train.py", "--ram", "64MiB", "--json").stdout)["host"]
    assert said["peak_bytes"] == pytest.approx(action["peak_bytes"], rel=0.05)
    text = legroom(tmp_path, "plan", "train.py", "--ram", "300MiB", "--no-max-batch")
    assert text.returncode == 1
    assert "legroom run --ram 64MiB train.py" in text.stdout
