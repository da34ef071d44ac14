"""The rooms that see data: rows, queries, views, sealed values."""

from privopt.oracle.classes import ClassCounts, ClassGradient, MatrixQuery
from privopt.oracle.column_shapes import ColumnHistograms, ShapeTables
from privopt.oracle.coordinate_gradient import CoordinateGradient
from privopt.oracle.curvature import Curvature
from privopt.oracle.embedded import Embedded
from privopt.oracle.gradient_difference import GradientDifference
from privopt.oracle.incremental_gradient import VertexPath
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
    Votes,
)
from privopt.oracle.rows import RowBounds
from privopt.oracle.running_sum import RunningSum
from privopt.oracle.runs import sealed_runs, sealed_total
from privopt.oracle.sampling import GeometricSkips, KeyedCoins, Sampler
from privopt.oracle.sealed import Map, Sealed
from privopt.oracle.sensitivity import FunctionFacts, Grid, Sensitivity
from privopt.oracle.shares import Shares, sealed_shares, shares_radius
from privopt.oracle.vector_gradient import (
    ClippedVectorGradient,
    VectorObjective,
    gradient_query,
)
from privopt.oracle.vertex_draw import VertexDraw

__all__ = [
    "ClassCounts",
    "ClassGradient",
    "ClippedGradient",
    "ClippedVectorGradient",
    "ColumnHistograms",
    "CoordinateClippedGradient",
    "CoordinateGradient",
    "CountPositive",
    "CountRecords",
    "Curvature",
    "Embedded",
    "FunctionFacts",
    "GeometricSkips",
    "GradientDifference",
    "GramGradient",
    "Grid",
    "KeyedCoins",
    "LabelMoments",
    "LeastSquaresMoments",
    "Map",
    "MatrixQuery",
    "Moments",
    "NormHistogram",
    "Oracle",
    "Query",
    "RowBounds",
    "RowMap",
    "RowSum",
    "RunningSum",
    "Sampler",
    "Sealed",
    "Sensitivity",
    "ShapeTables",
    "Shares",
    "SquaresAlong",
    "VectorObjective",
    "VertexDraw",
    "VertexPath",
    "View",
    "Votes",
    "gradient_query",
    "sealed_runs",
    "sealed_shares",
    "sealed_total",
    "shares_radius",
]
