"""Generated models, their losses and data, made from their recipes.

They are the same on every backend and in every precision: weights are not drawn by Keras but set to numbers that single
precision holds.
"""

from typing import Any

import keras
import numpy as np
from keras import layers
from model_parts import PARTS, Positions, as_layer
from model_recipes import CLASSES, OWN, Head, Recipe

SHAPES: dict[str, tuple[int, ...]] = {"vectors": (6,), "sequences": (5, 6), "tokens": (5,), "images": (6, 6, 4)}
STEPS, EPOCHS = 10, 2


def build(recipe: Recipe) -> Any:
    """The model, with weights that are the same everywhere."""
    keras.utils.set_random_seed(3)
    make = {"sequential": sequential, "subclassed": subclassed}.get(recipe.container, functional)
    model = make(recipe)
    random = np.random.default_rng(recipe.number)
    for variable in model.variables:
        if "float" in str(variable.dtype):
            variable.assign(starting_value(random, variable))
    return model


def starting_value(random: np.random.Generator, variable: Any) -> Any:
    shape = tuple(variable.shape)
    if len(shape) > 1:
        fan_in = int(np.prod(shape[:-1])) if "embeddings" not in variable.path else 1
        values = random.normal(size=shape) / np.sqrt(fan_in)
    else:
        around_one = any(word in variable.path for word in ("gamma", "scale", "variance"))
        values = float(around_one) + 0.1 * np.clip(random.normal(size=shape), -3, 3)
    return values.astype("float32").astype(keras.config.floatx())


def stem(recipe: Recipe) -> list[Any]:
    if recipe.kind != "tokens":
        return []
    words = layers.Embedding(9, 6, mask_zero=recipe.masked)
    return [words, Positions(32, 6)] if recipe.number % 2 else [words]


def pooling(recipe: Recipe) -> list[Any]:
    if recipe.pooled == "flat":
        return [layers.Flatten()]
    if recipe.pooled != "mean":
        return []
    return [layers.GlobalAveragePooling2D() if recipe.kind == "images" else layers.GlobalAveragePooling1D()]


def given_input(recipe: Recipe) -> Any:
    return keras.Input(SHAPES[recipe.kind], name="first", dtype="int32" if recipe.kind == "tokens" else None)


def inner_shape(recipe: Recipe) -> tuple[int, ...]:
    return SHAPES["sequences"] if recipe.kind == "tokens" else SHAPES[recipe.kind]


def functional(recipe: Recipe) -> Any:
    first = x = given_input(recipe)
    for layer in stem(recipe):
        x = layer(x)
    if recipe.container == "nested":
        inner = y = keras.Input(inner_shape(recipe))
        for part in recipe.parts:
            y = PARTS[part](y)
        x = keras.Model(inner, y, name="nested")(x)
    else:
        for part in recipe.parts:
            x = PARTS[part](x)
    for layer in pooling(recipe):
        x = layer(x)
    inputs: Any = first
    if recipe.second_input:
        second = keras.Input((4,), name="second")
        x = layers.Concatenate()([x, layers.Dense(4, activation="tanh")(second)])
        inputs = {"first": first, "second": second}
    outputs = {name: layers.Dense(3, name=name)(x) for name in head_names(recipe)}
    return keras.Model(inputs, outputs if len(outputs) > 1 else outputs["head_0"])


def head_names(recipe: Recipe) -> list[str]:
    return [f"head_{place}" for place in range(len(recipe.heads))]


def sequential(recipe: Recipe) -> Any:
    middle = [as_layer(part, inner_shape(recipe)) for part in recipe.parts]
    return keras.Sequential([given_input(recipe), *stem(recipe), *middle, *pooling(recipe), layers.Dense(3)])


