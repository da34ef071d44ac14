"""The rooms that see data: rows, queries, views, sealed values."""

from privopt.oracle.gradient_difference import GradientDifference
from privopt.oracle.lane import Lane
from privopt.oracle.mapped import RowMap
from privopt.oracle.moments import LabelMoments, LeastSquaresMoments, Moments, NormHistogram
from privopt.oracle.oracle import Oracle, View
from privopt.oracle.queries import (
    ClippedGradient,
    CoordinateClippedGradient,
    CountPositive,
    CountRecords,
    GramGradient,
    Query,
    RowSum,
    SquaresAlong,
)
from privopt.oracle.reach import FunctionFacts, Grid, Reach
from privopt.oracle.rows import RowBounds
from privopt.oracle.runs import sealed_runs, sealed_total
from privopt.oracle.sampling import GeometricSkips, KeyedCoins, Sampler
from privopt.oracle.sealed import Map, Sealed
from privopt.oracle.trail import VertexPath
from privopt.oracle.vertex_draw import VertexDraw
from privopt.oracle.walk import Walk

__all__ = [
    "ClippedGradient",
    "CoordinateClippedGradient",
    "CountPositive",
    "CountRecords",
    "FunctionFacts",
    "GeometricSkips",
    "GradientDifference",
    "GramGradient",
    "Grid",
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
    "SquaresAlong",
    "VertexDraw",
    "VertexPath",
    "View",
    "Walk",
    "sealed_runs",
    "sealed_total",
]
