"""Factorizations against dense matrices, closed forms, brute force and published values."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from privopt.privacy import Accountant, Refused, charge_of
from privopt.privacy.conversions import gaussian_conversion
from privopt.privacy.factorizations import (
    BLT,
    Banded,
    DenseOptimal,
    FullHonaker,
    Honaker,
    Independent,
    Restarts,
    SquareRoot,
    Tree,
    compare,
    named,
)
from privopt.privacy.factorizations.blt import best_buffers
from privopt.privacy.factorizations.dense import encoder_of
from privopt.privacy.factorizations.separated_nodes import most_squared_nodes
from privopt.privacy.factorizations.toeplitz import inverse_series
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.participation import Participation

SINGLE = Participation.single_pass()
STEPS = 22
EVERY = [
    Independent(STEPS),
    Tree(STEPS),
    Tree(STEPS, "nodes"),
    Honaker(STEPS),
    Honaker(STEPS, "nodes"),
    SquareRoot(STEPS),
    Banded.optimised(STEPS, 5),
    Banded.square_root(STEPS, 5),
    Banded(STEPS, (1.0, -0.4, 0.2)),
    BLT.optimised(STEPS, SINGLE, 2),
    BLT(STEPS, (0.9, 0.4), (0.3, 0.2)),
    FullHonaker(STEPS),
    DenseOptimal(STEPS),
    DenseOptimal(STEPS, 5),
    Restarts(STEPS, 6),
    Restarts(STEPS, 7, completion=True),
    Restarts(STEPS, 8, completion=True),
    Restarts(STEPS, 5, completion=True, tree="tree"),
    Restarts(STEPS, 7, completion=True, accounting="nodes"),
]
IDS = [f"{type(f).__name__}-{i}" for i, f in enumerate(EVERY)]
every = pytest.mark.parametrize("factorization", EVERY, ids=IDS)


def noise_matrix(factorization, steps=None):
    """The steps' noise in terms of the draws, by feeding unit vectors to the stream."""
    steps = steps or factorization.steps
    draws = iter(np.eye(3 * steps))
    stream = factorization.stream()
    return np.array([stream.next(lambda: next(draws).copy()) for _ in range(steps)])


# ---------------------------------------------------------------- one matrix, four views of it
@every
def test_the_encoder_turns_the_noise_back_into_independent_gaussians(factorization):
    noise, encoder = noise_matrix(factorization), factorization.encode(np.eye(STEPS))
    assert np.allclose(np.tril(encoder), encoder, atol=1e-12)
    assert np.allclose(encoder @ noise @ noise.T @ encoder.T, np.eye(STEPS), atol=1e-11)


@every
def test_row_norms_are_those_of_the_stream(factorization):
    sums = np.cumsum(noise_matrix(factorization), axis=0)
    assert np.allclose(factorization.row_norms(), np.linalg.norm(sums, axis=1), atol=1e-12)


@every
@pytest.mark.parametrize("released", [0, 1, 9, STEPS])
def test_losses_are_never_below_the_exact_ones(factorization, released):
    """Exact: the squared norm of the record's mean in units of the noise of what was released."""
    noise = noise_matrix(factorization)[:released]
    covariance = noise @ noise.T
    patterns = [(0,), (4,), (21,), (0, 5, 10), (3, 8, 13, 18), (6, 12), tuple(range(STEPS))]
    losses = factorization.losses_squared(patterns, released)
    for pattern, loss in zip(patterns, losses, strict=True):
        mean = np.zeros(released)
        mean[[s for s in pattern if s < released]] = 1.0
        exact = mean @ np.linalg.solve(covariance, mean) if released else 0.0
        assert loss >= exact * (1 - 1e-9)
        bounded = (
            getattr(factorization, "accounting", "") == "nodes"
            or getattr(factorization, "completes", False)
            or isinstance(factorization, (FullHonaker, DenseOptimal))
            or (isinstance(factorization, Banded) and min(factorization.coefficients) < 0)
        )
        if not bounded:
            assert loss == pytest.approx(exact, rel=1e-9)


