"""Walks: what is asked along the way is what would be asked anew at the same point."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import Huber, Logistic, Squared
from privopt.noise import SilentSource
from privopt.oracle import (
    ClippedGradient,
    CoordinateClippedGradient,
    GramGradient,
    Oracle,
    RowBounds,
    SquaresAlong,
)
from privopt.oracle.coordinate_gradient import ColumnMemory
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused
from privopt.privacy.budget import NEIGHBOURING

N, P = 60, 7
BOUNDS = {
    "entries": RowBounds(math.inf, 0.0, 0.8),
    "entries, intercept": RowBounds(math.inf, 0.5, 0.8),
    "norm, intercept": RowBounds(0.9, 0.5),
}


def data(hostile=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.15)
    X[:, 2], X[5] = 0.0, 0.0
    y = np.where(rng.random(N) < 0.5, 1.0, -1.0)
    if hostile:
        X[7, 1], X[8, 3], y[9] = np.nan, 1e300, np.inf
    return X, y


def doubled(X):
    """A CSR matrix that stores each entry as two halves, columns out of order."""
    half = sp.coo_array(X / 2)
    rows, columns = (np.concatenate([c, c[::-1]]) for c in half.coords)
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(X)))])
    values = np.concatenate([half.data, half.data[::-1]])[order]
    return sp.csr_array((values, columns[order], indptr), shape=X.shape)


def single(X):
    with np.errstate(over="ignore"):
        return X.astype(np.float32)


KINDS = {
    "dense": np.asarray,
    "single precision": single,
    "Fortran order": np.asfortranarray,
    "torch": torch.from_numpy,
    "CSR": sp.csr_array,
    "entries stored twice": doubled,
}


def oracle_over(X, y, bounds, relation="zero_out", classification=True):
    with np.errstate(all="ignore"):
        return Oracle.over(
            X,
            y,
            neighbouring=relation,
            bounds=bounds,
            source=SilentSource(),
            classification=classification,
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.4)], ids=repr)
def test_a_walk_gives_what_a_question_gives(kind, bounds, loss):
    """Forty moves, with the sum asked for always, sometimes or never on the way."""
    X, y = data()
    oracle = oracle_over(KINDS[kind](X), y, bounds, classification=loss.classification)
    view, p = oracle.everything(), oracle.dimension
    query = CoordinateClippedGradient(loss, 0.45, bounds, p, "coordinates")
    rng, start = np.random.default_rng(1), np.full(oracle.dimension, 0.1)
    tolerance = 1e-5 if kind == "single precision" else 1e-12
    for every in (1, 7, 50):
        at, walk = start.copy(), view.coordinate_gradient(query, start)
        for step in range(40):
            j = int(rng.integers(p))
            at[j] = rng.normal()
            walk.move(j, at[j])
            fresh = view.ask(query, at).open(KEY)
            if step % every == 0:
                np.testing.assert_allclose(walk.ask().open(KEY), fresh, atol=tolerance * N)
            k = int(rng.integers(p))
            one = walk.ask_along(k).open(KEY)
            np.testing.assert_allclose(one, fresh[[k]], atol=tolerance * N)
    assert start[0] == 0.1


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_reaches_are_those_of_the_question(relation):
    bounds = BOUNDS["entries, intercept"]
    view = oracle_over(*data(), bounds, relation).everything()
    query = CoordinateClippedGradient(Logistic(), 0.45, bounds, P + 1, "coordinates")
    walk = view.coordinate_gradient(query, np.zeros(P + 1))
    asked, walked = view.ask(query).sensitivity, walk.ask().sensitivity
    assert (walked.norm, walked.view, walked.cells) == (asked.norm, asked.view, asked.cells)
    np.testing.assert_array_equal(walked.radius, asked.radius)
    np.testing.assert_array_equal(walked.single, asked.single)
    twice = 2 if relation == "replace_one" else 1
    for index, bound in ((0, 0.8), (P, 0.5)):
        along = walk.ask_along(index, "l1").sensitivity
        assert (along.norm, along.radius, along.single) == (
            "l1",
            pytest.approx(twice * 0.45 * bound),
            pytest.approx(0.45 * bound),
        )
    uniform = CoordinateClippedGradient(Logistic(), 0.45, bounds, P + 1)
    assert (
        view.coordinate_gradient(uniform, np.zeros(P + 1)).ask_along(P).sensitivity.single
        == 0.45 * 0.8
    )


def test_other_questions_are_asked_anew():
    bounds = RowBounds(0.9)
    view, query = oracle_over(*data(), bounds).everything(), ClippedGradient(Logistic(), 0.3)
    walk = view.coordinate_gradient(query, np.zeros(P))
    walk.move(3, 0.7)
    at = np.zeros(P)
    at[3] = 0.7
    np.testing.assert_array_equal(walk.ask().open(KEY), view.ask(query, at).open(KEY))
    assert walk.ask_along(0).open(KEY) == view.ask(query, at).open(KEY)[:1]


# ------------------------------------------------------------ least squares by their Gram matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_a_gram_matrix_gives_the_gradient(kind, bounds):
    """Where no residual can pass the clip, the sum is that of clipped slopes and clipped labels."""
    X, y = data(hostile=False)
    y = 3 * y * np.random.default_rng(2).random(N)
    y[11] = np.nan
    p = P + (bounds.intercept > 0)
    view = oracle_over(KINDS[kind](X), y, bounds, classification=False).everything()
    within = oracle_over(X, np.clip(y, -0.5, 0.5), bounds, classification=False).everything()
    query = GramGradient(1.0, 0.5, bounds, p)
    plain = CoordinateClippedGradient(Squared(residual_clip=1.0), 1.0, bounds, p, "coordinates")
    np.testing.assert_array_equal(query.radius(), plain.radius())
    np.testing.assert_array_equal(query.diameter(), plain.diameter())
    walk, at, rng = (
        view.coordinate_gradient(query, np.zeros(p)),
        np.zeros(p),
        np.random.default_rng(3),
    )
    for _ in range(30):
        j = int(rng.integers(p))
        at[j] = rng.uniform(-1, 1) * 0.5 / p / bounds.each(p)[j]
        walk.move(j, at[j])
        expected = within.ask(plain, at).open(KEY)
        tolerance = 1e-5 if kind == "single precision" else 1e-11
        np.testing.assert_allclose(walk.ask().open(KEY), expected, atol=tolerance)
        np.testing.assert_allclose(walk.ask_along(j).open(KEY), expected[[j]], atol=tolerance)
        np.testing.assert_allclose(view.ask(query, at).open(KEY), expected, atol=tolerance)


def test_a_gram_matrix_is_not_asked_where_a_residual_could_pass_the_clip():
    bounds = BOUNDS["entries"]
    view = oracle_over(*data(), bounds, classification=False).everything()
    query = GramGradient(1.0, 0.5, bounds, P)
    walk, edge = view.coordinate_gradient(query, np.zeros(P)), 0.5 / 0.8
    walk.move(0, edge)
    with pytest.raises(Refused, match="shorten the step"):
        walk.move(1, -0.01)
    with pytest.raises(Refused, match="shorten the step"):
        view.coordinate_gradient(query, np.full(P, 0.1))
    with pytest.raises(Refused, match="could not be computed"):  # the same, details withheld
        view.ask(query, np.full(P, 0.1))
    for wrong in ((1.0, 1.0), (1.0, 0.0), (math.inf, 1.0)):
        with pytest.raises(ValueError, match="label bound"):
            GramGradient(*wrong, bounds, P)
    with pytest.raises(ValueError, match="finite bounds"):
        GramGradient(1.0, 0.5, RowBounds(math.inf), P)


# ------------------------------------------------------------ squares of one feature
@pytest.mark.parametrize("kind", KINDS)
def test_squares_of_a_column(kind):
    X, y = data()
    X = single(X).astype(float) if kind == "single precision" else X  # 1e300 becomes infinite
    for bounds in BOUNDS.values():
        view = oracle_over(KINDS[kind](X), y, bounds).everything()
        p = P + (bounds.intercept > 0)
        clean = np.where(np.isfinite(X).all(axis=1)[:, None] & np.isfinite(y)[:, None], X, 0.0)
        clean = np.clip(clean, -bounds.entries, bounds.entries)
        norms = np.array([math.hypot(*row) for row in clean])
        clean = clean / np.maximum(norms / bounds.data_norm, 1.0)[:, None]
        for j in range(P):
            found = view.ask(SquaresAlong(j, bounds, p)).open(KEY)
            np.testing.assert_allclose(found, [np.sum(clean[:, j] ** 2)], rtol=1e-5, atol=1e-12)
        if bounds.intercept:
            found = view.ask(SquaresAlong(P, bounds, p)).open(KEY)
            np.testing.assert_allclose(
                found, [0.25 * np.sum(np.isfinite(X).all(axis=1) & np.isfinite(y))]
            )


def test_squares_move_by_one_record_under_every_relation():
    bounds = BOUNDS["entries, intercept"]
    for relation in NEIGHBOURING:
        view = oracle_over(*data(), bounds, relation).everything()
        assert view.ask(SquaresAlong(0, bounds, P + 1)).sensitivity.radius == pytest.approx(0.64)
        assert view.ask(SquaresAlong(P, bounds, P + 1)).sensitivity.radius == pytest.approx(0.25)
    with pytest.raises(ValueError, match="finite bounds"):
        SquaresAlong(0, RowBounds(math.inf), P)


# ------------------------------------------------------------ nothing leaks
def test_a_walk_shows_nothing(monkeypatch):
    bounds = BOUNDS["entries"]
    view = oracle_over(*data(), bounds).everything()
    query = CoordinateClippedGradient(Logistic(), 0.45, bounds, P, "coordinates")
    walk = view.coordinate_gradient(query, np.zeros(P))
    assert repr(walk) == "CoordinateGradient(CoordinateClippedGradient)"
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(Refused):
            action(walk)
    assert {name for name in dir(walk) if not name.startswith("_")} == {"ask", "ask_along", "move"}
    kept = walk.ask()
    before = kept.open(KEY).copy()
    walk.move(1, 0.5)
    np.testing.assert_array_equal(kept.open(KEY), before)
    with pytest.raises(ValueError, match="length 7"):
        view.coordinate_gradient(query, np.zeros(3))
    other = CoordinateClippedGradient(Logistic(), 0.45, BOUNDS["norm, intercept"], P)
    with pytest.raises(Refused, match="bounds"):
        view.coordinate_gradient(other, np.zeros(P))
    for wrong in (-1, P):
        with pytest.raises(ValueError, match="between 0 and 6"):
            walk.ask_along(wrong)
        with pytest.raises(ValueError, match="between 0 and 6"):
            walk.move(wrong, 1.0)
    monkeypatch.setattr(ColumnMemory, "along", lambda self, at, index: 1 / (0 * self.secret))
    with pytest.raises(Refused, match="details are withheld") as caught:
        walk.ask_along(1)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


# ---------------------------------------------------------------- in exact integers
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_counts_along_a_walk(kind, bounds):
    """Close to the sum in floating point, the sum of the records' own integers in every order, and
    no record beyond its steps."""
    X, y = data()
    rng, steps = np.random.default_rng(2), 1000.0

    def counted(rows, labels):
        oracle = oracle_over(KINDS[kind](rows), labels, bounds)
        query = CoordinateClippedGradient(Logistic(), 0.3, bounds, oracle.dimension, "coordinates")
        view = oracle.everything()
        walk, found = view.coordinate_gradient(query, np.full(oracle.dimension, 0.1)), []
        for j in (0, 3, oracle.dimension - 1):
            walk.move(j, 0.7)
            sealed = walk.ask_along(j, resolution=steps)
            question = SquaresAlong(j, bounds, oracle.dimension)
            square = view.ask(question, resolution=steps)
            found += [int(sealed.open(KEY)[0]), int(square.open(KEY)[0])]
            off = N * sealed.sensitivity.grid.step + 1e-5
            assert (
                abs(found[-2] * sealed.sensitivity.grid.step - walk.ask_along(j).open(KEY)[0])
                <= off
            )
            off = N * square.sensitivity.grid.step + 1e-5
            assert (
                abs(found[-1] * square.sensitivity.grid.step - view.ask(question).open(KEY)[0])
                <= off
            )
        return np.array(found)

    whole, order = counted(X, y), rng.permutation(N)
    assert np.array_equal(counted(X[order], y[order]), whole)
    parts = np.array([counted(X[i : i + 1], y[i : i + 1]) for i in range(N)])
    assert np.array_equal(parts.sum(axis=0), whole)
    assert np.abs(parts).max() <= steps
    assert np.abs(parts).max() > 0.5 * steps


def test_a_gram_matrix_is_not_counted():
    bounds = BOUNDS["entries"]
    view = oracle_over(*data(False), bounds, classification=False).everything()
    walk = view.coordinate_gradient(GramGradient(2.0, 1.0, bounds, P), np.zeros(P))
    with pytest.raises(Refused, match="has no answer in integers"):
        walk.ask_along(0, resolution=100.0)
