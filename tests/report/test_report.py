"""The report: attack bounds against closed forms, spreads against repeated fits, a safe page."""

from __future__ import annotations

import builtins
import math
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri
from sklearn.pipeline import make_pipeline

from privopt import LinearRegression, LogisticRegression
from privopt.privacy import Budget, Certificate
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import GaussianKind, Pure
from privopt.report import Attack, card, findings, page, spread_of, write_card, write_report
from privopt.report.markup import plotly
from privopt.tables import DeclaredColumns


def certificate(kind, epsilon, delta=0.0, neighbouring="zero_out"):
    budget = Budget(epsilon, delta, neighbouring)
    return Certificate(
        budget.epsilon, budget.delta, budget.neighbouring, "record", True, "made_up",
        (((), charge_of(kind)),), 1, 1,
    )  # fmt: skip


# ------------------------------------------------------------ attacks
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_no_test_between_gaussians_beats_the_bound(mu):
    """The best test of one Gaussian release has t = Phi(Phi^-1(f) + mu); the bound is near it."""
    attack = Attack(certificate(GaussianKind(mu, mu), 50.0, 1e-6))
    for rate in (0.001, 0.01, 0.1, 0.5):
        best = ndtr(ndtri(rate) + mu)
        assert best <= attack.true_positives(rate) <= 1.25 * best + 1e-3
    right = (ndtr(mu / 2) - ndtr(-mu / 2) + 1) / 2
    assert right <= attack.guesses() <= 1.1 * right


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_privacy_has_the_known_limits(epsilon):
    """Randomised response attains both limits of epsilon-DP."""
    attack = Attack(certificate(Pure(epsilon), epsilon))
    assert attack.curve[0] == (0.0, epsilon)
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert attack.guesses() == pytest.approx(right)
    wrong = 1 - right
    assert attack.true_positives(wrong) == pytest.approx(right)
    for rate in (0.001, 0.01):
        most = min(math.exp(epsilon) * rate, 1 - math.exp(-epsilon) * (1 - rate))
        assert attack.true_positives(rate) == pytest.approx(most)
        assert attack.belief(rate) == pytest.approx(most / (most + rate))


def test_every_point_of_the_curve_holds():
    found = certificate(GaussianKind(0.5, 0.5), 3.0, 1e-6, "replace_one")
    for delta, epsilon in Attack(found).curve:
        assert epsilon == found.epsilon_at(delta)


# ------------------------------------------------------------ spread of the noise
def records(n=3000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) * [1, 2, 0.5] + [0, 1, 0]
    return X, X @ [1, -0.5, 1] + rng.logistic(size=n) > 0


def deviations(runs, **options):
    X, y = records()
    fits = [
        LogisticRegression(2.0, classes=[False, True], random_state=seed, **options).fit(X, y)
        for seed in range(runs)
    ]
    return np.std([model.coef_ for model in fits], axis=0, ddof=1), spread_of(fits[0])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_additive_noise_is_stated_exactly(delta):
    """Sixty fits: the sample deviation of 3 coordinates lies within 40 % but for 1e-6."""
    seen, said = deviations(60, delta=delta, data_norm=3.0, solver="output_perturbation")
    assert said.estimate is said.bound
    ratio = math.sqrt(np.mean((seen / said.bound) ** 2))
    assert 0.6 < ratio < 1.4


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_default_classifier_with_uncorrelated_columns(delta):
    """The estimate knows released moments only, so it is asked for a factor of two."""
    seen, said = deviations(40, delta=delta, bounds=(-10, 10))
    assert np.all(seen / said.estimate > 0.5)
    assert np.all(seen / said.estimate < 2.0)
    assert np.all(seen < said.bound)


