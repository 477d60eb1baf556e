"""Keras' own training step on JAX, in slices: `keras/src/backend/jax/trainer.py`, `train_step`, with a `lax.scan` inside.

Private names used, tested with Keras 3.15.1 and JAX 0.10.2: `Trainer._call_has_training_arg`, `Trainer._loss_tracker`,
`Trainer._compile_loss`, `Layer._losses_override`.
"""

from dataclasses import dataclass
from typing import Any

from legroom.changes.custom_metrics import ROWS, listening, own_metrics
from legroom.changes.microbatch_metrics import update_metrics
from legroom.changes.own_variables import met_by
from legroom.changes.reductions import Losses, Slice, SliceLoss, growth, summed, update_loss_metrics
from legroom.errors import InputError

State = tuple[list[Any], list[Any], list[Any], list[Any]]  # weights, other variables, the optimizer's, the metrics'


@dataclass(frozen=True)
class Carry:
    """What goes from slice to slice."""

    others: list[Any]
    metrics: list[Any]
    gradients: list[Any]
    sums: list[Any]


@dataclass(frozen=True)
class Cut:
    """A batch and the size of its slices."""

    data: Any
    batch: int
    size: int

    static = True

    @property
    def single(self) -> bool:
        return self.size == self.batch

    def piece(self, start: Any, size: int) -> Slice:
        import jax
        import keras

        def cut(leaf: Any) -> Any:
            return None if leaf is None else jax.lax.dynamic_slice_in_dim(leaf, start, size)

        data = keras.tree.map_structure(cut, self.data)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        return Slice(x, y, sample_weight, jax.numpy.asarray(size / self.batch, keras.config.floatx()))

    @property
    def sample_weight(self) -> Any:
        import keras

        return keras.utils.unpack_x_y_sample_weight(self.data)[2]


