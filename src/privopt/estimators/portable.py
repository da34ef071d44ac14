"""What every estimator does when it leaves its process: copies, files, plain scikit-learn."""

from __future__ import annotations

import copy
import os
from importlib import import_module
from typing import Any, ClassVar, cast

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from privopt.ledger import Ledger

ALIKE = ("fit_intercept", "alpha", "l1_ratio", "quantile")
"""Parameters that mean the same in scikit-learn, up to the scale of a penalty."""
MODEL = ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_")


class Portable(BaseEstimator):
    """An estimator whose state is plain data: ledgers and folders travel as their paths."""

    _sklearn_class: ClassVar[str] = "linear_model.LinearRegression"
    """The estimator of scikit-learn that predicts in the same way."""

    def to_sklearn(self) -> Any:
        """The fitted model as a plain estimator of scikit-learn, which needs no privopt.

        It holds the released coefficients, so it is as private as this one. What is public but not
        part of a linear model stays behind: entries outside ``bounds`` and rows beyond
        ``data_norm_`` are not clipped, predictions not moved into ``target_bounds``, and
        probabilities are those of scikit-learn's own link. For rows within the bounds classes are
        the same, and so are predicted numbers within the target's bounds.
        """
        check_is_fitted(self, "coef_")
        return self._plain()

    def _plain(self) -> Any:
        """An estimator of scikit-learn with the same coefficients."""
        room, _, name = self._sklearn_class.partition(".")
        kind = getattr(import_module(f"sklearn.{room}"), name)
        both = set(ALIKE) & set(kind().get_params()) & set(self.get_params(deep=False))
        plain = kind(**{name: getattr(self, name) for name in both})
        for name in MODEL:
            if hasattr(self, name):
                setattr(plain, name, copy.deepcopy(getattr(self, name)))
        return plain

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast(dict[str, Any], super().__getstate__()))
        for name, value in state.items():
            if isinstance(value, Ledger):
                state[name] = str(value.path)
            elif isinstance(value, os.PathLike):
                state[name] = os.fspath(value)
        return state
