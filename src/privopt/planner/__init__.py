"""The planner: it sits above the solvers, ranks them, and explains itself without running."""

from privopt.planner.choose import Ranking, choose, plan, rank
from privopt.planner.prefix_sums import PrefixSums, prefix_sums
from privopt.planner.quantile import quantile
from privopt.planner.select import select
from privopt.planner.solve import public_count, solve

__all__ = [
    "PrefixSums",
    "Ranking",
    "choose",
    "plan",
    "prefix_sums",
    "public_count",
    "quantile",
    "rank",
    "select",
    "solve",
]