def test_the_default_classifier_with_columns_that_depend_on_each_other():
    """Categories exclude each other, and a copy of a column makes both free to move: the estimate
    sees the first, and only the bound holds for the second."""
    rng = np.random.default_rng(3)
    job, age = rng.integers(0, 3, 4000), rng.uniform(-1, 1, 4000)
    people = pd.DataFrame({"job": job, "age": age, "copy": age})
    rich = (job == 1) + 2 * age + rng.logistic(size=4000) > 0
    number = {"kind": "numeric", "lower": -1, "upper": 1}
    jobs = {"kind": "categorical", "categories": [0, 1, 2]}
    columns = {"job": jobs, "age": number, "copy": number}
    fits = [
        make_pipeline(
            DeclaredColumns(columns),
            LogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=[False, True], random_state=seed),
        ).fit(people, rich)
        for seed in range(40)
    ]
    seen = np.std([model[-1].coef_ for model in fits], axis=0, ddof=1)
    said, alone = spread_of(fits[0]), spread_of(fits[0][-1])
    assert np.all(seen < said.bound)
    assert np.all(seen[:, :3] < 2 * said.estimate[:, :3])
    assert np.all(seen[:, 3:] > 3 * said.estimate[:, 3:])
    assert np.all(alone.estimate[:, :3] < 0.5 * said.estimate[:, :3])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_objective_perturbation_stays_below_its_bound(delta):
    seen, said = deviations(20, delta=delta, data_norm=3.0, solver="objective_perturbation")
    assert said.estimate is None
    assert np.all(seen <= said.bound)


@pytest.mark.parametrize(
    ("noise", "delta", "columns", "solver", "least"),
    [
        ("pure", 0.0, 4, "objective_perturbation", 0.65),
        ("gaussian", 1e-6, 80, "objective_perturbation", 0.85),
        ("gaussian", 1e-6, 80, "output_perturbation", 0.85),
    ],
)
def test_the_bound_is_attained_without_data(noise, delta, columns, solver, least):
    """On rows of zeros the minimiser is the noise over the regularisation, in each coordinate.

    Norm-Gamma noise has p + 1 of the p (p + 1) / (p - 1) that is allowed: .87 of the bound.
    """
    X, y = np.zeros((40, columns)), np.arange(40) % 2
    fits = [
        LogisticRegression(1.0, delta, fit_intercept=False, solver=solver, random_state=seed).fit(
            X, y
        )
        for seed in range(400 // columns + 30)
    ]
    assert fits[0].plan_.settings.public()["noise"] == noise
    seen = np.sqrt(np.mean([model.coef_**2 for model in fits]))
    assert least < seen / spread_of(fits[0]).bound[0, 0] < 1.15


def test_spreads_in_units_of_the_columns():
    """A column in other units has a coefficient, and a spread, in other units."""
    X, y = records()
    common = {"classes": [False, True], "random_state": 0}
    plain = LogisticRegression(2.0, 1e-6, bounds=(-10, 10), **common).fit(X, y)
    large = LogisticRegression(2.0, 1e-6, bounds=(-1000, 1000), **common).fit(100 * X, y)
    for part in ("estimate", "bound"):
        ratio = getattr(spread_of(plain), part) / getattr(spread_of(large), part)
        assert ratio == pytest.approx(np.full((1, 3), 100.0), rel=1e-3)


def test_no_spread_where_none_is_known():
    X, y = records(500)
    model = LogisticRegression(2.0, 1e-6, solver="noisy_gd", random_state=0).fit(X, y)
    said = spread_of(model)
    assert said.estimate is None
    assert said.bound is None
    assert "is not known: the noise of noisy_gd" in said.how


# ------------------------------------------------------------ the page
EVIL = "<script>alert('x')</script>"


def fitted(**options):
    X, y = records(1500)
    people = pd.DataFrame({EVIL: X[:, 0], "job": np.where(X[:, 1] > 0, "a|b", "c")})
    declared = {
        EVIL: {"kind": "numeric", "lower": -5, "upper": 5},
        "job": {"kind": "categorical", "categories": ["a|b", "c", "</script>"]},
    }
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=[False, True], **options)
    return make_pipeline(DeclaredColumns(declared), model).fit(people, y)


class Reader(HTMLParser):
    """Tags must be closed in order; text outside scripts and styles is collected."""

    VOID = frozenset({"meta", "link", "br", "wbr", "path", "rect", "circle", "polyline"})

    def __init__(self):
        super().__init__()
        self.open, self.words, self.scripts = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.words.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader, " ".join(" ".join(reader.words).split())


