"""Planned steps of generated models against whole ones (bench/gradients.py): a few always, all of them in `make test-full`."""

import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import gradient_runs
import gradients
import model_parts
import model_recipes

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(5400)]


@pytest.fixture(scope="module")
def recipes() -> list[dict[str, Any]]:
    return gradients.recipes()


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the gradients of eager mode in double precision are kept for the other modes."""
    return tmp_path_factory.mktemp("gradients")


@pytest.fixture
def as_it_was() -> Iterator[None]:
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def all_wrong(rows: list[dict[str, Any]]) -> list[Any]:
    assert len(rows) >= 3
    return [(row["mode"], row["recipe"], row["action"], what) for row in rows if (what := gradients.wrong(row))]


def test_there_are_forty_models_with_every_part_among_them(recipes: list[dict[str, Any]]) -> None:
    assert len(recipes) >= 40
    assert {part for recipe in recipes for part in recipe["parts"]} == set(model_parts.PARTS)
    assert model_recipes.distinct_recipes("vectors", 9, 1) == model_recipes.distinct_recipes("vectors", 9, 1)


@pytest.mark.usefixtures("as_it_was")
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.sampled_from(model_recipes.KINDS).flatmap(model_recipes.recipes))
def test_a_generated_step_in_eager_mode(recipe: model_recipes.Recipe) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's is the same for all examples
        rows = gradient_runs.Worker(pathlib.Path(folder), "eager", "float64", "Adam").compare(recipe, steps=1)
    assert [(row["action"], what) for row in rows if (what := gradients.wrong(row))] == []


@pytest.fixture(scope="module")
def small(recipes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model with a random layer, which takes twenty steps."""
    return [next(r for r in recipes if r["kind"] == "vectors" and model_recipes.recipe_of(r).random)]


@pytest.fixture(scope="module")
def sample(small: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, pathlib.Path]:
    folder = tmp_path_factory.mktemp("sample")
    return gradients.run(small, folder, gradients.FIRST, "graph:float64", "xla:float32"), folder


def test_a_sample_on_tensorflow(sample: tuple[Any, pathlib.Path]) -> None:
    assert all_wrong(sample[0]) == []


@pytest.mark.jax
def test_a_sample_on_jax(small: list[dict[str, Any]], sample: tuple[Any, pathlib.Path]) -> None:
    assert all_wrong(gradients.run(small, sample[1], "jax mended:float64")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in gradients.RUNS if name != "jax:float64"])
def test_every_generated_model(name: str, recipes: list[dict[str, Any]], truth: pathlib.Path) -> None:
    if name != gradients.FIRST and not list(truth.iterdir()):
        gradients.run(recipes, truth, gradients.FIRST)
    assert all_wrong(gradients.run(recipes, truth, name)) == []


@pytest.mark.slow
@pytest.mark.jax
def test_on_jax_in_double_precision_the_plain_step_is_as_far_off(
    recipes: list[dict[str, Any]], truth: pathlib.Path
) -> None:
    """Keras computes means there in single precision: what is above the limit is so without a plan too."""
    if not list(truth.iterdir()):
        gradients.run(recipes, truth, gradients.FIRST)
    for row in gradients.run(recipes, truth, "jax:float64"):
        assert "failed" not in row
        if row.get("gradients", 0.0) > gradients.GRADIENTS["float64"] and not row["random"]:
            assert row["gradients"] <= 1e-5
            assert row["planned_off"] <= 10 * row["plain_off"]


def test_a_gradient_that_is_off_would_be_seen() -> None:
    plain = [np.ones(4), np.full(4, 1e-6), np.zeros(4)]
    planned = [np.ones(4), np.full(4, 1.01e-6), np.zeros(4)]
    assert gradient_runs.gradient_error(plain, planned, plain) == pytest.approx(0.01)
    assert gradient_runs.gradient_error(plain, [*plain[:2], np.full(4, 1e-3)], plain) == pytest.approx(1e-3)
