"""Actions by short names, for the programs that measure what each of them saves."""

from typing import Any


def actions_of(model: Any, batch: int, way: str) -> tuple[Any, ...]:
    """`plain`, `slices_K`, `blocks_half`, `blocks_all`, `dropout` or `bfloat16`; none where there is nothing to do."""
    from legroom.changes.segments import costs_of
    from legroom.plans.remat import Cost
    from legroom.plans.remat_graph import choose, least
    from legroom.records.plan import Action

    if way == "plain":
        return ()
    if way == "dropout":
        return (Action("dropout", ()),)
    if way == "bfloat16":
        return (Action("mixed_precision", (("policy", "mixed_bfloat16"),)),)
    if way.startswith("slices"):
        return (Action("microbatch", (("count", int(way.split("_")[1])),)),)
    chain = [(found["name"], Cost.of(found)) for found in costs_of(model, batch)]
    costs = [cost for _, cost in chain]
    everything = sum(cost.kept_bytes for cost in costs)
    choice = least(costs) if way == "blocks_all" else choose(costs, everything // 2)
    if choice is None or not choice.blocks:
        return ()
    return (Action("remat", (("blocks", tuple(tuple(chain[i][0] for i in block) for block in choice.blocks)),)),)
