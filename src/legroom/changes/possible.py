"""Which actions a captured step offers, apart from recomputed layers and micro-batches: what its model and its `fit` are made of."""

from typing import Any

from legroom.capture.keras_data import is_array_tree
from legroom.capture.keras_execution import execution_on_target
from legroom.capture.keras_fit import KerasStep
from legroom.changes.dropout import dropouts_of
from legroom.changes.optimizers import leaner_than
from legroom.records.plan import Action


def possible_actions(captured: Any, model: Any) -> list[Action]:
    """Each of them by itself; which are worth trying is for the planner to say."""
    found = [Action("dropout")] if dropouts_of(model) else []
    if not isinstance(captured, KerasStep):
        return found
    if captured.step.framework == "tensorflow" and is_array_tree((captured.given or {}).get("x", ())):
        found.append(Action("host_data"))
    turned = compiled_or_not(captured)
    if turned is not None:
        found.append(Action("compile", (("jit_compile", turned),)))
    if model.optimizer is not None:
        found += [Action("optimizer", (("kind", name),)) for name in leaner_than(model)]
    return found


def compiled_or_not(captured: KerasStep) -> bool | None:
    """What `jit_compile` could be instead, None where Keras gives no choice."""
    if captured.step.framework != "tensorflow" or captured.step.execution == "eager":
        return None
    if getattr(captured.model, "_distribute_strategy", None) is not None:
        return None
    if captured.step.execution == "xla":
        return False
    execution, _ = execution_on_target(captured.model, "tensorflow", True)
    return True if execution == "xla" else None
