"""The rooms that see data: rows, queries, views, sealed values."""

from privopt.oracle.lane import Lane
from privopt.oracle.oracle import Oracle, View
from privopt.oracle.queries import ClippedGradient, CountRecords, Query
from privopt.oracle.reach import FunctionFacts, Reach
from privopt.oracle.rows import RowBounds
from privopt.oracle.sampling import GeometricSkips, KeyedCoins, Sampler
from privopt.oracle.sealed import Map, Sealed

__all__ = [
    "ClippedGradient",
    "CountRecords",
    "FunctionFacts",
    "GeometricSkips",
    "KeyedCoins",
    "Lane",
    "Map",
    "Oracle",
    "Query",
    "Reach",
    "RowBounds",
    "Sampler",
    "Sealed",
    "View",
]
