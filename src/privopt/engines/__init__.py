"""Where chunks of rows are kept and summed: one engine, one file, found by listing this folder.

``privopt.engines.Ray`` is the class ``Ray`` of ``ray.py``. Nothing is imported before it is named.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from privopt.engines.engine import Engine

NOT_ENGINES = ("engine",)


def names() -> list[str]:
    """Engines that there are, as the command line names them."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in NOT_ENGINES)


def named(name: str) -> type[Engine]:
    """The class of an engine; a sentence if there is none, or if what it needs is not installed."""
    if name.lower() not in names():
        raise ValueError(f"there is no engine {name!r}: take one of {', '.join(names())}.")
    module = importlib.import_module(f"{__name__}.{name.lower()}")
    return getattr(module, name.capitalize())


def __getattr__(name: str) -> Any:
    if name.lower() in names() and name == name.capitalize():
        return named(name)
    raise AttributeError(f"privopt.engines has no {name}")


def __dir__() -> list[str]:
    return [*__all__, *(name.capitalize() for name in names())]


__all__ = ["Engine", "named", "names"]
