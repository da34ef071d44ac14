"""What every linear estimator shares: from public parameters and private data to a certified fit.

Order of a fit: parameters, validation, the public number of records, a plan made from public facts
alone, the ledger, the oracle, the run, the certificate. Attributes are set at the very end, so a
fit that fails leaves nothing behind.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from privopt.engines.here import Here
from privopt.estimators.bounds import ColumnBounds
from privopt.estimators.chunked_fit import fit_chunks
from privopt.estimators.confidence import Confident
from privopt.estimators.frames import column, validated, without_missing
from privopt.estimators.outcome import publish
from privopt.estimators.parameters import Declared, fitted, parameter
from privopt.estimators.pipelines import learned_before
from privopt.estimators.portable import Portable
from privopt.estimators.shapes import added, shaped_columns
from privopt.estimators.targets import Targets
from privopt.estimators.users import OWNED, refuse_others, rows_that_count
from privopt.estimators.weights import case_weights
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
from privopt.privacy import Budget, Certificate, Neighbouring
from privopt.problem import Problem
from privopt.solvers import Blocks, Plan, execute, row_bounds
from privopt.solvers.families.parts import in_parts
from privopt.sources import Dataset

_FLOATS = [np.float64, np.float32]


class LinearModel(Confident, Declared, Portable, ABC):
    """A private linear model. Subclasses say which loss, which labels and how to predict.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy. A value well below 1/n buys accuracy when there are
        many features.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
        What may change between two neighbouring data sets; see ``Budget``.
    data_norm : float or "private", default=1.0
        Public bound on the l2 norm of a row of X; longer rows are scaled down to it, in ``fit`` and
        in ``predict`` alike. ``"private"`` chooses it with 5 % of the budget, in the same
        certificate.
    bounds : pair or mapping, optional
        Public bounds of the columns: ``(low, high)``, numbers or one per column, or a mapping from
        column names to pairs. Entries outside are moved to the nearest bound. With bounds and an
        intercept the rows are standardised privately, which is usually far more accurate;
        ``data_norm`` is then not used.
    fit_intercept : bool, default=True
        Adds a constant column of height ``data_norm / 3``; it counts in the row's norm and is
        regularised.
    solver : str, default="auto"
        ``"auto"`` takes the solver with the smallest bound; otherwise a name from the catalogue.
    n_public : int, optional
        Public number of records; required under add_remove.
    rows_per_user : int, optional
        Promises privacy for users instead of records: of the rows that one user owns, named by
        ``user_ids`` in ``fit``, the first so many count. Public; noise grows with it.
    nan_policy : {"raise", "empty"}, default="raise"
        ``"raise"`` refuses missing values in X. ``"empty"`` treats a row that holds NaN or infinity
        as an empty record, which contributes nothing.
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger : Ledger or path, optional
        Charges every fit to the budget of ``dataset``, or refuses it before the data is read.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.
    discrete_noise : bool or "auto", default="auto"
        Releases in exact integers: "auto" where the solver can, True or refuse, False in floating
        point.

    Attributes
    ----------
    privacy_ : Certificate
        What was guaranteed, by which events.
    data_norm_ : float or None
        The row bound that was used; None if the rows were standardised instead.
    plan_ : Plan
        The solver and the settings that were chosen before the data was touched.
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names
    """

    privacy_: Certificate = fitted()
    plan_: Plan = fitted()
    data_norm_: float | None = fitted()
    n_features_in_: int = fitted()
    feature_names_in_: np.ndarray = fitted()
    _row_map: Any = fitted()
    _clipped: bool = fitted()
    _classification = False
    _largest = 1.0
    """The public number that weights of records are in units of."""
    _blocks: Blocks | None = None
    """The stream whose next block a fit is."""
    _promises: tuple[str, ...] = ()
    """What else a fit assumes."""
    _shaping: ClassVar[str] = "standardized_objective"
    """The solver that fits shapes of columns."""

    epsilon: float = parameter(default=1.0, kw_only=False)
    delta: float = parameter(default=0.0, kw_only=False)
    neighbouring: str = parameter(default="zero_out")
    data_norm: float | str = parameter(default=1.0)
    bounds: Any = parameter(default=None)
    fit_intercept: bool = parameter(default=True)
    solver: str = parameter(default="auto")
    n_public: int | None = parameter(default=None)
    rows_per_user: int | None = parameter(default=None)
    nan_policy: str = parameter(default="raise")
    random_state: int | None = parameter(default=None)
    ledger: Any = parameter(default=None)
    dataset: str | None = parameter(default=None)
    discrete_noise: bool | str = parameter(default="auto")

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
        return self._ridge() / (n * self._largest)

    def _theta_norm(self, size: float) -> float | None:
        """Expected size of the solution for rows of norm ``size``; only accuracy depends on it."""
        return None

    # ------------------------------------------------------------ fit
    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def fit(
        self, X: Any, y: Any = None, *, user_ids: Any = None, engine: Any = None, **others: Any
    ) -> Self:
        """Fit the model; spends the whole budget.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features); or Dataset
        y : array of shape (n_samples,); left out with a Dataset, which names its target
        user_ids : array of shape (n_samples,), optional
            Who owns each row; needs ``rows_per_user``. The guarantee is then for users.
        engine : Engine, optional
            Where the chunks of a Dataset are kept and summed: ``engines.Here()`` by default.
        sample_weight : array of shape (n_samples,), optional
            How much each record counts; needs ``max_weight``. A weight is part of its record.
        """
        sample_weight = others.pop("sample_weight", None) if hasattr(self, "max_weight") else None
        refuse_others(others)
        if isinstance(X, Dataset):
            if y is not None or user_ids is not None or sample_weight is not None:
                raise ValueError(
                    "a data set in chunks names its target, and has no ids, no weights."
                )
            return fit_chunks(self, X, Here() if engine is None else engine)
        if engine is not None:
            raise ValueError("an engine keeps chunks: give a data set, by privopt.dataset(...).")
        unit = "record" if user_ids is None else "user"
        budget = Budget(self.epsilon, self.delta, cast(Neighbouring, self.neighbouring), unit)
        source = source_for(self.random_state)
        account = account_for(self.ledger, self.dataset)
        assumed = learned_before()
        # A failed fit leaves nothing behind: what is learned about X is kept aside until the end.
        aside = cast(Self, clone(self))
        X, y = aside._validated(X, y)
        counting = rows_that_count(user_ids, X.shape[0], self.rows_per_user)
        if counting is not None:
            X, y, assumed = X[counting.rows], y[counting.rows], (*assumed, OWNED)
        n = public_count(X.shape[0], budget, self.n_public)
        targets = self._targets(y)
        if sample_weight is not None and counting is not None:
            sample_weight = column(sample_weight)[counting.rows]
        weights, aside._largest = case_weights(sample_weight, self, targets, X.shape[0])
        features, share = X.shape[1], n if self._parts is None else max(n // self._parts, 1)
        problem = replace(
            aside._problem(share, features),
            shaped=aside._shaped(features),
            weighted=weights is not None,
            intervals=getattr(self, "intervals", False),
        )
        X = aside._design(X)
        repeats, group = len(targets.labels), self.rows_per_user or 1
        facts = Facts.of_rows(problem, X, share, budget.neighbouring, repeats=repeats, group=group)
        plan = self._plan(facts, budget)
        if self._parts is not None:
            plan = in_parts(plan, self._parts, n)
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
                weights=weights,
                owned=None if counting is None else counting.each,
            )
            return [first] + [first.labelled(y, classification=signs) for y in labels[1:]]

        answer, certificate = execute(
            plan,
            read,
            source,
            assumptions=(*targets.assumptions, *assumed, *self._promises),
            account=account,
            blocks=self._blocks,
        )
        return publish(self, answer, certificate, plan, targets, aside, features, X.shape[1])

    def _columns(self, features: int) -> int:
        """Columns of the rows that the oracle holds."""
        return features

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
        if facts.problem.intervals:
            solver = self._for_intervals()
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
        return without_missing(X, self.nan_policy)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.nan_policy == "empty"
        return tags
