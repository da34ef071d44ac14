"""Results that cost time and depend on public facts alone, kept in memory and on disk.

One small file for each result, in ``$XDG_CACHE_HOME/privopt`` (``~/.cache/privopt`` by default;
``PRIVOPT_CACHE`` names another folder, and ``PRIVOPT_CACHE=off`` keeps nothing on disk). Files are
written aside and renamed, so two processes never see half of one. Whatever goes wrong with a file,
a missing folder, a full or read-only disk, text that is not what was written, the result is made
anew. Nothing computed from data may be kept here.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

FORMAT = 1
"""Raised when results of an older version must not be used."""
VERSION = version("privopt")
_MEMORY: dict[str, Any] = {}


def remembered(kind: str, key: Any, make: Callable[[], Any], valid: Callable[[Any], bool]) -> Any:
    """The result of ``make`` for a key of plain JSON values; made at most once for each key.

    ``valid`` looks at what a file held, which may be anything.
    """
    text = json.dumps([FORMAT, VERSION, kind, key], sort_keys=True)
    if text in _MEMORY:
        return _MEMORY[text]
    path = _path(kind, text)
    found = _read(path, text)
    if found is None or not _holds(valid, found):
        found = make()
        _write(path, text, found)
    _MEMORY[text] = found
    return found


def forget() -> None:
    """Empty the memory; files stay."""
    _MEMORY.clear()


def folder() -> Path | None:
    """Where files are kept; None if nowhere."""
    named = os.environ.get("PRIVOPT_CACHE")
    if named == "off":
        return None
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # a user without a home
        return (Path(home) if home else Path.home() / ".cache") / "privopt"
    return None


def _path(kind: str, text: str) -> Path | None:
    home = folder()
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return None if home is None else home / f"{kind}-{digest}.json"


def _read(path: Path | None, text: str) -> Any:
    if path is None:
        return None
    with suppress(OSError, ValueError, RecursionError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(kept, dict) and kept.get("key") == text:
            return kept.get("value")
    return None


def _write(path: Path | None, text: str, value: Any) -> None:
    if path is None:
        return
    aside = None
    with suppress(OSError, ValueError, TypeError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"key": text, "value": value}, file)
        os.replace(aside, path)
        aside = None
    if aside is not None:
        with suppress(OSError):
            os.unlink(aside)


def _holds(valid: Callable[[Any], bool], found: Any) -> bool:
    with suppress(Exception):
        return bool(valid(found))
    return False
