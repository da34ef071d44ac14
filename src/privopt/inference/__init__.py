"""How sure released numbers are: standard errors, intervals, summaries. Sees no data."""

from privopt.inference.coefficients import Coefficients, through
from privopt.inference.parts import Parts
from privopt.inference.sandwich import Sandwich
from privopt.inference.summary import Summary

__all__ = ["Coefficients", "Parts", "Sandwich", "Summary", "through"]
