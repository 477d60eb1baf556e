"""`module:function` as a target: a function of the user's that returns a compiled model and a batch."""

import importlib
import os
import sys
from typing import Any

from legroom.capture.batch import iter_specs, specs_of, specs_of_dataset
from legroom.capture.frames import describe
from legroom.capture.keras_data import is_dataset
from legroom.capture.keras_fit import KerasStep, capture_model
from legroom.errors import InputError, LegroomError


def capture_factory(target: str) -> KerasStep:
    """Import the module, call the function, capture what it returns."""
    module_name, _, function_name = target.partition(":")
    if not module_name or not function_name:
        raise InputError(f"{target!r} names no function of a module.", "The target is a script or module:function.")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise InputError(
                f"{module_name} could not be imported: {describe(error)}", "Install what it needs."
            ) from error
        raise InputError(
            f"There is no module {error.name!r} to import for {target!r}.",
            "Run from the folder it lies in, or name a script: legroom estimate train.py",
        ) from error
    except LegroomError:
        raise
    except Exception as error:
        raise InputError(f"{module_name} could not be imported: {describe(error)}", "Mend the module first.") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{module_name} has no function {function_name!r}.", "The target is module:function.")
    try:
        made = function()
    except LegroomError:
        raise
    except Exception as error:
        raise InputError(f"{target} raised {describe(error)}", "Mend the function first.") from error
    return capture_pair(made, target)


def capture_pair(made: Any, target: str) -> KerasStep:
    if not isinstance(made, tuple) or len(made) != 2:
        raise InputError(
            f"{target} returned a {type(made).__name__}; expected (model, batch).",
            "batch is x, (x, y) or (x, y, sample_weight), as one batch of arrays or as a tf.data.Dataset.",
        )
    model, batch = made
    return capture_model(model, batch_tree(batch), source=target, raw_jit=getattr(model, "_legroom_jit", None))


def batch_tree(batch: Any) -> Any:
    """One batch, given as arrays or as a dataset of batches, as the specs of what a train step takes."""
    if isinstance(batch, bool | int | float | str):
        raise InputError(
            f"Expected one batch of arrays, received {batch!r}.",
            "Pass what one training step gets: (x, y); numpy.empty arrays will do, only their shapes are read.",
        )
    tree = specs_of_dataset(batch) if is_dataset(batch) else specs_of(batch)
    if not any(True for _ in iter_specs(tree)):
        raise InputError(
            "The batch holds no arrays.", "Pass what one training step gets: x, (x, y) or (x, y, weights)."
        )
    return tree
