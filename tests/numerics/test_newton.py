"""The minimiser: certified gradients, agreement with SciPy, and one constant refusal."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
import torch
from scipy.special import expit

from privopt.losses import Huber, Logistic, SmoothedHinge, Squared
from privopt.numerics import NotConverged
from privopt.numerics import newton as module
from privopt.numerics.newton import minimise
from privopt.oracle import RowBounds
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows
from privopt.oracle.rows import EmptyRows

LOSSES = [Logistic(), Huber(1.0), SmoothedHinge(0.5), Squared(residual_clip=1.0)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def data(loss, n=60, p=4, seed=0):
    """Rows inside the unit ball, so that clipping changes nothing and plain algebra applies."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.0001
    z = X @ rng.normal(size=p)
    y = np.where(z + rng.logistic(size=n) > 0, 1.0, -1.0)
    return X, (y if loss.classification else 2 * z + rng.normal(size=n))


def objective_of(X, y, loss, form=np.asarray):
    return Objective(make_rows(form(X), y, RowBounds(1.0), loss.classification), loss)


def value_and_gradient(loss, X, y, lam, centre, linear):
    """The same function in a few lines of NumPy, for SciPy and for the certificate."""

    def pieces(z):
        match loss:
            case Logistic():
                return np.logaddexp(0, -y * z), -y * expit(-y * z)
            case Huber(width=w) | Squared(residual_clip=w):
                r = z - y
                return np.where(abs(r) <= w, r * r / 2, w * abs(r) - w * w / 2), np.clip(r, -w, w)
            case SmoothedHinge(width=w):
                m = y * z
                s = np.clip((1 + w - m) / (2 * w), 0, 1)
                return np.where(m <= 1 - w, 1 - m, w * s * s), -y * s
        raise NotImplementedError

    def evaluate(theta):
        values, slopes = pieces(X @ theta)
        d = theta - centre
        return values.sum() + lam / 2 * d @ d + linear @ theta, X.T @ slopes + lam * d + linear

    return evaluate


def rounding(n, lam, theta, centre, linear):
    """What the two ways of adding up may differ by."""
    size = n + lam * np.linalg.norm(theta - centre) + np.linalg.norm(linear)
    return 1e-14 * (1 + size)