@every
@pytest.mark.parametrize(
    "rule", [SINGLE, Participation.epochs(4, 6), Participation.separated(3, 5)], ids=repr
)
def test_sensitivity_covers_every_allowed_pattern_in_two_dimensions(factorization, rule):
    """Contributions of one record are vectors: scalar searches miss part of it."""
    rng = np.random.default_rng(0)
    sensitivity = factorization.sensitivity_squared(rule)
    noise = noise_matrix(factorization)
    precision = np.linalg.inv(noise @ noise.T)
    patterns = rule.orders(STEPS)
    if patterns is None:
        found = itertools.combinations(range(STEPS), rule.times)
        patterns = [p for p in found if rule.allows(p)]
    assert all(rule.allows(p) for p in patterns)
    assert factorization.losses_squared(patterns).max() <= sensitivity * (1 + 1e-12)
    for pattern in patterns[::7]:
        gram = precision[np.ix_(pattern, pattern)]
        angles = rng.uniform(0, 2 * np.pi, (200, len(pattern)))
        angles[0] = 0.0
        moved = sum(np.einsum("ri,ij,rj->r", f(angles), gram, f(angles)) for f in (np.cos, np.sin))
        assert moved.max() <= sensitivity * (1 + 1e-9)


@every
@pytest.mark.parametrize("rule", [SINGLE, Participation.epochs(4, 6)], ids=repr)
def test_what_is_spent_never_falls_and_ends_at_the_whole(factorization, rule):
    spent = [factorization.sensitivity_squared(rule, t) for t in range(STEPS + 1)]
    assert spent[0] == 0.0
    assert np.all(np.diff(spent) >= -1e-12)
    assert spent[-1] == factorization.sensitivity_squared(rule)


@every
def test_a_stream_goes_on_from_its_state_at_every_step(factorization):
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(3 * STEPS, 2, 2))
    for stop in range(STEPS + 1):
        left = iter(draws)
        first, second = factorization.stream(), factorization.stream()
        values = [first.next(lambda left=left: next(left).copy()) for _ in range(stop)]
        state = first.state_dict()
        assert set(state) == {"step", "vectors"}
        assert len(state["vectors"]) <= factorization.vectors_kept() + 1
        second.load_state_dict(state)
        values += [second.next(lambda left=left: next(left).copy()) for _ in range(STEPS - stop)]
        left, whole = iter(draws), factorization.stream()
        expected = [whole.next(lambda left=left: next(left).copy()) for _ in range(STEPS)]
        assert np.allclose(values, expected, atol=1e-12)


@every
def test_no_more_vectors_are_kept_than_stated(factorization):
    stream, rng = factorization.stream(), np.random.default_rng(2)
    # A dense encoder keeps the last step's noise too; nobody asks for it again.
    spare = 1 if isinstance(factorization, (FullHonaker, DenseOptimal)) else 0
    for _ in range(STEPS):
        stream.next(lambda: rng.normal(size=3))
        assert len(stream.vectors()) <= factorization.vectors_kept() + spare


@every
def test_a_state_of_another_noise_is_refused(factorization):
    vectors = [np.zeros(2)] * (factorization.vectors_kept() + 2)
    with pytest.raises(ValueError, match=r"state|keeps no buffers"):
        factorization.stream().load_state_dict({"step": 3, "vectors": vectors})
    with pytest.raises(ValueError, match="state"):
        factorization.stream().load_state_dict({"step": -1, "vectors": []})


def test_a_state_holds_no_generator():
    state = Honaker(8).stream().state_dict()
    assert state == {"step": 0, "vectors": []}


# ---------------------------------------------------------------- trees
@pytest.mark.parametrize(
    ("steps", "expected"), [(4, 2.714), (32, 5.182), (1024, 9.466), (2048, 10.245)]
)
def test_exact_loss_of_the_online_honaker_tree(steps, expected):
    assert Honaker(steps).sensitivity_squared(SINGLE) == pytest.approx(expected, abs=5e-4)
    nodes = Honaker(steps, "nodes").sensitivity_squared(SINGLE)
    assert nodes == Tree(steps).sensitivity_squared(SINGLE) == steps.bit_length()


