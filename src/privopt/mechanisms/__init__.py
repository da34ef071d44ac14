"""The gate, and the mechanisms it runs."""

from privopt.mechanisms.additive import Gaussian, Laplace, NormGamma
from privopt.mechanisms.gate import HOOK, Gate, Hook, same_event
from privopt.mechanisms.mechanism import Mechanism
from privopt.mechanisms.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.standardizer import Standardizer

__all__ = [
    "HOOK",
    "Gate",
    "Gaussian",
    "Hook",
    "Laplace",
    "Mechanism",
    "NormGamma",
    "ObjectivePerturbation",
    "Standardizer",
    "same_event",
]
