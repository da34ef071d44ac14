"""Random numbers: secure by default, reproducible on request, and from nowhere else."""

from privopt.noise.discrete import discrete_gaussian, discrete_laplace, narrow_gaussian
from privopt.noise.exponential import exponential
from privopt.noise.gaussian import gaussian
from privopt.noise.generalized_gaussian import generalized_gaussian, k_norm
from privopt.noise.gumbel import gumbel
from privopt.noise.laplace import laplace
from privopt.noise.norm_gamma import norm_gamma
from privopt.noise.source import (
    Generator,
    SecureSource,
    SeededSource,
    SilentSource,
    Source,
    fresh_name,
    source_for,
)

__all__ = [
    "Generator",
    "SecureSource",
    "SeededSource",
    "SilentSource",
    "Source",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "fresh_name",
    "gaussian",
    "generalized_gaussian",
    "gumbel",
    "k_norm",
    "laplace",
    "narrow_gaussian",
    "norm_gamma",
    "source_for",
]