# ------------------------------------------------------------ the certificate
@every_loss
@pytest.mark.parametrize("lam", [1e-6, 1e-3, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("size", [0.1, 30.0, 1e6])
def test_the_certified_gradient_norm_is_reached(loss, lam, size):
    X, y = data(loss)
    rng = np.random.default_rng(1)
    linear, centre = size * rng.normal(size=4), rng.normal(size=4)
    # Below these, the rounding of theta itself is in the way.
    asked = max(1e-9, 1e-13 * (60 + np.linalg.norm(linear)), 1e-15 * lam * np.linalg.norm(centre))
    theta = minimise(
        objective_of(X, y, loss),
        regularisation=lam,
        centre=centre,
        linear=linear,
        gradient_norm=asked,
    )
    _, gradient = value_and_gradient(loss, X, y, lam, centre, linear)(theta)
    assert np.linalg.norm(gradient) <= asked + rounding(60, lam, theta, centre, linear)


@every_loss
@pytest.mark.parametrize("lam", [0.01, 1.0, 100.0])
def test_the_minimiser_agrees_with_scipy(loss, lam):
    X, y = data(loss, seed=2)
    rng = np.random.default_rng(3)
    linear, centre = rng.normal(size=4), rng.normal(size=4)
    theta = minimise(
        objective_of(X, y, loss),
        regularisation=lam,
        centre=centre,
        linear=linear,
        gradient_norm=1e-10,
    )
    evaluate = value_and_gradient(loss, X, y, lam, centre, linear)
    found = scipy.optimize.minimize(
        evaluate, centre, jac=True, method="L-BFGS-B", options=dict(ftol=0, gtol=1e-9)
    )
    residual = np.linalg.norm(evaluate(found.x)[1])
    assert residual < 1e-5
    # Strong convexity: each point lies within its gradient norm over lambda of the minimum.
    assert np.linalg.norm(theta - found.x) <= (residual + 1e-9) / lam
    assert evaluate(theta)[0] <= found.fun + 1e-12 * abs(found.fun)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
@pytest.mark.parametrize("dense_dimension", [1500, 0])
def test_every_kind_of_rows_gives_the_same_minimum(monkeypatch, form, dense_dimension):
    monkeypatch.setattr(module, "DENSE_DIMENSION", dense_dimension)
    X, y = data(Logistic(), seed=4)
    theta = minimise(
        objective_of(X, y, Logistic(), form),
        regularisation=0.3,
        centre=np.zeros(4),
        linear=np.ones(4),
        gradient_norm=1e-11,
    )
    evaluate = value_and_gradient(Logistic(), X, y, 0.3, np.zeros(4), np.ones(4))
    assert np.linalg.norm(evaluate(theta)[1]) <= 1.1e-11


def test_a_quadratic_is_solved_in_closed_form():
    X, y = data(Huber(), seed=5)
    linear, centre = np.array([3.0, -1.0, 2.0, 0.5]), np.ones(4)
    theta = minimise(
        objective_of(X, y, Squared()),
        regularisation=0.7,
        centre=centre,
        linear=linear,
        gradient_norm=1e-11,
    )
    H = X.T @ X + 0.7 * np.eye(4)
    np.testing.assert_allclose(
        theta, np.linalg.solve(H, X.T @ y + 0.7 * centre - linear), atol=1e-11
    )


@every_loss
def test_no_records(loss):
    centre, linear = np.array([1.0, 2.0]), np.array([3.0, -4.0])
    for rows in (
        EmptyRows(2, RowBounds(1.0)),
        make_rows(np.empty((0, 2)), np.empty(0), RowBounds(1.0), loss.classification),
        make_rows(sp.csr_array((0, 2)), np.empty(0), RowBounds(1.0), loss.classification),
    ):
        for lam in (1e-6, 1.0, 1e8):
            theta = minimise(
                Objective(rows, loss),
                regularisation=lam,
                centre=centre,
                linear=linear,
                gradient_norm=max(1e-9, 3e-15 * lam),
            )
            np.testing.assert_allclose(theta, centre - linear / lam, atol=1e-9 / lam + 4e-15)


@every_loss
@pytest.mark.parametrize("dense_dimension", [1500, 0])
def test_collinear_and_constant_features(monkeypatch, loss, dense_dimension):
    monkeypatch.setattr(module, "DENSE_DIMENSION", dense_dimension)
    X, y = data(loss, p=2, seed=6)
    X = np.column_stack([X[:, 0], X[:, 0], -X[:, 0], np.zeros(60), np.full(60, 0.2)]) / 2.1
    linear = np.array([1.0, 2.0, -3.0, 0.5, 0.0])
    theta = minimise(
        objective_of(X, y, loss),
        regularisation=0.05,
        centre=np.zeros(5),
        linear=linear,
        gradient_norm=1e-10,
    )
    _, gradient = value_and_gradient(loss, X, y, 0.05, np.zeros(5), linear)(theta)
    assert np.linalg.norm(gradient) <= 1.1e-10
    assert theta[3] == pytest.approx(-0.5 / 0.05)  # a feature that is always zero


@every_loss
@pytest.mark.parametrize("p", [6, 40])
def test_conjugate_gradients_find_what_the_direct_solver_finds(monkeypatch, loss, p):
    X, y = data(loss, n=200, p=p, seed=7)
    arguments = dict(
        regularisation=0.5,
        centre=np.zeros(p),
        linear=np.random.default_rng(8).normal(size=p),
        gradient_norm=1e-10,
    )
    direct = minimise(objective_of(X, y, loss), **arguments)
    monkeypatch.setattr(module, "DENSE_DIMENSION", 5)
    monkeypatch.setattr(module, "cho_factor", lambda *args, **kwargs: pytest.fail("direct"))
    iterative = minimise(objective_of(X, y, loss), **arguments)
    assert np.linalg.norm(direct - iterative) <= 2.1e-10 / 0.5
    evaluate = value_and_gradient(loss, X, y, 0.5, arguments["centre"], arguments["linear"])
    assert np.linalg.norm(evaluate(iterative)[1]) <= 1.1e-10


def test_the_direct_solver_is_used_up_to_its_dimension(monkeypatch):
    monkeypatch.setattr(module, "DENSE_DIMENSION", 4)
    monkeypatch.setattr(module, "cg", lambda *args, **kwargs: pytest.fail("iterative"))
    X, y = data(Logistic())
    minimise(
        objective_of(X, y, Logistic()),
        regularisation=1.0,
        centre=np.zeros(4),
        linear=np.ones(4),
        gradient_norm=1e-9,
    )


def test_separable_data_and_far_labels():
    """Without the regulariser the minimum lies at infinity, or a million steps away."""
    X = np.vstack([np.eye(3), -np.eye(3)]) * 0.9
    y = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    for loss, labels in ((Logistic(), y), (Huber(1.0), 1e6 * y)):
        theta = minimise(
            objective_of(X, labels, loss),
            regularisation=1e-4,
            centre=np.zeros(3),
            linear=np.zeros(3),
            gradient_norm=1e-10,
        )
        evaluate = value_and_gradient(loss, X, labels, 1e-4, np.zeros(3), np.zeros(3))
        assert np.linalg.norm(evaluate(theta)[1]) <= 1.1e-10


def test_a_start_that_is_good_enough_is_returned_and_not_written_to():
    X, y = data(Logistic())
    centre = np.arange(4.0)
    arguments = dict(regularisation=1.0, centre=centre, linear=np.zeros(4), gradient_norm=1e6)
    theta = minimise(objective_of(X, y, Logistic()), **arguments)
    np.testing.assert_array_equal(theta, centre)
    theta += 1.0
    np.testing.assert_array_equal(centre, np.arange(4.0))


# ------------------------------------------------------------ refusals
def test_the_refusal_is_one_constant_text(monkeypatch):
    monkeypatch.setattr(module, "MOST_ITERATIONS", 1)
    texts = set()
    for seed, loss in enumerate(LOSSES):
        X, y = data(loss, seed=seed)
        with pytest.raises(NotConverged) as caught:
            minimise(
                objective_of(X, y, loss),
                regularisation=1e-3,
                centre=np.zeros(4),
                linear=np.ones(4),
                gradient_norm=1e-12,
            )
        texts.add(str(caught.value))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    (text,) = texts
    assert not any(character.isdigit() for character in text)
    assert "budget is spent" in text


class Jump:
    """A convex function with a kink at its minimum: no point has a small gradient."""

    dimension = 2

    def gradient(self, theta):
        return np.where(theta > 0.3, 1.0, -1.0)

    def hessian(self, theta):
        return np.zeros((2, 2))

    def curvatures(self, theta):
        return None

    def hessian_product(self, curvatures, vector):
        return np.zeros(2)


@pytest.mark.parametrize("dense_dimension", [1500, 0])
def test_a_certificate_that_does_not_exist_is_refused_and_the_search_ends(
    monkeypatch, dense_dimension
):
    monkeypatch.setattr(module, "DENSE_DIMENSION", dense_dimension)
    with pytest.raises(NotConverged, match="not minimised"):
        minimise(
            Jump(),
            regularisation=1.0,
            centre=np.zeros(2),
            linear=np.zeros(2),
            gradient_norm=1e-3,
        )
