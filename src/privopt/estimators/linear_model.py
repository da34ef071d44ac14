"""What every linear estimator shares: from public parameters and private data to a certified fit.

Order of a fit: parameters, validation, the public number of records, a plan made from public facts
alone, the ledger, the oracle, the run, the certificate. Attributes are set at the very end, so a
fit that fails leaves nothing behind.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.bounds import ColumnBounds
from privopt.estimators.frames import column, validated
from privopt.estimators.pipelines import learned_before
from privopt.estimators.portable import Portable
from privopt.estimators.shapes import added, published, shaped_columns
from privopt.estimators.users import OWNED, refuse_others, rows_that_count
from privopt.facts import Facts
from privopt.geometry import Domain, WholeSpace
from privopt.ledger import account_for
from privopt.losses import Loss
from privopt.noise import source_for
from privopt.oracle import Oracle
from privopt.oracle.column_shapes import Shaped
from privopt.oracle.moments import clip_factors, tamed
from privopt.planner import choose, public_count
from privopt.planner.groups import choose_for_group
from privopt.planner.private_norm import choose_with_private_norm
from privopt.privacy import Budget, Neighbouring
from privopt.problem import Problem
from privopt.solvers import Plan, Solver, execute, row_bounds

_FLOATS = [np.float64, np.float32]


@dataclass(frozen=True)
class Targets:
    """Labels of each model, and what else a fit learns from y or assumes about it.

    ``classes`` are the labels of a model of all classes together: 0, ..., K - 1.
    """

    labels: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    classes: np.ndarray | None = None

    def of(self, solver: Solver) -> tuple[tuple[np.ndarray, ...], bool]:
        """Labels of each oracle that the solver takes, and whether they are -1 and +1."""
        if solver.joint and self.classes is not None:
            return (self.classes,), False
        return self.labels, True


class LinearModel(Portable, ABC):
    """A private linear model. Subclasses say which loss, which labels and how to predict."""

    _classification = False
    _shaping: ClassVar[str] = "standardized_objective"
    """The solver that fits shapes of columns."""

    def __init__(
        self,
        epsilon: float,
        delta: float,
        neighbouring: str,
        data_norm: float | str,
        bounds: Any,
        fit_intercept: bool,
        solver: str,
        n_public: int | None,
        rows_per_user: int | None,
        nan_policy: str,
        random_state: int | None,
        ledger: Any = None,
        dataset: str | None = None,
        discrete_noise: bool | str = "auto",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.n_public = n_public
        self.rows_per_user = rows_per_user
        self.nan_policy = nan_policy
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset
        self.discrete_noise = discrete_noise

    # ------------------------------------------------------------ what subclasses say
    @abstractmethod
    def _loss(self) -> Loss:
        """The loss on labels as ``_targets`` makes them."""

    @abstractmethod
    def _targets(self, y: np.ndarray) -> Targets:
        """Labels for the oracle; refuses what the model cannot be fitted to."""

    @abstractmethod
    def _keep(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        """Set ``coef_`` and ``intercept_``, from one row and one number for each model."""

    def _domain(self) -> Domain:
        return WholeSpace()

    def _unit_of_scores(self) -> float:
        """What a score of 1, as losses see it, is in predictions."""
        return 1.0

    def _ridge(self) -> float:
        """Ridge penalty on the scale of the sum."""
        return 0.0

    def _penalty(self, n: int) -> float:
        """Ridge penalty on the scale of the mean."""
        return self._ridge() / n

    def _theta_norm(self, size: float) -> float | None:
        """Expected size of the solution for rows of norm ``size``; only accuracy depends on it."""
        return None

    # ------------------------------------------------------------ fit
    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def fit(self, X: Any, y: Any, *, user_ids: Any = None, **others: Any) -> Self:
        """Fit the model; spends the whole budget.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        user_ids : array of shape (n_samples,), optional
            Who owns each row; needs ``rows_per_user``. The guarantee is then for users.
        """
        refuse_others(others)
        unit = "record" if user_ids is None else "user"
        budget = Budget(self.epsilon, self.delta, cast(Neighbouring, self.neighbouring), unit)
        source = source_for(self.random_state)
        account = account_for(self.ledger, self.dataset)
        assumed = learned_before()
        # A failed fit leaves nothing behind: what is learned about X is kept aside until the end.
        aside = cast(Self, clone(self))
        X, y = aside._validated(X, y)
        counting = rows_that_count(user_ids, X.shape[0], self.rows_per_user)
        owned = () if counting is None else (OWNED,)
        if counting is not None:
            X, y = X[counting], y[counting]
        n = public_count(X.shape[0], budget, self.n_public)
        targets = self._targets(y)
        features = X.shape[1]
        problem = replace(aside._problem(n, features), shaped=aside._shaped(features))
        X = aside._design(X)
        repeats = len(targets.labels)
        group = self.rows_per_user or 1
        facts = Facts.of_rows(problem, X, n, budget.neighbouring, repeats=repeats, group=group)
        plan = self._plan(facts, budget)
        if problem.shaped and plan.name != self._shaping:
            raise ValueError(
                f'{plan.name} fits no shapes: leave solver="auto", or give features="linear".'
            )

        def read() -> list[Oracle]:
            labels, signs = targets.of(plan.solver)
            signs = signs and self._classification
            first = Oracle.over(
                X,
                labels[0],
                neighbouring=budget.neighbouring,
                bounds=row_bounds(plan),
                source=source,
                classification=signs,
            )
            return [first] + [first.labelled(y, classification=signs) for y in labels[1:]]

        answer, certificate = execute(
            plan,
            read,
            source,
            assumptions=(*targets.assumptions, *assumed, *owned),
            account=account,
        )
        theta = np.stack(answer.thetas)
        coef, intercept = np.ascontiguousarray(theta[:, : X.shape[1]]), np.zeros(repeats)
        if problem.intercept:
            intercept = theta[:, -1] * problem.intercept
        coef, intercept = aside._undesigned(coef, intercept, features)
        shapes = None
        if answer.tables is not None:
            names, declared = getattr(aside, "feature_names_in_", None), aside._declared(features)
            bins = theta[:, features:-1] * self._unit_of_scores()
            shapes = published(bins, problem.shaped, cast(ColumnBounds, declared), names)
        for name, value in targets.attributes.items():
            setattr(self, name, value)
        self.privacy_, self.plan_, self.n_features_in_ = certificate, plan, features
        if hasattr(aside, "feature_names_in_"):
            self.feature_names_in_ = aside.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        self._row_map, self._clipped, self.data_norm_ = answer.row_map, answer.clipped, None
        if hasattr(self, "features"):
            self.shapes_, self._tables, self._lipschitz = shapes, answer.tables, answer.lipschitz
        if answer.row_map is None and answer.data_norm != math.inf:
            self.data_norm_ = answer.data_norm or self._unit_norm()
        self._keep(coef, intercept)
        return self

    def _design(self, X: Any) -> Any:
        """The rows the oracle holds: X, scaled by its declared bounds."""
        declared = self._declared(X.shape[1])
        return X if declared is None else declared.over(X)

    def _undesigned(
        self, coef: np.ndarray, intercept: np.ndarray, features: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Parameters for X as it was given."""
        declared = self._declared(features)
        if declared is None:
            return coef, intercept
        coef = coef / declared.scale
        return coef, intercept - coef @ declared.shift

    def _problem(self, n: int, features: int) -> Problem:
        """What is solved, from public parameters and the public shape of the data."""
        norm = self._unit_norm()
        column = norm / 3 if self.fit_intercept else 0.0
        return Problem(
            self._loss(),
            self._domain(),
            data_norm=norm,
            intercept=column,
            l2=self._penalty(n),
            column_bounds=None if self.bounds is None else 1.0,
            theta_norm=self._theta_norm(norm),
            units=self._units(features),
        )

    def _units(self, features: int) -> tuple[float, ...] | None:
        """What ``bounds`` divide columns by, where a ridge makes it matter."""
        if self.bounds is None or not self._penalty(1):
            return None
        declared = self._declared(features)
        return None if declared is None else tuple(declared.scale.tolist())

    def _unit_norm(self) -> float:
        """The declared row bound; 1 where it is chosen privately and rows are measured in it."""
        if isinstance(self.data_norm, str):
            if self.data_norm == "private":
                return 1.0
        elif isinstance(self.data_norm, numbers.Real) and 0 < self.data_norm < np.inf:
            return float(self.data_norm)
        raise ValueError(
            f'data_norm must be positive and finite, got {self.data_norm!r}; "private" chooses '
            "it with a share of the budget."
        )

    def _plan(self, facts: Facts, budget: Budget) -> Plan:
        make = choose_with_private_norm if self.data_norm == "private" else choose
        make = partial(make, discrete_noise=self.discrete_noise)
        solver = self._shaping if facts.problem.shaped and self.solver == "auto" else self.solver
        return choose_for_group(facts, budget, solver, make)

    # ------------------------------------------------------------ predict
    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def _scores(self, X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Margins of rows clipped as in ``fit``: one line per row, one column per model."""
        check_is_fitted(self, "coef_")
        X = validated(
            self,
            X,
            accept_sparse="csr",
            dtype=_FLOATS,
            reset=False,
            ensure_all_finite=False,
        )
        declared = self._declared(X.shape[1])
        if declared is not None:
            X = declared.apply(X)
            intercept = intercept + coef @ declared.shift
            coef = coef * declared.scale
        X = tamed(self._finite(X))
        scores = np.asarray(X @ coef.T)
        shapes = getattr(self, "shapes_", None)
        if shapes is not None:
            scores = scores + added(X, self.plan_.facts.problem.shaped, shapes)
        if self._row_map is not None and self._clipped:
            factors = self._row_map.factors(X) * self._row_map.clip_norm
            return (scores + intercept) * factors[:, None]
        if self.data_norm_ is not None:
            scores = scores * clip_factors(X, self.data_norm_)[:, None]
        return scores + intercept

    # ------------------------------------------------------------ before the budget is touched
    def _declared(self, features: int) -> ColumnBounds | None:
        if self.bounds is None:
            return None
        return ColumnBounds.declared(
            self.bounds, features, getattr(self, "feature_names_in_", None)
        )

    def _shaped(self, features: int) -> tuple[Shaped, ...]:
        """Columns whose shape is to be fitted: public, from parameters alone."""
        wanted = getattr(self, "features", "linear")
        names = getattr(self, "feature_names_in_", None)
        return shaped_columns(wanted, self._declared(features), names)

    def _validated(self, X: Any, y: Any, reset: bool = True) -> tuple[Any, np.ndarray]:
        if self.nan_policy not in ("raise", "empty"):
            raise ValueError(f'nan_policy must be "raise" or "empty", got {self.nan_policy!r}.')
        if y is None:
            raise ValueError("this estimator requires y to be passed, but the target y is None.")
        X = validated(
            self,
            X,
            accept_sparse="csr",
            dtype=_FLOATS,
            reset=reset,
            ensure_all_finite=False,
            # Under add_remove no data at all is a neighbour of one record: refusing it would tell.
            ensure_min_samples=0 if self.neighbouring == "add_remove" else 1,
        )
        if self.nan_policy == "raise":
            X = self._finite(X)
        y = column(y)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        if len(y) != X.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows and y has {len(y)} labels: they must be the same number."
            )
        return X, y

    def _finite(self, X: Any) -> Any:
        """X without missing values: refused, or an empty record's zeros, as ``nan_policy`` says."""
        entries = X.data if sp.issparse(X) else X
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(entries.sum(dtype=float)) or np.isfinite(entries).all():
                return X
        if self.nan_policy == "raise":
            raise ValueError(
                "X contains NaN or infinity: remove such rows, or take "
                'nan_policy="empty" to count them as empty records.'
            )
        broken = ~np.isfinite(np.asarray(X.sum(axis=1), dtype=float).ravel())
        X = X.copy()
        if sp.issparse(X):
            X.data[np.repeat(broken, np.diff(X.indptr))] = 0.0
        else:
            X[broken] = 0.0
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.nan_policy == "empty"
        return tags