class Subclassed(keras.Model):  # type: ignore[misc]
    """Its parts are called one after the other by code of its own."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        middle = [as_layer(part, inner_shape(recipe)) for part in recipe.parts]
        self.chain = [*stem(recipe), *middle, *pooling(recipe)]
        self.heads = [layers.Dense(3, name=name) for name in head_names(recipe)]

    def call(self, x: Any, training: bool | None = None) -> Any:
        for layer in self.chain:
            x = layer(x, training=training) if isinstance(layer, keras.Model) else layer(x)
        outputs = [head(x) for head in self.heads]
        return outputs if len(outputs) > 1 else outputs[0]


def subclassed(recipe: Recipe) -> Any:
    model = Subclassed(recipe)
    model(keras.ops.convert_to_tensor(inputs_of(recipe, 2)))
    return model


def own_values(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.max(keras.ops.square(y_true - y_pred), axis=-1)


def own_mean(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y_true - y_pred))


def own_sum(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.sum(keras.ops.square(y_true - y_pred)) * 0.1


def loss_of(head: Head) -> Any:
    if head.loss in OWN:
        return {"own values": own_values, "own mean": own_mean, "own sum": own_sum}[head.loss]
    options = {"from_logits": True} if head.loss in CLASSES else {}
    return getattr(keras.losses, head.loss)(reduction=head.reduction, **options)


def losses_of(recipe: Recipe) -> dict[str, Any]:
    """What `compile` is told of losses and metrics."""
    losses = [loss_of(head) for head in recipe.heads]
    metrics = [["accuracy"] if head.loss == CLASSES[0] else ["mae"] for head in recipe.heads]
    weights = [head.weight for head in recipe.heads]
    if len(losses) == 1:
        return {"loss": losses[0], "metrics": metrics[0]}
    named = recipe.container != "subclassed"
    pack = (lambda values: dict(zip(head_names(recipe), values, strict=True))) if named else list
    settings = {"loss": pack(losses), "weighted_metrics": pack(metrics)}
    return settings | ({"loss_weights": pack([weight or 1.0 for weight in weights])} if any(weights) else {})


def samples_of(recipe: Recipe) -> int:
    return recipe.batch * STEPS if not recipe.rest else recipe.batch * (STEPS - 1) + recipe.rest


def inputs_of(recipe: Recipe, count: int) -> Any:
    random = np.random.default_rng(recipe.number + 1)
    if recipe.kind == "tokens":
        ids = random.integers(0, 9, (count, *SHAPES["tokens"])).astype("int32")
        ids[:, 0] += ids[:, 0] == 0  # an average over nothing is not a number
        return ids
    return single(random.normal(size=(count, *SHAPES[recipe.kind])))


def single(values: Any) -> Any:
    """Numbers that single precision holds, in Keras' float type."""
    return values.astype("float32").astype(keras.config.floatx())


def data_of(recipe: Recipe) -> dict[str, Any]:
    """What `fit` is given."""
    count, random = samples_of(recipe), np.random.default_rng(recipe.number + 2)
    x = inputs_of(recipe, count)
    if recipe.second_input:
        x = {"first": x, "second": single(random.normal(size=(count, 4)))}
    lead = (count, *(() if recipe.pooled else inner_shape(recipe)[:-1]))
    y = [labels_of(head, lead, random) for head in recipe.heads]
    weights = [single(random.uniform(0.2, 2.0, lead)) for _ in recipe.heads]
    several = len(y) > 1
    named = several and recipe.container != "subclassed"
    pack = (lambda values: dict(zip(head_names(recipe), values, strict=True))) if named else list
    data: dict[str, Any] = {"x": x, "y": pack(y) if several else y[0]}
    if recipe.weighting == "samples":
        data["sample_weight"] = pack(weights) if several else weights[0]
    if recipe.weighting == "classes":
        data["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.25}
    return data


def labels_of(head: Head, lead: tuple[int, ...], random: np.random.Generator) -> Any:
    classes = random.integers(0, 3, lead)
    if head.loss == "SparseCategoricalCrossentropy":
        return classes.astype("int32")
    if head.loss in CLASSES:
        return single(np.eye(3)[classes])
    return single(random.normal(size=(*lead, 3)))
