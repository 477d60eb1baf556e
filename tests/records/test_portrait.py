"""What differs between two models, on made-up portraits."""

import re
from dataclasses import replace

import pytest

from legroom.records.portrait import (
    Part,
    Portrait,
    automatic,
    first_difference,
    portrait_from_json,
    portrait_to_json,
    renaming,
)

PARTS = (
    Part("stem", "Conv2D", ("float32[3,3,3,8]",), "float32"),
    Part("inner/dense", "Functional/Dense", ("float32[8,4]", "float32[4]"), "float32"),
    Part("dense_1", "Dense", ("float32[4,1]",), "float32"),
)
PLAIN = Portrait("Sequential", PARTS, ("float32[?,8,8,3]",), "Adam", "mean_squared_error")


def with_part(place, **changes):
    return replace(PLAIN, parts=(*PARTS[:place], replace(PARTS[place], **changes), *PARTS[place + 1 :]))


def test_numbers_that_keras_counts_by_are_no_difference():
    other = with_part(2, name="dense_17")
    assert first_difference(PLAIN, other) is None
    assert other.fingerprint == PLAIN.fingerprint
    assert renaming(PLAIN, other) == {"dense_1": "dense_17"}
    assert renaming(PLAIN, PLAIN) == {}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (replace(PLAIN, kind="Functional"), "a Sequential; this model is a Functional"),
        (with_part(0, name="stem_2"), r"3 layers \(stem, inner/dense, dense_1\); this one has no layer 'stem'"),
        (with_part(1, kind="Functional/Conv1D"), r"'inner/dense' \(Dense\), this one has 'inner/dense' \(Conv1D\)"),
        (
            with_part(1, weights=("float32[8,9]", "float32[9]")),
            r"were float32\[8,4\], float32\[4\] and are float32\[8,9\]",
        ),
        (with_part(2, dtype="bfloat16"), "computed in float32"),
        (replace(PLAIN, parts=PARTS[:2]), "this one has 2, and none like 'dense_1'"),
        (replace(PLAIN, parts=(*PARTS, Part("more", "Dense", ()))), "this one has 4, 'more' among them"),
        (replace(PLAIN, inputs=("float32[?,16,16,3]",)), r"inputs of float32\[\?,8,8,3\]; this model takes"),
        (replace(PLAIN, optimizer="SGD"), "trained with Adam; this one is trained with SGD"),
        (replace(PLAIN, loss="mean_absolute_error"), "mean_squared_error; this one has mean_absolute_error"),
        (replace(PLAIN, optimizer=None, loss=None), "has not been compiled"),
    ],
)
def test_the_first_difference_is_named(other, says):
    found = first_difference(PLAIN, other)
    assert found is not None
    assert re.search(says, found), found
    assert other.fingerprint != PLAIN.fingerprint


def test_what_is_not_known_is_no_difference():
    assert first_difference(replace(PLAIN, optimizer=None, loss=None), PLAIN) is None  # planned in a loop of the user's
    assert first_difference(PLAIN, with_part(0, weights=None)) is None  # not built yet
    unbuilt = replace(PLAIN, parts=(replace(PARTS[2], name="dense_9", weights=None),))
    assert first_difference(PLAIN, unbuilt) is None
    assert "'other'" in first_difference(PLAIN, replace(PLAIN, parts=(Part("other", "Dense", None),)))


def test_portraits_go_through_json():
    assert portrait_from_json(portrait_to_json(PLAIN)) == PLAIN
    unknown = with_part(0, weights=None)
    assert portrait_from_json(portrait_to_json(unknown)) == unknown


def test_names_that_keras_makes_are_told_from_the_users():
    assert automatic("conv2d_3", "Conv2D") == "conv2d"
    assert automatic("batch_normalization", "BatchNormalization") == "batch_normalization"
    assert automatic("conv_3", "Conv2D") is None
    assert automatic("conv2d_last", "Conv2D") is None
