"""Which actions are asked for, and which plan is taken: over made-up steps whose peak is a formula."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from legroom.errors import InputError
from legroom.plans.counts import even
from legroom.plans.search import MOST_COUNTS, MOST_ESTIMATES, MOST_INEXACT, Search
from legroom.plans.tried import Tried
from legroom.records.estimate import Estimate
from legroom.records.plan import Action, Effect, action_from_json, action_to_json

GIB, MIB = 2**30, 2**20
HALF = Action("mixed_precision", (("policy", "mixed_bfloat16"),))
SGD = Action("optimizer", (("kind", "SGD"),))
DROPOUT, RAM, PLAIN = Action("dropout"), Action("host_data"), Action("compile", (("jit_compile", False),))


def estimate(high: float, usable: int, batch: int = 64, **breakdown: int) -> Estimate:
    peak = int(high / 1.1)
    known = {"weights": 0, "optimizer": 0, "gradients": 0, "other": 0, **breakdown}
    return Estimate(
        *("op", "1", "tensorflow", "2.21", "graph", "t4", batch, peak, int(high / 1.2), int(high), peak, 0, usable),
        *(known, ()),
    )


class Step:
    """Activations that shrink with micro-batches and recomputation, above weights that do not."""

    def __init__(self, usable: int, *, fixed: int = GIB, activations: int = 8 * GIB, batch: int = 64) -> None:
        self.usable, self.fixed, self.activations, self.batch = usable, fixed, activations, batch
        self.saved = {"dropout": GIB, "host_data": 0, "compile": 3 * GIB, "optimizer": fixed // 2}
        self.compiling = 1.5  # times as slow without it
        self.asked: list[tuple[Action, ...]] = []

    def high(self, actions: tuple[Action, ...]) -> float:
        names = {action.name: action for action in actions}
        held = self.activations / (names["microbatch"]["count"] if "microbatch" in names else 1)
        held /= 4 if "remat" in names else 1
        held /= 2 if "mixed_precision" in names else 1
        return self.fixed + held - sum(self.saved.get(name, 0) for name in names)

    def ask(self, actions: tuple[Action, ...]) -> Tried:
        self.asked.append(actions)
        names = [action.name for action in actions]
        slow = 1.0 + 0.02 * ("microbatch" in names) + 0.3 * ("remat" in names)
        slow *= self.compiling if "compile" in names else 1.0
        changed = {"mixed_precision", "optimizer"} & {*names}
        exactness = "inexact" if changed else "equivalent" if "microbatch" in names else "exact"
        found = estimate(self.high(actions), self.usable, self.batch, weights=self.fixed // 4)
        return Tried(actions, found, slow, Effect(exactness))  # type: ignore[arg-type]

    def blocks(self, bytes_to_save: int) -> Action | None:
        return Action("remat", (("blocks", (("a", "b"),)),)) if bytes_to_save <= self.activations * 0.75 else None


def always(action: Action):
    return lambda base: action


def names_of(plan) -> list[str]:
    return [action.name for action in plan.actions]


def none_to_recompute(bytes_to_save: int) -> None:
    return None


def test_a_step_that_fits_is_left_alone():
    step = Step(16 * GIB)
    planning = Search(step.ask, step.blocks).run()
    assert planning.best is not None
    assert planning.best.actions == ()
    assert step.asked == [()]


@given(st.integers(2, 512), st.integers(MIB, 64 * GIB), st.integers(MIB, 4 * GIB), st.integers(MIB, 8 * GIB))
def test_the_fewest_micro_batches_that_fit_are_found(batch, activations, fixed, room):
    step = Step(fixed + room, fixed=fixed, activations=activations, batch=batch)
    fewest = ceil(activations / room)
    assume(1 < fewest <= batch)
    planning = Search(step.ask, none_to_recompute).run()
    assert planning.best is not None
    found = planning.best.actions[0]["count"]
    assert found <= max(even(fewest, batch), fewest + 1, ceil(fewest * 1.05))
    assert planning.best.high_bytes <= step.usable
    assert len(step.asked) <= MOST_COUNTS + 1


@given(st.integers(2, 1000), st.integers(2, 1000))
def test_equal_slices_are_preferred_where_they_are_near(batch, count):
    assume(count <= batch)
    found = even(count, batch)
    assert count <= found <= 2 * count
    assert found == count or batch % found == 0


def test_exact_comes_before_equivalent_and_both_are_shown():
    step = Step(4 * GIB)
    planning = Search(step.ask, step.blocks).run()
    assert [[action.name for action in plan.actions] for plan in planning.plans] == [["remat"], ["microbatch"]]
    assert planning.best is planning.plans[0]


def test_where_one_action_will_not_do_two_are_taken():
    step = Step(GIB + GIB // 64, batch=256)
    planning = Search(step.ask, step.blocks).run()
    assert planning.best is not None
    assert {action.name for action in planning.best.actions} <= {"remat", "microbatch"}


def test_nothing_inexact_is_tried_unasked():
    step = Step(4 * GIB)
    Search(step.ask, step.blocks).run()
    assert not any(action.name == "mixed_precision" for actions in step.asked for action in actions)
    allowed = Search(step.ask, step.blocks, inexact=(HALF,)).run()
    assert allowed.best is not None
    assert allowed.best.exactness == "exact"


def test_a_budget_below_the_weights_has_no_plan():
    step = Step(GIB // 2)
    planning = Search(step.ask, step.blocks).run()
    assert planning.chosen is None
    assert planning.best is None
    assert all(not plan.fits for plan in planning.plans)


def test_what_cannot_be_done_is_refused_with_its_reason():
    step = Step(4 * GIB)

    def ask(actions: tuple[Action, ...]) -> Tried:
        if any(action.name == "microbatch" for action in actions):
            raise InputError("the loss cannot be taken apart")
        return step.ask(actions)

    planning = Search(ask, step.blocks).run()
    assert planning.refused == ("microbatch: the loss cannot be taken apart",)
    assert planning.best is not None


def test_an_action_that_saves_nothing_is_refused():
    step = Step(4 * GIB, activations=8 * GIB)

    def ask(actions: tuple[Action, ...]) -> Tried:
        return Tried(actions, estimate(9 * GIB, 4 * GIB))

    planning = Search(ask, step.blocks).run()
    assert planning.chosen is None
    assert any("saves nothing" in reason for reason in planning.refused)


def test_what_costs_nothing_comes_first_and_ends_the_search_where_it_is_enough():
    step = Step(8 * GIB)
    planning = Search(step.ask, step.blocks, easy=(always(DROPOUT), always(PLAIN))).run()
    assert names_of(planning.best) == ["dropout"]
    assert len(step.asked) == 2


def test_what_costs_nothing_is_kept_under_what_is_needed_besides():
    step = Step(2 * GIB)
    step.saved["host_data"] = GIB
    planning = Search(step.ask, step.blocks, easy=(always(RAM), always(DROPOUT))).run()
    assert names_of(planning.best) == ["host_data", "dropout", "remat"]
    assert len(step.asked) <= MOST_ESTIMATES


def test_an_easy_action_that_was_not_needed_is_left_out():
    step = Step(8 * GIB)
    step.saved["host_data"] = GIB // 4
    planning = Search(step.ask, step.blocks, easy=(always(RAM), always(DROPOUT))).run()
    assert names_of(planning.best) == ["dropout"]


def test_what_costs_a_little_is_left_out_where_the_others_do_without_it():
    step = Step(5 * GIB)
    planning = Search(step.ask, none_to_recompute, easy=(always(DROPOUT),)).run()
    assert step.asked[-1] == (Action("microbatch", (("count", 2),)),)
    assert names_of(planning.best) == ["microbatch"]


def test_next_to_nothing_is_not_worth_an_action():
    step = Step(4 * GIB)
    step.saved["host_data"] = MIB
    planning = Search(step.ask, step.blocks, easy=(always(RAM), always(DROPOUT))).run()
    assert not any("host_data" in names_of(plan) for plan in planning.plans)
    assert "arrays kept in RAM: it saves 1.0 MiB of the 5.0 GiB that are too much" in planning.refused


def test_what_is_exact_and_dear_is_a_plan_but_nothing_is_built_on_it():
    step = Step(6 * GIB + GIB // 2)
    planning = Search(step.ask, step.blocks, easy=(always(PLAIN), always(DROPOUT))).run()
    assert names_of(planning.best) == ["remat"]  # 1.3 times the time, where op by op takes 1.5 times
    assert not any(len(plan.actions) > 1 for plan in planning.plans if plan.actions[0].name == "compile")
    step.compiling = 1.05
    assert names_of(Search(step.ask, step.blocks, easy=(always(PLAIN), always(DROPOUT))).run().best) == ["compile"]


def test_what_does_not_apply_is_not_asked_for():
    step = Step(4 * GIB)
    Search(step.ask, step.blocks, easy=(lambda base: None,)).run()
    assert step.asked[1][0].name == "microbatch"


def test_a_second_try_at_an_action_takes_the_place_of_the_first():
    step = Step(6 * GIB)
    first, second = (Action("xla_memory", (("limit_bytes", size),)) for size in (2 * GIB, GIB))

    def ask(actions: tuple[Action, ...]) -> Tried:
        step.saved["xla_memory"] = 4 * GIB if second in actions else 2 * GIB
        return step.ask(actions)

    planning = Search(ask, step.blocks, easy=(always(first), always(second))).run()
    assert planning.best.actions == (second,)
    assert step.asked == [(), (first,), (second,)]


def test_more_memory_to_use_helps_though_the_step_takes_as_much():
    step, pool = Step(7 * GIB), Action("pool", (("setting", "SHARE=0.92"), ("usable_bytes", 10 * GIB)))

    def ask(actions: tuple[Action, ...]) -> Tried:
        found = step.ask(actions)
        wider = replace(found.estimate, usable_bytes=10 * GIB if pool in actions else 7 * GIB)
        return replace(found, estimate=wider)

    assert Search(ask, step.blocks, easy=(always(pool),)).run().best.actions == (pool,)


def test_another_optimizer_is_never_taken_before_what_is_exact():
    step = Step(8 * GIB + GIB // 2)
    planning = Search(step.ask, step.blocks, easy=(always(DROPOUT),), inexact=(SGD, HALF)).run()
    assert names_of(planning.best) == ["dropout"]
    assert planning.best.exactness == "exact"


def test_where_nothing_exact_fits_what_was_allowed_is_combined_with_it():
    step = Step(GIB + GIB // 8, fixed=2 * GIB, activations=GIB)
    step.saved = {"optimizer": GIB}
    planning = Search(step.ask, step.blocks, inexact=(SGD,)).run()
    assert planning.best is not None
    assert planning.best.exactness == "inexact"
    assert names_of(planning.best)[0] == "optimizer"
    assert len(step.asked) <= 1 + MOST_ESTIMATES + MOST_INEXACT


@pytest.mark.parametrize(
    "action", [Action("microbatch", (("count", 4),)), Action("remat", (("blocks", (("a", "b"), ("c",))),)), Action("x")]
)
def test_actions_survive_json(action):
    import json

    assert action_from_json(json.loads(json.dumps(action_to_json(action)))) == action


def test_where_turns_of_a_loop_are_not_counted_no_time_is_said():
    from dataclasses import replace

    from legroom.gpus import find
    from legroom.plans.cost import slowdown

    plain = replace(estimate(GIB, GIB), flops=10**12, moved_bytes=10**9)
    assert slowdown(replace(plain, flops=2 * 10**12), plain, find("t4")) > 1.5
    assert slowdown(replace(plain, flops=10**12 // 4), plain, find("t4")) is None


def test_fewer_blocks_are_tried_where_the_leanest_ones_leave_more_to_chance():
    """All blocks keep the least, with a bound far above; of fewer the bound is nearer, and they fit."""
    usable = 5 * GIB
    highs = {"all": 6 * GIB, "some": 4 * GIB}

    def blocks(bytes_to_save: int) -> Action | None:
        if bytes_to_save > 3 * GIB:
            return None
        return Action("remat", (("blocks", (("some" if bytes_to_save else "all",),)),))

    def ask(actions: tuple[Action, ...]) -> Tried:
        high = highs[actions[0]["blocks"][0][0]] if actions and actions[0].name == "remat" else 9 * GIB
        return Tried(actions, estimate(high, usable, batch=1), 1.0, Effect("exact"))

    planning = Search(ask, blocks).run()
    assert planning.best is not None
    assert planning.best.actions[0]["blocks"] == (("some",),)
