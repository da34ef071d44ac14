"""Losses of generalised linear models, as scalar functions of the margin."""

from privopt.losses.absolute import Absolute
from privopt.losses.capped_exponential import CappedExponential
from privopt.losses.capped_logistic import CappedLogistic
from privopt.losses.foreign import Foreign
from privopt.losses.gamma import Gamma
from privopt.losses.guarded import Guarded, bounded_slope, met
from privopt.losses.hinge import Hinge, SmoothedHinge
from privopt.losses.huber import Huber
from privopt.losses.logistic import Logistic
from privopt.losses.loss import Loss, Standard
from privopt.losses.phase_retrieval import PhaseRetrieval
from privopt.losses.poisson import Poisson
from privopt.losses.quantile import Quantile, SmoothedQuantile
from privopt.losses.redescending import TukeyBiweight, Welsch
from privopt.losses.smoothed import Smoothed
from privopt.losses.softmax import Softmax
from privopt.losses.squared import Squared
from privopt.losses.tabulated import Tabulated
from privopt.losses.vector import (
    EuclideanDistance,
    GuardedVector,
    Linear,
    RoundedDistance,
    SquaredDistance,
    VectorLoss,
    met_vector,
)

__all__ = [
    "Absolute",
    "CappedExponential",
    "CappedLogistic",
    "EuclideanDistance",
    "Foreign",
    "Gamma",
    "Guarded",
    "GuardedVector",
    "Hinge",
    "Huber",
    "Linear",
    "Logistic",
    "Loss",
    "PhaseRetrieval",
    "Poisson",
    "Quantile",
    "RoundedDistance",
    "Smoothed",
    "SmoothedHinge",
    "SmoothedQuantile",
    "Softmax",
    "Squared",
    "SquaredDistance",
    "Standard",
    "Tabulated",
    "TukeyBiweight",
    "VectorLoss",
    "Welsch",
    "bounded_slope",
    "met",
    "met_vector",
]
