"""The catalogue: every solver in this folder, found by listing it."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from privopt.solvers.solver import Solver

_PROTOCOL = {"solver", "specimen", "prediction", "catalogue", "execute", "frontier", "families"}


@cache
def catalogue() -> dict[str, Solver]:
    """Solvers by name; the name is the file's."""
    import privopt.solvers as folder

    found: dict[str, Solver] = {}
    for module in pkgutil.iter_modules(folder.__path__):
        if module.name in _PROTOCOL:
            continue
        solver = importlib.import_module(f"privopt.solvers.{module.name}").SOLVER
        if solver.name != module.name:
            raise RuntimeError(f"the solver in {module.name}.py must be named {module.name!r}.")
        found[solver.name] = solver
    return found


def solver_named(name: str) -> Solver:
    """Look a solver up; an unknown name lists the known ones."""
    known = catalogue()
    if name not in known:
        raise ValueError(f"unknown solver {name!r}; choose from auto, {', '.join(sorted(known))}.")
    return known[name]
