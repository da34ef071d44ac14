"""Minimisers and projections. Knows nothing of data, budgets or noise, nor of the library."""

from privopt.numerics.convex import ConvexSet, Enclosed, NotConverged

__all__ = ["ConvexSet", "Enclosed", "NotConverged"]
