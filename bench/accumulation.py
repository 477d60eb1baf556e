"""What micro-batching inside a step costs against accumulation written by hand, in one process, turn by turn.

    python bench/accumulation.py [--write]

By hand, as it is written in tutorials and as well as it can be: slices are cut by Python, each is one call of a `tf.function` that adds its
gradients to variables, another applies them ("variables"); or one `tf.function` with a `tf.while_loop` over the slices ("loop"). The
ratio is the median over rounds in which each has its turn; the table goes to docs/accuracy-plan.md with --write.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import keras
import tensorflow as tf
import zoo
from pages import put

import legroom
from legroom.records.plan import Action, Plan

CASES = (("vit", 4, 2), ("super_resolution", 8, 4), ("bert", 16, 8), ("mixer", 16, 4), ("tagger", 32, 4))
ROUNDS = 21
Step = Callable[[], Any]


def made(name: str, batch: int) -> tuple[Any, Any, Any]:
    keras.utils.set_random_seed(0)
    model, x, y = zoo.setup(name, batch, "float32")
    model.compile(model.optimizer, model.loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model, tf.constant(x), tf.constant(y * 0)


def ours(name: str, batch: int, count: int) -> Step:
    model, x, y = made(name, batch)
    actions = (Action("microbatch", (("count", count),)),)
    legroom.apply(Plan(actions, 0, 0, 0, True, 1.0), model)
    return lambda: model.train_on_batch(x, y)


def with_metrics(model: Any, loss: Any) -> None:
    model._loss_tracker.update_state(loss)


def variables(name: str, batch: int, count: int) -> Step:
    model, x, y = made(name, batch)
    sums = [tf.Variable(tf.zeros_like(weight.value), trainable=False) for weight in model.trainable_variables]

    @tf.function
    def add(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        for total, gradient in zip(sums, tape.gradient(loss, weights(model)), strict=True):
            total.assign_add(tf.convert_to_tensor(gradient) / count)
        with_metrics(model, loss)
        return loss

    @tf.function
    def update() -> None:
        model.optimizer.apply([total.value() for total in sums], model.trainable_variables)
        for total in sums:
            total.assign(tf.zeros_like(total))

    def step() -> None:
        size = batch // count
        for i in range(count):
            float(add(x[i * size : (i + 1) * size], y[i * size : (i + 1) * size]))
        update()

    return step


def weights(model: Any) -> list[Any]:
    return [weight.value for weight in model.trainable_variables]


def loop(name: str, batch: int, count: int) -> Step:
    model, x, y = made(name, batch)

    @tf.function
    def train(x: Any, y: Any) -> Any:
        size = batch // count

        def body(i: Any, losses: Any, *sums: Any) -> Any:
            with tf.GradientTape() as tape:
                part = x[i * size : (i + 1) * size]
                loss = model.compute_loss(part, y[i * size : (i + 1) * size], model(part, training=True))
            found = tape.gradient(loss, weights(model))
            return (
                i + 1,
                losses + loss / count,
                *(total + tf.convert_to_tensor(one) / count for total, one in zip(sums, found, strict=True)),
            )

        zeros = [tf.zeros_like(weight) for weight in weights(model)]
        _, losses, *sums = tf.while_loop(
            lambda i, *_: i < count, body, (0, 0.0, *zeros), parallel_iterations=1, maximum_iterations=count
        )
        model.optimizer.apply(sums, model.trainable_variables)
        with_metrics(model, losses)
        return losses

    return lambda: float(train(x, y))


def seconds(step: Step) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def compare(name: str, batch: int, count: int) -> str:
    steps = [made_step(name, batch, count) for made_step in (ours, variables, loop)]
    for step in steps:
        step()
        step()
    rounds = [[seconds(step) for step in steps] for _ in range(ROUNDS)]
    mine, by_variables, by_loop = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratios = " | ".join(f"{statistics.median(row[0] / row[i] for row in rounds):.3f}" for i in (1, 2))
    return f"| {name} | {batch} | {count} | {1000 * mine:,.0f} ms | {1000 * by_variables:,.0f} ms | {1000 * by_loop:,.0f} ms | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="vit:16:4 …")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cases = [(n, int(b), int(k)) for n, b, k in (one.split(":") for one in options.cases)] or CASES
    lines = [
        "| model | batch | slices | Legroom | by hand, variables | by hand, loop | ratio to variables | ratio to loop |",
        "|" + "---|" * 8,
    ]
    for case in cases:
        lines.append(compare(*case))
        print(lines[-1], flush=True)
    if options.write:
        put("accuracy-plan.md", "accumulation", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
