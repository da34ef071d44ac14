"""What fits a private estimator from outside: searches, cross-validation, bags, stacks.

A grid search fits eleven times and scores without noise, and each certificate speaks of its own fit
alone. So the calls that a fit runs in are looked at: everything of scikit-learn that may call
``fit`` counts, and every foreign object with ``fit`` and ``get_params``, but pipelines. In a worker
process the call that it was sent for is still on its stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from sklearn.pipeline import Pipeline

HARMLESS = (
    "sklearn._config",
    "sklearn.base",
    "sklearn.frozen",
    "sklearn.pipeline",
    "sklearn.utils",
)
"""Modules of scikit-learn that call one fit and read nothing else of the data."""


def wrapped_by(frames: Sequence[FrameType]) -> list[str]:
    """Names of what may fit or score around a fit, the outermost first; ``frames`` from within."""
    owners: list[str] = []
    calls: list[str] = []
    homes: list[str] = []
    for frame in reversed(frames):
        module = str(frame.f_globals.get("__name__"))
        owner, code = _owner(frame), frame.f_code
        if owner is not None:
            owners.append(owner)
        elif module.startswith("sklearn.") and not _harmless(module):
            homes.append(".".join(module.split(".")[:2]))
            if not owners and not calls and code.co_qualname.isidentifier():
                calls += [code.co_name] if not code.co_name.startswith("_") else []
    return list(dict.fromkeys(calls + owners)) or list(dict.fromkeys(homes))


def _harmless(module: str) -> bool:
    return any(module == home or module.startswith(home + ".") for home in HARMLESS)


def _owner(frame: FrameType) -> str | None:
    """The class of the object whose method runs in a frame, if it may fit what it holds."""
    kind = type(frame.f_locals.get("self"))
    if issubclass(kind, Pipeline) or not callable(getattr(kind, "get_params", None)):
        return None
    if not callable(getattr(kind, "fit", None)) or _harmless(kind.__module__):
        return None
    if any(base.__module__.partition(".")[0] == "privopt" for base in kind.__mro__):
        return None
    return kind.__name__
