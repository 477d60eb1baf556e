"""Keras' own training step on TensorFlow, in slices: `keras/src/backend/tensorflow/trainer.py`, `train_step`.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21: `Trainer._call_has_training_arg`, `Trainer._loss_tracker`,
`Trainer._compile_loss`.
"""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

from legroom.capture.frames import first_line
from legroom.capture.own_work import own_work
from legroom.changes.batch_cut import Cut, cut_batch
from legroom.changes.lookups import tables_called, tables_traced
from legroom.changes.made_up import random_like, rows_of
from legroom.changes.microbatch_kinds import eagerly
from legroom.changes.microbatch_loop import Found, Layout, accumulate, shaped, trace
from legroom.changes.microbatch_metrics import update_metrics
from legroom.changes.microbatch_probe import outline_of
from legroom.changes.op_outline import Outline, Outlines, outlined
from legroom.changes.reductions import Losses, Slice, SliceLoss, growth, summed, update_loss_metrics
from legroom.changes.sparse import add_gradients, plain, scaled, with_tables
from legroom.errors import InputError, LegroomError


@dataclass
class Seen:
    """What slices share. `loss` are the last slice's losses, with the tensors of its trace: only their number, groups and weights are read."""

    loss: SliceLoss = field(default_factory=lambda: SliceLoss(()))
    factors: Any = None  # by which the losses grow, where that must be known before
    tables: tuple[bool, ...] = ()  # which gradients are of tables that are looked up alike for every batch
    outline: Outline = field(default_factory=lambda: Outline(traced=False))  # of the first slice that is run


