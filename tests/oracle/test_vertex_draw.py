"""The sampler of vertices: its law is that of the exponential mechanism, its envelope holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import softmax

from benchmarks.sparse_speed import fast_fifth_picks, plain_fifth_picks, two_sample
from privopt.geometry import L1Ball, Simplex
from privopt.losses import Huber, Logistic, SmoothedHinge, Squared
from privopt.mechanisms import ExponentialMechanism, Gate, PermuteAndFlip
from privopt.mechanisms.maps import VertexScores
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.oracle.vertex_draw import VertexDraw

BOUNDS = RowBounds(math.inf, 0.0, 1.0)


def data(n=60, p=6, seed=0):
    """The first columns are full, the last ones nearly empty: heavy and light ones."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p)) * (rng.random((n, p)) < np.linspace(1.0, 0.03, p))
    return sp.csr_array(X), np.where(rng.random(n) < 0.5 + 0.4 * np.sign(X[:, 0]), 1.0, -1.0)


def view_of(X, y, bounds=BOUNDS):
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=bounds, source=SilentSource())
    return oracle.everything()


def followed(X, y, domain, loss=None, stale=False):
    loss = loss or Logistic()
    p = X.shape[1]
    query = CoordinateClippedGradient(loss, loss.lipschitz, BOUNDS, p)
    path = view_of(X, y).follow(query, domain.centre(p), stale=stale)
    return path, path.gradient().through(VertexScores(domain, p)).open(KEY)


def p_value(drawn, chances):
    """Chi-square of draws against a law; cells that expect fewer than five join the likeliest."""
    counts, expected = np.bincount(drawn, minlength=len(chances)), chances * len(drawn)
    kept = (expected >= 5) & (np.arange(len(chances)) != np.argmax(chances))
    if not kept.any():
        return 1.0
    counts = np.append(counts[kept], counts[~kept].sum())
    return stats.chisquare(counts, np.append(expected[kept], expected[~kept].sum())).pvalue


# ------------------------------------------------------------ the law
@pytest.mark.statistical
@pytest.mark.parametrize("domain", [L1Ball(2.0), Simplex(2.0)], ids=["ball", "simplex"])
@pytest.mark.parametrize("scale", [60.0, 6.0, 1.0], ids=["light", "mixed", "heavy"])
@pytest.mark.parametrize("stale", [False, True], ids=["exact", "stale"])
def test_each_choice_has_the_law_of_the_scores(domain, scale, stale):
    """At every step of a path: 6,000 draws against the softmax of scores that are computed apart,
    at theta for the exact mode. A scale off by two fails. False alarm: 1e-6 each."""
    X, y = data()
    p, query = X.shape[1], CoordinateClippedGradient(Logistic(), 1.0, BOUNDS, X.shape[1])
    path, draw = followed(X, y, domain, stale=stale)
    theta, source, scores = domain.centre(p), SeededSource(1), VertexScores(domain, p)
    wrong = []
    for t, index in enumerate([0, 5, 1, 0]):
        gradient = view_of(X, y).ask(query, theta).open(KEY)
        true = draw.scores() if stale else scores.apply(gradient)
        drawn = np.array([draw.choose(scale, source) for _ in range(6_000)])
        assert p_value(drawn, softmax(true / scale)) > 1e-6
        wrong.append(p_value(drawn, softmax(true / (2 * scale))))
        step, (k, value) = 2 / (t + 2), scores.entry(index)
        theta = (1 - step) * theta + step * scores.vertex(index)
        path.move(k, value, step)
    if scale == 1:  # where all choices are nearly equal a scale shows little
        assert min(wrong) < 1e-6
    heavy = len(draw._heavy)
    assert {60.0: heavy == 0, 6.0: 0 < heavy < p, 1.0: heavy >= p - 1}[scale]


@pytest.mark.statistical
def test_the_fifth_choice_has_the_law_of_the_plain_algorithm():
    """Two-sample chi-square of 40,000 plain runs against 4,000 fast ones; the scale off by two
    fails. False alarm: 1e-6."""
    fast = fast_fifth_picks(6.0, 18.0, 4_000)
    assert two_sample(plain_fifth_picks(6.0, 18.0, 40_000, seed=1), fast) > 1e-6
    for wrong in (9.0, 36.0):
        assert two_sample(plain_fifth_picks(6.0, wrong, 40_000, seed=2), fast) < 1e-6