def test_exact_loss_of_the_online_honaker_tree_over_epochs():
    rule = Participation.epochs(5, 204)
    assert Honaker(1020).sensitivity_squared(rule) == pytest.approx(46.8, abs=0.06)
    assert Honaker(1020, "nodes").sensitivity_squared(rule) == 55


def honaker_nodes(steps):
    """All nodes' coefficients in b_t by the textbook recursion, two draws a step."""
    size, at = 2 * steps, iter(range(2 * steps))
    rows, stack = [], []
    for _ in range(steps):
        stack.append((0, np.eye(size)[next(at)]))
        while len(stack) > 1 and stack[-1][0] == stack[-2][0]:
            (h, right), (_, left) = stack.pop(), stack.pop()
            stack.append((h + 1, np.eye(size)[next(at)] + (left + right) / 2))
        rows.append(sum(node / (2 - 2.0**-h) for h, node in stack))
    return np.array(rows)


def naive_nodes(steps):
    """Each prefix as the sum of one node for each bit, every node a coordinate of its own."""
    names, rows = {}, []
    for t in range(1, steps + 1):
        row, end = np.zeros(2 * steps), t
        while end:
            low = end & -end
            row[names.setdefault((low, end), len(names))] = 1.0
            end -= low
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("steps", [1, 2, 7, 32, 45])
@pytest.mark.parametrize(("kind", "nodes"), [(Tree, naive_nodes), (Honaker, honaker_nodes)])
def test_one_draw_a_step_has_the_law_of_the_textbook_tree(kind, nodes, steps):
    sums, textbook = np.cumsum(noise_matrix(kind(steps)), axis=0), nodes(steps)
    assert np.allclose(sums @ sums.T, textbook @ textbook.T, atol=1e-12)


VARIANCES = {
    Tree: {1: 1, 2: 1, 3: 2, 7: 3, 100: 3, 1000: 6, 1023: 10, 1024: 1},
    Honaker: {
        1: 1,
        2: 0.666667,
        3: 1.666667,
        7: 2.238095,
        100: 1.583302,
        1000: 3.048635,
        1023: 5.802859,
        1024: 0.500244,
    },
    FullHonaker: {1: 0.606695, 512: 0.375305, 1023: 1.105963},
}


@pytest.mark.parametrize("kind", VARIANCES)
def test_variances_of_trees(kind):
    found = kind(1024).row_norms() ** 2
    for t, expected in VARIANCES[kind].items():
        assert found[t - 1] == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize("steps", [8, 13, 64, 100])
def test_variances_of_the_full_estimator_are_the_best_linear_ones(steps):
    """Dense: A X^-1 A' with X counted node by node."""
    gram = np.zeros((steps, steps))
    for size in (2**h for h in range(8)):
        for end in range(size, steps + 1, size):
            gram[end - size : end, end - size : end] += 1
    prefix = np.tril(np.ones((steps, steps)))
    covariance = prefix @ np.linalg.solve(gram, prefix.T)
    found = FullHonaker(steps).row_norms()
    assert np.allclose(found**2, np.diag(covariance), atol=1e-12)
    encoder = FullHonaker(steps).encoder()
    assert np.allclose(encoder.T @ encoder, gram, atol=1e-10)


def test_the_plain_cholesky_factor_is_not_the_encoder():
    """Its columns are longer than what X says: accounting it by X is a privacy bug."""
    gram = FullHonaker(64).encoder()
    gram = gram.T @ gram
    gram = gram / np.sqrt(np.outer(np.diag(gram), np.diag(gram)))
    right, wrong = encoder_of(gram), np.linalg.cholesky(gram)
    assert np.linalg.norm(right, axis=0).max() == pytest.approx(1.0)
    assert np.linalg.norm(wrong, axis=0).max() > 1.2


