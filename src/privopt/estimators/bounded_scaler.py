"""Scaling by public bounds: what may stand before a private estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.bounds import ColumnBounds
from privopt.estimators.frames import concrete, validated

_FLOATS = [np.float64, np.float32]


class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale columns to [-1, 1] by bounds that are known beforehand.

    ``fit`` looks at the number and the names of the columns and at nothing else, so the scaler
    costs no budget. Entries outside are moved to the nearest bound. A column whose bounds contain 0
    is only divided, so that zeros stay zeros and a sparse matrix stays sparse; another one is
    centred first. Missing values stay missing.

    Private estimators take the same ``bounds`` themselves and then standardise privately, which is
    usually more accurate; the scaler is for pipelines with other public steps in between.

    Parameters
    ----------
    bounds : pair or mapping, default=(-1.0, 1.0)
        ``(low, high)``, numbers or one per column, or a mapping from column names to pairs. They
        must not be read from the data.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import BoundedScaler
    >>> BoundedScaler(([0, 100], [10, 200])).fit_transform(np.array([[5.0, 125.0], [20.0, 150.0]]))
    array([[ 0.5, -0.5],
           [ 1. ,  0. ]])
    """

    n_features_in_: int

    def __init__(self, bounds: Any = (-1.0, 1.0)) -> None:
        self.bounds = bounds

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the names of the columns and check the bounds."""
        X = self._validated(X, reset=True)
        self._declared(X.shape[1])
        return self

    def transform(self, X: Any) -> Any:
        """The columns in [-1, 1]."""
        check_is_fitted(self, "n_features_in_")
        X = self._validated(X, reset=False)
        return self._declared(X.shape[1]).apply(X)

    def inverse_transform(self, X: Any) -> Any:
        """Columns in their own units."""
        check_is_fitted(self, "n_features_in_")
        declared = self._declared(self.n_features_in_)
        if sp.issparse(X):
            X = sp.csr_array(X, copy=True)
            X.data = X.data * declared.scale[X.indices]
            return X
        return np.asarray(concrete(X)) * declared.scale + declared.shift

    def _validated(self, X: Any, reset: bool) -> Any:
        return validated(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=_FLOATS,
            ensure_all_finite="allow-nan",
        )

    def _declared(self, features: int) -> ColumnBounds:
        return ColumnBounds.declared(
            self.bounds, features, getattr(self, "feature_names_in_", None)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
