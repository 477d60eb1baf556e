"""What is tried on which card, and how much memory XLA is told of."""

from dataclasses import replace

import pytest

from legroom.front.proposals import hold_xla, keep_arrays, larger_pool, precision_for, switch
from legroom.front.target import Card, choose_card
from legroom.gpus import context_bytes, find, usable_bytes
from legroom.plans.tried import Tried
from legroom.records.estimate import Estimate
from legroom.records.plan import Action

GIB = 2**30


def card(name: str) -> Card:
    return Card(find(name), name)


def tried(program: int, usable: int, engine: str = "xla", **breakdown: int) -> Tried:
    sizes = (program, program, program, program, 0, usable)
    known = {"weights": GIB, "optimizer": GIB, "inputs": 0, **breakdown}
    return Tried((), Estimate(engine, "1", "tensorflow", "2.21", "xla", "t4", 64, *sizes, known, ()))


@pytest.mark.parametrize(
    ("name", "policy"),
    [("t4", "mixed_float16"), ("v100", "mixed_float16"), ("a100", "mixed_bfloat16"), ("h100", "mixed_bfloat16")],
)
def test_the_precision_is_the_one_that_the_card_has(name, policy):
    assert precision_for(card(name)) == Action("mixed_precision", (("policy", policy),))


def test_cards_without_tensor_cores_and_cpus_get_no_mixed_precision():
    assert "6.0" in str(precision_for(card("p100")))
    assert "CPU" in str(precision_for(replace(choose_card("t4", None), is_cpu=True)))


def test_xla_is_told_to_make_do_with_what_would_fit():
    action = hold_xla(card("rtx3060"), 1.0, switched=False)(tried(8 * GIB, 6 * GIB))
    room = find("rtx3060").memory_bytes * 80 // 100 - 2 * GIB
    assert action is not None
    assert action["limit_bytes"] <= 4 * GIB  # of temporaries, above 2 GiB of weights and slots
    assert action["limit_bytes"] > 4 * GIB - room // 100
    assert action["flag"] == f"--xla_gpu_memory_limit_slop_factor={action['percent']}"


def test_xla_is_not_told_what_it_does_by_itself_nor_what_cannot_be():
    propose = hold_xla(card("rtx3060"), 1.0, switched=False)
    assert propose(tried(40 * GIB, 11 * GIB)) is None  # the card is full: it was compiled for that
    assert propose(tried(8 * GIB, GIB)) is None
    assert propose(tried(8 * GIB, 6 * GIB, engine="op")) is None


def test_xla_is_told_before_a_step_is_no_longer_compiled_and_after_it_was_made_to_be():
    base, switched = tried(8 * GIB, 6 * GIB), Action("compile", (("jit_compile", True),))
    compiled = replace(base, actions=(switched,))
    first, then = (hold_xla(card("rtx3060"), 1.0, switched=now) for now in (False, True))
    assert [one is not None for one in (first(base), first(compiled), then(base), then(compiled))] == [1, 0, 0, 1]
    held = replace(base, actions=(first(base),))
    assert (switch(switched)(base), switch(switched)(held)) == (switched, None)


def test_jax_may_take_nearly_all_of_a_card():
    found, gpu = larger_pool(card("t4")), find("t4")
    assert found["setting"] == "XLA_PYTHON_CLIENT_MEM_FRACTION=0.92"
    assert usable_bytes(gpu, "jax") < found["usable_bytes"] <= gpu.memory_bytes - context_bytes(gpu)


def test_arrays_are_kept_in_ram_only_where_some_are_on_the_card():
    propose = keep_arrays(Action("host_data"))
    assert propose(tried(8 * GIB, 6 * GIB)) is None
    assert propose(tried(8 * GIB, 6 * GIB, data=GIB)) == Action("host_data")
