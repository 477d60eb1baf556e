"""Plans as JSON: read back as they were, or refused with what is wrong."""

import json

import pytest

import legroom
from legroom.errors import InputError
from legroom.records.plan import Action, Plan, Planning, action_from_json, action_to_json
from legroom.records.portrait import Part, Portrait
from legroom.report.plan_json import planning_from, planning_view

PORTRAIT = Portrait("Sequential", (Part("dense", "Dense", ("float32[4,1]",), "float32"),), None, "SGD", "")
BLOCKS = Action("remat", (("blocks", (("dense",),)),))
PLAN = Plan(
    (Action("microbatch", (("count", 4),)), BLOCKS), 10, 9, 11, True, 1.2, "equivalent", ("random",), ("loss 'mine'",)
)
PLANNING = Planning(
    *("T4", 32, 20, Plan((), 30, 29, 31, False, 1.0), (PLAN,), 0),
    max_batch=8,
    max_batch_planned=40,
    advice=("a smaller input",),
    refused=("no",),
    notes=("note",),
    seconds=1.5,
).for_model(PORTRAIT)


def test_a_planning_goes_through_json():
    view = json.loads(json.dumps(planning_view(PLANNING)))
    assert (view["schema"], view["max_batch"], view["max_batch_planned"]) == (1, 8, 40)
    assert planning_from(view) == PLANNING
    assert planning_from(view).best.made_for == PORTRAIT


def test_a_plan_of_before_says_of_nothing_that_it_was_tried():
    view = json.loads(json.dumps(planning_view(PLANNING)))
    del view["plans"][0]["tried"]
    assert planning_from(view).plans[0].tried == ()


def without(key):
    return lambda view: view.pop(key)


def set_to(*way):
    *path, key, value = way

    def change(view):
        for step in path:
            view = view[step]
        view[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *((without(key), f"'{key}' is missing") for key in ("schema", "gpu", "plans", "made_for", "max_batch_planned")),
        (set_to("schema", 2), "a newer Legroom has written it"),
        (set_to("schema", 0), "an older Legroom has written it"),
        (set_to("schema", "1"), "'schema' should be a whole number"),
        (set_to("plans", {}), "'plans' should be a list"),
        (set_to("plans", ["text"]), "'exactness' is missing"),
        (set_to("chosen", 1), "it chooses plan 1, and has 1"),
        (set_to("plans", 0, "peak_bytes", "many"), "'peak_bytes' should be a whole number"),
        (set_to("plans", 0, "fits", 1), "'fits' should be true or false"),
        (set_to("plans", 0, "exactness", "perhaps"), "'perhaps', which is none of exact"),
        (set_to("plans", 0, "actions", [{"count": 2}]), "'name' is missing"),
        (set_to("plans", 0, "tried", None), "'tried' should be a list"),
        (set_to("plans", 0, "actions", [{"name": "compile", "jit_compile": "perhaps"}]), "'jit_compile' should be"),
        (set_to("plans", 0, "actions", [{"name": "pool", "setting": "x"}]), "'setting' is 'x'"),
        (set_to("plans", 0, "actions", [{"name": "allocator", "setting": 3}]), "'setting' should be a text"),
        (set_to("plans", 0, "actions", [{"name": "microbatch"}]), "'count' is missing"),
        (set_to("plans", 0, "actions", [{"name": "microbatch", "count": 0}]), "'count' is 0"),
        (set_to("plans", 0, "actions", [{"name": "remat", "blocks": ["dense"]}]), "no list of lists"),
        (set_to("made_for", "parts", 3), "'made_for' describes no model"),
        (set_to("made_for", "parts", 0, "name", "other"), "changed by hand"),
    ],
)
def test_what_is_no_plan_is_refused(change, says, tmp_path):
    view = planning_view(PLANNING)
    change(view)
    (tmp_path / "plan.json").write_text(json.dumps(view))
    with pytest.raises(InputError, match=r"plan\.json is not a plan") as raised:
        legroom.load_plan(tmp_path / "plan.json")
    assert says in raised.value.message
    assert raised.value.hint is not None


@pytest.mark.parametrize("text", ["", "garbage", "[]", "3", "null", "\x00", '{"schema": 1'])
def test_garbage_is_refused(text, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match="is not a plan"):
        legroom.load_plan(tmp_path / "plan.json")


def test_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a plan"):
        legroom.load_plan(tmp_path / "nosuch.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a plan"):
        legroom.load_plan(tmp_path / "bytes.json")


def test_an_action_that_lacks_something_says_so():
    with pytest.raises(InputError, match="'microbatch' does not say its 'count'"):
        Action("microbatch")["count"]


def test_every_action_goes_through_json():
    for action in (
        Action("optimizer", (("kind", "SGD"),)),
        Action("microbatch", (("count", 2),)),
        Action("compile", (("jit_compile", True),)),
    ):
        assert action_from_json(json.loads(json.dumps(action_to_json(action)))) == action


def test_what_cannot_be_saved_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        legroom.save_plan(PLANNING, tmp_path / "nosuch" / "plan.json")
    with pytest.raises(InputError, match="received a Plan"):
        legroom.save_plan(PLANNING.plans[0], tmp_path / "plan.json")
    with pytest.raises(InputError, match="is not a plan"):
        legroom.load_plan(None)