@dataclass(frozen=True)
class Step:
    """One training step in slices, in place of `model.train_step`."""

    model: Any
    count: int
    losses: Losses

    def __call__(self, state: Any, data: Any) -> Any:
        """As Keras has it: forward, backward and the metrics of each slice, and one update."""
        import jax
        import keras

        cut = cut_batch(data, self.count)
        self.losses.renewed()
        state = tuple([jax.numpy.asarray(value) for value in group] for group in state)
        if not cut.single:
            self.check_metrics(state, cut.data)
        loss = self.learn(state, cut)
        if not cut.single:
            self.losses.check_samples(keras.utils.unpack_x_y_sample_weight(cut.data)[0], cut.size)
        factors = self.count_masks(state, cut, loss) if loss.mixed and not cut.single else None
        carry, logs = self.accumulate(state, cut, loss, factors)
        return self.finish(state, cut, loss, (carry, logs), grow=factors is None and not cut.single)

    def accumulate(self, state: State, cut: Cut, loss: SliceLoss, factors: Any) -> tuple[Carry, Any]:
        """The sums over all slices: equal ones in a scan, and a smaller rest after it."""
        import jax

        zero = [jax.numpy.zeros_like(value) for value in state[0]]
        sums = [jax.numpy.zeros_like(value) for value in loss.sums()]
        full, rest = divmod(cut.batch, cut.size)

        def body(carry: Any, start: Any) -> Any:
            carry, logs = self.slice(state, cut, cut.piece(start, cut.size), Carry(*carry), factors)
            return (carry.others, carry.metrics, carry.gradients, carry.sums), logs

        starts = jax.numpy.arange(full) * cut.size
        values, logs = jax.lax.scan(body, (state[1], state[3], zero, sums), starts)
        carry, logs = Carry(*values), jax.tree_util.tree_map(lambda stacked: stacked[-1], logs)
        return self.slice(state, cut, cut.piece(full * cut.size, rest), carry, factors) if rest else (carry, logs)

    def slice(self, state: State, cut: Cut, part: Slice, carry: Carry, factors: Any) -> tuple[Carry, Any]:
        """Gradients, losses and metrics of one slice, added to what was carried."""
        import jax
        import keras

        model = self.model

        def objective(weights: Any) -> Any:
            y_pred, others, metrics, loss = self.forward(weights, carry, cut, part)
            known = growth(*loss.counts()) if cut.single else factors
            with keras.StatelessScope(state_mapping=zip(model.optimizer.variables, state[2], strict=True)):
                value = model.optimizer.scale_loss(loss.objective(known))
            if value.ndim:
                raise InputError(
                    f"The loss has the shape {value.shape}, and JAX differentiates a single number.",
                    'Give the loss a reduction, such as "sum_over_batch_size".',
                )
            return value, (y_pred, others, metrics, loss.sums())

        (_, found), gradients = jax.value_and_grad(objective, has_aux=True)(state[0])
        y_pred, others, metrics, sums = found
        with keras.StatelessScope(state_mapping=zip(model.metrics_variables, metrics, strict=True)) as scope:
            logs = self.update_metrics(part, y_pred)
        metrics = [scope.get_current_value(variable) for variable in model.metrics_variables]
        return (
            Carry(
                like(carry.others, others),
                like(carry.metrics, metrics),
                [a + b for a, b in zip(carry.gradients, gradients, strict=True)],
                like(carry.sums, [a + b for a, b in zip(carry.sums, sums, strict=True)]),
            ),
            logs,
        )

    def forward(
        self, weights: Any, carry: Carry, cut: Cut, part: Slice, training: bool = True
    ) -> tuple[Any, Any, Any, SliceLoss]:
        """`compute_loss_and_updates`, with the loss in shares."""
        import keras

        model = self.model
        arguments = {"training": training} if model._call_has_training_arg else {}
        y_pred, others, losses = model.stateless_call(weights, carry.others, part.x, return_losses=True, **arguments)
        if losses:
            model._losses_override = losses
        groups = (
            (model.trainable_variables, weights),
            (model.non_trainable_variables, others),
            (model.metrics_variables, carry.metrics),
        )
        mapping = [pair for variables, values in groups for pair in zip(variables, values, strict=True)]
        try:
            with keras.StatelessScope(state_mapping=mapping) as scope:
                loss = self.losses.of_slice(part, y_pred, cut.sample_weight)
        finally:
            model._losses_override = []
        others = [scope.get_current_value(variable) for variable in model.non_trainable_variables]
        metrics = [scope.get_current_value(variable) for variable in model.metrics_variables]
        return y_pred, others, metrics, loss

    def update_metrics(self, part: Slice, y_pred: Any) -> dict[str, Any]:
        return update_metrics(self.model, self.losses.own_metrics, part, y_pred)

    def learn(self, state: State, cut: Cut) -> SliceLoss:
        """The losses of a slice without their values: how many there are, their weights and the groups of their masks."""
        import jax

        kept: list[SliceLoss] = []

        def scratch(weights: Any, others: Any, metrics: Any, data: Any) -> Any:
            carry = Carry(others, metrics, [], [])
            part = Cut(data, cut.batch, cut.size).piece(0, cut.size)
            kept.append(self.forward(weights, carry, Cut(data, cut.batch, cut.size), part)[3])
            return kept[-1].sums()

        shapes = jax.eval_shape(scratch, state[0], state[1], state[3], cut.data)
        return kept[-1].with_values([jax.numpy.zeros(shape.shape, shape.dtype) for shape in shapes])

    def check_metrics(self, state: State, data: Any) -> None:
        """Refuse metrics that the model updates itself with what would be one number for each slice, learnt from shapes only.

        In `compute_loss` any is refused: it is tried out where Keras holds no metrics. What `call` gives them is lost on JAX.
        """
        import jax
        import keras

        model, metrics = self.model, own_metrics(self.model)
        if not (self.losses.opaque or self.losses.own_metrics):
            return
        refused: list[Any] = []
        met: list[Any] = []

        def scratch(weights: Any, others: Any, values: Any, data: Any) -> Any:
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
            arguments = {"training": True} if model._call_has_training_arg else {}
            y_pred, others = model.stateless_call(weights, others, x, **arguments)
            groups = (model.trainable_variables, weights), (model.non_trainable_variables, others)
            mapping = [
                pair for group in (*groups, (model.metrics_variables, values)) for pair in zip(*group, strict=True)
            ]
            met.extend(met_by(model, x, y, y_pred, sample_weight, state_mapping=mapping))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                if self.losses.opaque:
                    model._compute_loss(x, y, y_pred, sample_weight, training=True)
                pairs = list(zip(model.metrics_variables, values, strict=True))
                changed = {id(one) for one, value in pairs if scope.get_current_value(one) is not value}
                refused.extend(metric for metric in metrics if changed & {id(one) for one in metric.variables})
                if self.losses.own_metrics:
                    with listening(metrics, ROWS) as found:
                        model.compute_metrics(x, y, y_pred, sample_weight)
                    refused.extend(found)
            return ()

        def spec(leaf: Any) -> Any:
            return None if leaf is None else jax.ShapeDtypeStruct((ROWS, *leaf.shape[1:]), leaf.dtype)

        jax.eval_shape(scratch, state[0], state[1], state[3], keras.tree.map_structure(spec, data))
        if refused:
            raise InputError(
                f"{type(model).__name__} updates its metric {refused[0].name!r} by itself, which in slices would be once for each slice.",
                "Give it a value for each sample in compute_metrics(), or train on TensorFlow, where this can be run in slices.",
            )
        if met:
            raise InputError(
                f"{type(model).__name__} sets the variable {met[0].path!r} in its compute_loss() or compute_metrics(), or logs it there, which in slices would be once "
                "for each slice.",
                "Do that in a callback, or train on TensorFlow, where some of this can be run in slices.",
            )

    def count_masks(self, state: State, cut: Cut, loss: SliceLoss) -> list[Any]:
        """By how much each loss grows, from a forward pass of which the compiler keeps only what makes the masks."""
        import jax

        def counts(part: Slice) -> Any:
            carry = Carry(state[1], state[3], [], [])
            return self.forward(state[0], carry, cut, part, training=False)[3].counts()

        def body(carry: Any, start: Any) -> Any:
            return jax.tree_util.tree_map(jax.numpy.add, carry, counts(cut.piece(start, cut.size))), None

        full, rest = divmod(cut.batch, cut.size)
        zeros = jax.tree_util.tree_map(jax.numpy.zeros_like, loss.counts())
        found, _ = jax.lax.scan(body, zeros, jax.numpy.arange(full) * cut.size)
        if rest:
            found = jax.tree_util.tree_map(jax.numpy.add, found, counts(cut.piece(full * cut.size, rest)))
        return growth(*found)

    def finish(self, state: State, cut: Cut, loss: SliceLoss, done: tuple[Carry, Any], grow: bool) -> Any:
        """One update with the whole batch's gradients, and the logs of the whole batch."""
        import jax
        import keras

        model = self.model
        carry, last = done
        values, factors, added = loss.totals(carry.sums)
        gradients = carry.gradients
        if grow and any(term.group is not None for term in loss.terms):
            gradients = [gradient * factors[0].astype(gradient.dtype) for gradient in gradients]

        def penalty(weights: Any) -> Any:
            mapping = [*zip(model.trainable_variables, weights, strict=True)]
            mapping += [*zip(model.optimizer.variables, state[2], strict=True)]
            with keras.StatelessScope(state_mapping=mapping):
                value = self.losses.regularisers()
                return model.optimizer.scale_loss(value), value

        regularisers = None
        if any(variable.regularizer is not None for variable in model.trainable_variables) and not self.losses.opaque:
            (_, regularisers), more = jax.value_and_grad(penalty, has_aux=True)(state[0])
            gradients = [a + b for a, b in zip(gradients, more, strict=True)]
        weights, optimizer = model.optimizer.stateless_apply(state[2], gradients, state[0])
        with keras.StatelessScope(state_mapping=zip(model.metrics_variables, carry.metrics, strict=True)) as scope:
            update_loss_metrics(model, loss, values, cut)
            whole = summed([*loss.weighted(values), added, regularisers])
            model._loss_tracker.update_state(whole, sample_weight=cut.batch)
            logs = model.get_metrics_result()
        metrics = [scope.get_current_value(variable) for variable in model.metrics_variables]
        logs = {name: logs.get(name, value) for name, value in last.items()} if last else logs
        return logs, (weights, carry.others, optimizer, metrics)


def like(old: list[Any], new: list[Any]) -> list[Any]:
    """The new values in the types of the old ones, which a scan asks for."""
    return [b.astype(a.dtype) for a, b in zip(old, new, strict=True)]


def cut_batch(data: Any, count: int) -> Cut:
    """Every array of a batch has its samples in the first dimension; anything else cannot be cut."""
    import jax
    import keras

    data = keras.tree.map_structure(lambda leaf: None if leaf is None else jax.numpy.asarray(leaf), data)
    sizes = {leaf.shape[0] if leaf.shape else 0 for leaf in keras.tree.flatten(data) if leaf is not None}
    if len(sizes) != 1 or 0 in sizes:
        raise InputError(
            f"The arrays of the batch have different first dimensions: {', '.join(map(str, sizes))}.",
            "Give every array of the batch a first dimension of the batch's size.",
        )
    batch = int(sizes.pop())
    return Cut(data, batch, -(-batch // count))
