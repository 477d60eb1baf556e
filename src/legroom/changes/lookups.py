"""Which sparse gradients belong to tables that are looked up alike for every batch: their entries do not become more with the samples.

Found out by how many entries there are for a few samples and for a few more: read from the shapes of a trace or, where the step runs eagerly, by
computing them. Nothing is changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from legroom.changes.batch_cut import Cut
from legroom.changes.microbatch_loop import Compute, Layout, trace
from legroom.errors import InputError, LegroomError

FEW = (2, 3)
LENGTHS = (5, 8, 16, 64, 100, 256, 512)  # tried for dimensions that are not known
Entries = tuple[int | None, ...]  # of each gradient; None of one that is not sparse, and
UNKNOWN = -1  # where it cannot be told


def tables_traced(
    cut: Cut, compute: Compute, layout: Layout, names: Sequence[str], otherwise: Callable[[], tuple[bool, ...]]
) -> tuple[bool, ...]:
    """Which of these gradients are tables', from traces of slices of two sizes; `otherwise`, where shapes say nothing."""
    if "sparse" not in layout.kinds:
        return (False,) * len(layout.kinds)
    for length in LENGTHS if has_unknown(cut.data) else LENGTHS[:1]:
        try:
            entries = {rows: entries_in(trace(cut, compute, rows, length)) for rows in FEW}
        except LegroomError:
            raise
        except Exception:  # noqa: BLE001 - the user's own, which may not take such a length
            continue
        return otherwise() if any(UNKNOWN in found for found in entries.values()) else are_tables(entries, names)
    return otherwise()


def tables_called(model: Any, predict: Callable[[Any], Any], rows: Any) -> tuple[bool, ...]:
    """The same from the model itself, called eagerly on a few rows (two at least, as arrays); nothing of it is changed. A row that is repeated has as many entries
    each time, also where it is a text; what has as many for any number of rows must have them for rows that differ, too."""
    import keras
    import tensorflow as tf

    def entries(count: int, places: Sequence[int]) -> Entries:
        given = keras.tree.map_structure(lambda one: None if one is None else tf.gather(one, places[:count]), rows)
        with keras.StatelessScope(), tf.GradientTape() as tape:
            outputs = keras.tree.flatten(predict(given))
            objective = sum(tf.reduce_sum(tf.cast(one, tf.float32)) for one in outputs if one.dtype.is_floating)
        return entries_of(tape.gradient(objective, model.trainable_weights))

    names = [weight.path for weight in model.trainable_weights]
    found = are_tables({count: entries(count, (0, 0, 0)) for count in FEW}, names)
    if any(found):
        alike, differ = entries(2, (0, 0)), entries(2, (0, 1))
        pairs = zip(found, names, alike, differ, strict=True)
        return tuple(one and is_table({2: same, 3: other}, name) for one, name, same, other in pairs)
    return found


def has_unknown(data: Any) -> bool:
    import keras

    return any(None in leaf.shape[1:] for leaf in keras.tree.flatten(data) if leaf is not None)


def entries_in(layout: Layout) -> Entries:
    def entries(spec: Any) -> int:
        return UNKNOWN if spec[0].shape[0] is None else int(spec[0].shape[0])

    pairs = zip(layout.kinds, layout.gradients, strict=True)
    return tuple(entries(spec) if kind == "sparse" else None for kind, spec in pairs)


def entries_of(gradients: Sequence[Any]) -> Entries:
    import tensorflow as tf

    return tuple(int(one.indices.shape[0]) if isinstance(one, tf.IndexedSlices) else None for one in gradients)


def are_tables(entries: Mapping[int, Entries], names: Sequence[str]) -> tuple[bool, ...]:
    """From the entries of each gradient for so many samples. Refused where some are samples' and some are not."""

    def each() -> Iterator[bool]:
        for at, name in enumerate(names):
            yield is_table({rows: found[at] for rows, found in entries.items()}, name)

    return tuple(each())


def is_table(entries: Mapping[int, int | None], name: str) -> bool:
    """Whether the entries are as many for any number of samples; not where each sample has its own."""
    found = set(entries.values())
    if found == {None}:
        return False
    if UNKNOWN not in found and None not in found:
        if len(found) == 1:
            return True
        if len({(number or 0) / rows for rows, number in entries.items()}) == 1:
            return False
    raise InputError(
        f"The batch cannot be cut: rows of the weight {name!r} are looked up neither once for each sample nor alike for every batch, so that the slices' "
        "gradients do not make the batch's.",
        "Use one weight for what samples look up and another one for the rest, or plan with something other than micro-batches.",
    )
