"""One look at everything that lives: taken only where the counters grow, for it takes a tenth of a second.

Private names used, tested with Keras 3.15.1: `global_state`'s `object_name_uids`, from which Keras numbers what it builds.
"""

import gc
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

from legroom.watch.evidence import Census, Container, Element, Evidence, Traced
from legroom.watch.naming import name_of
from legroom.watch.pipelines import caches_of
from legroom.watch.traces import is_compiled, traced

CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
LEAST = 16  # elements of a container that is looked at
LOOKED = 24  # elements of it that are weighed
MOST = 6  # containers that are told


def take_census(step: int) -> Census:
    """What lives now, after Python has thrown away what nobody holds."""
    gc.collect()
    functions: dict[int, Traced] = {}
    sizes: dict[int, int] = {}
    iterators: list[Any] = []
    kinds: Counter[type] = Counter()
    everything: list[Any] = gc.get_objects()
    for at, thing in enumerate(everything):
        everything[at] = None
        kind = type(thing)
        kinds[kind] += 1
        if kind in CONTAINERS:
            if len(thing) >= LEAST:
                sizes[id(thing)] = len(thing)
        elif kind.__name__ == "OwnedIterator":
            iterators.append(thing)
        elif is_compiled(kind):
            functions[id(thing)] = traced(thing)
    named = {
        f"{kind.__module__}.{kind.__qualname__}": count
        for kind, count in kinds.items()
        if count >= LEAST and not str(kind.__module__).startswith("legroom.")
    }
    return Census(step, functions, sizes, named, built_names(), caches_of(iterators), everything)


def built_names() -> dict[str, int]:
    """How many objects Keras has numbered, by the beginning of their names."""
    if "keras" not in sys.modules:
        return {}
    from keras.src.backend.common import global_state

    return dict(global_state.get_global_attribute("object_name_uids") or {})


def compare(before: Census, after: Census, predicts: int) -> Evidence:
    """What changed between two censuses."""
    retraced, anew = [], Counter[str]()
    for key, now in after.functions.items():
        then = before.functions.get(key)
        if then is None or then.name != now.name:
            anew[now.name] += 1
        elif now.traces > then.traces:
            retraced.append(Traced(now.name, now.traces - then.traces, now.changed))
    retraced.sort(key=lambda found: -found.traces)
    kinds = [(name, count - before.kinds.get(name, 0)) for name, count in after.kinds.items()]
    built = [(name, count - before.built.get(name, 0)) for name, count in after.built.items()]
    return Evidence(
        after.step - before.step,
        after.step,
        tuple(retraced),
        tuple(Traced(name, count) for name, count in anew.most_common(3)),
        grown_containers(before, after),
        tuple(sorted(((name, count) for name, count in built if count > 0), key=lambda pair: -pair[1])),
        predicts,
        after.caches,
        tuple(sorted(((name, count) for name, count in kinds if count > 0), key=lambda pair: -pair[1])[:5]),
    )


def grown_containers(before: Census, after: Census) -> tuple[Container, ...]:
    """The containers that grew, the weightiest first."""
    least = max(3.0, 0.1 * (after.step - before.step))
    grown = {
        key: size - before.sizes.get(key, LEAST - 1)
        for key, size in after.sizes.items()
        if size - before.sizes.get(key, LEAST - 1) >= least
    }
    ours = {
        id(before.plug),
        id(after.plug),
        id(before.sizes),
        id(after.sizes),
        id(before.functions),
        id(after.functions),
        id(grown),
        id(gc.garbage),
    }
    weighed = []
    for thing in gc.get_objects():
        if id(thing) in grown and id(thing) not in ours and type(thing) in CONTAINERS:
            element, size = weigh(last_of(thing))
            weighed.append((grown[id(thing)] * size, grown[id(thing)], element, size, thing))
    weighed.sort(key=lambda found: (-found[0], -found[1]))
    return tuple(
        Container(
            type(thing).__name__, name_of(thing), len(thing), count, element, size, getattr(thing, "maxlen", None)
        )
        for _, count, element, size, thing in weighed[:MOST]
    )


def last_of(thing: Any) -> list[Any]:
    """The last elements of a container."""
    values: Any = thing.values() if isinstance(thing, dict) else thing
    return list(islice(reversed(values), LOOKED)) if not isinstance(thing, set) else list(islice(values, LOOKED))


def weigh(elements: list[Any]) -> tuple[Element, int]:
    """What the elements are, and what one weighs: arrays and tensors, one or two levels down."""
    leaves = [leaf for element in elements for leaf in flat(element, 2)]
    total = sum(weight_of(leaf) for leaf in leaves)
    size = total // max(len(elements), 1)
    names: Counter[Element] = Counter(element_of(leaf) for leaf in leaves)
    for name in ("models", "tensors", "arrays"):
        if names[name] >= max(1, len(elements) // 2):
            return name, size
    return "objects", size


def flat(element: Any, depth: int) -> Iterable[Any]:
    if depth and isinstance(element, (list, tuple, dict)):
        inner = element.values() if isinstance(element, dict) else element
        for value in islice(inner, LOOKED):
            yield from flat(value, depth - 1)
    else:
        yield element


def element_of(leaf: Any) -> Element:
    families = {(base.__module__.partition(".")[0], base.__name__) for base in type(leaf).__mro__}
    if ("keras", "Model") in families:
        return "models"
    if ("numpy", "ndarray") in families:
        return "arrays"
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape") and not hasattr(leaf, "itemset"):
        return "tensors" if type(leaf).__module__.partition(".")[0] != "numpy" else "objects"
    return "objects"


def weight_of(leaf: Any) -> int:
    """A leaf's own bytes; symbolic tensors have none."""
    shape: Any = getattr(leaf, "shape", None)
    dtype: Any = getattr(leaf, "dtype", None)
    if shape is not None and dtype is not None and hasattr(leaf, "nbytes"):
        try:
            return int(leaf.nbytes)
        except (TypeError, ValueError, AttributeError, RuntimeError, NotImplementedError):
            return 0
    if shape is not None and hasattr(dtype, "size") and hasattr(leaf, "numpy"):
        count = 1
        for side in shape:
            count *= int(side or 1)
        return count * int(dtype.size)
    return sys.getsizeof(leaf, 64)
