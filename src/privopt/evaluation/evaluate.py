"""Evaluate a model on private rows: one release of one vector of counts, through one run.

Sensitivity. Each record adds a vector of numbers that are not negative, at most 1 together, which
depends on this record, the model and public settings alone (``predictions``, ``oracle/shares``). So
one record moves the sum by at most 1 in l1 (2 under replace_one), and discrete Laplace noise of
scale 1/epsilon makes it epsilon-DP: with one table that is less noise than Gaussian noise at any
delta in use. With many tables, one for each class, Gaussian noise may be smaller; then it is taken
if delta allows it.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import numpy as np
from sklearn.base import BaseEstimator, is_regressor

from privopt.estimators.frames import apart, column
from privopt.estimators.users import OWNED, rows_that_count
from privopt.evaluation.bins import ScoreBins
from privopt.evaluation.evaluation import MEANING, Evaluation, Layout
from privopt.evaluation.many_classes import ManyClasses
from privopt.evaluation.numbers import Numbers, numbers_or_missing
from privopt.evaluation.predictions import (
    Speech,
    answers,
    check_apart,
    codes,
    height,
    own_name,
    speech_of,
    table_of,
)
from privopt.evaluation.two_classes import TwoClasses
from privopt.ledger import account_for
from privopt.mechanisms import DiscreteGaussian, DiscreteLaplace, Gate, Run, rehearsed
from privopt.noise import Source, source_for
from privopt.oracle import Shares, sealed_shares, shares_radius
from privopt.planner import public_count
from privopt.privacy import Budget, Neighbouring
from privopt.privacy.profiles import gaussian_mu


@np.errstate(all="ignore")  # a warning that one record causes would tell of it
def evaluate(
    model: Any,
    X: Any,
    y: Any,
    epsilon: float = 0.1,
    delta: float = 0.0,
    *,
    rows: Literal["held_out", "training"] = "held_out",
    neighbouring: str = "zero_out",
    classes: Any = None,
    target_bounds: tuple[float, float] | None = None,
    residual_bound: float | None = None,
    score_limit: float = 5.0,
    one_vs_rest: bool = False,
    one_at_a_time: bool | None = None,
    user_ids: Any = None,
    rows_per_user: int | None = None,
    n_public: int | None = None,
    level: float = 0.95,
    random_state: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    key: str | None = None,
) -> Evaluation:
    """Metrics of a fitted model on private rows, each with an interval; spends ``epsilon`` once.

    Classifiers: accuracy, confusion matrix, precision, recall, and from scores log loss, Brier
    score, AUC, ROC and calibration. Regressions: R2, RMSE, MAE. Intervals hold the sampling of the
    rows, the noise and what bins leave open.

    Parameters
    ----------
    model : estimator, pipeline, torch module or anything with ``predict``
        Public: what it learned is not covered here. One that is not of this library or of
        scikit-learn is asked for one row at a time, because a prediction that looks at other rows
        would have no bounded effect; see ``one_at_a_time``.
    X, y : rows and their labels or numbers
        Private. A record that the model cannot predict, or without a known label, is empty.
    epsilon : float, default=0.1
    delta : float, default=0.0
        Of use with many classes and ``one_vs_rest`` only: else the noise is pure anyway.
    rows : {"held_out", "training"}, default="held_out"
        Say ``"training"`` if the model was fitted to these rows: epsilons then add, and the metrics
        are those of the training rows. Nothing can find that out for you.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
    classes : sequence, optional
        Of a classifier that has no ``classes_``, like a torch module; without it that is a
        regression.
    target_bounds : (float, float), optional
        Of a regression: public bounds of y; an estimator with ``target_bounds`` knows them.
    residual_bound : float, optional
        Public size beyond which residuals are cut, a quarter of the range of y by default. The
        share that was cut is among the metrics.
    score_limit : float, default=5.0
        Scores in log-odds count as this at most: log loss and AUC are those of cut scores.
    one_vs_rest : bool, default=False
        With more than two classes: AUC of each class against the rest, for half of the budget.
    one_at_a_time : bool, optional
        Whether the model is called for each row apart. ``False`` is faster; for a foreign model the
        certificate then says that it predicts each row by itself.
    user_ids, rows_per_user : array and int, optional
        Who owns each row, and how many rows of each count: the guarantee is then for users.
    n_public : int, optional
        Public number of rows, needed under add_remove.
    level : float, default=0.95
        Of the intervals.
    random_state : int, optional
        Makes the noise reproducible, and the certificate say that the result is not private.
    ledger, dataset, key : optional
        Charge the budget of a data set; see ``solve``.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import numpy as np, privopt
    >>> from privopt.noise import source_for
    >>> coins = source_for(0).noise
    >>> X = coins.normal(size=(8000, 2))
    >>> y = X[:, 0] + coins.logistic(size=8000) > 0
    >>> model = privopt.LogisticRegression(epsilon=1.0, classes=[False, True]).fit(
    ...     X[:4000], y[:4000]
    ... )
    >>> found = privopt.evaluate(model, X[4000:], y[4000:], epsilon=0.5)
    >>> found.accuracy.low < 0.69 < found.accuracy.high, round(found.certificate.epsilon, 6)
    (True, 0.5)
    """
    unit = "record" if user_ids is None else "user"
    budget = Budget(epsilon, delta, cast(Neighbouring, neighbouring), unit)
    if rows not in MEANING:
        raise ValueError(f'rows must be "held_out" or "training", got {rows!r}.')
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}.")
    if not 0 < score_limit < math.inf:
        raise ValueError(f"score_limit must be positive and finite, got {score_limit!r}.")
    source, account = source_for(random_state), account_for(ledger, dataset)
    X, target = table_of(X), apart(y) if isinstance(y, (list, tuple)) else column(y)
    if height(X) != len(target):
        raise ValueError(f"X has {height(X)} rows and y {len(target)}: give one label for each.")
    known = _classes(model, classes)
    positional = budget.neighbouring != "add_remove"
    speech = speech_of(model, known, one_at_a_time, positional)
    counted = rows_that_count(user_ids, len(target), rows_per_user)
    group, n = rows_per_user or 1, public_count(len(target), budget, n_public)
    check_apart(speech, X)
    if known is None:
        layout: Layout = _numbers(model, target_bounds, residual_bound)
    else:
        layout = _table(known, speech, n, epsilon / group, score_limit, one_vs_rest)
    mechanism, layout, budget = _noise(layout, budget, group)

    def asked(shares: Shares) -> Any:
        return sealed_shares(shares, budget.neighbouring, mechanism.accepts, mechanism.resolution)

    def story(gate: Gate, silent: Source) -> None:
        gate.release(mechanism, asked(Shares.none(layout.width)))

    def read() -> Any:
        here = np.ones(len(target), dtype=bool)
        if counted is not None:
            here[:] = False
            here[counted.rows] = True
        said = answers(speech, model, X, layout.answers)
        truth = numbers_or_missing(target) if known is None else codes(target, known)
        said[~here] = np.nan
        return asked(layout.shares(said, truth))

    run = Run(budget, rehearsed(story), source, what="evaluate", group=group)
    before = run.pay(account, key)
    if before is not None:
        certificate, kept = before
        sums = np.array([float.fromhex(value) for value in kept])
    else:
        with run:
            sums = run.gate.release(mechanism, run.read(read))
            certificate = run.certify(
                assumptions=(*speech.assumptions, *(() if counted is None else (OWNED,))),
                settings={
                    "n": n,
                    "rows": rows,
                    "model": own_name(model),
                    "numbers": layout.width,
                    "noise": "laplace" if isinstance(mechanism, DiscreteLaplace) else "gaussian",
                    "noise_multiplier": mechanism.multiplier,
                    **({} if group == 1 else {"rows_per_unit": group}),
                },
            )
            run.settle(certificate, [float(value).hex() for value in sums] if key else None)
    radius = shares_radius(budget.neighbouring, mechanism.accepts)
    return Evaluation(
        model=own_name(model),
        layout=layout,
        classes=() if known is None else tuple(known.tolist()),
        sums=sums,
        variance=_variance(mechanism) * radius**2,
        group=group,
        level=level,
        rows=rows,
        certificate=certificate,
    )


# ------------------------------------------------------------ public facts
def _classes(model: Any, classes: Any) -> np.ndarray | None:
    """The classes of a classifier; None for a regression."""
    if classes is None:
        if isinstance(model, BaseEstimator) and is_regressor(model):
            return None
        found = getattr(model, "classes_", None)
        if found is None:
            return None
        classes = found
    known = np.asarray(classes)
    if known.ndim != 1 or len(known) < 2 or len(set(known.tolist())) < len(known):
        raise ValueError("classes must be a list of two or more different labels.")
    return known


def _table(
    classes: np.ndarray,
    speech: Speech,
    n: int,
    epsilon: float,
    limit: float,
    one_vs_rest: bool,
) -> Layout:
    scored = speech.scores != "none"
    if one_vs_rest and (len(classes) == 2 or not scored):
        raise ValueError("one_vs_rest is for probabilities of more than two classes.")
    if len(classes) == 2:
        bins = ScoreBins.for_rows(n, epsilon, limit) if scored else None
        return TwoClasses(bins, speech.by_score, speech.scores == "probabilities")
    bins = ScoreBins.for_rows(n, epsilon / (2 * len(classes)), limit) if scored else None
    return ManyClasses(len(classes), bins, one_vs_rest)


def _numbers(
    model: Any, bounds: tuple[float, float] | None, residual_bound: float | None
) -> Numbers:
    if bounds is None:
        steps = [step for _, step in getattr(model, "steps", [("model", model)])]
        bounds = getattr(steps[-1], "target_bounds", None)
    if bounds is None:
        raise ValueError(
            "a regression needs target_bounds, public bounds of y; of a classifier give classes."
        )
    low, high = (float(end) for end in bounds)
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"target_bounds must be (low, high) with low < high, got {bounds!r}.")
    cut = (high - low) / 4 if residual_bound is None else float(residual_bound)
    if not 0 < cut < math.inf:
        raise ValueError(f"residual_bound must be positive and finite, got {residual_bound!r}.")
    return Numbers(low, high, cut)


# ------------------------------------------------------------ noise
def _noise(
    layout: Layout, budget: Budget, group: int
) -> tuple[DiscreteLaplace | DiscreteGaussian, Layout, Budget]:
    """The smaller noise that the budget allows; for Gaussian noise blocks have other weights."""
    pure = DiscreteLaplace(group / budget.epsilon * (1 + 1e-12))
    alone = Budget(budget.epsilon, 0.0, budget.neighbouring, budget.unit)
    if budget.pure or not isinstance(layout, ManyClasses):
        return pure, layout, alone
    mu = gaussian_mu(budget.epsilon, budget.delta) / group
    gaussian = DiscreteGaussian(1 / mu * (1 + 1e-12))
    other = ManyClasses(layout.classes, layout.bins, layout.ranks, gaussian=True)
    sizes = [
        math.sqrt(_variance(mechanism)) * shares_radius(budget.neighbouring, mechanism.accepts)
        / math.sqrt(one.weights["confusion"] * one.weights.get("rank 0", one.weights["confusion"]))
        for mechanism, one in ((pure, layout), (gaussian, other))
    ]  # fmt: skip
    return (pure, layout, alone) if sizes[0] <= sizes[1] else (gaussian, other, budget)


def _variance(mechanism: DiscreteLaplace | DiscreteGaussian) -> float:
    """Of the noise in one number, in squares of the sensitivity; grids are far finer."""
    factor = 2.0 if isinstance(mechanism, DiscreteLaplace) else 1.0
    return factor * mechanism.multiplier**2
