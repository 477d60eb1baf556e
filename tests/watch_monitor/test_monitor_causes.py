"""From made-up evidence to a cause."""

from legroom.watch.causes import find_cause
from legroom.watch.evidence import Cache, Container, Evidence, Traced

LIST = Container("list", "`history`", 200, 32, "tensors", 65536)


def test_nothing_is_unknown_and_says_what_there_is_more_of():
    cause = find_cause(Evidence(32, 200, kinds=(("builtins.tuple", 900),)), 1e5)
    assert cause.kind == "unknown"
    assert "900 × builtins.tuple" in cause.text


def test_what_explains_the_bytes_goes_before_what_happens_often():
    evidence = Evidence(32, 200, predicts=32, containers=(LIST,))
    assert find_cause(evidence, 65536).kind == "collected"
    assert find_cause(evidence, 10 * 65536).kind == "predict"


def test_retracing_names_the_argument():
    cause = find_cause(Evidence(32, 200, retraced=(Traced("train()", 32, ("`n` was 1, 2",)),)), 1e5)
    assert cause.kind == "retracing"
    assert "`n` was 1, 2" in cause.text


def test_a_few_traces_are_no_habit():
    assert find_cause(Evidence(32, 200, retraced=(Traced("train()", 2),)), 1e5).kind == "unknown"


def test_models_in_a_list_are_rebuilt_models():
    kept = Container("list", "`models`", 200, 32, "models", 48)
    assert find_cause(Evidence(32, 200, built=(("dense", 64),), containers=(kept,)), 1e5).kind == "rebuilt"


def test_a_cache_is_filling_until_it_is_full():
    cache = Cache(elements=1600, per_step=4, element_bytes=12288)
    cause = find_cause(Evidence(32, 200, caches=(cache,)), 49152)
    assert (cause.kind, cause.left_bytes) == ("filling", 800 * 12288)
    assert find_cause(Evidence(32, 400, caches=(cache,)), 49152).kind == "unknown"


def test_a_small_cache_does_not_hide_a_leak():
    cache = Cache(elements=1600, per_step=4, element_bytes=100)
    evidence = Evidence(32, 200, caches=(cache,), retraced=(Traced("train()", 32),))
    assert find_cause(evidence, 1e6).kind == "retracing"


def test_a_buffer_with_a_limit_is_filling():
    replay = Container("deque", "`replay`", 300, 32, "tensors", 65536, limit=400)
    cause = find_cause(Evidence(32, 200, containers=(replay,)), 65536)
    assert (cause.kind, cause.left_bytes) == ("filling", 100 * 65536)
