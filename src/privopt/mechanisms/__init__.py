"""The run, its gate, and the mechanisms that release."""

from privopt.mechanisms.additive import (
    Gaussian,
    GeneralizedGaussian,
    KNorm,
    Laplace,
    NormGamma,
)
from privopt.mechanisms.best_of import BestOf
from privopt.mechanisms.correlated import (
    CorrelatedGaussian,
    DiscreteCorrelatedGaussian,
    choose_correlated,
    correlated_noise,
    grid_of,
    resolution_of,
)
from privopt.mechanisms.exponential_density import ExponentialDensity
from privopt.mechanisms.gate import HOOK, Gate, Hook, Steps, same_event
from privopt.mechanisms.grid_walk import GridWalk
from privopt.mechanisms.mechanism import Described, Drawn, Mechanism
from privopt.mechanisms.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.on_grid import (
    DiscreteGaussian,
    DiscreteLaplace,
    DiscreteNormGamma,
    choose_discrete,
    gaussian_noise,
    laplace_noise,
    norm_gamma_noise,
)
from privopt.mechanisms.output_perturbation import Minimiser, OutputPerturbation
from privopt.mechanisms.rank_quantile import RankQuantile
from privopt.mechanisms.run import Run, rehearsed
from privopt.mechanisms.selection import ExponentialMechanism, PermuteAndFlip, ReportNoisyMax
from privopt.mechanisms.shape_learner import ShapeLearner
from privopt.mechanisms.stable_sgd import StableSGD
from privopt.mechanisms.standardizer import Standardizer

__all__ = [
    "HOOK",
    "BestOf",
    "CorrelatedGaussian",
    "Described",
    "DiscreteCorrelatedGaussian",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscreteNormGamma",
    "Drawn",
    "ExponentialDensity",
    "ExponentialMechanism",
    "Gate",
    "Gaussian",
    "GeneralizedGaussian",
    "GridWalk",
    "Hook",
    "KNorm",
    "Laplace",
    "Mechanism",
    "Minimiser",
    "NormGamma",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PermuteAndFlip",
    "RankQuantile",
    "ReportNoisyMax",
    "Run",
    "ShapeLearner",
    "StableSGD",
    "Standardizer",
    "Steps",
    "choose_correlated",
    "choose_discrete",
    "correlated_noise",
    "gaussian_noise",
    "grid_of",
    "laplace_noise",
    "norm_gamma_noise",
    "rehearsed",
    "resolution_of",
    "same_event",
]
