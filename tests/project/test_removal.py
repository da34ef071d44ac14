"""One file adds an algorithm, and one file removes it: nothing else breaks when it is gone."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module

import pytest

from privopt import Budget, Problem, plan
from privopt.geometry import L1Ball, L2Ball
from privopt.losses import Absolute, Huber, Logistic, Welsch
from privopt.solvers import catalogue, solver_named
from tests.covering import in_turn

from .test_project import SOURCE

NAMES = sorted(catalogue())
PROBLEMS = (
    Problem(Logistic(), L2Ball(3.0)),
    Problem(Absolute(), L2Ball(3.0)),
    Problem(Huber(0.5), L1Ball(1.0), column_bounds=1.0),
    Problem(Logistic(), intercept=0.5, column_bounds=1.0),
    Problem(Welsch(0.7), L2Ball(1.0)),
)
WITHOUT = """
import importlib.abc, pkgutil, sys

gone, listed = "privopt.solvers." + sys.argv[1], pkgutil.iter_modules

class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == gone:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Gone())
pkgutil.iter_modules = lambda *args: [m for m in listed(*args) if m.name != sys.argv[1]]
import privopt
from privopt.solvers import catalogue
assert len(catalogue()) == int(sys.argv[2]) and sys.argv[1] not in catalogue()
for module in listed(privopt.__path__):
    if module.name != "torch" and not module.name.startswith("_"):
        __import__("privopt." + module.name)
"""


def imports(path):
    """Modules that a file names, at its head or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_file_imports_a_solver():
    """What several solvers share lies in ``solvers/families``."""
    solvers = {f"privopt.solvers.{name}" for name in NAMES}
    found = {
        str(path.relative_to(SOURCE)): sorted(solvers.intersection(imports(path)))
        for path in SOURCE.rglob("*.py")
        if solvers.intersection(imports(path))
    }
    assert found == {}


@pytest.mark.parametrize("name", ["noisy_gd", "dp_ftrl", "objective_perturbation"])
def test_the_library_is_imported_without_a_solver(name):
    """A process in which the file is not there; the test above says that others are like these."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, name, str(len(NAMES) - 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "delta"), in_turn(NAMES, [0.0, 1e-6]))
def test_plans_are_made_without_a_solver(monkeypatch, name, delta):
    """Opinions about a solver that is not there, and solvers that end with it, say so."""
    choose = import_module("privopt.planner.choose")
    monkeypatch.setattr(choose.Simulation, "compared", lambda self, plans: {})
    monkeypatch.setattr(choose, "Expectation", lambda *of: None)
    monkeypatch.delitem(catalogue(), name)
    for problem in PROBLEMS:
        for repeats in (1, 3):
            found = plan(problem, n=400, p=3, budget=Budget(1.0, delta), repeats=repeats)
            assert str(found)
            assert name not in {one.name for one in found.plans} | set(found.refused)
    with pytest.raises(ValueError, match="unknown solver"):
        solver_named(name)
