"""Keras' own evaluation step on TensorFlow in slices of the batch, with losses and metrics as of the whole: `test_step` in
`keras/src/backend/tensorflow/trainer.py`, with the arithmetic of `changes.reductions`.

A `test_step` that the user wrote is called once for each slice: its Keras metrics are as of the whole, and what it logs besides
is the last slice's.

Private names used, tested with Keras 3.15.1: `Trainer._loss_tracker`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from legroom.changes.batch_cut import cut_batch
from legroom.changes.microbatch_loop import Found, Layout, accumulate, trace
from legroom.changes.microbatch_tf import Seen, Step, part_of, weight_of
from legroom.changes.reductions import Losses, summed, update_loss_metrics


@dataclass(frozen=True)
class TestStep:
    """`model.test_step` in so many slices."""

    model: Any
    count: int
    compiled: bool = False

    @cached_property
    def plain(self) -> Step:
        return Step(self.model, self.count, Losses(self.model))

    @property
    def own(self) -> bool:
        import keras

        return type(self.model).test_step is not keras.Model.test_step or "test_step" in self.model.__dict__

    def __call__(self, data: Any) -> Any:
        import tensorflow as tf

        cut = cut_batch(data, self.count)
        seen = Seen()
        self.plain.losses.renewed()

        def compute(part: Any, fraction: Any) -> Found:
            if self.own:
                return Found((), (), dict(self.model.test_step(part)))
            piece = part_of(part, fraction)
            y_pred = self.plain.predict(piece.x, training=False)
            seen.loss = self.plain.losses.of_slice(piece, y_pred, weight_of(cut.data))
            return Found((), tuple(seen.loss.sums()), self.plain.update_metrics(piece, y_pred))

        layout: Layout | None = None
        if not cut.single and not tf.executing_eagerly():
            layout = trace(cut, compute)
        total = accumulate(cut, compute, layout, self.compiled)
        if self.own:
            return total.logs
        values, _, added = seen.loss.totals(total.sums)
        update_loss_metrics(self.model, seen.loss, values, cut)
        whole = summed([*seen.loss.weighted(values), added, self.plain.losses.regularisers()])
        self.model._loss_tracker.update_state(whole, sample_weight=cut.batch)
        logs = self.model.get_metrics_result()
        return {name: logs.get(name, value) for name, value in total.logs.items()} if total.logs else logs


@dataclass(frozen=True)
class PredictStep:
    """`model.predict_step` in so many slices, one after the other, put together again."""

    model: Any
    count: int

    def __call__(self, data: Any, predict: Any) -> Any:
        import keras
        import tensorflow as tf

        cut = cut_batch(data, self.count)
        parts = [
            predict(cut.piece(start, min(cut.size, cut.batch - start))[0]) for start in range(0, cut.batch, cut.size)
        ]
        return keras.tree.map_structure(lambda *slices: tf.concat(slices, 0), *parts)
