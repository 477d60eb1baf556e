"""Comparisons of samples that come out otherwise: what they are made to be, and which losses are told by them."""

import json
import os
import subprocess
import sys

import pytest

from legroom.changes.forced import PATTERNS, truths_of, with_a_row_each
from legroom.changes.made_up import CUTS, ROWS

JAX = """
import json
from test_forced import verdicts
print("FOUND " + json.dumps(verdicts()))
"""
REFUSED = ("computed number", "share of a row", "mask in pieces")
TAKEN = ("weighed", "huber", "one hot", "all of them")


@pytest.mark.parametrize("pattern", range(PATTERNS))
@pytest.mark.parametrize("each", [1, 2, 3, 50])
def test_in_each_slice_some_truths_are_true_and_not_the_same_share(pattern, each):
    truths = truths_of(pattern, 0, each)
    shares = [truths[start:stop].mean() for start, stop in CUTS]
    assert all(0 < share < 1 for share in shares)
    assert abs(shares[0] - shares[1]) > 0.05
    assert (truths_of(1 - pattern, 0, each) != truths).any()


def test_comparisons_without_a_row_for_each_sample_are_left_alone():
    whole = [(ROWS, 3), (5, ROWS), (2 * ROWS,), (), (ROWS, ROWS), (ROWS, 3)]
    parts = [(n, [(n, 3), (5, n), (2 * n,), (), (n, n), (n, 4)]) for n in (4, 2)]
    assert with_a_row_each(whole, parts) == {0, 2}
    assert with_a_row_each(whole, [(4, parts[0][1][:-1])]) == frozenset()


def losses():
    """Custom losses: those that are means over what is left of the samples, and those that only compare them."""
    from keras import ops

    def computed_number(y, p):
        kept = ops.cast(ops.floor(y / 100) != 7, p.dtype)
        return ops.sum(kept * (p - y) ** 2) / (ops.sum(kept) + 1e-9)

    def share_of_a_row(y, p):
        kept = ops.cast(ops.max(y, -1) > 1e6 * ops.mean(ops.abs(y), -1), p.dtype)
        return ops.sum((1 - kept) * ops.mean((p - y) ** 2, -1)) / (ops.sum(1 - kept) + 1e-9)

    def mask_in_pieces(y, p):
        kept = ops.logical_not(ops.logical_and(y > 4321.0, y < 4322.0))
        return ops.mean((p - y) ** 2) * ops.mean(ops.cast(kept, p.dtype))

    def weighed(y, p):
        return ops.mean(ops.where(y > 777.7, 3.0, 1.0) * (p - y) ** 2)

    def huber(y, p):
        return ops.mean(ops.where(ops.abs(p - y) < 1, (p - y) ** 2, ops.abs(p - y)), -1)

    def one_hot(y, p):
        return ops.mean(ops.sum(ops.one_hot(ops.cast(ops.argmax(y, -1), "int32"), 3) * ops.log(ops.abs(p) + 1), -1))

    def all_of_them(y, p):
        return ops.mean((p - y) ** 2) * ops.where(ops.all(ops.abs(y) < 1e6), 1.0, 2.0)

    return {
        "computed number": computed_number, "share of a row": share_of_a_row, "mask in pieces": mask_in_pieces,
        "weighed": weighed, "huber": huber, "one hot": one_hot, "all of them": all_of_them,
    }  # fmt: skip


def verdicts():
    """Which of the losses a model can be cut with, and which of the same written as a model's own."""
    import keras

    from legroom.changes.microbatch import split
    from legroom.errors import InputError

    def model_with(loss, own):
        class Own(keras.Model):
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return keras.ops.mean(loss(y, y_pred))

        given = keras.Input((5,))
        model = (Own if own else keras.Model)(given, keras.layers.Dense(3)(given))
        model.compile("sgd", None if own else loss)
        return model

    import numpy as np

    found = {}
    x, y = np.ones((8, 5), "float32"), np.ones((8, 3), "float32")
    for name, loss in losses().items():
        for own in (False, True):
            model = model_with(loss, own)
            try:
                split(model, 2)
                model.train_on_batch(x, y)
                found[f"{name}, own {own}"] = "taken"
            except InputError as error:
                found[f"{name}, own {own}"] = str(error)
    return found


def check(found):
    for name in REFUSED:
        for own in (False, True):
            assert "slices of the batch" in found[f"{name}, own {own}"], (name, own, found)
    for name in TAKEN:
        for own in (False, True):
            assert found[f"{name}, own {own}"] == "taken", (name, own, found)


@pytest.mark.tensorflow
def test_losses_are_told_by_what_is_left_of_the_samples():
    check(verdicts())


@pytest.mark.jax
def test_losses_are_told_on_jax_too():
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", JAX], env=env, capture_output=True, text=True, check=False)
    rows = [line[6:] for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert rows, done.stderr[-2000:]
    check(json.loads(rows[0]))
