"""Bytes held by made-up pipelines."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.host.assemble import growth_of, host_estimate
from legroom.engines.host.base import Process
from legroom.engines.host.holdings import FIRST_RUN_BYTES, Machine
from legroom.engines.host.limits import Limit, Limits
from legroom.engines.host.pipeline import hold, pipeline_holdings
from legroom.engines.host.span import Span, exactly
from legroom.engines.host.stages import AUTOTUNE, INFINITE, Data, Pipeline, Stage, data_from

MB = 1_000_000
MACHINE = Machine(cores=4, limit_bytes=64 * 10**9, ram_budget_bytes=32 * 10**9)
LIMITS = Limits((Limit(64 * 10**9, "made up"),))
KINDS = (
    *("map", "batch", "shuffle", "cache", "prefetch", "interleave", "unbatch", "window", "zip", "concatenate", "merge"),
    *("pass", "unknown"),
)


def elements(count, size=MB):
    return Stage("range", "range", exactly(size), cardinality=count, most=count)


def after(before, kind, **changes):
    stage = replace(before, kind=kind, name=kind, inputs=(before,), count=None, parallel=None, work=None)
    return replace(stage, **changes)


def held(stage, consumer=(1, 1, 1), **options):
    parts = pipeline_holdings(Pipeline(stage, **options), MACHINE, consumer).buffers
    return sum(part.bytes.size for part in parts if part.phase in ("running", "kept")) - FIRST_RUN_BYTES.size


def near(value, expected):
    return abs(value - expected) < 0.02 * expected


def test_shuffle_holds_its_buffer_and_never_more_than_there_is():
    assert near(held(after(elements(1000), "shuffle", count=300)), 302.5 * MB)
    assert near(held(after(elements(100), "shuffle", count=5000)), 102.5 * MB)


def test_shuffle_after_batch_holds_batches():
    batches = after(elements(1000), "batch", count=8, element=exactly(8 * MB), cardinality=125)
    shuffled = after(batches, "shuffle", count=40)
    assert near(held(shuffled), (40 * 8 + 16 + 4 + 8) * MB)
    why = [part.why for part in pipeline_holdings(Pipeline(shuffled), MACHINE, (1, 1, 1)).buffers]
    assert any("each a batch" in text for text in why)


def test_batch_holds_its_examples_and_the_batch_made_of_them():
    batches = after(elements(1000), "batch", count=64, element=exactly(64 * MB), cardinality=16)
    assert near(held(batches, autotune=False), (64 + 64 + 64) * MB)


def test_views_of_a_source_cost_nothing_in_a_shuffle():
    source = replace(elements(100), kind="source", kept_bytes=100 * MB, aliased_bytes=MB)
    stage = hold(after(source, "shuffle", count=100), Pipeline(source), MACHINE)
    shuffle = next(part for part in stage.buffers if part.name == "shuffle")
    assert shuffle.bytes.size < MB


def test_a_shuffle_after_a_cache_holds_what_the_cache_holds():
    cached = after(elements(100), "cache")
    assert near(held(after(after(cached, "pass"), "shuffle", count=50)), held(cached))


def test_a_cache_of_unknown_length_is_bounded_by_the_machine_and_says_so():
    unknown = replace(elements(None), cardinality=None, most=None)
    got = pipeline_holdings(Pipeline(after(unknown, "cache")), MACHINE, (1, 1, 1))
    assert max(part.bytes.high for part in got.buffers) == MACHINE.limit_bytes
    assert "assert_cardinality" in got.notes[0]


def test_an_infinite_dataset_fills_its_shuffle():
    endless = replace(elements(INFINITE), most=None)
    assert near(held(after(endless, "shuffle", count=50)), 52.5 * MB)


def test_autotuned_calls_are_as_many_as_cores():
    stage = after(elements(1000), "map", parallel=AUTOTUNE, work=exactly(3 * MB))
    assert near(held(stage, autotune=False), (4 * 1 + 4 * 2 + 1 + 1) * MB)


def test_an_interleave_opens_iterators_ahead_of_its_cycle():
    inner = after(elements(100), "shuffle", count=20)
    files = Stage("range", "files", exactly(10), cardinality=100)
    stage = Stage("interleave", "interleave", exactly(MB), count=4, parallel=AUTOTUNE, inner=inner, inputs=(files,))
    assert near(held(stage, autotune=False), (12 * 20 + 12 * 2 + 4 + 1) * MB)
    one = replace(stage, inputs=(replace(files, cardinality=1),))
    assert near(held(one, autotune=False), (20 + 2 + 4 + 1) * MB)


def test_a_copied_source_counts_three_times_at_its_start_and_tensors_once():
    source = replace(elements(100, 64 * 1000), kind="source", kept_bytes=400 * MB)
    assert near(growth_of(Data("dataset", Pipeline(source)), "tensorflow", MACHINE).size, 1217 * MB)
    plain = growth_of(Data("dataset", Pipeline(source, optimized=False)), "tensorflow", MACHINE)
    assert near(plain.size, 817 * MB)
    given = growth_of(Data("dataset", Pipeline(replace(source, given=True))), "tensorflow", MACHINE)
    assert near(given.size, 417 * MB)


def test_arrays_behind_a_dataset_are_mentioned_where_nobody_counted_them():
    data = Data("dataset", Pipeline(replace(elements(100), kind="source", kept_bytes=400 * MB)))
    assert "not counted" in host_estimate(data, Process("tensorflow"), LIMITS).notes[0]
    assert host_estimate(data, Process("tensorflow", current_rss_bytes=10**9), LIMITS).notes == ()


spans = st.tuples(*[st.integers(0, 10**7)] * 3).map(lambda three: Span(*sorted(three)))
numbers = st.one_of(st.none(), st.integers(-1, 1000))


@st.composite
def pipelines(draw, depth=4):
    stage = Stage(
        draw(st.sampled_from(["source", "range", "files", "generator", "unknown"])),
        "first",
        draw(spans),
        components=draw(st.integers(0, 3)),
        cardinality=draw(numbers),
        kept_bytes=draw(st.integers(0, 10**9)),
        aliased_bytes=draw(st.integers(0, 10**6)),
    )
    for _ in range(draw(st.integers(0, depth))):
        stage = Stage(
            draw(st.sampled_from(KINDS)),
            "next",
            draw(spans),
            cardinality=draw(numbers),
            most=draw(st.one_of(st.none(), st.integers(0, 1000))),
            count=draw(numbers),
            parallel=draw(st.one_of(st.none(), st.just(AUTOTUNE), st.integers(1, 32))),
            block=draw(st.integers(1, 4)),
            constant_bytes=draw(st.integers(0, 10**7)),
            work=draw(st.one_of(st.none(), spans)),
            whole=draw(st.one_of(st.none(), spans)),
            inner=stage if draw(st.booleans()) else None,
            inputs=(stage, stage) if draw(st.booleans()) else (stage,),
        )
    return Pipeline(stage, draw(st.booleans()), draw(st.booleans()), draw(st.one_of(st.none(), st.integers(1, 64))))


@given(pipelines(), st.sampled_from(["tensorflow", "jax"]), st.one_of(st.none(), st.integers(0, 10**10)))
def test_bounds_are_in_order_and_parts_sum_to_the_peak(pipeline, framework, rss):
    data = Data("dataset", pipeline, validation=Data("dataset", pipeline))
    estimate = host_estimate(data, Process(framework, 10**8, current_rss_bytes=rss, cores=3), LIMITS)
    assert 0 <= estimate.low_bytes <= estimate.peak_bytes <= estimate.high_bytes
    assert sum(part.size_bytes for part in estimate.parts) == estimate.peak_bytes
    assert sum(part.low_bytes for part in estimate.parts) == estimate.low_bytes
    assert sum(part.high_bytes for part in estimate.parts) == estimate.high_bytes
    assert all(0 <= part.low_bytes <= part.size_bytes <= part.high_bytes for part in estimate.parts)


@given(pipelines())
def test_a_description_survives_json(pipeline):
    import json

    data = Data("dataset", pipeline, batch=exactly(3), notes=("a",))
    assert data_from(json.loads(json.dumps(data.as_dict()))) == data
