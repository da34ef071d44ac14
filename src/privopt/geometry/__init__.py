"""Constraint sets and norms; parameters are public NumPy vectors."""

from privopt.geometry.ball import L1Ball, L2Ball
from privopt.geometry.box import Box
from privopt.geometry.domain import Domain
from privopt.geometry.lp_ball import LpBall
from privopt.geometry.mirror import EntropicMap, MirrorMap, NormMap, mirror_of
from privopt.geometry.near import Near
from privopt.geometry.polytope import Polytope
from privopt.geometry.separable import Separable
from privopt.geometry.simplex import Simplex
from privopt.geometry.whole_space import WholeSpace

__all__ = [
    "Box",
    "Domain",
    "EntropicMap",
    "L1Ball",
    "L2Ball",
    "LpBall",
    "MirrorMap",
    "Near",
    "NormMap",
    "Polytope",
    "Separable",
    "Simplex",
    "WholeSpace",
    "mirror_of",
]
