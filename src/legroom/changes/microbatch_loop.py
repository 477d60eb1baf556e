"""Gradients of a batch on TensorFlow, summed slice by slice: one `tf.while_loop` in graphs, a Python loop in eager mode.

Equal slices run in the loop with `parallel_iterations=1`, which is what frees one slice's activations before the next one's
are made. A smaller rest is computed before the loop and its gradients are where the sums start, so that it too runs alone.
Without a rest sums start as zeros that every step makes: as constants they would stay in the device's memory for good.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.changes.batch_cut import Cut
from legroom.changes.slice_seeds import other_seeds
from legroom.changes.sparse import Table, add_gradients, parts_of
from legroom.errors import InputError

GradientKind = Literal["dense", "sparse", "table", "none"]
SPARSE = ("sparse", "table")
FOLDED_BYTES = 64 * 2**10  # zeros of less may become constants


@dataclass(frozen=True)
class Found:
    """What a slice gives: gradients (dense, sparse, of a table or None), scalars to be summed, and logs of which the last are kept."""

    gradients: tuple[Any, ...]
    sums: tuple[Any, ...] = ()
    logs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """What a slice gives, before any is computed: a gradient is dense, sparse or of a table (an array, an entry a slice), or missing."""

    kinds: tuple[GradientKind, ...]
    gradients: tuple[Any, ...]
    sums: tuple[Any, ...]
    logs: dict[str, Any] = field(default_factory=dict)


Compute = Callable[[Any, Any], Found]  # of a slice's data and its fraction of the batch


def accumulate(cut: Cut, compute: Compute, layout: Layout | None, compiled: bool) -> Found:
    """The sums over all slices. `compiled` says that XLA will need every size when it compiles."""
    import tensorflow as tf

    if cut.single:
        return compute(*cut.piece(0, cut.size))
    if layout is None:
        return accumulate_eagerly(cut, compute)
    if cut.static:
        full, rest = divmod(cut.batch, cut.size)
        first = of_rest(cut, compute, full * cut.size, rest) if rest else zeros(layout, folded=compiled)
        return loop(cut, compute, layout, first, (full, lambda start: cut.size))
    if not compiled:
        pieces = -(-cut.batch // cut.size)
        return loop(
            cut, compute, layout, zeros(layout), (pieces, lambda start: tf.minimum(cut.size, cut.batch - start))
        )
    full = cut.batch // cut.size
    rest = cut.batch - full * cut.size
    first = branch(layout, rest > 0, lambda: of_rest(cut, compute, full * cut.size, rest))
    return loop(cut, compute, layout, first, (full, lambda start: cut.size))


def of_rest(cut: Cut, compute: Compute, start: Any, size: Any) -> Found:
    """The slice that is computed beside the loop, with random numbers of its own."""
    with other_seeds():
        return compute(*cut.piece(start, size))


def accumulate_eagerly(cut: Cut, compute: Compute) -> Found:
    """One slice after the other; nothing of a slice is held but what is summed."""
    total: Found | None = None
    for start in range(0, cut.batch, cut.size):
        found = compute(*cut.piece(start, min(cut.size, cut.batch - start)))
        total = found if total is None else add(total, found)
    assert total is not None
    return total


def add(total: Found, found: Found) -> Found:
    return Found(
        tuple(map(add_gradients, total.gradients, found.gradients)),
        tuple(a + b for a, b in zip(total.sums, found.sums, strict=True)),
        found.logs,
    )


def shaped(gradient: Any, weight: Any) -> Any:
    """A gradient has its weight's shape, also where TensorFlow lost it (a recurrent layer's, in a batch of unknown size)."""
    import tensorflow as tf

    if tf.is_tensor(gradient) and not isinstance(gradient, tf.IndexedSlices):
        gradient.set_shape(weight.shape)
    return gradient


def trace(cut: Cut, compute: Compute, size: int | None = None, length: int | None = None) -> Layout:
    """What a slice gives, learnt from a trace that is thrown away; it also builds what is built at its first call. Of a slice of another `size`, and
    with that `length` for dimensions that are not known, where these are given."""
    import keras
    import tensorflow as tf

    kept: list[Layout] = []
    size = cut.size if size is None and cut.static else size

    def spec(leaf: Any) -> Any:
        return tf.TensorSpec([size, *(length if one is None else one for one in leaf.shape[1:])], leaf.dtype)

    def describe(tensor: Any) -> Any:
        return tf.TensorSpec(tensor.shape, tensor.dtype)

    def scratch(fraction: Any, *leaves: Any) -> None:
        given = iter(leaves)
        data = keras.tree.map_structure(lambda leaf: None if leaf is None else next(given), cut.data)
        found = compute(data, fraction)
        kinds: list[GradientKind] = []
        gradients: list[Any] = []
        for gradient in found.gradients:
            if isinstance(gradient, tf.IndexedSlices | Table):
                kinds.append("table" if isinstance(gradient, Table) else "sparse")
                gradients.append((describe(gradient.values), describe(gradient.indices), weight_shape(gradient)))
            else:
                kinds.append("none" if gradient is None else "dense")
                gradients.append(None if gradient is None else describe(gradient))
        logs = {name: describe(tf.convert_to_tensor(value)) for name, value in found.logs.items()}
        kept.append(Layout(tuple(kinds), tuple(gradients), tuple(describe(x) for x in found.sums), logs))

    leaves = [leaf for leaf in keras.tree.flatten(cut.data) if leaf is not None]
    tf.function(scratch, autograph=False).get_concrete_function(
        tf.TensorSpec([], keras.config.floatx()), *map(spec, leaves)
    )
    return kept[-1]


def zeros(layout: Layout, *, folded: bool = False) -> Found:
    """The sums before the first slice. A sparse one starts as nothing at all. `folded`: they may be constants, since XLA keeps none."""
    import tensorflow as tf

    def zero(spec: Any) -> Any:
        if folded or spec.shape.num_elements() * spec.dtype.size < FOLDED_BYTES:
            return tf.zeros(spec.shape, spec.dtype)
        return tf.fill(spec.shape, tf.cast(unfolded(), spec.dtype))

    pairs = zip(layout.kinds, layout.gradients, strict=True)
    gradients = [zero(spec) if kind == "dense" else None for kind, spec in pairs]
    return Found(
        tuple(gradients), tuple(map(zero, layout.sums)), {name: zero(spec) for name, spec in layout.logs.items()}
    )


def unfolded() -> Any:
    """A zero that TensorFlow's optimiser takes for no constant: it leaves alone what is made by an op with a state, and this one has none but in
    name. It depends on no data, so that no NaN gets into it, and all devices and XLA have it in float32."""
    import tensorflow as tf

    return tf.raw_ops.Empty(shape=[], dtype=tf.float32, init=True)


def branch(layout: Layout, wanted: Any, compute: Callable[[], Found]) -> Found:
    """The rest of a batch whose size only the compiler knows; `Case` is pruned there, so that no empty slice is compiled."""
    import tensorflow as tf

    def flat(found: Found) -> list[Any]:
        parts: list[Any] = []
        for gradient in found.gradients:
            sparse = isinstance(gradient, tf.IndexedSlices | Table)
            parts += [gradient.values, gradient.indices] if sparse else [gradient] if gradient is not None else []
        return [*parts, *found.sums, *flat_logs(found.logs)]

    def nothing() -> list[Any]:
        def empty(spec: Any, rows: int | None) -> Any:
            return tf.IndexedSlices(*(tf.zeros([rows, *part.shape[1:]], part.dtype) for part in spec[:2]))

        start = zeros(layout, folded=True)
        each = zip(layout.kinds, layout.gradients, start.gradients, strict=True)
        gradients = [
            empty(spec, known_rows(spec) if kind == "table" else 0) if kind in SPARSE else zero
            for kind, spec, zero in each
        ]
        return flat(Found(tuple(gradients), start.sums, start.logs))

    given = iter(tf.switch_case(tf.cast(wanted, tf.int32), [nothing, lambda: flat(compute())]))
    gradients: list[Any] = []
    for kind, spec in zip(layout.kinds, layout.gradients, strict=True):
        if kind in SPARSE:
            gradients.append(put_together(kind, next(given), next(given), spec))
        else:
            gradients.append(next(given) if kind == "dense" else None)
    sums = tuple(next(given) for _ in layout.sums)
    return Found(tuple(gradients), sums, {name: next(given) for name in sorted(layout.logs)})


def put_together(kind: GradientKind, values: Any, indices: Any, spec: Any) -> Any:
    import tensorflow as tf

    shape = tf.constant(list(spec[2]))
    return Table(values, indices, shape) if kind == "table" else tf.IndexedSlices(values, indices, shape)


def known_rows(spec: Any) -> int:
    rows = spec[0].shape[0]
    if rows is None:
        raise InputError(
            "The batch cannot be cut: how often a weight's rows are looked up is not known before the step runs, and XLA must know it.",
            "Give the inputs a fixed length, or compile without jit_compile.",
        )
    return int(rows)


def weight_shape(gradient: Any) -> Any:
    """A weight's shape, from its sparse gradient."""
    import tensorflow as tf

    return tf.IndexedSlices(*parts_of(gradient)).shape