def test_the_page_says_what_it_must_without_a_script():
    found = findings(fitted(), "My model")
    reader, words = read(page(found))
    assert words.startswith("My model")
    for text in (
        "any one record is replaced by an empty one",
        "is right in at most",
        "false alarms",
        "Epsilon at other deltas",
        "predicted excess risk",
        "The estimate is from 40 runs",
        "The bound holds whatever the correlation",
        "standardized_objective was chosen",
        "What was assumed to be public",
        "-5 to 5",
        f"{EVIL}",
        "job=a|b",
    ):
        assert text in words
    assert page(found).count('<svg class="static"') == 4
    assert len(reader.scripts) == 4 + 2
    assert not re.search(r'(src|href)="(?!data:)', page(found).split("<script")[0])


def test_names_cannot_break_out():
    text = page(findings(fitted(), EVIL))
    assert "<script>alert" not in text
    assert text.count("</script>") == 6  # four figures, plotly, and what starts it
    markdown = card(findings(fitted(), EVIL))
    assert "<script>" not in markdown
    assert "a\\|b" in markdown


def test_withoutplotly_the_pictures_stand_alone(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    plotly.cache_clear()
    text = page(findings(fitted()))
    monkeypatch.undo()
    plotly.cache_clear()
    assert "<script" not in text
    assert text.count("<svg") == 4
    assert len(text) < 60_000


def test_a_seeded_model_is_called_not_private():
    assert "Not private." in page(findings(fitted(random_state=0)))
    assert "NO: the noise was seeded" in card(findings(fitted(random_state=0)))
    assert "Not private." not in page(findings(fitted()))


def test_other_models_have_a_report(tmp_path):
    X, _ = records(800)
    numbers = LinearRegression(1.0, 1e-6, bounds=(-9, 9), target_bounds=(-5, 5)).fit(X, X[:, 0])
    three = LogisticRegression(3.0, 1e-6, bounds=(-9, 9)).fit(X, np.arange(800) % 3)
    pure = LogisticRegression(1.0, neighbouring="add_remove", n_public=700).fit(X, X[:, 0] > 0)
    for name, model in {"numbers": numbers, "three": three, "pure": pure}.items():
        write_report(model, tmp_path / "deep" / f"{name}.html")
        write_card(model, tmp_path / f"{name}.md")
        _, words = read((tmp_path / "deep" / f"{name}.html").read_text())
        assert model.privacy_.solver in words
        assert "nan" not in words.split()
        assert "inf" not in words.split()
    assert "as declared" in (tmp_path / "pure.md").read_text()
    assert "list of classes was read from y" in (tmp_path / "three.md").read_text()


def test_only_fitted_models_have_a_report():
    with pytest.raises(ValueError, match="fit it first"):
        findings(LogisticRegression())


# ------------------------------------------------------------ shapes of columns
def test_shapes_are_drawn_with_a_band_of_the_right_size():
    """Sixteen fits; within the middle of the records, at bins where nothing is cut, the estimate is
    between a third and three times what the fits show."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (4000, 2))
    y = rng.random(4000) < 1 / (1 + np.exp(-2 * np.sin(X[:, 0])))
    models = [
        LogisticRegression(
            2.0, 1e-6, bounds=(0, 10), features=[0, 1], random_state=k, discrete_noise=False
        ).fit(X, y)
        for k in range(16)
    ]
    each = {one.name: one for one in findings(models[0]).shapes}
    assert next(iter(each)) == "x0"  # the one that moves the score most
    for j, name in enumerate(("x0", "x1")):
        middle = (models[0].shapes_[j].edges[1:] + models[0].shapes_[j].edges[:-1]) / 2
        scores = [m.coef_[0, j] * middle + m.shapes_[j].values[0] for m in models]
        seen = np.std([score - score.mean() for score in scores], axis=0, ddof=1)
        ratio = np.median(each[name].deviation[8:-8] / seen[8:-8])
        assert 1 / 3 < ratio < 3
    text = page(findings(models[0]))
    assert "Shapes of columns" in text
    assert all(f"{name}: straight part and shape</figcaption>" in text for name in each)
    assert "Shapes of columns" not in page(
        findings(LogisticRegression(2.0, 1e-6, bounds=(0, 10), random_state=0).fit(X, y))
    )