@pytest.mark.parametrize(
    ("steps", "separation", "times", "expected"),
    [
        (8, 8, 1, 4),
        (9, 4, 3, 11),
        (7, 3, 3, 9),
        (24, 3, 8, 88),
        (3, 1, 3, 7),
        (8, 1, 8, 120),
        (19, 1, 2, 18),
        (2000, 314, 6, 79),
    ],
)
def test_nodes_of_separated_participations(steps, separation, times, expected):
    rule = Participation.separated(times, separation)
    assert Tree(steps, "nodes").sensitivity_squared(rule) == expected
    assert Participation.between(times, separation - 1) == rule


def test_nodes_of_separated_participations_by_enumeration():
    for steps, separation, times in itertools.product((1, 2, 5, 8, 13), (1, 2, 3, 5), (1, 2, 4)):
        allowed = Participation.separated(times, separation).allows
        patterns = [
            p
            for q in range(1, times + 1)
            for p in itertools.combinations(range(steps), q)
            if allowed(p)
        ]
        found = Tree(steps, "nodes").losses_squared(patterns).max()
        assert most_squared_nodes(steps, separation, times) == found


def test_very_many_separated_participations_are_bounded_from_above():
    exact = most_squared_nodes(1020, 51, 20)
    assert exact <= 532
    assert most_squared_nodes(40_000, 100, 400) >= 400**2


# ---------------------------------------------------------------- published values of DP-FTRL
# Steps per epoch, epochs between restarts, completion, noise multiplier, delta; squared
# sensitivity by nodes, epsilon by the Renyi grid of DP-FTRL's published accounting, exact epsilon.
PUBLISHED = [
    (100, (20,) * 5, True, 46.3, 1e-5, 4129, 6.922239480615, 6.427528441496),
    (100, (20,) * 5, False, 46.3, 1e-5, 2125, 4.704948094998, 4.355048702762),
    (100, (100,), False, 46.3, 1e-5, 14349, 14.753263953138, 13.793079825952),
    (100, (1,) * 100, True, 46.3, 1e-5, 799, 2.704664077782, 2.493172298081),
    (25, (20,) * 5, True, 46.3, 1e-5, 3929, 6.722633286219, 6.240945378595),
    (100, (100,), False, 10.0, 1e-5, 14349, 127.131370102377, 121.978563073878),
    (240, (3,), False, 4.0, 1e-5, 38, 7.835656222420, 7.283482652073),
    (240, (20,), False, 20.0, 1e-5, 798, 7.066891578167, 6.563189119840),
    (240, (5,) * 4, True, 20.0, 1e-5, 415, 4.829757067218, 4.471522726288),
    (60, (20,), False, 20.0, 1e-5, 758, 6.856318185855, 6.365668286496),
    (1395, (10,) * 5, True, 30.0, 1e-6, 1412, 6.750461523963, 6.326976372095),
    (1395, (1,), False, 4.0, 1e-6, 11, 4.229541387844, 3.953282366800),
    (1600, (1,), False, 1.13, 1e-6, 11, 18.709609893773, 17.666750761207),
    (1600, (1,), False, 8.83, 1e-6, 11, 1.772304588646, 1.648658841081),
    (1600, (1,), False, 0.387, 1e-6, 11, 80.018834976649, 76.666303328819),
    (1600, (1,), False, 0.149, 1e-6, 11, 363.658091666978, 352.638193395740),
    (1024, (1,), False, 5.0, 1e-5, 11, 2.968008858964, 2.737785446847),
    (1023, (1,), False, 5.0, 1e-5, 10, 2.813653247130, 2.594383380528),
]


