"""Streams that learn to centre and scale: first steps, batches cut into steps, the models."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privopt import OnlineLogisticRegression
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.estimators import online_logistic_regression as online
from privopt.estimators.online_run import Recipe
from privopt.losses import Logistic
from privopt.mechanisms.standardizer import BINS, norm_bound, norm_edges
from privopt.oracle import ClippedGradient, Embedded, Moments, NormHistogram, Query, RowMap
from privopt.oracle.mapped import MappedRows
from privopt.oracle.oracle import make_rows
from privopt.oracle.rows import RowBounds
from privopt.privacy import Budget
from privopt.privacy.participation import Participation
from privopt.problem import Problem


def table(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, tuple]:
    """Columns of very different widths, none in the middle of its bounds."""
    rng = np.random.default_rng(seed)
    X = rng.normal([40.0, 0.2, -3.0], [4.0, 0.05, 0.5], (n, 3))
    score = (X - [40.0, 0.2, -3.0]) / [4.0, 0.05, 0.5] @ [2.0, -2.0, 1.0] + 0.5
    y = rng.random(n) < 1 / (1 + np.exp(-score))
    return X, y.astype(int), ([0.0, 0.0, -10.0], [100.0, 1.0, 0.0])


def fed(model, X, y, size):
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size], y[start : start + size])
    return model


def made(**how):
    given = {"epsilon": 4.0, "n_steps": 100, "classes": [0, 1], "random_state": 0, **how}
    return OnlineLogisticRegression(**given)


# ---------------------------------------------------------------- what is learned
@pytest.mark.parametrize("size", [50, 400])
def test_a_stream_learns_scales_and_then_the_model(size):
    """Whatever the size of a batch, and near the best model of all records."""
    X, y, bounds = table(12_000)
    model = made(bounds=bounds, n_steps=12_000 // size)
    fed(model, X, y, size)
    later, truth, _ = table(4000, seed=1)
    best = np.mean((later - [40.0, 0.2, -3.0]) / [4.0, 0.05, 0.5] @ [2.0, -2.0, 1.0] > -0.5)
    assert 0.3 < best < 0.7
    assert model.score(later, truth) > 0.8
    slopes = model.coef_[0] * [4.0, 0.05, 0.5]
    np.testing.assert_allclose(slopes, [2.0, -2.0, 1.0], atol=0.7)
    margins = later @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(later), margins, atol=1e-9)


def test_first_steps_by_hand():
    """From the tape: sums of the histogram and the moments, with the noise of running sums."""
    X, y, bounds = table(4000)
    model = made(bounds=bounds, n_steps=80)
    _, tape = record(lambda X, y: fed(model, X, y, 50), (X, y))
    leader, p = model._run.leaders[0], 3
    results = np.array([release.result for release in tape.releases])
    norms, moments = leader.norm_steps, leader.moment_steps
    assert (norms + moments, len(results)) == (4, 80)
    payloads = np.array([release.payload for release in tape.releases])
    first, second, rest = payloads[:norms], payloads[norms : norms + moments], payloads[4:]
    assert not first[:, : p + 1].any()
    assert not first[:, p + 1 + BINS :].any()
    assert not second[:, : p + 1 + BINS].any()
    assert second[:, p + 1 + BINS :].any()
    assert not rest[:, p + 1 :].any()
    total = results[: norms + moments].sum(axis=0)
    counts = results[:norms].sum(axis=0)[p + 1 : p + 1 + BINS]
    noise = model._run._noise(norms)
    bound = norm_bound(norm_edges(p), counts, 0.9, 50 * norms, noise)
    assert leader.bound == bound
    sums = total[p + 1 + BINS :] * math.sqrt(2) / (50 * moments)
    centre = np.clip(sums[:p] * bound, -1, 1)
    spread = model._run._noise(4) * math.sqrt(2) * min(bound, bound**2) / (50 * moments)
    square = sums[p:] * min(bound, bound**2)
    width = np.maximum(square - centre**2, 0) + spread + 0.05**2
    np.testing.assert_allclose(leader.row_map.centre, centre, rtol=1e-12)
    np.testing.assert_allclose(leader.row_map.scale, 1 / np.sqrt(width), rtol=1e-12)


def test_a_gradient_of_mapped_rows_is_counted():
    """In integers, below the float sum of each record by less than a step a coordinate."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (40, 3)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    X[0] = 1e6
    for shortening in (0.0, 0.5, 1.0):
        row_map = RowMap(
            rng.normal(size=3), np.array([1.0, 3.0, 9.0]), 1.0, 2.5, shortening=shortening
        )
        rows = MappedRows.build(make_rows(X, y, RowBounds(math.inf, 1.0), True), row_map)
        query, theta, step = ClippedGradient(Logistic(), 1.0), rng.normal(size=4), 2.0**-30
        exact, counted = query.total(rows, theta), query.count(rows, theta, step)
        np.testing.assert_allclose(counted * step, exact, atol=41 * step)
        for i in range(40):
            alone = MappedRows.build(
                make_rows(X[i : i + 1], y[i : i + 1], RowBounds(math.inf, 1.0), True), row_map
            )
            assert np.linalg.norm(query.count(alone, theta, step)) * step <= 1


