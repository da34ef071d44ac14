"""Records made to break a bound: no sum moves further than its declared sensitivity, none is
lost."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared
from privopt.oracle import ClippedGradient, CountRecords, RowBounds
from privopt.oracle.objective import Objective, function_facts
from privopt.oracle.oracle import make_rows

LOSSES = [
    Logistic(),
    Squared(),
    Squared(residual_clip=0.7),
    Huber(0.4),
    Hinge(),
    SmoothedHinge(0.3),
    Absolute(),
    Quantile(0.8),
]
SMOOTH = [Logistic(), Squared(residual_clip=0.7), Huber(0.4), SmoothedHinge(0.3)]
NAN, INF = np.nan, np.inf
MISSING = {
    "all NaN": ([NAN, NAN, NAN], 1.0),
    "one NaN": ([0.1, NAN, 0.1], -1.0),
    "inf": ([INF, 0.0, 0.0], 1.0),
    "-inf": ([0.0, -INF, 0.0], 1.0),
    "inf and -inf": ([INF, -INF, 0.2], 1.0),
    "NaN and 1e300": ([NAN, 1e300, 0.2], 1.0),
    "NaN label": ([0.3, 0.1, -0.2], NAN),
    "inf label": ([0.3, 0.1, -0.2], INF),
    "-inf label": ([0.3, 0.1, -0.2], -INF),
    "NaN label, huge row": ([1e300, 0.1, -0.2], NAN),
}
PRESENT = {
    "1e300": ([1e300, -1e300, 1e300], 1.0),
    "largest double": ([np.finfo(float).max, 0.0, -np.finfo(float).max], -1.0),
    "one 1e300": ([0.0, 1e300, 0.0], -1.0),
    "1e160": ([1e160, 1e160, -1e160], 1.0),
    "-1e160": ([-1e160, -1e160, 1e160], -1.0),
    "uneven": ([1e160, 1e-160, 1.0], 1.0),
    "1e99": ([1e99, -1e99, 1e99], 1.0),
    "1e-300": ([1e-300, 1e-300, -1e-300], 1.0),
    "subnormal": ([5e-324, 0.0, 0.0], -1.0),
    "zero row": ([0.0, 0.0, 0.0], -1.0),
    "label 1e300": ([0.3, 0.1, -0.2], 1e300),
    "label -1e300": ([0.9, 0.9, -0.9], -1e300),
    "label and row 1e300": ([1e300, 0.0, 1e300], -1e300),
    "on the bound": ([0.6, 0.8, 0.0], 1.0),
    "label 0": ([0.5, 0.25, 0.5], 0.0),
}
HOSTILE = MISSING | PRESENT
THETAS = {
    "zero": np.zeros(4),
    "ordinary": np.array([0.7, -1.1, 0.4, 0.2]),
    "large": np.array([1e9, -1e9, 3e8, 1e9]),
    "huge": np.array([1e200, -1e200, 1e200, -1e200]),
}
FORMS = {"dense": np.asarray, "sparse": sp.csr_array, "torch": torch.from_numpy}
DATA_NORM, CLIP = 1.0, 0.37

every_form = pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])
every_intercept = pytest.mark.parametrize("intercept", [0.0, 0.5])


def neighbours():
    rng = np.random.default_rng(0)
    return rng.normal(size=(6, 3)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])


def data_with(record, place=3):
    """The ordinary records, and one more in their midst."""
    X, y = neighbours()
    if record is None:
        return X, y
    return np.insert(X, place, record[0], axis=0), np.insert(y, place, record[1])


def rows_with(record, form, intercept, classification):
    X, y = data_with(record)
    with np.errstate(all="ignore"):
        return make_rows(form(X), y, RowBounds(DATA_NORM, intercept), classification)


def sums(measure, form, intercept, loss):
    """One value for each hostile record, and the one without any of them."""
    without = measure(rows_with(None, form, intercept, loss.classification))
    return without, {
        name: measure(rows_with(record, form, intercept, loss.classification))
        for name, record in HOSTILE.items()
    }


def check_movement(without, values, radius, diameter, size):
    slack = 1e-12 * np.maximum(1.0, size(without))
    for name, value in values.items():
        assert np.isfinite(value).all(), name
        assert size(value - without) <= radius * (1 + 1e-9) + slack, name
        if name in MISSING:
            assert size(value - without) <= slack, name
    for one, other in itertools.combinations(values, 2):
        movement = size(values[one] - values[other])
        assert movement <= diameter * (1 + 1e-9) + slack, (one, other)


# ------------------------------------------------------------ clipped gradients
@every_form
@every_intercept
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("at", THETAS)
def test_no_record_moves_a_clipped_gradient_beyond_its_sensitivity(form, intercept, loss, at):
    query = ClippedGradient(loss, CLIP)
    theta = THETAS[at][: 3 + (intercept > 0)]
    assert query.diameter() == 2 * query.radius() == 2 * CLIP
    without, values = sums(lambda rows: query.total(rows, theta), form, intercept, loss)
    check_movement(without, values, query.radius(), query.diameter(), np.linalg.norm)


@every_form
@every_intercept
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_hostile_records_contribute_what_the_naive_loop_says(naive, form, intercept, loss):
    theta = THETAS["ordinary"][: 3 + (intercept > 0)]
    query = ClippedGradient(loss, CLIP)
    _, values = sums(lambda rows: query.total(rows, theta), form, intercept, loss)
    for name, record in HOSTILE.items():
        X, y = data_with(record)
        expected = naive.clipped_gradient(loss, X, y, theta, CLIP, DATA_NORM, intercept)
        np.testing.assert_allclose(values[name], expected, rtol=0, atol=1e-12, err_msg=name)


@every_form
def test_all_records_hostile_at_once(form):
    X = np.array([record[0] for record in HOSTILE.values()] * 20)
    y = np.array([record[1] for record in HOSTILE.values()] * 20)
    with np.errstate(all="ignore"):
        rows = make_rows(form(X), y, RowBounds(DATA_NORM, 0.5), True)
    query = ClippedGradient(Logistic(), CLIP)
    for theta in THETAS.values():
        total = query.total(rows, theta)
        assert np.linalg.norm(total) <= 20 * len(PRESENT) * CLIP * (1 + 1e-9)
    assert CountRecords().total(rows, np.zeros(4)) == [20 * len(PRESENT)]


@every_form
def test_margins_that_overflow_before_the_clip_do_no_harm(form):
    """These rows are inside what a square can hold, but not their products with this theta."""
    query, theta = ClippedGradient(Squared(), CLIP), np.array([1e200, 1e200, 1e200])
    without = query.total(rows_with(None, form, 0.0, False), theta)
    for size in (1e99, 1e120, 1e150):
        for x in ([size, -size, 0.0], [size, -size, size], [size, size, size]):
            value = query.total(rows_with((x, 1.0), form, 0.0, False), theta)
            assert np.isfinite(value).all()
            assert np.linalg.norm(value - without) <= CLIP * (1 + 1e-9)


@every_form
def test_a_huge_row_keeps_its_direction(form):
    """It is clipped, not dropped: dropping would be safe but would lose a record."""
    query, theta = ClippedGradient(Logistic(), 10.0), np.zeros(3)
    without = query.total(rows_with(None, form, 0.0, True), theta)
    for size in (1e3, 1e99, 1e101, 1e153, 1e160, 1e300):
        value = query.total(rows_with(([3 * size, 0.0, -4 * size], 1.0), form, 0.0, True), theta)
        np.testing.assert_allclose(value - without, [-0.3, 0.0, 0.4], atol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_single_precision_overflow(naive, kind):
    """Squares of 1e25 overflow in single precision; the bound holds to single precision."""
    query = ClippedGradient(Logistic(), CLIP)
    theta = THETAS["ordinary"]
    X, y = neighbours()
    for size in (1e-30, 1e18, 1e20, 1e25, 3e38):
        for direction in ([1, 0, 0], [1, -1, 1], [0, -1, 0.5]):
            grown = np.insert(X, 2, size * np.array(direction), axis=0).astype(np.float32)
            labels = np.insert(y, 2, 1.0)
            rows = make_rows(kind(grown), labels, RowBounds(DATA_NORM, 0.5), True)
            expected = naive.clipped_gradient(
                Logistic(), grown, labels, theta, CLIP, DATA_NORM, 0.5
            )
            np.testing.assert_allclose(query.total(rows, theta), expected, atol=2e-6)


# ------------------------------------------------------------ the objective
@every_form
@every_intercept
@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
@pytest.mark.parametrize("at", THETAS)
def test_no_record_moves_the_objective_beyond_its_facts(form, intercept, loss, at):
    theta = THETAS[at][: 3 + (intercept > 0)]
    facts = function_facts(loss, RowBounds(DATA_NORM, intercept), theta.size)
    without, gradients = sums(
        lambda rows: Objective(rows.precise(), loss).gradient(theta), form, intercept, loss
    )
    check_movement(without, gradients, facts.lipschitz, 2 * facts.lipschitz, np.linalg.norm)
    without, hessians = sums(
        lambda rows: Objective(rows.precise(), loss).hessian(theta), form, intercept, loss
    )
    # Two positive semidefinite contributions differ by no more than the larger of them.
    check_movement(
        without,
        hessians,
        facts.smoothness,
        facts.smoothness,
        lambda matrix: float(np.linalg.norm(matrix, 2)),
    )


@every_form
@every_intercept
@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_hostile_records_in_the_objective_are_what_the_naive_loop_says(
    naive, form, intercept, loss
):
    theta = THETAS["ordinary"][: 3 + (intercept > 0)]
    v = np.array([0.3, -1.0, 2.0, 0.5])[: theta.size]
    for name, record in HOSTILE.items():
        rows = rows_with(record, form, intercept, loss.classification)
        objective = Objective(rows.precise(), loss)
        facts = loss, *data_with(record), theta, DATA_NORM, intercept
        np.testing.assert_allclose(
            objective.gradient(theta), naive.gradient(*facts), atol=1e-12, err_msg=name
        )
        H = np.array(naive.hessian(*facts))
        np.testing.assert_allclose(objective.hessian(theta), H, atol=1e-12, err_msg=name)
        product = objective.hessian_product(objective.curvatures(theta), v)
        np.testing.assert_allclose(product, H @ v, atol=1e-12, err_msg=name)
        expected = naive.value(*facts)
        assert objective.value(theta) == pytest.approx(expected, rel=1e-12), name


# ------------------------------------------------------------ sparse corners
def test_sparse_rows_without_entries_and_with_explicit_zeros(naive):
    X = sp.csr_array(
        (np.array([0.0, NAN, 0.5, 0.0]), np.array([1, 0, 2, 0]), np.array([0, 0, 1, 2, 3, 3, 4])),
        shape=(6, 3),
    )
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    rows = make_rows(X, y, RowBounds(DATA_NORM, 0.5), True)
    theta = THETAS["ordinary"]
    expected = naive.clipped_gradient(Logistic(), X.toarray(), y, theta, CLIP, DATA_NORM, 0.5)
    got = ClippedGradient(Logistic(), CLIP).total(rows, theta)
    np.testing.assert_allclose(got, expected, atol=1e-14)
    assert CountRecords().total(rows, theta) == [5]


def test_sparse_entries_that_repeat_are_added_before_the_clip():
    """0.9 + 0.9 in one place is a row of length 1.8: clipping 0.9 and 0.9 apart would be 1.27."""
    X = sp.csr_array((np.array([0.9, 0.9]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    rows = make_rows(X, np.array([1.0]), RowBounds(1.0), True)
    got = ClippedGradient(Logistic(), 9.0).total(rows, np.zeros(3))
    np.testing.assert_allclose(got, [0.0, -0.5, 0.0], atol=1e-15)


def test_a_sparse_matrix_is_never_made_dense():
    """Ten thousand rows of a million columns: dense they would take 80 GB."""
    X = sp.random_array((10_000, 1_000_000), density=2e-6, rng=0, format="csr")
    y = np.where(np.arange(10_000) % 2, 1.0, -1.0)
    rows = make_rows(X, y, RowBounds(0.5, 0.5), True)
    theta = np.zeros(1_000_001)
    total = ClippedGradient(Logistic(), 1.0).total(rows, theta)
    clipped = X.multiply(np.minimum(1, 0.5 / np.maximum(sp.linalg.norm(X, axis=1), 1e-9))[:, None])
    np.testing.assert_allclose(total[:-1], -0.5 * (y @ clipped), atol=1e-12)
    assert total[-1] == 0.0
