"""Taking batches out of Keras' iterator, so that one can be taken twice: what training and evaluation share."""

from collections.abc import Callable
from typing import Any

from legroom.engines.out_of_memory import is_oom
from legroom.guard.journal import Witness
from legroom.guard.loss_trackers import taken_from


def execute(iterator: Any, most: int, step: Callable[[Any], Any], witness: Witness, ended: Callable[[], None]) -> Any:
    """As many steps as Keras wants in one execution; the last one's logs. An error ends the guard."""
    import tensorflow as tf

    at_the_end = (StopIteration, tf.errors.OutOfRangeError)
    logs = None
    token = taken_from.set(iterator)
    try:
        for number in range(most):
            try:
                data = next(iterator)
            except at_the_end:
                if number == 0:
                    raise
                break
            except Exception as error:
                if not is_oom(error):
                    raise
                witness.note_foreign(error, "data")
                raise
            logs = step(data)
    except at_the_end:
        raise
    except BaseException:
        ended()
        raise
    finally:
        taken_from.reset(token)
    return logs
