"""What recomputing blocks saves and costs: a third of the saved activations, and the flops that takes, into docs/accuracy-plan.md with --write.

    python bench/remat.py [--write]

The blocks are chosen so that what the forward pass keeps and the largest block's insides together are a third of what it keeps as
it is. Flops and peaks are the step's own, counted by the op-by-op engine with the blocks done to the model; the solver is timed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from random import Random

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from pages import put

CASES = ("resnet50:64", "gpt:8", "vit:32")
MIB = 2**20


def measure(case: str) -> None:
    import zoo

    from legroom.changes.segments import costs_of
    from legroom.front.estimating import Estimator, capture_here
    from legroom.front.local_source import LocalSource
    from legroom.front.target import choose_card
    from legroom.plans.remat import Cost
    from legroom.plans.remat_graph import choose
    from legroom.records.plan import Action

    name, batch = case.split(":")
    model, x, y = zoo.setup(name, int(batch), "float32")
    model.compile(model.optimizer, model.loss, jit_compile=False)
    chain = [(found["name"], Cost.of(found)) for found in costs_of(model, int(batch))]
    costs = [cost for _, cost in chain]
    kept = sum(cost.kept_bytes for cost in costs)
    started = time.monotonic()
    choice = choose(costs, kept // 3)
    seconds = time.monotonic() - started
    assert choice is not None
    blocks = tuple(tuple(chain[i][0] for i in block) for block in choice.blocks)
    with Estimator(LocalSource(capture_here(model, (x, y), None)), choose_card("h200", None), "op") as estimator:
        plain = estimator.at(int(batch))
        estimator.change((Action("remat", (("blocks", blocks),)),))
        after = estimator.at(int(batch))
    row = {"case": case, "kept": kept, "then": choice.peak_bytes, "solver": seconds, "segments": len(costs)}
    row |= {"flops": after.flops / plain.flops, "peak": plain.peak_bytes, "after": after.peak_bytes}
    print("ROW " + json.dumps(row), flush=True)


def solver_seconds(count: int) -> float:
    """A chain of so many made-up blocks."""
    from legroom.plans.remat import Cost, choose_blocks

    random = Random(1)
    sizes = [random.randrange(1, 100) * MIB for _ in range(count + 1)]
    costs = [Cost(sizes[i] + sizes[i + 1], sizes[i], random.randrange(1, 10**9)) for i in range(count)]
    started = time.monotonic()
    choose_blocks(costs, sum(cost.kept_bytes for cost in costs) // 3)
    return time.monotonic() - started


def table() -> str:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    lines = [
        "| model | batch | blocks' segments | saved activations MiB | then | ÷ | flops | peak MiB | then | solver s |"
    ]
    lines.append("|" + "---|" * 10)
    for case in CASES:
        command = [sys.executable, __file__, "--measure", case]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        found = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        if not found:
            raise RuntimeError(f"{case}: {done.stderr[-1500:]}")
        row, (name, batch) = json.loads(found[0]), case.split(":")
        cells = [name, batch, row["segments"], f"{row['kept'] / MIB:,.0f}", f"{row['then'] / MIB:,.0f}"]
        cells += [f"{row['kept'] / row['then']:.1f}", f"+{row['flops'] - 1:.1%}", f"{row['peak'] / MIB:,.0f}"]
        cells += [f"{row['after'] / MIB:,.0f}", f"{row['solver']:.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + f"\n\nThe solver takes {solver_seconds(200):.1f} s for 200 made-up blocks.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    found = table()
    print(found)
    if options.write:
        put("accuracy-plan.md", "remat", found)


if __name__ == "__main__":
    main()
