"""The rooms that see data: rows, queries, views, sealed values."""

from privopt.oracle.lane import Lane
from privopt.oracle.mapped import RowMap
from privopt.oracle.oracle import Oracle, View
from privopt.oracle.queries import (
    ClippedGradient,
    CoordinateClippedGradient,
    CountPositive,
    CountRecords,
    LabelMoments,
    LeastSquaresMoments,
    Moments,
    NormHistogram,
    Query,
    RowSum,
)
from privopt.oracle.reach import FunctionFacts, Reach
from privopt.oracle.rows import RowBounds
from privopt.oracle.sampling import GeometricSkips, KeyedCoins, Sampler
from privopt.oracle.sealed import Map, Sealed

__all__ = [
    "ClippedGradient",
    "CoordinateClippedGradient",
    "CountPositive",
    "CountRecords",
    "FunctionFacts",
    "GeometricSkips",
    "KeyedCoins",
    "LabelMoments",
    "Lane",
    "LeastSquaresMoments",
    "Map",
    "Moments",
    "NormHistogram",
    "Oracle",
    "Query",
    "Reach",
    "RowBounds",
    "RowMap",
    "RowSum",
    "Sampler",
    "Sealed",
    "View",
]
