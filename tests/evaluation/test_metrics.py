"""Metrics against scikit-learn's with hardly any noise; intervals against many repetitions."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.metrics import (
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    mean_absolute_error,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

import privopt
from privopt.evaluation import Evaluation, two_classes
from privopt.evaluation.bins import ScoreBins, log_loss_of, square_loss_of
from tests.evaluation.models import Fixed, Line, Threshold, people

SILENT = {"epsilon": 50.0, "random_state": 0}
"""Noise of a thirtieth of a record."""


def evaluated(model, X, y, **more):
    return privopt.evaluate(model, X, y, **{**SILENT, "one_at_a_time": False, **more})


# ------------------------------------------------------------ values
@pytest.mark.parametrize("kind", [Fixed, Threshold])
def test_two_classes_are_those_of_scikit_learn(kind):
    X, y = people(4000)
    model = kind(1.3)
    found, said, p = evaluated(model, X, y), model.predict(X), model.predict_proba(X)[:, 1]
    assert found.accuracy.value == pytest.approx(np.mean(said == y), abs=1e-4)
    assert found.precision.value == pytest.approx(precision_score(y, said), abs=1e-4)
    assert found.recall.value == pytest.approx(recall_score(y, said), abs=1e-4)
    assert found.specificity.value == pytest.approx(recall_score(y, said, pos_label=-1), abs=1e-4)
    assert found.f1.value == pytest.approx(f1_score(y, said), abs=1e-4)
    assert np.allclose(found.confusion_matrix, confusion_matrix(y, said), atol=0.3)
    cut = np.clip(p, 1 / (1 + math.exp(5)), 1 / (1 + math.exp(-5)))
    assert found.auc.value == pytest.approx(roc_auc_score(y, cut), abs=0.002)
    assert found.log_loss.value == pytest.approx(log_loss(y, cut), abs=0.002)
    assert found.brier.value == pytest.approx(brier_score_loss(y, cut, pos_label=1), abs=0.002)
    for name, exact in {
        "auc": roc_auc_score(y, cut),
        "log_loss": log_loss(y, cut),
        "brier": brier_score_loss(y, cut, pos_label=1),
    }.items():
        one = found.metrics[name]
        assert one.value - one.cut - 1e-6 <= exact <= one.value + one.cut + 1e-6


def test_numbers_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    y = 0.8 * X[:, 0] + 0.4 * rng.standard_t(3, size=3000) + 0.5
    found = evaluated(Line(), X, y)
    clipped, said = np.clip(y, -4, 4), X[:, 0]
    residuals = np.minimum(np.abs(clipped - said), 2.0)
    assert found.mae.value == pytest.approx(residuals.mean(), abs=1e-4)
    assert found.rmse.value == pytest.approx(math.sqrt(np.mean(residuals**2)), abs=1e-4)
    assert found.r2.value == pytest.approx(1 - np.mean(residuals**2) / np.var(clipped), abs=1e-3)
    share = found.metrics["share of residuals cut"].value
    assert share == pytest.approx(np.mean(np.abs(clipped - said) > 2), abs=1e-4)
    wide = evaluated(Line(), X, y, target_bounds=(-12, 12), residual_bound=10.0)
    assert wide.mae.value == pytest.approx(mean_absolute_error(y, said), abs=0.01)
    assert wide.rmse.value == pytest.approx(root_mean_squared_error(y, said), abs=0.01)
    assert wide.r2.value == pytest.approx(r2_score(y, said), abs=0.03)


def three(n=3000):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.5 * rng.normal(size=n), [-0.5, 0.5])]
    return X, y, Plain().fit(X[:500], y[:500])


def test_many_classes_are_those_of_scikit_learn():
    X, y, model = three()
    found = evaluated(model, X, y, one_vs_rest=True)
    said, p = model.predict(X), model.predict_proba(X)
    truth = np.eye(3)[np.searchsorted(model.classes_, y)]
    assert found.accuracy.value == pytest.approx(np.mean(said == y), abs=1e-3)
    assert np.allclose(found.confusion_matrix, confusion_matrix(y, said), atol=2)
    losses = -np.log(np.clip(p[truth == 1], 1 / (1 + math.exp(5)), 1))
    assert found.log_loss.value == pytest.approx(losses.mean(), abs=3e-3)
    assert found.brier.value == pytest.approx(np.mean(np.sum((p - truth) ** 2, axis=1)), abs=2e-3)
    for k, name in enumerate("abc"):
        exact = recall_score(y, said, labels=[name], average=None)[0]
        assert found.metrics[f"recall of {name}"].value == pytest.approx(exact, abs=1e-3)
        area = found.metrics[f"auc of {name}"]
        assert area.value == pytest.approx(roc_auc_score(truth[:, k], p[:, k]), abs=0.01)
        assert found.one_against_rest(name).auc() == area
    counts = np.histogram(p.max(axis=1), [0, 0.4, 0.55, 0.7, 0.85, 0.95, 1])[0]
    assert [count for *_, count in found.calibration] == pytest.approx(counts[counts > 2], abs=2)


def test_curves_of_two_classes():
    X, y = people(4000)
    found = evaluated(Fixed(), X, y)
    scores = Fixed().scores(X)
    for edge, false, true in found.roc:
        assert false.value == pytest.approx(np.mean(scores[y < 0] > edge), abs=1e-3)
        assert true.value == pytest.approx(np.mean(scores[y > 0] > edge), abs=1e-3)
    assert sum(count for *_, count in found.calibration) == pytest.approx(4000, abs=10)
    assert all(one.low - 0.05 <= said <= one.high + 0.05 for said, one, _ in found.calibration)


# ------------------------------------------------------------ how scores are cut
@pytest.mark.parametrize("loss_of", [log_loss_of, square_loss_of])
@pytest.mark.parametrize("label", [0, 1])
def test_the_error_of_a_bin_is_between_its_bounds_for_every_score(loss_of, label):
    bins, loss = ScoreBins(6, 5.0), loss_of(label)
    scores = np.linspace(-6, 6, 2001)
    values, least, most = bins.interpolated(loss)
    place, share = bins.places(scores, None)
    line = (1 - share) * values[place, 0] + share * values[place, 1]
    error = loss(np.clip(scores, -5, 5)) - line
    assert np.all(error >= least[place, 0] - 1e-5)
    assert np.all(error <= most[place, 0] + 1e-5)
    assert bins.edges[3] == 0.0
    assert np.all(np.diff(bins.edges) > 0)


def test_no_scores_within_a_bin_order_more_pairs_than_the_bound():
    """For likelihood ratios within e^J: the best is tanh(J/4)/2, attained by two values."""
    rng = np.random.default_rng(0)
    for J in (0.3, 1.0, 3.0):
        bound = math.tanh(J / 4) / 2
        for _ in range(200):
            ratio = np.sort(np.exp(rng.uniform(0, J, size=8)))
            zeros = rng.dirichlet(np.ones(8))
            ones = zeros * ratio / (zeros @ ratio)
            below = np.cumsum(zeros) - zeros / 2
            assert ones @ below - 0.5 <= bound + 1e-12
        a = math.exp(-J / 2)
        q = (1 - a) / (math.exp(J / 2) - a)  # of label 0, where the ratio is e^(J/2)
        two = np.array([1 - q, q])
        ones = two * np.array([a, math.exp(J / 2)])
        assert ones @ (np.cumsum(two) - two / 2) - 0.5 == pytest.approx(bound)


# ------------------------------------------------------------ intervals
def held(design, runs, n, epsilon, **more):
    """Share of the intervals that hold the truth, by metric."""
    model, X, y, truth = design
    rng, seen = np.random.default_rng(7), {name: 0 for name in truth}
    for run in range(runs):
        rows = rng.integers(len(y), size=n)
        found = privopt.evaluate(
            model, X[rows], y[rows], epsilon=epsilon, random_state=run, one_at_a_time=False, **more
        )
        for name, value in truth.items():
            seen[name] += found.metrics[name].low <= value <= found.metrics[name].high
    return {name: count / runs for name, count in seen.items()}


def two(slope):
    X, y = people(100_000, seed=3)
    model = Fixed(slope)
    scores = np.clip(model.scores(X), -5, 5)
    p = 1 / (1 + np.exp(-scores))
    return model, X, y, {
        "accuracy": float(np.mean((scores > 0) == (y > 0))),
        "recall": float(np.mean(scores[y > 0] > 0)),
        "auc": float(roc_auc_score(y, scores)),
        "log_loss": float(log_loss(y, p)),
        "brier": float(brier_score_loss(y, p, pos_label=1)),
    }  # fmt: skip


def line():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(100_000, 1))
    y = X[:, 0] + rng.normal(size=100_000)
    r = np.minimum(np.abs(np.clip(y, -4, 4) - X[:, 0]), 2)
    mean = float(np.mean(r**2))
    return Line(), X, y, {
        "rmse": math.sqrt(mean),
        "mae": float(r.mean()),
        "r2": 1 - mean / float(np.var(np.clip(y, -4, 4))),
    }  # fmt: skip


RUNS, LEAST = 80, 0.86
"""A 95 % interval holds the truth in fewer than 69 of 80 runs with probability 0.001."""


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("design", "n", "epsilon"),
    [(two(1.0), 2000, 0.5), (two(0.4), 1000, 2.0), (line(), 2000, 0.5)],
    ids=["two", "shy", "line"],
)
def test_intervals_cover(design, n, epsilon):
    """At 95 %; false alarm at most 0.005 for each design. ``benchmarks/evaluation.py`` has more."""
    found = held(design, RUNS, n, epsilon)
    assert min(found.values()) >= LEAST, found


@pytest.mark.statistical
def test_without_the_noise_term_they_do_not(monkeypatch):
    monkeypatch.setattr(import_module("privopt.evaluation.evaluate"), "_variance", lambda _: 0.0)
    assert held(two(1.0), 40, 1000, 0.2)["accuracy"] < 0.8


@pytest.mark.statistical
def test_without_the_bin_terms_they_do_not(monkeypatch):
    """Scores that are too shy, where bins hide most of the ranking."""
    monkeypatch.setattr(two_classes.np, "tanh", lambda x: 0.0 * x)
    assert held(two(0.1), 40, 4000, 5.0)["auc"] < 0.6


@pytest.mark.statistical
def test_without_the_terms_of_interpolation_they_do_not(monkeypatch):
    honest = ScoreBins.interpolated

    def flat(self, function):
        values, least, most = honest(self, function)
        return values, 0 * least, 0 * most

    monkeypatch.setattr(ScoreBins, "interpolated", flat)
    monkeypatch.setattr(ScoreBins, "for_rows", classmethod(lambda cls, *_: cls(4, 5.0)))
    assert held(two(1.0), 40, 4000, 5.0)["log_loss"] < 0.6


@pytest.mark.statistical
def test_an_interval_is_wide_where_nothing_is_known():
    """No record of a class but one: recall and AUC may be anything."""
    X, y = people(300)
    y[:] = -1.0
    found = evaluated(Fixed(), X, y, epsilon=0.1)
    assert (found.recall.low, found.recall.high) == (0.0, 1.0)
    assert (found.auc.low, found.auc.high) == (0.0, 1.0)
    few = evaluated(Line(), X[:5], y[:5], epsilon=0.1)
    assert few.r2.low == -math.inf
    assert not math.isinf(few.r2.high)


def test_rows_of_one_user_are_not_independent():
    """Intervals widen with the most rows that one user may own."""
    X, y = people(4000)
    alone = evaluated(Fixed(), X, y)
    users = evaluated(Fixed(), X, y, user_ids=np.arange(4000) // 4, rows_per_user=4)
    assert users.accuracy.sampling == pytest.approx(2 * alone.accuracy.sampling, rel=0.05)


# ------------------------------------------------------------ the targets
@pytest.mark.statistical
def test_the_error_of_accuracy_at_ten_thousand_rows_and_epsilon_a_tenth():
    """One standard error, of sampling and noise, at most 0.01; of the AUC at 1e5 rows as well."""
    X, y = people(100_000)
    small = evaluated(Fixed(), X[:10_000], y[:10_000], epsilon=0.1)
    assert small.accuracy.error <= 0.01
    large = evaluated(Fixed(), X, y, epsilon=0.1)
    assert abs(large.auc.value - roc_auc_score(y, Fixed().scores(X))) <= 0.01
    assert large.auc.high - large.auc.low <= 0.04


def test_an_evaluation_is_kept_as_text():
    X, y = people(500)
    rows, labels, model = three(800)
    for found in (
        evaluated(Fixed(), X, y),
        evaluated(Line(), X, y),
        evaluated(model, rows, labels, one_vs_rest=True),
    ):
        again = Evaluation.from_json(found.to_json())
        assert again.metrics == found.metrics
        assert again.certificate == found.certificate
        assert list(again.to_frame().index) == list(found.metrics)
        assert found.model in str(found)
    with pytest.raises(privopt.Refused, match="not an evaluation"):
        Evaluation.from_json("{}")
    with pytest.raises(AttributeError, match="there is no metric 'aucc'"):
        _ = found.aucc
