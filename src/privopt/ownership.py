"""Whose code is it? What the library did not write is probed, and named in the certificate."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

_PLAIN = (bool, int, float, str, bytes, type(None))
_ARRAYS = ("builtins", "numpy", "scipy", "torch")


def own_type(cls: type) -> bool:
    """Whether the library defines exactly this class: a subclass of one of its own is foreign."""
    found: Any = sys.modules.get(cls.__module__)
    if found is None or cls.__module__.partition(".")[0] != "privopt":
        return False
    for name in cls.__qualname__.split("."):  # a name is easily borrowed: the class must be there
        found = getattr(found, name, None)
    return found is cls


def own(thing: Any) -> bool:
    """Whether an object is the library's own: its exact class, with nothing put over a method, and
    all that it is made of."""
    if isinstance(thing, _PLAIN):
        return True
    if isinstance(thing, (tuple, list, frozenset)):
        return all(own(part) for part in thing)
    if not own_type(type(thing)):
        return type(thing).__module__.partition(".")[0] in _ARRAYS and not callable(thing)
    names = {one.name for one in fields(thing)} if is_dataclass(thing) else set()
    held = getattr(thing, "__dict__", {})
    kept = {key for key in held if isinstance(getattr(type(thing), key, None), cached_property)}
    if is_dataclass(thing) and not set(held) <= names | kept:
        return False
    return all(own(getattr(thing, name)) for name in names)
