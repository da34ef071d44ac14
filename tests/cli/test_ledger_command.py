"""``privopt ledger`` and ``privopt fit --ledger``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from privopt import Certificate, Ledger, LogisticRegression
from privopt.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def text_of(result):
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def complains(result, words):
    assert result.exit_code == 2
    sentence = " ".join(result.stderr.split())
    assert sentence.startswith("error: ")
    assert words in sentence
    assert ". " not in sentence


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (200, 2))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def csv(records, tmp_path):
    X, y = records
    rows = "\n".join(f"{a},{b},{label}" for (a, b), label in zip(X, y, strict=True))
    (tmp_path / "people.csv").write_text(f"a,b,sick\n{rows}\n")
    return tmp_path / "people.csv"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.db"
    text = text_of(run("ledger", "create", path, "--dataset", "people", "--epsilon", 2))
    assert text.startswith("people: epsilon=0 at delta=0 of epsilon=2 at delta=0 is spent")
    return path


def test_fit_pays_and_is_refused(csv, path, tmp_path):
    out = tmp_path / "model.skops"
    fit = ("fit", csv, "--target", "sick", "--data-norm", 1, "--epsilon", 1.5, "--out", out)
    assert run(*fit, "--ledger", path, "--dataset", "people").exit_code == 0
    certificate = tmp_path / "model.certificate.json"
    assert Certificate.from_json(certificate.read_text()).ledger["dataset"] == "people"
    complains(run(*fit, "--force", "--ledger", path), "the budget of 'people' is short")
    shown = text_of(run("ledger", "show", path))
    for words in (
        "people",
        "zero_out",
        "2 at 0",
        "1.5 at 0",
        "0.5 at 0",
        "1 committed",
    ):
        assert words in shown
    verified = text_of(run("ledger", "verify", path, "--certificate", certificate))
    assert "3 entries, every hash is right" in verified
    complains(run(*fit, "--force", "--dataset", "people"), "give ledger=")
    complains(run(*fit, "--force", "--ledger", tmp_path / "none.db"), "there is no ledger")


def test_create_says_how_fits_add_up(tmp_path):
    path = tmp_path / "ledger.db"
    options = ("--delta", 1e-6, "--composition", "gaussian", "--neighbouring", "replace_one")
    assert "squares of Gaussian losses" in text_of(run("ledger", "create", path, *options))
    assert Ledger(path).dataset("data").budget.neighbouring == "replace_one"
    complains(run("ledger", "create", path), "never grows")
    complains(run("ledger", "create", tmp_path / "b.db", "--epsilon", 0), "epsilon must be")


def test_burn(records, path, tmp_path):
    """A fit from elsewhere is charged, and open reservations are settled."""
    file = tmp_path / "elsewhere.json"
    file.write_text(LogisticRegression(0.5, classes=[0, 1]).fit(*records).privacy_.to_json())
    text = text_of(run("ledger", "burn", path, "--dataset", "people", "--certificate", file))
    assert "epsilon=0.5 at delta=0 of" in text
    text = text_of(run("ledger", "burn", path, "--dataset", "people"))
    assert text.startswith("0 open reservation(s) burned")
    complains(run("ledger", "burn", path, "--dataset", "other"), "no budget for 'other'")


def test_a_lost_head_is_accepted_by_hand(path):
    Path(f"{path}-head").unlink()
    complains(run("ledger", "show", path), "is missing")
    complains(run("ledger", "verify", path), "is missing")
    assert "1 entries" in text_of(run("ledger", "verify", path, "--accept"))
    text_of(run("ledger", "show", path))


def test_a_certificate_of_another_ledger(records, path, tmp_path):
    other = Ledger.create(tmp_path / "other.db", 1.0)
    model = LogisticRegression(0.5, classes=[0, 1], ledger=other).fit(*records)
    (tmp_path / "c.json").write_text(model.privacy_.to_json())
    complains(run("ledger", "verify", path, "--certificate", tmp_path / "c.json"), "another ledger")
