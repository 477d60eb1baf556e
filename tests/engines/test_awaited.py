"""Which of its terms a sum waits for that is made as they come."""

from itertools import chain
from random import Random

from made_up_graphs import Draft, peak

from legroom.engines.op.awaited import Sum, drawn, sums
from legroom.engines.op.planned import wire

TERM = 1024


def summed(terms=6, chained=()):
    """A sum of so many terms, made as they come; those that are chained are made from the first one. And who: the variable, its first value, the terms' makers."""
    draft = Draft()
    start = draft.add("start", size=16)
    made = []
    for number in range(terms):
        inputs = (made[0],) if number in chained else (start,)
        made.append(draft.add(f"term{number}", *inputs, size=TERM))
    maker = {tensor: number for number, node in enumerate(draft.nodes) for tensor in node.outputs}
    last = maker[made[-1]]
    variable = draft.add("variable", size=TERM, kind="TemporaryVariable", after=(last,))
    first = draft.add("zeros", variable, size=0, kind="Assign", after=(last,))
    for tensor in made:
        draft.add("added", first, tensor, size=0, kind="AssignAdd")
    everyone = {node.op.name: number for number, node in enumerate(draft.nodes)}
    return draft, everyone


def test_a_sum_and_the_terms_that_it_may_wait_for():
    draft, who = summed(3)
    terms = tuple(who[f"term{number}"] for number in range(3))
    assert sums(draft.graph()) == [Sum((who["variable"], who["zeros"]), who["term2"], terms)]


def test_a_term_that_another_is_needed_for_is_not_the_first_that_a_walk_back_ends_at():
    draft, who = summed(4, chained=(2, 3))
    assert sums(draft.graph())[0].terms == (who["term0"], who["term1"])


def test_a_graph_without_such_sums_has_none():
    draft = Draft()
    draft.add("product", draft.add("start"))
    assert sums(draft.graph()) == []


def test_another_term_is_waited_for_instead():
    draft, who = summed()
    consumers = wire(draft.graph())[0]
    seen = set()
    for seed in range(40):
        moved = drawn(consumers, sums(draft.graph()), Random(seed))
        (awaited,) = [number for number, those in enumerate(moved) if who["variable"] in those]
        assert [node for node in moved[awaited] if node in (who["variable"], who["zeros"])] == [
            who["variable"],
            who["zeros"],
        ]
        assert sorted(chain(*moved)) == sorted(chain(*consumers))
        seen.add(awaited)
    assert seen == {who[f"term{number}"] for number in range(6)}


def test_in_one_process_most_terms_wait_and_in_another_few_do():
    draft, _ = summed(12)
    peaks = {peak(draft, seed=seed) for seed in range(30)}
    assert max(peaks) - min(peaks) >= 8 * TERM
