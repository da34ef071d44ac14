"""Factorizations of prefix sums: correlated noise for streams, its sensitivity and its error."""

from privopt.privacy.factorizations.banded import Banded
from privopt.privacy.factorizations.blt import BLT
from privopt.privacy.factorizations.catalogue import Candidate, compare, named
from privopt.privacy.factorizations.dense import DenseOptimal, FullHonaker
from privopt.privacy.factorizations.factorization import (
    Draw,
    Factorization,
    NoiseStream,
    Rounding,
)
from privopt.privacy.factorizations.honaker import Honaker
from privopt.privacy.factorizations.independent import Independent
from privopt.privacy.factorizations.restarts import Restarts
from privopt.privacy.factorizations.square_root import SquareRoot
from privopt.privacy.factorizations.tree import Tree

__all__ = [
    "BLT",
    "Banded",
    "Candidate",
    "DenseOptimal",
    "Draw",
    "Factorization",
    "FullHonaker",
    "Honaker",
    "Independent",
    "NoiseStream",
    "Restarts",
    "Rounding",
    "SquareRoot",
    "Tree",
    "compare",
    "named",
]
