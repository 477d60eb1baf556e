"""One generated model trained as it is and with a plan, and how far apart the two are. A process for `gradients.py` to start:

    python bench/gradient_runs.py FOLDER graph:float64 eager:float32 … < recipes.json

A line for each model, mode and action. FOLDER holds the gradients of eager TensorFlow in double precision, which come first:
they say which gradients are zero but for rounding, and what is right where single precision gets in.
"""

import gc
import json
import pathlib
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import generated_models as models
import keras
import numpy as np
from model_recipes import Recipe, recipe_of

from legroom.changes.actions import perform
from legroom.changes.remat import segments_of
from legroom.errors import LegroomError
from legroom.records.plan import Action

MODES: dict[str, dict[str, bool]] = {
    "graph": {"jit_compile": False},
    "eager": {"jit_compile": False, "run_eagerly": True},
    "xla": {"jit_compile": True},
    "jax": {"jit_compile": True},
    "jax mended": {"jit_compile": True},
}
ACTIONS = ("microbatch", "remat", "both")
OPTIMIZERS = {"float32": "SGD", "float64": "Adam"}
GRADIENTS = {"float32": 1e-3, "float64": 1e-11}
STATE = {"float32": 1e-4, "float64": 1e-8}
NOTHING = 1e-12  # of the largest gradient: below it a gradient in double precision is rounding and nothing else
Groups = dict[str, list[Any]]


@dataclass(frozen=True)
class Trained:
    """What a training leaves behind, and the gradients that its optimizer got in the first step."""

    gradients: list[Any]
    iterations: int
    state: Groups
    seeds: list[Any]
    logs: Groups


def noting(name: str, **options: Any) -> Any:
    """An optimizer that keeps the gradients of its first step in slots of its own."""

    class Noting(getattr(keras.optimizers, name)):  # type: ignore[misc]
        def build(self, variables: Any) -> None:
            if not self.built:
                super().build(variables)
                self.noted = self.add_optimizer_variables(variables, "noted")

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            kept = self.noted[self._get_variable_index(variable)]
            whole = keras.ops.cast(keras.ops.convert_to_tensor(gradient), kept.dtype)
            self.assign(kept, keras.ops.where(keras.ops.equal(self.iterations, 0), whole, kept.value))
            super().update_step(gradient, variable, learning_rate)

    return Noting(learning_rate=0.01, **options)


def blocks_of(model: Any, recipe: Recipe) -> tuple[tuple[str, ...], ...]:
    """Runs of segments of one nested model, cut where the recipe says; every fourth stays as it is."""
    segments = segments_of(model)
    inside = recipe.container == "subclassed"  # whose own layers are recomputed one by one
    if recipe.chunk == 0 and not inside:
        return (tuple(segment.name for segment in segments),)
    blocks: list[list[str]] = []
    before = None
    for segment in segments:
        alone = inside and segment.model == ""
        if alone or segment.model != before or len(blocks[-1]) == max(1, recipe.chunk):
            blocks.append([])
        blocks[-1].append(segment.name)
        before = segment.model
    return tuple(tuple(block) for place, block in enumerate(blocks) if place % 4 != 3)


def actions_of(model: Any, recipe: Recipe, action: str) -> list[Action]:
    found = []
    if action in ("remat", "both"):
        found.append(Action("remat", (("blocks", blocks_of(model, recipe)),)))
    if action in ("microbatch", "both"):
        found.append(Action("microbatch", (("count", recipe.count),)))
    return found


def train(recipe: Recipe, mode: str, optimizer: str, action: str | None, steps: int) -> Trained:
    keras.backend.clear_session()
    model = models.build(recipe)
    clip = {recipe.clip: 0.5} if recipe.clip else {}
    model.compile(noting(optimizer, **clip), **models.losses_of(recipe), **MODES[mode])
    if MODES[mode]["jit_compile"] and not model.jit_compile:
        raise LegroomError("Keras does not compile LSTM and GRU for cuDNN with XLA on TensorFlow")
    if action is not None:
        done = perform(model, actions_of(model, recipe, action))
        assert done.effect.exactness == "exact", done
    model.optimizer.build(model.trainable_variables)  # else TensorFlow traces the step twice
    data = models.data_of(recipe)
    if steps > 1:
        options = {"batch_size": recipe.batch, "epochs": models.EPOCHS, "shuffle": False, "verbose": 0}
        return left_behind(model, model.fit(**data, **options).history)
    first = {name: value for name, value in data.items() if name != "class_weight"}
    data |= keras.tree.map_structure(lambda array: array[: recipe.batch], first)
    logs = model.train_on_batch(**data, return_dict=True)
    return left_behind(model, {name: [float(value)] for name, value in logs.items()})


def left_behind(model: Any, history: dict[str, list[float]]) -> Trained:
    def values(variables: Any) -> list[Any]:
        return [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables]

    others = model.non_trainable_variables
    floats = [variable for variable in others if "float" in str(variable.dtype)]
    state = {"weights": values(model.trainable_variables), "statistics": values(floats)}
    slots = [v for v in model.optimizer.variables if "float" in str(v.dtype) and "noted" not in v.path]
    for variable in slots:
        state.setdefault(variable.path.rpartition("_")[2], []).extend(values([variable]))
    state["metrics"] = values(model.metrics_variables)
    return Trained(
        values(model.optimizer.noted),
        int(model.optimizer.iterations.numpy()),
        state,
        values([variable for variable in others if "float" not in str(variable.dtype)]),
        {name: [np.asarray(of_epochs)] for name, of_epochs in history.items()},
    )


