"""Private choice of hyper-parameters: the best of a random number of private fits."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing

from privopt.estimators import search_shares
from privopt.estimators.delegating import Delegating
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
    Log,
    Neighbouring,
    PrivacyWarning,
    RandomCount,
    Refused,
)
from privopt.privacy.events import ROOT, Event
from privopt.solvers import Blocks, Plan, declare

OWN = ("epsilon", "delta", "neighbouring", "n_public", "random_state", "ledger", "dataset")
"""Parameters of an estimator that the search sets itself."""


UNTIMED = "the time that the search took is not published"


class PrivateSearchCV(Delegating):
    """Choose hyper-parameters by private fits, and pay for the search.

    A secret random number of candidates is drawn. Each is fitted on some records and scored, with
    noise, on others, which it has not seen; only the candidate with the best noisy score is shown.
    Such a search costs about two to three fits, however many candidates there are. It is done on a
    share of the records, as many as a score needs to tell candidates apart; the winner is then
    fitted, with the whole budget, to those that took no part in it, so that each record pays once.

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
        error is fitted to all records with the whole budget, and the choice costs nothing. It is
        refused where candidates do not minimise the same loss over the same rows, because their
        errors then mean different things.
    refit : bool, default=True
        Whether the winner is fitted anew to the records that took no part in the search. False
        searches on all of them and keeps the model that won, which had a part of the budget.
    share : float, optional
        Share of the records that the search takes with ``refit``. Default: enough to tell scores
        apart that differ by a few hundredths, between a tenth and two fifths.
    law : {"geometric", "logarithmic", "negative_binomial", "poisson"}, default="geometric"
        Law of the number of runs.
    n_runs : float, default=10
        Expected number of runs.
    eta : float, optional
        Shape of the ``negative_binomial`` law; above -1.
    holdout : float, optional
        Share of the search's records that score. Default: half of them, or a fifth without
        ``refit``.
    scoring : callable, optional
        ``scoring(y, predicted)`` gives one number for each record; they are clipped to [0, 1]. It
        is called for one record at a time.
        Default: 1 where a class is right; 1 - |error| / (width of the target bounds).
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger : Ledger or path, optional
        Charge the whole search to a budget before the data is read.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.

    Attributes
    ----------
    best_estimator_ : estimator
        The fitted model. Its certificate is that of the search and of its own fit.
    best_params_ : dict
    best_index_ : int
    best_score_ : float
        Noisy mean score on the held-out records; the best of several, so somewhat too high.
    epsilon_per_run_ : float
        What each fit of the search was given.
    privacy_ : Certificate
    n_features_in_ : int

    Notes
    -----
    Formal guarantee: one run releases a candidate's number, its model and its noisy score. A record
    is fitted or scores, never both, so it pays for the larger of the two. The best of a random
    number of runs has the loss of ``privopt.privacy.Tuned``. Records of the search and those of the
    last fit are disjoint cells: each pays for its own. How long the search takes tells about
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
    _inside = "best_estimator_"

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        neighbouring: str = "zero_out",
        strategy: str = "private",
        refit: bool = True,
        share: float | None = None,
        law: str = "geometric",
        n_runs: float = 10,
        eta: float | None = None,
        holdout: float | None = None,
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
        self.refit = refit
        self.share = share
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
        searched = search_shares.searched(n, budget, self.refit, self.share)
        scores = np.zeros(n, dtype=bool)
        scores[searched] = search_shares.held_out(int(searched.sum()), self.refit, self.holdout)
        trains = searched & ~scores
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
        last: list[LinearModel] = []
        if self.refit:
            rest = {**public, "epsilon": budget.epsilon, "n_public": int((~searched).sum())}
            last = [self._made(one, rest) for one in candidates]
        plans = [fit_nothing(cast(LinearModel, clone(one)), X, y).plan_ for one in last]
        best, certificate, blocks = self._released(mechanism, run, budget, source, plans)
        if best is None:
            raise Refused("no candidate was drawn, and the budget is spent: raise n_runs.")
        index, total, fitted = best
        fitted.privacy_ = certificate
        if self.refit:
            fitted, others = last[index], np.flatnonzero(~searched)
            blocks.entered = index + 1
            fitted._blocks, fitted._promises = blocks, (*run.assumptions, UNTIMED)
            try:
                fitted.set_params(random_state=self._last_source(source))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PrivacyWarning)  # the search has said it
                    fitted.fit(_safe_indexing(X, others), y[others])
            finally:
                del fitted._blocks, fitted._promises
            certificate = fitted.privacy_
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
        problems = {replace(plan.facts.problem, theta_norm=None, units=None) for plan in plans}
        if len(problems) > 1:
            raise Refused(
                "candidates minimise different losses or over rows that are clipped differently, "
                'so predicted errors do not tell them apart: use strategy="private".'
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
        self, mechanism: BestOf, run: SearchRun, budget: Budget, source: Source, plans: list[Plan]
    ) -> tuple[Any, Certificate, Blocks]:
        """Declare, pay, release through the gate, certify.

        Declared and paid are the search, in a cell of its own, and the last fit of each candidate
        in another: one of them will follow.
        """
        sealed = sealed_runs(run, (0,) if plans else ROOT)
        declared: Any = Steps.once(mechanism, sealed.sensitivity)
        if plans:
            fits = [declare(plan, (which,)) for which, plan in enumerate(plans, 1)]
            views = [
                replace(event, view=event.view + (which << 32))
                for which, fit in enumerate(fits, 1)
                for event in fit
            ]
            declared = Log([cast(Event, declared.event(0)), *views])
        search = Run(budget, declared, source, what="private_search")
        search.pay(account_for(self.ledger, self.dataset))
        with search:
            best = search.gate.release(mechanism, sealed)
            certificate = search.certify(
                solver=f"private_search+{type(self.estimator).__name__}",
                assumptions=(*run.assumptions, UNTIMED),
                settings={
                    "candidates": mechanism.candidates,
                    "expected_runs": mechanism.count.mean,
                },
            )
            search.settle(certificate)
        # The search has paid for the last fit as well, which is given no ledger.
        after = Blocks(list(search.log), mark=search.mark, private=search.private, budget=budget)
        return best, certificate, after

    @staticmethod
    def _last_source(source: Source) -> Any:
        """Secure noise, or another seed than the search's."""
        return None if source.private else int(source.noise.integers(2**31))

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

    def _public(self, budget: Budget, n: int) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(("random_state", "ledger", "dataset"))
        shared = {"delta": budget.delta, "neighbouring": budget.neighbouring, "n_public": n}
        return {**found, **shared}

    def _made(self, one: dict[str, Any], public: dict[str, Any]) -> LinearModel:
        return cast(LinearModel, clone(self.estimator)).set_params(**{**one, **public})
