"""diffprivlib's spellings: ``from privopt.compat import diffprivlib``.

What diffprivlib promises, pure privacy when a record is replaced, is what these make too. Where it
would read bounds off the data, they ask for them.
"""

from importlib import import_module
from typing import Any

__all__ = ["models"]

_INSTEAD = {
    "tools": "privopt.quantile and privopt.prefix_sums are what privopt has of it",
    "accountant": "use privopt.Ledger, which keeps budgets on disk",
    "BudgetAccountant": "use privopt.Ledger, which keeps budgets on disk",
    "mechanisms": "additive noise lives behind privopt.solve, with its sensitivity",
    "validation": "bounds are arguments of the estimators",
}


def __getattr__(name: str) -> Any:
    if name == "models":
        return import_module("privopt.compat.diffprivlib.models")
    if name in _INSTEAD:
        raise ImportError(f"privopt does not stand in for diffprivlib.{name}: {_INSTEAD[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