# ---------------------------------------------------------------- sensitivities
@pytest.mark.parametrize(
    "question",
    [NormHistogram((0.5, 1.0, 2.0)), Moments(1.0, 1.0), ClippedGradient(Logistic(), 1.0)],
)
def test_every_question_moves_by_one(question):
    """Two records, worst of many: at most 1 each, at most 2 apart, and close to it for one kind."""
    rng = np.random.default_rng(0)
    embedded: Query = Embedded(question, 2, 20)
    assert (embedded.radius(), embedded.diameter()) == (1.0, 2.0)
    values = []
    for _ in range(200):
        X = rng.normal(size=(1, 3)) * rng.choice([0.01, 1, 1e3])
        rows = make_rows(X, np.ones(1), RowBounds(1.0 / 2, math.sqrt(3) / 2), True)
        at = -100 * rng.normal(size=4)
        values.append(embedded.total(rows, at))
        counted = embedded.count(rows, at, 2.0**-20) * 2.0**-20
        np.testing.assert_allclose(counted, values[-1], atol=1e-5)
        assert np.linalg.norm(counted) <= 1
        assert not values[-1][:2].any()
    assert np.linalg.norm(values, axis=1).max() <= 1 + 1e-12
    apart = max(np.linalg.norm(a - b) for a, b in itertools.combinations(values, 2))
    assert apart <= 2 + 1e-12


@pytest.mark.parametrize(("times", "apart", "parts"), [(1, 1, 4), (2, 1, 3), (2, 3, 2), (3, 2, 2)])
def test_records_of_batches_that_are_cut(times, apart, parts):
    """The noise is calibrated for every place that a record may have in its batches."""
    batches = 6
    recipe = Recipe(
        Budget(1.0, 1e-6),
        Problem(Logistic()),
        ClippedGradient(Logistic(), 1.0),
        Participation.separated(times, apart),
        batches,
        "honaker",
        1,
        "dp_ftrl",
        RowBounds(1.0),
        parts,
    )
    C = recipe.factorization().encode(np.eye(batches * parts))
    patterns = [
        steps
        for count in range(1, times + 1)
        for steps in itertools.combinations(range(batches * parts), count)
        if all(b // parts - a // parts >= apart for a, b in itertools.pairwise(steps))
    ]
    worst = max(np.sum(C[:, list(steps)].sum(axis=1) ** 2) for steps in patterns)
    charged = recipe.factorization().sensitivity_squared(recipe.rule_of_parts)
    assert worst <= charged * (1 + 1e-12)
    if times == 1:
        assert worst == pytest.approx(charged)


@pytest.mark.statistical
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_noise_follows_the_declared_law(relation, monkeypatch):
    """False alarm 1e-6 each; batches are cut into two steps."""
    monkeypatch.setattr(online, "ROWS", 10)
    X, y, bounds = table(80)
    tapes = []
    for seed in range(10):
        model = made(bounds=bounds, n_steps=4, neighbouring=relation, random_state=seed)
        tapes.append(record(lambda X, y, m=model: fed(m, X, y, 20), (X, y))[1])
        assert len(tapes[-1].releases) == 8
    assert noise_p_value(tapes) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("n_steps", [6, None])
def test_replay_on_hostile_neighbours(relation, n_steps, monkeypatch):
    """Histogram, moments and gradients: nothing but released values reaches the model."""
    monkeypatch.setattr(online, "ROWS", 6)

    def run(X, y):
        model = OnlineLogisticRegression(
            1.0,
            1e-5,
            n_steps=n_steps,
            batch_size=11,
            bounds=(-1.0, 1.0),
            classes=[-1.0, 1.0],
            neighbouring=relation,
            nan_policy="empty",
            max_participations=2 if n_steps else 1,
            random_state=0,
        )
        fed(model, X, np.where(np.nan_to_num(y) > 0, 1.0, -1.0), 11)
        return model.coef_, model.intercept_, model.steps_, model.privacy_.to_json()

    pairs = hostile_pairs(relation, classification=True)
    found = {pair.name: findings for pair in pairs if (findings := replay(run, pair))}
    assert found == {}


def test_a_cut_stream_resumes(tmp_path):
    X, y, bounds = table(2000)
    how = {"bounds": bounds, "n_steps": 10, "batch_size": 200, "checkpoint": tmp_path / "run"}
    for batch in range(10):
        rows = slice(200 * batch, 200 * batch + 200)
        model = made(**how)  # each batch by a process of its own
        model.partial_fit(X[rows], y[rows], record_ids=np.arange(rows.start, rows.stop))
    assert (model.steps_, model.privacy_.releases) == (10, 40)
    assert model.epsilon_spent() == pytest.approx(4.0, rel=1e-6)
    assert model.score(X, y) > 0.7
    model = made(**{**how, "epsilon": 6.0, "n_steps": 12}).start_new_stream()
    model.partial_fit(X[:200], y[:200])
    assert (model.steps_, model.privacy_.releases) == (11, 44)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"step_size": math.inf}, "step_size must be positive"),
        ({"average": "some"}, 'average must be "recent"'),
    ],
)
def test_bad_settings(how, text):
    X, y, bounds = table(50)
    with pytest.raises(ValueError, match=text):
        made(bounds=bounds, **how).partial_fit(X, y)