# ------------------------------------------------------------ the envelope
LOSSES = [Logistic(), Huber(0.5), SmoothedHinge(0.5), Squared(residual_clip=3.0)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("stale", [False, True], ids=["exact", "stale"])
def test_no_weight_exceeds_its_envelope(loss, stale):
    """Along random paths every coordinate stays within its room, and within the drift that heavy
    columns are watched by, which is renewed in time."""
    rng = np.random.default_rng(2)
    X, y = data(40, 5)
    renewed = 0
    for scale in (40.0, 4.0, 0.5):
        for domain in (L1Ball(4.0), Simplex(4.0)):
            path, draw = followed(X, y, domain, loss, stale)
            draw.choose(scale, SeededSource(0))
            incremental_gradient, scores = draw._followed, VertexScores(domain, 5)
            for t in range(40):
                path.move(*scores.entry(int(rng.integers(scores.count))), 2 / (t + 2))
                heavy = draw._heavy
                if len(heavy):
                    gap = np.abs(incremental_gradient.gradient() - draw._anchor)[heavy]
                    assert gap.max() <= draw._drift()
                before = draw._anchor.copy()
                draw.choose(scale, SeededSource(0))
                renewed += not np.array_equal(before, draw._anchor)
                gap = np.abs(incremental_gradient.gradient() - draw._anchor)
                assert (gap <= draw._room).all()
                for k in range(5):
                    assert 0 < draw._acceptance(k, incremental_gradient.coordinate(k)) <= 1
    assert renewed > 0


def test_an_envelope_that_does_not_hold_is_noticed():
    X, y = data()
    path, draw = followed(X, y, L1Ball(5.0))
    draw.choose(100.0, SeededSource(0))
    path.move(0, 5.0, 1.0)
    draw._room[:] = 0.0
    far = [draw._followed.coordinate(k) for k in range(X.shape[1])]
    grown = int(np.argmax(np.abs(far) - np.abs(draw._anchor)))
    with pytest.raises(AssertionError, match="envelope"):
        draw._acceptance(grown, far[grown])


# ------------------------------------------------------------ scales, and what is not shown
@dataclass(frozen=True)
class MeanLogistic(Logistic):
    """Logistic loss over a public number of records, a power of two."""

    count: int = 64

    def slope(self, z, y):
        return super().slope(z, y) / self.count

    @property
    def lipschitz(self):
        return 1 / self.count

    @property
    def smoothness(self):
        return 0.25 / self.count


def test_sums_and_means_choose_the_same_vertices():
    """Bit for bit, along a path: scores, noise and envelopes are all divided by the number."""
    X, y = data()
    chosen = []
    for loss, scale in ((Logistic(), 5.0), (MeanLogistic(), 5.0 / 64)):
        path, draw = followed(X, y, L1Ball(2.0), loss)
        source, scores, picks = SeededSource(3), VertexScores(L1Ball(2.0), X.shape[1]), []
        for t in range(300):
            picks.append(draw.choose(scale, source))
            path.move(*scores.entry(picks[-1]), 2 / (t + 2))
        chosen.append(picks)
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) > 5


def test_the_sources_streams_do_not_tell_how_often_was_drawn():
    X, y = data()
    source = SeededSource(7)
    before = str(source.noise.bit_generator.state), str(source.coins.bit_generator.state)
    _, draw = followed(X, y, L1Ball(5.0))
    for _ in range(50):
        draw.choose(1.0, source)
    assert before == (str(source.noise.bit_generator.state), str(source.coins.bit_generator.state))
    one, other = SeededSource(7), SeededSource(7)
    assert one.apart().random() == other.apart().random() != one.apart().random()


def test_without_noise_the_best_score_wins():
    X, y = data()
    for domain in (L1Ball(5.0), Simplex(5.0)):
        _, draw = followed(X, y, domain)
        assert draw.choose(1.0, SilentSource()) == int(np.argmax(draw.scores()))
    _, draw = followed(X[:0], y[:0], L1Ball(5.0))
    assert draw.choose(1.0, SilentSource()) == 0
    drawn = [draw.choose(1.0, SeededSource(s)) for s in range(60)]
    assert len(set(drawn)) > 8  # no records: all twelve vertices alike


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9, 1e-13])
@pytest.mark.parametrize("domain", [L1Ball(5.0), Simplex(5.0)], ids=["ball", "simplex"])
def test_with_hardly_any_noise_the_best_score_wins_too(domain, scale):
    """Rounding neither breaks an envelope nor a choice, however small the noise."""
    X, y = data()
    path, draw = followed(X, y, domain)
    scores = VertexScores(domain, X.shape[1])
    for t in range(20):
        chosen = draw.choose(scale, SeededSource(t))
        assert chosen == int(np.argmax(draw.scores()))
        path.move(*scores.entry(chosen), 2 / (t + 2))


def test_the_gate_draws_by_the_payload():
    """The release names the mechanism and its loss as ever; a failure keeps its details."""
    X, y = data()
    query = CoordinateClippedGradient(Logistic(), 1.0, BOUNDS, X.shape[1])
    sealed = view_of(X, y).follow(query, np.zeros(6)).gradient().through(VertexScores(L1Ball(2), 6))
    gate = Gate(SeededSource(0))
    assert 0 <= gate.release(ExponentialMechanism(2.0), sealed) < 12
    assert isinstance(sealed.open(KEY), VertexDraw)
    (event,) = gate.log
    assert 0 <= gate.release(PermuteAndFlip(2.0), sealed) < 12  # needs all scores, and gets them
    assert event.mechanism == "ExponentialMechanism"
    assert event.kinds[0].eta == 0.5
    assert sealed.sensitivity.radius == pytest.approx(4.0)
