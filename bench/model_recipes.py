"""Recipes of models that nobody chose: drawn by hypothesis, always the same ones, and plain data that every process can read."""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from model_parts import PARTS, STEADY, UNSTEADY

KINDS = ("vectors", "sequences", "tokens", "images")
LOSSES = ("MeanSquaredError", "MeanAbsoluteError", "Huber", "LogCosh", "CosineSimilarity")
CLASSES = ("SparseCategoricalCrossentropy", "CategoricalCrossentropy", "BinaryCrossentropy")
OWN = ("own values", "own mean", "own sum")
REDUCTIONS = ("sum_over_batch_size", "sum_over_batch_size", "sum", "mean_with_sample_weight")


@dataclass(frozen=True)
class Head:
    """One output's loss."""

    loss: str
    reduction: str
    weight: float | None


@dataclass(frozen=True)
class Recipe:
    """All there is to know of a generated model, its training and its plan."""

    number: int
    kind: str
    container: Literal["functional", "sequential", "nested", "subclassed"]
    parts: tuple[str, ...]
    pooled: str  # "" where there is an output for each step or pixel
    masked: bool
    second_input: bool
    heads: tuple[Head, ...]
    weighting: str
    clip: str
    batch: int
    rest: int  # the last batch's samples, 0 where it is whole
    count: int  # of micro-batches
    chunk: int  # segments to a block; 0: the model is one block

    @property
    def random(self) -> bool:
        return any(part in UNSTEADY[self.kind] for part in self.parts)

    def steady(self) -> "Recipe":
        """The same without what draws numbers or looks at several samples."""
        kept = tuple(part for part in self.parts if part not in UNSTEADY[self.kind])
        return replace(self, parts=kept or ("dense",))

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def recipe_of(plain: dict[str, Any]) -> Recipe:
    heads = tuple(Head(**head) for head in plain["heads"])
    return Recipe(**{**plain, "parts": tuple(plain["parts"]), "heads": heads})


@st.composite
def recipes(draw: st.DrawFn, kind: str, number: int = 0) -> Recipe:
    container = draw(st.sampled_from(("functional", "functional", "sequential", "nested", "subclassed")))
    parts = draw(st.lists(st.sampled_from(sorted(STEADY[kind])), min_size=1, max_size=3))
    if draw(st.sampled_from((False, True, False))):
        parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from(sorted(UNSTEADY[kind]))))
    pooled = draw(st.sampled_from(("mean", "flat", ""))) if kind != "vectors" else "as it is"
    masked = kind == "tokens" and pooled != "flat" and draw(st.booleans())
    several = container in ("functional", "nested")
    weighting = draw(st.sampled_from(("", "samples")))
    free = not (masked and not pooled)  # a mask reaches the loss, which must then be Keras' own
    losses = st.sampled_from(LOSSES + CLASSES + (OWN if free else ()))
    head = st.builds(Head, losses, st.sampled_from(REDUCTIONS), st.sampled_from((None, 0.5, 2.0)))
    heads = draw(st.lists(head, min_size=1, max_size=1 if container == "sequential" else 2))
    if len(heads) == 1:
        heads = [replace(heads[0], weight=None)]
        if pooled and heads[0].loss == CLASSES[0] and draw(st.booleans()):
            weighting = "classes"
    batch = draw(st.integers(4, 9))
    return Recipe(
        number=number,
        kind=kind,
        container=container,
        parts=tuple(parts),
        pooled=pooled,
        masked=masked,
        second_input=several and bool(pooled) and draw(st.booleans()),
        heads=tuple(heads),
        weighting=weighting,
        clip=draw(st.sampled_from(("", "", "clipnorm", "global_clipnorm"))),
        batch=batch,
        rest=draw(st.sampled_from((0, 0, batch // 2))),
        count=draw(st.integers(2, 4)),
        chunk=draw(st.sampled_from((0, 1, 2, 3))),
    )


def generated(each: int = 10) -> list[Recipe]:
    """The same recipes in every run, as many of each kind."""
    found: list[Recipe] = []
    for place, kind in enumerate(KINDS):
        drawn = distinct_recipes(kind, 400, 2026 + place)
        for _ in range(each):
            seen = Counter(trait for recipe in found for trait in traits(recipe))
            best = max(drawn, key=lambda recipe: novelty(recipe, seen))
            drawn.remove(best)
            found.append(replace(best, number=len(found)))
    return found


def novelty(recipe: Recipe, seen: Counter[str]) -> float:
    """Little for what was seen before; most for a part that was not."""
    return sum((4 if trait in PARTS else 1) / (1 + 2 * seen[trait]) ** 2 for trait in traits(recipe))


def traits(recipe: Recipe) -> set[str]:
    """What is new in a recipe if no other has it; hypothesis by itself likes the simplest best."""
    heads = {f"{head.loss} {head.reduction}" for head in recipe.heads} | {head.loss for head in recipe.heads}
    parts = {*recipe.parts, *(f"{recipe.container} {part}" for part in recipe.parts)}
    words = (recipe.container, recipe.pooled, recipe.weighting, recipe.clip, recipe.second_input, recipe.masked)
    numbers = (bool(recipe.rest), recipe.count, recipe.chunk, len(recipe.heads), recipe.batch % recipe.count == 0)
    others = {f"{place} {value}" for place, value in enumerate((*words, *numbers, recipe.random))}
    return heads | parts | others | ({f"masked {recipe.pooled} {recipe.weighting}"} if recipe.masked else set())


def distinct_recipes(kind: str, tries: int, start: int) -> list[Recipe]:
    kept: dict[Recipe, None] = {}

    @seed(start)
    @settings(max_examples=tries, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(recipes(kind))
    def collect(recipe: Recipe) -> None:
        kept[recipe] = None

    collect()
    return list(kept)