@pytest.mark.parametrize("row", PUBLISHED, ids=str)
def test_published_values(row):
    per_epoch, restarts, completion, sigma, delta, squared, by_grid, exact = row
    epochs = sum(restarts)
    noise = Restarts(epochs * per_epoch, restarts[0] * per_epoch, completion, accounting="nodes")
    rule = Participation.epochs(epochs, per_epoch)
    found = noise.sensitivity_squared(rule)
    assert found == squared
    mu = math.sqrt(found) / sigma
    assert gaussian_conversion(mu, delta, "renyi_grid") == pytest.approx(by_grid, abs=1e-6)
    epsilon = Accountant("zero_out").epsilon(charge_of(GaussianKind(mu, mu)), delta)
    assert epsilon == pytest.approx(exact, abs=1e-6)
    # Charged by what is released, never more.
    assert Restarts(noise.steps, noise.every, completion).sensitivity_squared(rule) <= squared


def test_the_published_federated_setting():
    rule = Participation.separated(6, 314)
    mu = math.sqrt(Tree(2000, "nodes").sensitivity_squared(rule)) / 7
    assert gaussian_conversion(mu, 1e-10, "renyi_grid") == pytest.approx(8.898605, abs=1e-6)
    assert gaussian_conversion(mu, 1e-10, "exact") == pytest.approx(8.526093, abs=1e-6)


def test_conversions_are_ordered():
    for mu in (0.1, 1.0, 5.0):
        found = [
            gaussian_conversion(mu, 1e-6, how) for how in ("exact", "renyi", "renyi_grid", "zcdp")
        ]
        assert found == sorted(found)
    assert gaussian_conversion(math.sqrt(11) / 1.13, 1e-6, "zcdp") == pytest.approx(
        19.7355, abs=1e-4
    )
    assert gaussian_conversion(math.sqrt(4129) / 46.3, 1e-5, "renyi") == pytest.approx(
        6.921886862579, abs=1e-6
    )


# ---------------------------------------------------------------- restarts
def test_restarts_are_blocks_of_one_matrix():
    """Each tree's noise is its own; running sums carry the last of every earlier tree."""
    steps, length = 20, 6
    whole = np.zeros((steps, steps))
    for start in range(0, steps, length):
        size = min(length, steps - start)
        whole[start : start + size, start : start + size] = noise_matrix(Honaker(length), size)[
            :, :size
        ]
    noise = noise_matrix(Restarts(steps, length))
    assert np.allclose(noise @ noise.T, whole @ whole.T, atol=1e-12)
    rule = Participation.epochs(4, 5)
    encoder = np.linalg.inv(whole)
    worst = max(np.sum(encoder[:, list(p)].sum(axis=1) ** 2) for p in rule.orders(steps) or [])
    assert Restarts(steps, length).sensitivity_squared(rule) == pytest.approx(worst)


@pytest.mark.parametrize("kind", ["honaker", "tree"])
@pytest.mark.parametrize("length", [3, 5, 7, 11, 12])
def test_completion_at_once_has_the_law_of_completion_step_by_step(kind, length):
    """Slow: go on with steps that bring no data until the tree is whole; only then restart."""
    inner = {"honaker": Honaker, "tree": Tree}[kind]
    whole = 1 << (length - 1).bit_length()
    slow = np.cumsum(noise_matrix(inner(whole)), axis=0)
    kept = np.vstack([slow[:length], slow[whole - 1]])
    # Two trees: the second one's first step shows the first one's root.
    own = np.cumsum(noise_matrix(inner(length)), axis=0)[:, : 3 * length]
    width = slow.shape[1]
    second = np.hstack([np.tile(kept[-1], (length, 1)), own])
    sums = np.vstack([np.hstack([kept[:-1], np.zeros((length, own.shape[1]))]), second])
    assert sums.shape[1] == width + own.shape[1]
    fast = np.cumsum(noise_matrix(Restarts(2 * length, length, True, kind)), axis=0)  # type: ignore[arg-type]
    assert np.allclose(fast @ fast.T, sums @ sums.T, atol=1e-12)


