"""The gate, and the mechanisms it runs."""

from privopt.mechanisms.additive import Gaussian, Laplace, NormGamma
from privopt.mechanisms.gate import HOOK, Gate, Hook, same_event
from privopt.mechanisms.mechanism import Mechanism
from privopt.mechanisms.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.output_perturbation import Minimiser, OutputPerturbation
from privopt.mechanisms.selection import ExponentialMechanism, PermuteAndFlip, ReportNoisyMax
from privopt.mechanisms.stable_sgd import StableSGD
from privopt.mechanisms.standardizer import Standardizer

__all__ = [
    "HOOK",
    "ExponentialMechanism",
    "Gate",
    "Gaussian",
    "Hook",
    "Laplace",
    "Mechanism",
    "Minimiser",
    "NormGamma",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PermuteAndFlip",
    "ReportNoisyMax",
    "StableSGD",
    "Standardizer",
    "same_event",
]
