"""Splines with public knots: a step of a pipeline that learns nothing."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import SplineTransformer
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.bounds import ColumnBounds
from privopt.estimators.frames import validated
from privopt.estimators.shapes import positions

_FLOATS = [np.float64, np.float32]


class SplineFeatures(TransformerMixin, BaseEstimator):
    """Columns in [-1, 1], and B-splines of them on equal knots between declared bounds.

    ``fit`` looks at the number and the names of the columns and at nothing else, so the step costs
    no budget. The result is sparse and lies in [-1, 1], for an estimator with ``bounds=(-1, 1)``.

    ``LogisticRegression(features="splines")`` instead places its functions by where the records
    are, which 5 % of its budget pays for: better where bounds are generous; where they fit and
    epsilon is small, these splines were a little more accurate.

    Parameters
    ----------
    bounds : pair or mapping, default=(-1.0, 1.0)
        ``(low, high)``, numbers or one per column, or a mapping from column names to pairs. They
        must not be read from the data. Entries outside are moved to the nearest bound.
    columns : list, optional
        Names or positions of the columns that get splines; all by default.
    knots : int, default=8
        Knots from bound to bound, at least 2.
    degree : int, default=3
        Of the splines; 0 makes indicators of equal bins.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import SplineFeatures
    >>> bins = SplineFeatures(bounds=(0, 4), knots=3, degree=0)
    >>> bins.fit_transform(np.array([[1.0], [3.0]])).toarray()
    array([[0.25, 1.  , 0.  ],
           [0.75, 0.  , 1.  ]])
    """

    n_features_in_: int

    def __init__(
        self,
        bounds: Any = (-1.0, 1.0),
        *,
        columns: Any = None,
        knots: int = 8,
        degree: int = 3,
    ) -> None:
        self.bounds = bounds
        self.columns = columns
        self.knots = knots
        self.degree = degree

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the names of the columns and check the parameters."""
        X = self._validated(X, reset=True)
        self._splines()
        return self

    def transform(self, X: Any) -> Any:
        """A CSR matrix: the columns in [-1, 1], then the splines of each chosen one."""
        check_is_fitted(self, "n_features_in_")
        X = self._validated(X, reset=False)
        declared, chosen, splines = self._splines()
        X = declared.apply(X)
        some = X[:, chosen]
        more = splines.transform(some.toarray() if sp.issparse(some) else some)
        return sp.csr_array(sp.hstack([sp.csr_array(X), sp.csr_array(more)]), dtype=X.dtype)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns, then of the splines of each chosen one."""
        check_is_fitted(self, "n_features_in_")
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(self.n_features_in_)]
        if input_features is not None:
            names = list(input_features)
        _, chosen, splines = self._splines()
        more = splines.get_feature_names_out([str(names[j]) for j in chosen])
        return np.array([*map(str, names), *more], dtype=object)

    def _splines(self) -> tuple[ColumnBounds, list[int], SplineTransformer]:
        if not isinstance(self.knots, int | np.integer) or self.knots < 2:
            raise ValueError(f"knots must be a whole number from 2 on, got {self.knots!r}.")
        if not isinstance(self.degree, int | np.integer) or self.degree < 0:
            raise ValueError(f"degree must be a whole number from 0 on, got {self.degree!r}.")
        names = getattr(self, "feature_names_in_", None)
        declared = ColumnBounds.declared(self.bounds, self.n_features_in_, names)
        every = list(range(self.n_features_in_))
        chosen = (
            every
            if self.columns is None
            else positions(self.columns, "columns", self.n_features_in_, names)
        )
        ends = [(side - declared.shift) / declared.scale for side in (declared.low, declared.high)]
        knots: Any = np.linspace(ends[0][chosen], ends[1][chosen], self.knots)
        splines = SplineTransformer(
            degree=self.degree, knots=knots, extrapolation="constant", sparse_output=True
        )
        return declared, chosen, splines.fit(np.zeros((2, len(chosen))))

    def _validated(self, X: Any, reset: bool) -> Any:
        return validated(self, X, reset=reset, accept_sparse="csr", dtype=_FLOATS)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