def test_completion_is_never_after_the_last_tree():
    noise = noise_matrix(Restarts(6, 6, completion=True))
    assert np.allclose(noise, noise_matrix(Honaker(6)))
    rule = Participation.epochs(2, 3)
    assert Restarts(6, 6, True).sensitivity_squared(rule) == Honaker(6).sensitivity_squared(rule)


# ---------------------------------------------------------------- Toeplitz
def test_the_square_root():
    square_root = SquareRoot(1024)
    encoder = square_root.encode(np.eye(1024))
    assert np.allclose(encoder @ encoder, np.tril(np.ones((1024, 1024))), atol=1e-9)
    assert square_root.sensitivity_squared(SINGLE) == pytest.approx(3.27255, abs=1e-5)
    assert square_root.sensitivity_squared(SINGLE) == pytest.approx(
        (math.log(1024) + 0.5772 + 4 * math.log(2)) / math.pi, rel=1e-3
    )


def test_inverse_series():
    rng = np.random.default_rng(3)
    for length in (1, 2, 3, 17, 64, 100):
        column = np.concatenate([[2.0], 0.3 * rng.normal(size=length - 1) / np.arange(1, length)])
        product = np.convolve(column, inverse_series(column))[:length]
        assert np.allclose(product, np.eye(length)[0], atol=1e-12)


def test_separated_patterns_of_a_column_that_increases_are_bounded():
    banded, rule = Banded(12, (1.0, -0.2, 0.9)), Participation.separated(3, 2)
    patterns = [p for p in itertools.combinations(range(12), 3) if rule.allows(p)]
    assert banded.losses_squared(patterns).max() <= banded.sensitivity_squared(rule)


def test_separated_patterns_of_a_falling_column_are_exact():
    for noise in (SquareRoot(12), BLT(12, (0.9, 0.4), (0.3, 0.2))):
        rule = Participation.separated(3, 3)
        patterns = [p for p in itertools.combinations(range(12), 3) if rule.allows(p)]
        exact = noise.losses_squared(patterns).max()
        assert noise.sensitivity_squared(rule) == pytest.approx(exact, rel=1e-12)


def test_parameters_of_blt():
    """Golden values for 1024 steps, one pass, three buffers."""
    decays, weights = best_buffers(1024, 1, 1024, 3)
    assert decays == pytest.approx((0.997114, 0.959750, 0.663617), abs=1e-4)
    assert weights == pytest.approx((0.070330, 0.141884, 0.278547), abs=1e-4)


def test_blt_is_found_quickly_and_falls():
    best_buffers.cache_clear()
    start = time.process_time()
    for exponent in (10, 12, 14, 16):
        noise = BLT.optimised(2**exponent, SINGLE, 4)
        column = noise.column()
        assert column[-1] > 0
        assert (np.diff(column) <= 0).all()
    assert time.process_time() - start < 10


def test_the_gradient_of_banded_noise_vanishes_at_the_optimum():
    """Any change of one coefficient makes it worse."""
    noise = Banded.optimised(60, 4)

    def error(c):
        varied = Banded(60, tuple(c))
        return varied.errors(float(np.sum(np.square(c))))[1]

    best = error(noise.coefficients)
    for index in range(4):
        for change in (-1e-3, 1e-3):
            other = np.array(noise.coefficients)
            other[index] += change
            assert error(other) >= best


def optimal_by_duality(steps, rounds=400):
    """The fixed point of Denisov et al. (2022) for a single pass: an independent optimiser."""
    prefix = np.tril(np.ones((steps, steps)))
    workload, v = prefix.T @ prefix, np.ones(steps)
    for _ in range(rounds):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(root[:, None] * workload * root)
        middle = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        v = np.diag(middle).copy()
    gram = middle / np.sqrt(np.outer(v, v))
    gram /= np.max(np.diag(gram))
    return math.sqrt(np.trace(np.linalg.solve(gram, workload)) / steps)


