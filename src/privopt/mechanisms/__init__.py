"""The gate, and the mechanisms it runs."""

from privopt.mechanisms.additive import Gaussian, Laplace, NormGamma
from privopt.mechanisms.exponential_density import ExponentialDensity
from privopt.mechanisms.gate import HOOK, Gate, Hook, same_event
from privopt.mechanisms.grid_walk import GridWalk
from privopt.mechanisms.mechanism import Mechanism
from privopt.mechanisms.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.rank_quantile import RankQuantile

__all__ = [
    "HOOK",
    "ExponentialDensity",
    "Gate",
    "Gaussian",
    "GridWalk",
    "Hook",
    "Laplace",
    "Mechanism",
    "NormGamma",
    "ObjectivePerturbation",
    "RankQuantile",
    "same_event",
]
