"""From what a user calls a GPU to the card."""

import difflib
import re
from functools import cache

from legroom.errors import InputError
from legroom.gpus.card import Gpu
from legroom.gpus.cardfile import catalogue, read_cards

_FILE = re.compile(r"(?P<path>.+\.toml)(?::(?P<card>.*))?", re.IGNORECASE | re.DOTALL)
_NOISE = re.compile(r"nvidia|geforce|tesla|gpu|generation|[\W_]")
_LISTED = "`legroom gpus` lists all that Legroom knows; a card of your own goes in a .toml file."


def find(name: str) -> Gpu:
    """The card of that name: a key, the driver's name or an alias, however it is spaced and capitalised; or a file.

    A short name means the commonest card: `v100` the 16 GB one, `a100` the 40 GB one, `h100` the SXM one.
    `"cards.toml"` is the only card of a user's file, `"cards.toml:name"` one of several.
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"A GPU needs a name; received {name!r}.", f"For example t4, rtx4090 or h100. {_LISTED}")
    in_file = _FILE.fullmatch(name.strip())
    if in_file:
        return _find_in_file(in_file["path"], in_file["card"])
    gpu = _index(catalogue()).get(_fold(name))
    if gpu is None:
        near = ", ".join(_nearest(name, catalogue()))
        raise InputError(f"No GPU is called {name!r}. The nearest are {near}.", _LISTED)
    return gpu


def _find_in_file(path: str, card: str | None) -> Gpu:
    gpus = read_cards(path)
    keys = ", ".join(gpu.key for gpu in gpus)
    if card is None:
        if len(gpus) > 1:
            raise InputError(f"{path} describes {len(gpus)} cards: {keys}.", f"Name one: {path}:{gpus[0].key}")
        return gpus[0]
    found = _index(gpus).get(_fold(card))
    if found is None:
        raise InputError(f"{path} describes no card called {card!r}; it has {keys}.", f"Name one: {path}:{gpus[0].key}")
    return found


def _fold(name: str) -> str:
    """A name without what people leave out or write differently."""
    folded = _NOISE.sub("", name.lower()).replace("mobile", "laptop")
    return re.sub(r"^[rg]tx(?=.)", "", folded) or name.strip().lower()


@cache
def _index(gpus: tuple[Gpu, ...]) -> dict[str, Gpu]:
    """Keys before aliases before the driver's names, which several cards may share: the first of those has it."""
    index: dict[str, Gpu] = {}
    for gpu in gpus:
        index.setdefault(_fold(gpu.key), gpu)
    for gpu in gpus:
        for alias in gpu.aliases:
            index.setdefault(_fold(alias), gpu)
    for gpu in gpus:
        index.setdefault(_fold(gpu.name), gpu)
    return index


def _nearest(name: str, gpus: tuple[Gpu, ...], count: int = 3) -> list[str]:
    """The keys of the cards that are spelt most like `name`."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(_fold(name))
    likeness: dict[str, float] = {}
    for spelling, gpu in _index(gpus).items():
        matcher.set_seq1(spelling)
        likeness[gpu.key] = max(likeness.get(gpu.key, 0.0), matcher.ratio())
    return sorted(likeness, key=lambda key: -likeness[key])[:count]
