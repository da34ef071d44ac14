"""Private algorithms: one file each, found by listing this folder."""

from privopt.solvers.catalogue import catalogue, solver_named
from privopt.solvers.execute import PROGRESS, Blocks, declare, execute, row_bounds
from privopt.solvers.frontier import Frontier
from privopt.solvers.prediction import Prediction
from privopt.solvers.solver import Plan, Result, Settings, Solver, Tick

__all__ = [
    "PROGRESS",
    "Blocks",
    "Frontier",
    "Plan",
    "Prediction",
    "Result",
    "Settings",
    "Solver",
    "Tick",
    "catalogue",
    "declare",
    "execute",
    "row_bounds",
    "solver_named",
]
