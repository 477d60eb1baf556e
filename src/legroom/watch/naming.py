"""The name of a container: a variable of a running function, of a module, or an object's attribute."""

import gc
import sys
import types
from typing import Any


def name_of(thing: Any) -> str:
    """Where somebody would look for it in their code."""
    return local_name(thing) or held_name(thing) or f"a {type(thing).__name__} without a name"


def local_name(thing: Any) -> str:
    """A variable of a function that is running now; of the outermost, which is the user's."""
    found = ""
    frame = sys._getframe(2)
    here: Any = frame
    while here is not None:
        if not here.f_globals.get("__name__", "").startswith("legroom.watch"):
            for name, value in here.f_locals.items():
                if value is thing:
                    where = here.f_code
                    place = "" if where.co_name == "<module>" else f" in {where.co_name}()"
                    found = f"`{name}`{place} ({where.co_filename.rpartition('/')[2]})"
        here = here.f_back
    return found


def held_name(thing: Any) -> str:
    """An entry of a module or an attribute of an object, from who refers to it."""
    best = ""
    for holder in gc.get_referrers(thing):
        if isinstance(holder, types.FunctionType | types.FrameType):
            continue
        if isinstance(holder, dict):
            keys = [key for key, value in holder.items() if value is thing and isinstance(key, str)]
            if keys and "__name__" in holder and "__spec__" in holder:
                return f"`{holder['__name__']}.{keys[0]}`"
            if keys:
                owner = owner_of(holder)
                best = best or (f"`{owner}.{keys[0]}`" if owner else f"the entry {keys[0]!r} of a dict")
        elif hasattr(holder, "__dict__") and not isinstance(holder, type):
            keys = [key for key, value in vars(holder).items() if value is thing]
            if keys:
                return f"`{type(holder).__name__}.{keys[0]}`"
        elif isinstance(holder, types.CellType):
            best = best or "a variable of an enclosing function"
    return best


def owner_of(names: dict[str, Any]) -> str:
    """The class of the object that this is the `__dict__` of."""
    for holder in gc.get_referrers(names):
        if not isinstance(holder, dict | list | types.FrameType) and getattr(holder, "__dict__", None) is names:
            return type(holder).__name__
    return ""
