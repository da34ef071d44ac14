"""The report: attack bounds against closed forms, errors in the right units, a safe page."""

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
from privopt.report import Attack, card, findings, page, write_card, write_report
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


def test_the_curve_of_a_gaussian_is_that_gaussians_mu():
    attack = Attack(certificate(GaussianKind(0.5, 0.5), 3.0, 1e-6))
    assert attack.mu == pytest.approx(0.5, rel=1e-3)


# ------------------------------------------------------------ how sure
def records(n=3000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) * [1, 2, 0.5] + [0, 1, 0]
    return X, X @ [1, -0.5, 1] + rng.logistic(size=n) > 0


def test_coefficients_without_intervals_claim_no_error():
    """What was printed here once was 9 times too small where columns are correlated."""
    found = findings(fitted())
    assert found.summary is None
    assert all(one.errors is None for one in found.coefficients)
    assert not any(one.faint or one.clear for one in found.coefficients)
    assert "is not said" in page(found)
    assert "is not said" in card(found)


def test_errors_are_in_units_of_the_columns_as_given():
    """The encoder scales a column of width 10 by 5: coefficient and error are per unit of it."""
    model = fitted(reference=True, intervals=True, random_state=0)
    found, final = findings(model), model[-1]
    scales = model[0].scales()
    by_name = {one.name: one for one in found.coefficients}
    for name, coef, error, scale in zip(
        found.summary.names, final.coef_[0], final.standard_errors_, scales, strict=False
    ):
        assert by_name[name].values[0] == pytest.approx(coef / scale)
        assert by_name[name].errors[0] == pytest.approx(error / scale)
        place = list(found.summary.names).index(name)
        assert found.summary.estimate.std_err[place] == pytest.approx(error / scale)


def test_the_forest_shows_intervals_and_says_so_where_there_are_none():
    told = page(findings(fitted(reference=True, intervals=True, random_state=0)))
    assert "Coefficients and how sure they are" in told
    assert "sampling and noise together" in told
    weak = LogisticRegression(
        0.05, bounds=(-1, 1), classes=[False, True], intervals=True, random_state=0
    ).fit(*records(200))
    told = page(findings(weak))
    assert "not identified at this epsilon" in told
    assert "Hollow" in told


# ------------------------------------------------------------ the page
EVIL = "<script>alert('x')</script>"


def fitted(reference=False, **options):
    X, y = records(1500)
    people = pd.DataFrame({EVIL: X[:, 0], "job": np.where(X[:, 1] > 0, "a|b", "c")})
    declared = {
        EVIL: {"kind": "numeric", "lower": -5, "upper": 5},
        "job": {
            "kind": "categorical",
            "categories": ["a|b", "c", *([] if reference else ["</script>"])],
        },
    }
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=[False, True], **options)
    return make_pipeline(DeclaredColumns(declared, reference), model).fit(people, y)


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
        "How much of them is noise is not said",
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
