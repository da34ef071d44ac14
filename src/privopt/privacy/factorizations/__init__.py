"""Factorizations of prefix sums: correlated noise for streams, its sensitivity and its error."""

from privopt.privacy.factorizations.factorization import Draw, Factorization, NoiseStream
from privopt.privacy.factorizations.honaker import Honaker
from privopt.privacy.factorizations.independent import Independent
from privopt.privacy.factorizations.tree import Tree

__all__ = ["Draw", "Factorization", "Honaker", "Independent", "NoiseStream", "Tree"]
