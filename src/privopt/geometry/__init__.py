"""Constraint sets and norms; parameters are public NumPy vectors."""

from privopt.geometry.ball import L1Ball, L2Ball
from privopt.geometry.box import Box
from privopt.geometry.domain import Domain
from privopt.geometry.near import Near
from privopt.geometry.polytope import Polytope
from privopt.geometry.separable import Separable
from privopt.geometry.simplex import Simplex
from privopt.geometry.whole_space import WholeSpace

__all__ = [
    "Box",
    "Domain",
    "L1Ball",
    "L2Ball",
    "Near",
    "Polytope",
    "Separable",
    "Simplex",
    "WholeSpace",
]
