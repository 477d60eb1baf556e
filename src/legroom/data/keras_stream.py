"""A stream that `model.fit`, `evaluate` and `predict` take, on TensorFlow and on JAX. Imports Keras: imported when one is made.

Private names used, tested with Keras 3.15.1: `DataAdapter`, which `fit` takes as it is, and `EpochIterator._num_batches`, which
Keras reads once for all epochs, while the rest of a resumed epoch is shorter than the next, and `EpochIterator.reset`.
"""

import sys
from typing import Any

from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from legroom.data.position import Position
from legroom.data.stream import Stream
from legroom.errors import InputError


class KerasStream(Stream, DataAdapter):  # type: ignore[misc]
    """Keras asks for what its backend takes; the batches are the same."""

    epoch_began: Position | None = None

    def get_numpy_iterator(self) -> Any:
        return iter(self)

    def get_jax_iterator(self) -> Any:
        return iter(self)

    def get_tf_dataset(self) -> Any:
        from legroom.data.tf_batches import dataset_of

        return dataset_of(self)

    def get_torch_dataloader(self) -> Any:
        raise NotImplementedError("Streams are for Keras on TensorFlow and on JAX.")

    @property
    def num_batches(self) -> int | None:
        return self.course.batches()

    @property
    def batch_size(self) -> int:
        return self.plan.batch_size

    @property
    def has_partial_batch(self) -> bool | None:
        return None if self.course.length is None else self.partial_batch_size is not None

    @property
    def partial_batch_size(self) -> int | None:
        if self.course.length is None or self.plan.drop_last:
            return None
        return self.course.length % self.plan.batch_size or None

    def on_epoch_begin(self) -> None:
        self.epoch_began = self.position
        require_nothing_beside(self)
        caller: Any = sys._getframe(1).f_locals.get("self")
        if self.course.length is not None and hasattr(caller, "_num_batches"):
            caller._num_batches = self.course.batches(self.position.samples)

    def on_epoch_end(self) -> None:
        """Keras builds a model with a first batch, then calls `reset`: what was taken so far is to come again."""
        if self.epoch_began is not None and sys._getframe(1).f_code.co_name == "reset":
            self.position = self.epoch_began
        self.epoch_began = None


def require_nothing_beside(stream: Stream) -> None:
    """Keras passes over labels and weights that are given beside an adapter; better say so."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        given = frame.f_locals
        if frame.f_code.co_name in {"fit", "evaluate"} and given.get("x") is stream:
            beside = [name for name in ("y", "sample_weight", "class_weight") if given.get(name) is not None]
            if beside:
                raise InputError(
                    f"`{beside[0]}` was given beside a stream, which has the whole sample.",
                    "Make the stream of (x, y) or (x, y, sample_weight).",
                )
            return
        frame = frame.f_back


def stream_of_fit() -> Stream | None:
    """The stream that the `fit` trains on from whose callbacks this is called, if it is one."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit":
            adapter = getattr(frame.f_locals.get("epoch_iterator"), "data_adapter", None)
            for found in (adapter, frame.f_locals.get("x")):
                if isinstance(found, Stream):
                    return found
        frame = frame.f_back
    return None
