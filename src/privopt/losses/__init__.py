"""Losses of generalised linear models, as scalar functions of the margin."""

from privopt.losses.absolute import Absolute
from privopt.losses.capped_exponential import CappedExponential
from privopt.losses.capped_logistic import CappedLogistic
from privopt.losses.guarded import Guarded, bounded_slope, met
from privopt.losses.hinge import Hinge, SmoothedHinge
from privopt.losses.huber import Huber
from privopt.losses.logistic import Logistic
from privopt.losses.loss import Loss
from privopt.losses.phase_retrieval import PhaseRetrieval
from privopt.losses.quantile import Quantile, SmoothedQuantile
from privopt.losses.redescending import TukeyBiweight, Welsch
from privopt.losses.smoothed import Smoothed
from privopt.losses.squared import Squared

__all__ = [
    "Absolute",
    "CappedExponential",
    "CappedLogistic",
    "Guarded",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "PhaseRetrieval",
    "Quantile",
    "Smoothed",
    "SmoothedHinge",
    "SmoothedQuantile",
    "Squared",
    "TukeyBiweight",
    "Welsch",
    "bounded_slope",
    "met",
]