@dataclass(frozen=True)
class Step:
    """One training step in slices, in place of `model.train_step`."""

    model: Any
    count: int
    losses: Losses
    grown: dict[bool, bool] = field(default_factory=dict)  # eager only: whether masks must be counted before
    tables: dict[Any, tuple[bool, ...]] = field(default_factory=dict)  # eager only: which gradients are tables'
    outlines: Outlines = field(
        default_factory=Outlines
    )  # eager only: of a slice, when it had been found out what it is

    def __call__(self, data: Any) -> Any:
        """As Keras has it: forward, backward and the metrics of each slice, and one update."""
        import tensorflow as tf

        cut = cut_batch(data, self.count)
        if self.losses.renewed():
            self.forget()
        if cut.single or not tf.executing_eagerly() or own_work.recording:
            return self.run(cut)
        before = [(variable, tf.identity(variable)) for variable in self.small_state()]
        seen = Seen()
        made = self.add_up(cut, seen)
        if self.outlines.known and not self.outlines.has(seen.outline):  # by something in Python that nobody watches
            for variable, value in before:
                variable.assign(value)
            self.losses.forget()
            self.forget()
            seen = Seen()
            made = self.add_up(cut, seen)
        self.outlines.add(seen.outline)
        return self.finish(cut, made, seen.loss, grow=seen.factors is None)

    def forget(self) -> None:
        self.grown.clear()
        self.tables.clear()
        self.outlines.clear()

    def small_state(self) -> list[Any]:
        """What a slice changes before the update: metrics and seeds."""
        seeds = [seed.state for layer in self.model._flatten_layers() for seed in layer._seed_generators]
        return [*self.model.metrics_variables, *seeds]

    def run(self, cut: Cut) -> Any:
        seen = Seen()
        total = self.add_up(cut, seen)
        return self.finish(cut, total, seen.loss, grow=seen.factors is None and not cut.single)

    def add_up(self, cut: Cut, seen: Seen) -> Found:
        """The sums over all slices."""
        import tensorflow as tf

        def compute(part: Any, fraction: Any) -> Found:
            if seen.outline.labels or not tf.executing_eagerly():
                return self.slice(cut, part, fraction, seen)
            with outlined(traced=False) as seen.outline:
                return self.slice(cut, part, fraction, seen)

        layout = None
        if not cut.single and not tf.executing_eagerly():
            layout = trace(cut, compute)
            seen.tables = tables_traced(cut, compute, layout, self.names(), lambda: self.tables_of(cut))
            kinds = zip(layout.kinds, seen.tables, strict=True)
            layout = replace(layout, kinds=tuple("table" if is_table else kind for kind, is_table in kinds))
        elif not cut.single:
            seen.tables = self.tables_of(cut)
        seen.factors = self.count_masks(cut, seen.loss) if self.must_count(cut, seen, layout) else None
        if not cut.single:
            self.losses.check_samples(part_of(cut.data, None).x, cut.size)
        return accumulate(cut, compute, layout, self.compiled)

    @property
    def compiled(self) -> bool:
        return bool(self.model.jit_compile) and not self.model.run_eagerly

    def names(self) -> list[str]:
        return [weight.path for weight in self.model.trainable_weights]

    def slice(self, cut: Cut, data: Any, fraction: Any, seen: Seen) -> Found:
        """Gradients, losses and metrics of one slice."""
        import tensorflow as tf

        model = self.model
        part = part_of(data, fraction)
        with tf.GradientTape() as tape:
            y_pred = self.predict(part.x, training=True)
            loss = self.losses.of_slice(part, y_pred, weight_of(cut.data))
            factors = growth(*loss.counts()) if cut.single else seen.factors
            objective = model.optimizer.scale_loss(loss.objective(factors))
        weights = model.trainable_weights
        gradients = tuple(map(shaped, tape.gradient(objective, weights), weights)) if weights else ()
        gradients = with_tables(gradients, seen.tables) if seen.tables else gradients
        seen.loss = loss
        return Found(gradients, tuple(loss.sums()), self.update_metrics(part, y_pred))

    def tables_of(self, cut: Cut) -> tuple[bool, ...]:
        """Which gradients are tables', from a few samples: of the batch where it is here, or made up."""
        import tensorflow as tf

        if tf.executing_eagerly():
            key = outline_of(cut.data)
            if key not in self.tables:
                self.tables[key] = self.tables_called(part_of(*cut.piece(0, 2)).x)
            return self.tables[key]
        x = random_like(part_of(cut.data, None).x, "signed")
        return eagerly(lambda: self.tables_called(rows_of(x, 0, 2)))

    def tables_called(self, rows: Any) -> tuple[bool, ...]:
        if not self.model.trainable_weights:
            return ()
        try:
            return tables_called(self.model, lambda x: self.predict(x, training=True), rows)
        except LegroomError:
            raise
        except Exception as error:
            raise InputError(
                f"The batch cannot be cut: how often rows of its weights are looked up could not be found out: {first_line(error)}",
                "Give the inputs a fixed length, or plan with something other than micro-batches.",
            ) from error

    def predict(self, x: Any, training: bool) -> Any:
        return self.model(x, training=training) if self.model._call_has_training_arg else self.model(x)

    def update_metrics(self, part: Slice, y_pred: Any) -> dict[str, Any]:
        return update_metrics(self.model, self.losses.own_metrics, part, y_pred)

    def must_count(self, cut: Cut, seen: Seen, layout: Layout | None) -> bool:
        """Whether losses would have to grow by different factors at the end, so that one sum of gradients is not enough."""
        if cut.single:
            return False
        if layout is not None:
            return seen.loss.mixed
        weighted = weight_of(cut.data) is not None
        if weighted not in self.grown:  # a single sample shows which outputs have masks
            self.grown[weighted] = self.masked_loss(cut, *cut.piece(0, 1)).mixed
        return self.grown[weighted]

    def masked_loss(self, cut: Cut, data: Any, fraction: Any) -> SliceLoss:
        part = part_of(data, fraction)
        return self.losses.of_slice(part, self.predict(part.x, training=False), weight_of(cut.data))

    def count_masks(self, cut: Cut, loss: SliceLoss) -> list[Any]:
        """By how much each loss grows, from a forward pass of which a graph keeps only what makes the masks."""
        import keras
        import tensorflow as tf

        def compute(data: Any, fraction: Any) -> Found:
            totals, valids = self.masked_loss(cut, data, fraction).counts()
            return Found((), (*totals, *valids))

        scalar = tf.TensorSpec([], keras.config.floatx())
        layout = None if tf.executing_eagerly() else Layout((), (), (scalar,) * (2 * len(loss.terms)))
        sums = accumulate(cut, compute, layout, self.compiled).sums
        half = len(sums) // 2
        return growth(list(sums[:half]), list(sums[half:]))

    def finish(self, cut: Cut, total: Found, loss: SliceLoss, grow: bool) -> Any:
        """One update with the whole batch's gradients, and the logs of the whole batch."""
        import tensorflow as tf

        model = self.model
        values, factors, added = loss.totals(total.sums)
        gradients = list(map(plain, total.gradients))
        if grow and any(term.group is not None for term in loss.terms):
            gradients = [scaled(gradient, factors[0]) for gradient in gradients]
        with tf.GradientTape() as tape:
            regularisers = self.losses.regularisers()
            penalty = None if regularisers is None else model.optimizer.scale_loss(regularisers)
        if penalty is not None and model.trainable_weights:
            gradients = list(map(add_gradients, gradients, tape.gradient(penalty, model.trainable_weights)))
        update_loss_metrics(model, loss, values, cut)
        whole = summed([*loss.weighted(values), added, regularisers])
        model._loss_tracker.update_state(whole, sample_weight=cut.batch)
        if model.trainable_weights:
            model.optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        else:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        logs = model.get_metrics_result()
        return {name: logs.get(name, value) for name, value in total.logs.items()} if total.logs else logs


def part_of(data: Any, fraction: Any) -> Slice:
    import keras

    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return Slice(x, y, sample_weight, fraction)


def weight_of(data: Any) -> Any:
    import keras

    return keras.utils.unpack_x_y_sample_weight(data)[2]