def test_the_dense_optimum_is_that_of_the_dual():
    noise = DenseOptimal(48)
    error = noise.errors(noise.sensitivity_squared(SINGLE))[1]
    assert error == pytest.approx(optimal_by_duality(48), rel=1e-4)
    for other in (Banded.for_rule(48, SINGLE), BLT.optimised(48, SINGLE), SquareRoot(48)):
        assert error <= other.errors(other.sensitivity_squared(SINGLE))[1]


def test_the_dense_optimum_of_epochs_beats_banded_noise():
    rule = Participation.epochs(4, 12)
    dense, banded = DenseOptimal(48, 12), Banded.for_rule(48, rule)
    assert dense.sensitivity_squared(rule) == pytest.approx(4.0)
    assert dense.errors(4.0)[1] <= banded.errors(banded.sensitivity_squared(rule))[1]


# ---------------------------------------------------------------- the table of errors
# Largest and root mean square error at mu = 1, n = epochs * floor(2^m / epochs), fixed order.
TABLE = {
    "independent": [(32.0, 22.6), (71.4, 50.5), (143, 101), (64.0, 45.3), (143, 101), (286, 202)],
    "tree": [(10.5, 7.42), (22.2, 16.6), (60.1, 44.8), (12.5, 8.83), (27.9, 19.8), (69.7, 51.4)],
    "honaker": [(7.99, 5.65), (17.1, 12.6), (46.2, 34.1), (9.40, 6.65), (21.0, 14.9), (52.8, 38.7)],
    "full": [(4.44, 3.69), (15.7, 9.26), (42.4, 25.0), (5.12, 4.27), (21.0, 10.6), (45.3, 27.6)],
    "restart": [None, (22.6, 16.1), (80.8, 57.3), None, (31.7, 22.5), (84.3, 59.7)],
    "completed": [None, (16.7, 11.9), (42.3, 30.2), None, (19.9, 14.2), (49.7, 35.4)],
    "completed 5": [None, None, (41.3, 29.2), None, None, (45.9, 33.6)],
    "sqrt": [(3.27, 3.11), (9.39, 8.92), (30.9, 29.3), (3.71, 3.55), (10.4, 9.95), (33.4, 31.9)],
    "banded sqrt": [None, (9.11, 7.46), (28.4, 21.0), None, (10.2, 8.47), (31.3, 23.4)],
    "banded": [(3.36, 3.06), (8.79, 7.37), (25.0, 19.3), (3.80, 3.50), (9.79, 8.36), (27.0, 21.2)],
    "blt": [(3.35, 3.06), (9.16, 7.67), (26.4, 20.4), (3.80, 3.50), (10.2, 8.66), (28.4, 22.4)],
}
COLUMNS = [(m, k) for m in (10, 12) for k in (1, 5, 20)]


def entry(row, steps, epochs):
    per = steps // epochs
    rule = Participation.epochs(epochs, per)
    kinds = {
        "independent": lambda: Independent(steps),
        "tree": lambda: Tree(steps, "nodes"),
        "honaker": lambda: Honaker(steps, "nodes"),
        "full": lambda: FullHonaker(steps),
        "restart": lambda: Restarts(steps, per, accounting="nodes"),
        "completed": lambda: Restarts(steps, per, True, accounting="nodes"),
        "completed 5": lambda: Restarts(steps, 5 * per, True, accounting="nodes"),
        "sqrt": lambda: SquareRoot(steps),
        "banded sqrt": lambda: Banded.square_root(steps, per),
        "banded": lambda: Banded.for_rule(steps, rule),
        "blt": lambda: BLT.optimised(steps, rule),
    }
    noise = kinds[row]()
    return noise.errors(noise.sensitivity_squared(rule))


