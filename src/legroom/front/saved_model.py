"""A model of this process, sent to another: saved to a `.keras` file with its compile configuration, and rebuilt there.

Keras rebuilds only what it knows. Classes and functions of the user's are imported from their modules first; those that no
other process can import are named, and refused.
"""

import importlib
import inspect
import json
import os
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any

from legroom.capture.batch import ArraySpec, Tree
from legroom.capture.frames import first_line
from legroom.errors import InputError
from legroom.front.rehearsed import WHAT_TO_PASS, Environment, same_path

SAVED = "LEGROOM_SAVED_MODEL"  # the folder that the parent has saved to
MODEL, BATCH, OBJECTS = "model.keras", "batch.json", "objects.json"
INSTEAD = (
    "Pass a function that makes it instead, rehearse(build), where build is at the top level of a module and returns "
    "(compiled model, batch)."
)


@contextmanager
def saved_model(model: Any, batch: Any) -> Iterator[tuple[str, Environment]]:
    """A compiled model and its batch's shapes, in files for as long as the child needs them: its target and its variables."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.Model):
        raise InputError(f"Cannot rehearse a value of type {type(model).__name__}.", WHAT_TO_PASS)
    from legroom.capture.factory import batch_tree
    from legroom.capture.keras_fit import capture_model
    from legroom.engines.rehearsal import require_tensorflow

    if batch is None:
        raise InputError(
            "A model is rehearsed with a batch.", "Pass what one training step gets: rehearse(model, (x, y))."
        )
    captured = capture_model(model, batch_tree(batch))
    require_tensorflow(captured.step)
    objects = own_objects(model)
    with tempfile.TemporaryDirectory(prefix="legroom-") as folder:
        save(model, Path(folder) / MODEL)
        (Path(folder) / BATCH).write_text(json.dumps(tree_to_json(captured.data)))
        (Path(folder) / OBJECTS).write_text(json.dumps(objects))
        yield f"{__name__}:load", {SAVED: folder, "KERAS_BACKEND": "tensorflow", **same_path([])}


def save(model: Any, path: Path) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not built, or has a lambda: it is rebuilt from its own code
            model.save(path)
    except Exception as error:
        raise InputError(f"The model {model.name!r} cannot be saved: {first_line(error)}", INSTEAD) from error


def own_objects(model: Any) -> dict[str, str]:
    """The user's functions and classes in a model's layers and in what it was compiled with: name → module."""
    compiled = getattr(getattr(model, "_compile_config", None), "config", {})
    found: dict[str, str] = {}
    layers = list(model._flatten_layers())
    for value in leaves([compiled, *(vars(layer) for layer in layers), layers]):
        require_plain_lambda(value)
        kind = value if isinstance(value, type | FunctionType) else type(value)
        module = sys.modules.get(kind.__module__)
        if not is_keras(kind.__module__) and getattr(module, kind.__name__, None) is kind:
            found[kind.__name__] = kind.__module__
    return found


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def require_plain_lambda(value: Any) -> None:
    """Keras saves a lambda as its code alone, without the names that it refers to."""
    if not isinstance(value, FunctionType) or value.__name__ != "<lambda>":
        return
    names = [*inspect.getclosurevars(value).globals, *inspect.getclosurevars(value).nonlocals]
    if names:
        place = f"{Path(value.__code__.co_filename).name}:{value.__code__.co_firstlineno}"
        raise InputError(f"The lambda at {place} refers to {', '.join(names)}, which cannot be saved with it.", INSTEAD)


def load() -> tuple[Any, Tree]:
    """In the child: the model and the shapes of its batch."""
    import keras

    folder = Path(os.environ[SAVED])
    known = {}
    for name, module in json.loads((folder / OBJECTS).read_text()).items():
        with suppress(ImportError, AttributeError):  # what the model does not need, it need not find
            known[name] = getattr(importlib.import_module(module), name)
    try:
        model = keras.saving.load_model(folder / MODEL, custom_objects=known, safe_mode=False)
    except (TypeError, ValueError, ImportError, AttributeError, NotImplementedError, KeyError) as error:
        names = [name for name in custom_objects(folder / MODEL) if name.rpartition(".")[2] not in known]
        which = f": no other process can import {', '.join(names)}." if names else f": {first_line(error)}"
        raise InputError(f"The model cannot be rebuilt in another process{which}", INSTEAD) from error
    return model, tree_from_json(json.loads((folder / BATCH).read_text()))


def custom_objects(path: Path) -> list[str]:
    """The classes and functions in a saved model that are not Keras' own."""
    found: dict[str, None] = {}

    def walk(node: Any) -> None:
        if isinstance(node, Mapping):
            is_function = node.get("class_name") == "function"
            name = node.get("config") if is_function else node.get("class_name")
            own = node.get("registered_name") and (is_function or not is_keras(node.get("module") or ""))
            if own and isinstance(name, str):
                found[name] = None
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    with zipfile.ZipFile(path) as archive:
        walk(json.loads(archive.read("config.json")))
    return list(found)


def is_keras(module: str) -> bool:
    """Whether a module is one that Keras itself looks into, or Python's own."""
    return module.partition(".")[0] in (
        "keras",
        "builtins",
        "tensorflow",
        "numpy",
        "threading",
        "collections",
        "ml_dtypes",
    )


def tree_to_json(tree: Tree) -> Any:
    """A batch's structure of specs as JSON; tuples, lists and dicts stay apart."""
    if isinstance(tree, ArraySpec):
        return {"shape": tree.shape, "dtype": tree.dtype}
    if isinstance(tree, Mapping):
        return {"dict": [[key, tree_to_json(value)] for key, value in tree.items()]}
    if isinstance(tree, tuple | list):
        return {"tuple" if isinstance(tree, tuple) else "list": [tree_to_json(value) for value in tree]}
    return None


def tree_from_json(data: Any) -> Tree:
    if data is None:
        return None
    if "dtype" in data:
        return ArraySpec(tuple(data["shape"]), data["dtype"])
    if "dict" in data:
        return {key: tree_from_json(value) for key, value in data["dict"]}
    kind = tuple if "tuple" in data else list
    return kind(tree_from_json(value) for value in data["tuple" if kind is tuple else "list"])