def flat_logs(logs: dict[str, Any]) -> list[Any]:
    import tensorflow as tf

    return [tf.convert_to_tensor(logs[name]) for name in sorted(logs)]


def unflat(layout: Layout, values: list[Any]) -> Found:
    given = iter(values)
    gradients = tuple(next(given) if kind == "dense" else None for kind in layout.kinds)
    sums = tuple(next(given) for _ in layout.sums)
    return Found(gradients, sums, {name: next(given) for name in sorted(layout.logs)})


def loop(cut: Cut, compute: Compute, layout: Layout, first: Found, pieces: tuple[Any, Callable[[Any], Any]]) -> Found:
    """Equal slices, added to `first`. Sparse gradients are written into arrays, one entry a slice."""
    import tensorflow as tf

    count, size_at = pieces
    sparse = [spec for kind, spec in zip(layout.kinds, layout.gradients, strict=True) if kind in SPARSE]

    def array(spec: Any) -> Any:
        return tf.TensorArray(spec.dtype, size=count, element_shape=spec.shape, infer_shape=spec.shape[0] is not None)

    arrays = [array(part) for values, indices, _ in sparse for part in (values, indices)]
    start = [*(g for g, kind in zip(first.gradients, layout.kinds, strict=True) if kind == "dense")]
    start += [*first.sums, *flat_logs(first.logs)]

    def body(number: Any, values: list[Any], arrays: list[Any]) -> Any:
        begin = number * cut.size
        found = compute(*cut.piece(begin, size_at(begin)))
        so_far = unflat(layout, values)
        added: list[Any] = []
        written = list(arrays)
        at = 0
        for kind, old, new in zip(layout.kinds, so_far.gradients, found.gradients, strict=True):
            if kind == "dense":
                added.append(old + tf.convert_to_tensor(new))
            elif kind in SPARSE:
                written[at] = written[at].write(number, new.values)
                written[at + 1] = written[at + 1].write(number, new.indices)
                at += 2
        added += [a + b for a, b in zip(so_far.sums, found.sums, strict=True)]
        return number + 1, added + flat_logs(found.logs), written

    # Loops are not strict: the first slice would be computed beside the rest of the batch if its number did not wait.
    waited = [g.values if isinstance(g, tf.IndexedSlices | Table) else g for g in first.gradients if g is not None]
    with tf.control_dependencies(waited):
        number = tf.identity(tf.constant(0))
    _, values, arrays = tf.while_loop(
        lambda number, *_: number < count,
        body,
        (number, start, arrays),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    total = unflat(layout, list(values))
    gathered = iter(list(arrays))
    gradients: list[Any] = []
    for kind, spec, done, before in zip(layout.kinds, layout.gradients, total.gradients, first.gradients, strict=True):
        if kind in SPARSE:
            slices, indices = next(gathered), next(gathered)
            if kind == "table":
                together = tf.reduce_sum(slices.stack(), 0), indices.read(0)
            else:
                together = slices.concat(), indices.concat()
            gradients.append(add_gradients(before, put_together(kind, *together, spec)))
        else:
            gradients.append(done)
    return Found(tuple(gradients), total.sums, total.logs)