@pytest.mark.parametrize("row", TABLE)
def test_table_of_errors(row):
    for (m, epochs), expected in zip(COLUMNS, TABLE[row], strict=True):
        if expected is None:
            continue
        found = entry(row, epochs * (2**m // epochs), epochs)
        for ours, printed in zip(found, expected, strict=True):
            assert ours <= printed * 1.01
            if row not in ("banded", "blt"):
                assert ours >= printed * 0.99


def test_auto_takes_the_first_of_the_table():
    rule = Participation.epochs(5, 204)
    table = compare(1020, rule)
    assert named("auto", 1020, rule) is table[0].factorization
    assert table[0].name == "blt"  # banded noise would keep 203 vectors
    roomy = compare(1020, rule, most_vectors=300)
    assert [c.name for c in roomy[:2]] == ["banded", "blt"]
    assert roomy[0].mean_error == pytest.approx(7.37, abs=0.01)
    assert {c.name for c in table} == {
        "independent",
        "tree",
        "honaker",
        "sqrt_toeplitz",
        "banded",
        "blt",
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_every_noise_can_be_tuned_for_short_and_odd_streams():
    for steps in (1, 2, 3, 7, 20, 61):
        for rule in (SINGLE, Participation.epochs(5, max(1, steps // 5)), Participation(steps, 1)):
            errors = {row.name: row.mean_error for row in compare(steps, rule)}
            assert all(map(math.isfinite, errors.values()))
            assert errors["banded"] <= errors["independent"] * (1 + 1e-9)
            assert errors["blt"] <= 1.08 * errors["banded"]


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tree(0), "at least one step"),
        (lambda: Tree(3, "leaves"), "accounting"),  # type: ignore[arg-type]
        (lambda: Restarts(3, 0), "at least one step"),
        (lambda: Restarts(3, 1, tree="oak"), "tree must be"),  # type: ignore[arg-type]
        (lambda: Banded(3, (1.0, 0.5, 0.2, 0.1)), "bands"),
        (lambda: Banded(3, (0.0, 0.5)), "positive"),
        (lambda: Banded(3, (1.0, math.nan)), "finite"),
        (lambda: BLT(3, (0.5,), ()), "decay and a weight"),
        (lambda: BLT(3, (1.5,), (0.1,)), "between 0 and 1"),
        (lambda: BLT(3, (0.5,), (-0.1,)), "positive"),
        (lambda: BLT.optimised(8, SINGLE, 9), "buffers"),
        (lambda: named("oak", 3), "noise must be"),
        (lambda: Participation(0), "at least once"),
        (lambda: Participation(1, 0), "min_separation_steps"),
    ],
)
def test_bad_input_gets_one_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_large_matrices_and_steps_beyond_the_end_are_refused():
    with pytest.raises(Refused, match="2048"):
        FullHonaker(5000).stream()
    with pytest.raises(Refused, match="declared for 8 steps"):
        Tree(8).sensitivity_squared(SINGLE, released=9)


@pytest.mark.parametrize("tree", ["honaker", "tree"])
def test_restarts_that_help(tree):
    """Over many epochs new trees beat one; in a single pass one tree is kept."""
    rule = Participation.epochs(20, 60)
    best, whole = Restarts.best(tree, 1200, rule), named(tree, 1200, rule)
    assert isinstance(best, Restarts)
    assert best.completion
    assert best.every % 60 == 0

    def error(factorization):
        return factorization.errors(factorization.sensitivity_squared(rule))[1]

    assert error(best) < 0.7 * error(whole)
    for every in (60, 120, 240, 600):
        assert error(best) <= error(Restarts(1200, every, True, tree)) * (1 + 1e-12)
    once = Restarts.best(tree, 100, Participation.single_pass())
    assert not isinstance(once, Restarts)


@pytest.mark.parametrize("most", [0, 3, 64])
@pytest.mark.parametrize("steps", [1, 2, 5, 20, 65, 66, 200])
def test_auto_takes_the_first_of_the_table_without_tuning_all_of_it(steps, most, monkeypatch):
    from privopt.privacy.factorizations import catalogue

    for rule in (Participation(), Participation.epochs(4, max(1, steps // 4))):
        first = catalogue.compare(steps, rule, most)[0]
        assert catalogue.named("auto", steps, rule, most) == first.factorization
    monkeypatch.setattr(Banded, "optimised", None)
    assert catalogue.named("auto", 30_001).vectors_kept() <= 64
