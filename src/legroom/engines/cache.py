"""Answers kept on disk, one JSON file each, under the hash of everything that they depend on.

A file is written aside and moved into place, so that two processes writing at once leave a whole one; an unreadable file
is as good as none.
"""

import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import platformdirs

SCHEMA = 2


def folder() -> Path:
    """Where answers are kept: $LEGROOM_CACHE, or the user's cache folder."""
    chosen = os.environ.get("LEGROOM_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("legroom")


def key_of(*parts: Any) -> str:
    """A hash of bytes, texts and plain data; equal parts give equal keys, as long as Legroom is the same."""
    digest = hashlib.sha256(f"legroom {SCHEMA} {code_identity()}".encode())
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True, default=str).encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


@functools.cache
def code_identity() -> str:
    """A hash of the code that answers are made by: another version of it makes other answers."""
    root = Path(__file__).resolve().parents[1]
    sources = sorted(
        path
        for room in ("records", "gpus", "capture", "memory", "engines", "changes", "front")
        for path in (root / room).rglob("*.py")
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def read(key: str) -> Any | None:
    """The answer kept under that key, or None."""
    try:
        kept = json.loads(path_of(key).read_bytes())
    except (OSError, ValueError):
        return None
    return kept.get("answer") if isinstance(kept, dict) and kept.get("schema") == SCHEMA else None


def write(key: str, answer: Any) -> None:
    """Keep an answer; a full or read-only disk only costs the next run its time."""
    path = path_of(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:
        return
    try:
        with os.fdopen(handle, "w") as file:
            json.dump({"schema": SCHEMA, "answer": answer}, file, separators=(",", ":"))
        os.replace(name, path)
    except OSError:
        os.unlink(name)
    except BaseException:
        os.unlink(name)
        raise


def path_of(key: str) -> Path:
    return folder() / "answers" / key[:2] / f"{key}.json"
