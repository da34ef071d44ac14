"""Private choice of hyper-parameters: the best of a random number of private fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.frames import concrete
from privopt.estimators.linear_model import LinearModel
from privopt.estimators.pipelines import learned_before
from privopt.estimators.scoring import Scoring, assumed_of, check_scoring
from privopt.estimators.search_run import (
    SearchRun,
    calibrated,
    fit_nothing,
    settled_solver,
    together,
)
from privopt.ledger import account_for
from privopt.mechanisms import BestOf, Run, Steps
from privopt.noise import Source, source_for
from privopt.oracle import sealed_runs
from privopt.planner import public_count
from privopt.privacy import (
    Budget,
    Certificate,
    Neighbouring,
    RandomCount,
    Refused,
)

OWN = ("epsilon", "delta", "neighbouring", "n_public", "random_state", "ledger", "dataset")
"""Parameters of an estimator that the search sets itself."""


def _has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), method)


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Choose hyper-parameters by private fits, and pay for the search.

    A secret random number of candidates is drawn. Each is fitted on most of the records and scored,
    with noise, on the others, which it has not seen; only the candidate with the best noisy score
    is shown. Such a search costs about two to three fits, however many candidates there are.

    Parameters
    ----------
    estimator : a linear estimator of privopt
        Its ``epsilon``, ``delta``, ``neighbouring``, ``n_public``, ``random_state`` and ledger are
        set by the search.
    param_grid : mapping or list of mappings
        Candidates, as in scikit-learn's ``ParameterGrid``. Public.
    epsilon : float, default=1.0
        Privacy loss of the whole search.
    delta : float, default=0.0
    neighbouring : {"zero_out", "replace_one"}, default="zero_out"
        Records are split by their position, which add_remove would shift.
    strategy : {"private", "plan"}, default="private"
        ``"plan"`` asks the planner instead of the data: the candidate with the smallest predicted
        error is fitted to all records with the whole budget. It suits choices that do not change
        what the error means (solver, row bound), and costs nothing.
    law : {"geometric", "logarithmic", "negative_binomial", "poisson"}, default="geometric"
        Law of the number of runs.
    n_runs : float, default=10
        Expected number of runs.
    eta : float, optional
        Shape of the ``negative_binomial`` law; above -1.
    holdout : float, default=0.2
        Share of the records that score.
    scoring : callable, optional
        ``scoring(y, predicted)`` gives one number for each record; they are clipped to [0, 1]. It
        is called for one record at a time.
        Default: 1 where a class is right; 1 - |error| / (width of the target bounds).
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger, dataset : optional
        Charge the whole search to a budget before the data is read.

    Attributes
    ----------
    best_estimator_ : estimator
        The fitted model, fitted on all but the held-out records. Its certificate is the search's.
    best_params_ : dict
    best_index_ : int
    best_score_ : float
        Noisy mean score on the held-out records; the best of several, so somewhat too high.
    epsilon_per_run_ : float
        What each fit was given.
    privacy_ : Certificate
    n_features_in_ : int

    Notes
    -----
    Formal guarantee: one run releases a candidate's number, its model and its noisy score. A record
    is fitted or scores, never both, so it pays for the larger of the two. The best of a random
    number of runs has the loss of ``privopt.privacy.Tuned``. How long the search takes tells about
    how many runs there were: do not publish it.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import LogisticRegression, PrivateSearchCV
    >>> angle = np.linspace(0, 2 * np.pi, 4000)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> search = PrivateSearchCV(
    ...     LogisticRegression(), {"data_norm": [0.5, 2.0, 8.0]}, epsilon=3.0
    ... ).fit(X, X[:, 0] > 0)
    >>> search.privacy_.epsilon <= 3.0, search.best_params_["data_norm"] in (0.5, 2.0, 8.0)
    (True, True)
    """

    best_estimator_: Any

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        neighbouring: str = "zero_out",
        strategy: str = "private",
        law: str = "geometric",
        n_runs: float = 10,
        eta: float | None = None,
        holdout: float = 0.2,
        scoring: Scoring | None = None,
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.strategy = strategy
        self.law = law
        self.n_runs = n_runs
        self.eta = eta
        self.holdout = holdout
        self.scoring = scoring
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

    # ------------------------------------------------------------ fit
    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def fit(self, X: Any, y: Any = None) -> Self:
        """Search; spends the whole budget."""
        budget = Budget(self.epsilon, self.delta, cast(Neighbouring, self.neighbouring))
        source = source_for(self.random_state)
        count = RandomCount.named(self.law, self.n_runs, self.eta)
        candidates = self._candidates()
        if self.scoring is not None:
            check_scoring(self.scoring, self.estimator)
        X, y = self._checked(concrete(X), y)
        n = public_count(len(y), budget, None)
        if self.strategy == "plan":
            return self._fit_planned(X, y, candidates, budget, n)
        assumed = learned_before()
        scores = self._held_out(n)
        trains = ~scores
        public = self._public(budget, int(trains.sum()))
        if self._reads_classes():
            public["classes"] = np.unique(y)

        # At another epsilon another solver may be better: settled once, costs have no jumps.
        solvers = [
            settled_solver(self._made(one, {**public, "epsilon": budget.epsilon / 3}), X, y)
            for one in candidates
        ]

        def made(which: int, epsilon: float) -> LinearModel:
            return self._made(candidates[which], {**public, **solvers[which], "epsilon": epsilon})

        per_run, losses, of_fits = calibrated(made, len(candidates), (X, y), budget, count)
        if self._reads_classes():
            assumed = ("the list of classes was read from y and is taken to be public", *assumed)
        run = SearchRun(
            [made(which, per_run) for which in range(len(candidates))],
            losses,
            (_safe_indexing(X, np.flatnonzero(trains)), y[trains]),
            (_safe_indexing(X, np.flatnonzero(scores)), y[scores]),
            self.scoring,
            per_run,
            budget.delta,
            tuple(dict.fromkeys((*assumed, *of_fits, *assumed_of(self.scoring)))),
        )
        mechanism = BestOf(count, len(candidates), together(losses))
        best, certificate = self._released(mechanism, run, budget, source)
        if best is None:
            raise Refused("no candidate was drawn, and the budget is spent: raise n_runs.")
        index, total, fitted = best
        fitted.privacy_ = certificate
        self.best_index_, self.best_params_ = index, candidates[index]
        self.best_score_ = float(total) / int(scores.sum())
        self.epsilon_per_run_ = per_run
        return self._keep(fitted, certificate)

    def _fit_planned(
        self, X: Any, y: np.ndarray, candidates: list[dict[str, Any]], budget: Budget, n: int
    ) -> Self:
        """The candidate whose plan predicts the smallest error, fitted to all records."""
        public = {**self._public(budget, n), "epsilon": budget.epsilon}
        plans = [fit_nothing(self._made(one, public), X, y).plan_ for one in candidates]
        known = all(plan.predicted is not None for plan in plans)
        errors: list[Any] = [plan.predicted if known else plan.settings.bound for plan in plans]
        unknown = [plan.name for plan, error in zip(plans, errors, strict=True) if error == np.inf]
        if unknown:
            raise Refused(
                f"nothing is proved of the error of {unknown[0]}, so plans cannot tell candidates "
                'apart: use strategy="private".'
            )
        index = int(np.argmin(errors))
        own = {"random_state": self.random_state, "ledger": self.ledger, "dataset": self.dataset}
        fitted = self._made(candidates[index], {**public, **own}).fit(X, y)
        self.best_index_, self.best_params_ = index, candidates[index]
        self.epsilon_per_run_ = budget.epsilon
        self.__dict__.pop("best_score_", None)  # of an earlier search
        return self._keep(fitted, fitted.privacy_)

    def _keep(self, fitted: LinearModel, certificate: Certificate) -> Self:
        self.best_estimator_, self.privacy_ = fitted, certificate
        self.n_features_in_ = fitted.n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(fitted, "feature_names_in_"):
            self.feature_names_in_ = fitted.feature_names_in_
        return self

    def _released(
        self, mechanism: BestOf, run: SearchRun, budget: Budget, source: Source
    ) -> tuple[Any, Certificate]:
        """Declare, pay, release through the gate, certify."""
        sealed = sealed_runs(run)
        declared = Steps.once(mechanism, sealed.sensitivity)
        search = Run(budget, declared, source, what="private_search")
        search.pay(account_for(self.ledger, self.dataset))
        with search:
            best = search.gate.release(mechanism, sealed)
            certificate = search.certify(
                solver=f"private_search+{type(self.estimator).__name__}",
                assumptions=(*run.assumptions, "the time that the search took is not published"),
                settings={
                    "candidates": mechanism.candidates,
                    "expected_runs": mechanism.count.mean,
                },
            )
            search.settle(certificate)
        return best, certificate

    # ------------------------------------------------------------ before data is touched
    def _candidates(self) -> list[dict[str, Any]]:
        if not isinstance(self.estimator, LinearModel):
            raise TypeError("PrivateSearchCV tunes a linear estimator of privopt.")
        if self.strategy not in ("private", "plan"):
            raise ValueError(f'strategy must be "private" or "plan", got {self.strategy!r}.')
        if self.neighbouring == "add_remove":
            raise ValueError(
                "PrivateSearchCV splits records by their position, which add_remove would shift: "
                'use neighbouring="zero_out".'
            )
        if self.estimator.ledger is not None:
            raise ValueError("give the ledger to the search: it pays for all fits together.")
        found = list(ParameterGrid(cast(Any, self.param_grid)))
        for name in {name for one in found for name in one}:
            if name in OWN or name == "classes":
                raise ValueError(f"{name} is set by the search and cannot be a candidate.")
        if not found:
            raise ValueError("param_grid holds no candidate.")
        return found

    def _checked(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Refuse bad input in the estimator's own words, before anything is paid."""
        probe = cast(LinearModel, clone(self.estimator))
        plain, labels = probe._validated(X, y)
        probe._targets(labels)
        return (X if hasattr(probe, "feature_names_in_") else plain), labels

    def _reads_classes(self) -> bool:
        return self.estimator._classification and self.estimator.classes is None

    def _held_out(self, n: int) -> np.ndarray:
        """Every so-many-th record scores: by position, so that it is public who does."""
        if not 0 < self.holdout < 1:
            raise ValueError(f"holdout must lie between 0 and 1, got {self.holdout!r}.")
        if n < 2:
            raise ValueError("PrivateSearchCV needs records to fit and to score, got n_samples=1.")
        held = np.floor((np.arange(n) + 1) * self.holdout) > np.floor(np.arange(n) * self.holdout)
        if not held.any() or held.all():
            held = np.arange(n) == n - 1
        return held

    def _public(self, budget: Budget, n: int) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(("random_state", "ledger", "dataset"))
        shared = {"delta": budget.delta, "neighbouring": budget.neighbouring, "n_public": n}
        return {**found, **shared}

    def _made(self, one: dict[str, Any], public: dict[str, Any]) -> LinearModel:
        return cast(LinearModel, clone(self.estimator)).set_params(**one, **public)

    # ------------------------------------------------------------ the chosen model
    @property
    def classes_(self) -> np.ndarray:
        """The classes of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    def predict(self, X: Any) -> np.ndarray:
        """Predictions of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @available_if(_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of ``predict_proba``."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_log_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Score of the chosen model on other data."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, y)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.input_tags = inner.estimator_type, inner.input_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True  # a fifth of the records and most of the budget go elsewhere
        tags.target_tags = inner.target_tags
        return tags