def gradient_error(plain: list[Any], planned: list[Any], truth: list[Any]) -> float:
    """The worst ||Δg||/||g|| of a tensor; one that is zero but for rounding is measured by the largest one's norm."""
    norms = [norm(tensor) for tensor in truth]
    largest = max(norms)
    return max(
        ratio(norm(np.subtract(a, b, dtype="float64")), norm(a) if right > NOTHING * largest else largest)
        for a, b, right in zip(plain, planned, norms, strict=True)
    )


def norm(tensor: Any) -> float:
    return float(np.linalg.norm(np.asarray(tensor, "float64")))


def ratio(difference: float, scale: float) -> float:
    """Their ratio; infinite where either is not a number."""
    if not np.isfinite([difference, scale]).all():
        return float("inf")
    return difference / scale if scale else difference


def state_error(plain: Groups, planned: Groups) -> float:
    """The worst difference, relative to the tensor's largest number, or to a thousandth of its group's if that is more."""
    assert plain.keys() == planned.keys()
    worst = [0.0]
    for name, group in plain.items():
        largest = max(map(size, group), default=0.0)
        for a, b in zip(group, planned[name], strict=True):
            worst.append(ratio(size(np.subtract(a, b, dtype="float64")), max(size(a), 1e-3 * largest)))
    return max(worst)


def size(tensor: Any) -> float:
    return float(np.max(np.abs(tensor))) if tensor.size else 0.0


@dataclass
class Worker:
    """Compares recipes in one mode and precision; `folder` holds the gradients that are right."""

    folder: pathlib.Path
    mode: str
    dtype: str
    optimizer: str

    def compare(self, recipe: Recipe, steps: int) -> list[dict[str, Any]]:
        keras.config.set_floatx(self.dtype)
        keras.config.set_dtype_policy(self.dtype)
        mend(self.mode == "jax mended")
        rows = []
        wholes: dict[bool, Any] = {}
        for action in ACTIONS:
            random = recipe.random and action == "remat"
            made = recipe if random else recipe.steady()
            row = {"recipe": recipe.number, "action": action, "mode": self.mode, "dtype": self.dtype, "random": random}
            row |= {"optimizer": self.optimizer, "steps": steps}
            try:
                if random not in wholes:
                    wholes[random] = train(made, self.mode, self.optimizer, None, steps)
                planned = train(made, self.mode, self.optimizer, action, steps)
                rows.append(row | self.errors(made, wholes[random], planned))
            except LegroomError as refusal:
                rows.append(row | {"refused": str(refusal)})
            except Exception:  # noqa: BLE001 - a failure is a row of the table
                rows.append(row | {"failed": traceback.format_exc()[-3500:]})
        gc.collect()
        return rows

    def errors(self, recipe: Recipe, plain: Trained, planned: Trained) -> dict[str, Any]:
        truth = self.truth(recipe, plain.gradients)
        row = {
            "gradients": gradient_error(plain.gradients, planned.gradients, truth),
            "iterations": [plain.iterations, planned.iterations],
            "state": state_error(plain.state, planned.state),
            "logs": state_error(plain.logs, planned.logs),
            "seeds": all(np.array_equal(a, b) for a, b in zip(plain.seeds, planned.seeds, strict=True)),
        }
        if not recipe.random:  # other backends draw other numbers
            row["plain_off"] = gradient_error(truth, plain.gradients, truth)
            row["planned_off"] = gradient_error(truth, planned.gradients, truth)
        return row

    def truth(self, recipe: Recipe, gradients: list[Any]) -> list[Any]:
        path = self.folder / f"{recipe.number}-{'random' if recipe.random else 'steady'}.npz"
        if not path.exists():
            if (self.mode, self.dtype) != ("eager", "float64"):
                raise RuntimeError("eager:float64 must come first")
            np.savez(path, *gradients)
        with np.load(path) as saved:
            return [saved[name] for name in saved.files]


def mend(wanted: bool) -> None:
    """Keras 3.15.1 computes means and variances on JAX in float32, whatever `floatx` is: by this entry of its table."""
    from keras.src.backend.common import dtypes

    if keras.backend.backend() == "jax":
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64" if wanted else "float32"


def main() -> None:
    folder, *runs = sys.argv[1:]
    recipes = [recipe_of(plain) for plain in json.load(sys.stdin)]
    for run in runs:
        mode, dtype, *optimizer = run.split(":")
        worker = Worker(pathlib.Path(folder), mode, dtype, optimizer[0] if optimizer else OPTIMIZERS[dtype])
        for recipe in recipes:
            steps = 1 if recipe.number % 4 else models.STEPS * models.EPOCHS
            if optimizer and steps == 1:
                continue  # another optimizer is of interest for what twenty steps leave behind
            for row in worker.compare(recipe, steps):
                print("ROW " + json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
