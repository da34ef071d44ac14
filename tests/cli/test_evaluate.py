"""``privopt evaluate`` and ``privopt fit --holdout``: files, parts, budgets, refusals."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import privopt
from privopt.cli import app
from privopt.evaluation import Evaluation
from privopt.tables.judge import parted

BOUNDS = """
[target]
column = "{target}"
{kind}

[columns.age]
kind = "numeric"
lower = 18
upper = 98

[columns.city]
kind = "categorical"
categories = ["Bonn", "Ulm"]

[columns.person]
kind = "ignored"

[columns.{other}]
kind = "ignored"
"""
SICK = BOUNDS.format(target="sick", kind='kind = "classes"\nclasses = ["no", "yes"]', other="cost")
COST = BOUNDS.format(target="cost", kind='kind = "number"\nlower = 0\nupper = 40', other="sick")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def complains(words, *arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.split())


def people(rows, seed):
    rng = np.random.default_rng(seed)
    age, city = rng.integers(18, 98, rows), rng.choice(["Bonn", "Ulm"], rows)
    score = (age - 58) / 15 + 2.0 * (city == "Ulm")
    return pa.table(
        {
            "age": age,
            "city": city,
            "person": [f"p{i // 3}" for i in range(rows)],
            "sick": np.where(score + rng.logistic(size=rows) > 0, "yes", "no"),
            "cost": np.clip(10 + 5 * score + rng.normal(size=rows), 0, 40),
        }
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(people(1500, 0), tmp_path / "people.csv")
    pyarrow.csv.write_csv(people(1200, 1), tmp_path / "held.csv")
    (tmp_path / "sick.toml").write_text(SICK)
    (tmp_path / "cost.toml").write_text(COST)
    return tmp_path


def test_a_saved_model_is_evaluated_on_a_file(folder):
    done("fit", "people.csv", "--epsilon", 3, "--bounds", "sick.toml", "--out", "m.skops")
    said = done(
        "evaluate", "m.skops", "held.csv", "--target", "sick", "--epsilon", 1,
        "--out", "e.json", "--report", "r.html",
    )  # fmt: skip
    assert "accuracy" in said
    assert "log_loss" in said
    assert "epsilon=1 (pure), zero_out" in said
    found = Evaluation.from_json((folder / "e.json").read_text())
    model = privopt.load("m.skops")
    table = people(1200, 1)
    truth = np.mean(model.predict(table) == np.array(table["sick"].to_pylist()))
    assert found.accuracy.low - 0.02 <= truth <= found.accuracy.high + 0.02
    assert found.sums.sum() == pytest.approx(1200, abs=80)
    page = (folder / "r.html").read_text()
    assert "How good it is" in page
    assert "For the record" in page
    written = done("report", "m.skops", "--evaluation", "e.json", "--out", "again.html",
                   "--card", "card.md")  # fmt: skip
    assert "again.html and card.md" in written
    assert "How good it is" in (folder / "again.html").read_text()
    assert "## Evaluation" in (folder / "card.md").read_text()
    data = json.loads(run("evaluate", "m.skops", "held.csv", "--target", "sick", "--json").stdout)
    assert data["metrics"]["accuracy"]["low"] < data["metrics"]["accuracy"]["high"]
    assert "pays for the fit" in done(
        "evaluate", "m.skops", "people.csv", "--target", "sick", "--training"
    )


def test_a_regression_and_users(folder):
    done("fit", "people.csv", "--epsilon", 3, "--bounds", "cost.toml", "--out", "m.skops")
    said = done(
        "evaluate", "m.skops", "held.csv", "--target", "cost", "--epsilon", 2,
        "--users", "person", "--rows-per-user", 3,
    )  # fmt: skip
    assert "rmse" in said
    assert "per user" in said


def test_fit_parts_the_rows_by_a_public_rule(folder):
    said = done(
        "fit", "people.csv", "--epsilon", 2, "--bounds", "sick.toml", "--holdout", 0.2,
        "--report", "r.html",
    )  # fmt: skip
    assert "fit and evaluation together have epsilon=2 (pure)" in said
    assert "rows were parted by the key" in said
    found = Evaluation.from_json((folder / "model.evaluation.json").read_text())
    model = privopt.load("model.skops")
    n = model[-1].privacy_.settings["n"]
    assert n + found.certificate.settings["n"] == 1500
    assert 230 < found.certificate.settings["n"] < 370
    assert "How good it is" in (folder / "r.html").read_text()


def test_a_ledger_is_charged_the_whole_and_no_more(folder):
    done("ledger", "create", "l.sqlite", "--dataset", "people", "--epsilon", 2, "--delta", 0)
    said = done(
        "fit", "people.csv", "--epsilon", 2, "--bounds", "sick.toml", "--holdout", 0.3,
        "--ledger", "l.sqlite",
    )  # fmt: skip
    assert "were both charged: epsilon=2 (pure)" in said
    spent = privopt.Ledger.open(folder / "l.sqlite").dataset().spent[0]
    assert spent == pytest.approx(2.0, rel=1e-6)


def test_a_person_is_in_one_part_and_nobodys_data_decides_which():
    table, key = people(600, 0), "k" * 32
    fitted, held, used = parted(table, 0.3, "person", key)
    assert used == key
    assert not set(fitted["person"].to_pylist()) & set(held["person"].to_pylist())
    assert 120 < held.num_rows < 240
    by_place = parted(table, 0.3, None, key)
    changed = table.set_column(0, "age", pa.array([0] * 600))
    again = parted(changed, 0.3, None, key)
    assert [t.num_rows for t in again[:2]] == [t.num_rows for t in by_place[:2]]
    assert again[1]["person"] == by_place[1]["person"]
    assert parted(table, 0.3)[2] != parted(table, 0.3)[2]


def test_complaints(folder):
    done("fit", "people.csv", "--epsilon", 3, "--bounds", "sick.toml", "--out", "m.skops")
    complains("has no column 'sik'", "evaluate", "m.skops", "held.csv", "--target", "sik")
    complains("the model sees", "evaluate", "m.skops", "held.csv", "--target", "age")
    complains("there is no file", "evaluate", "m.skops", "none.csv", "--target", "sick")
    complains("belong together", "evaluate", "m.skops", "held.csv", "--target", "sick",
              "--users", "person")  # fmt: skip
    complains("shifts when one is added", "fit", "people.csv", "--bounds", "sick.toml",
              "--holdout", 0.2, "--neighbouring", "add_remove", "--n-public", 1500)  # fmt: skip
    complains("between 0 and 1", "fit", "people.csv", "--bounds", "sick.toml", "--holdout", 2)
    privopt.save(privopt.LogisticRegression().fit(np.eye(4), [0, 1, 0, 1]), "plain.skops")
    complains("does not know the columns", "evaluate", "plain.skops", "held.csv",
              "--target", "sick")  # fmt: skip


def test_every_metric_is_printed(folder):
    for target, names in (
        ("sick", ("accuracy", "precision", "recall", "f1", "auc", "log_loss", "brier")),
        ("cost", ("rmse", "mae", "r2")),
    ):
        done("fit", "people.csv", "--epsilon", 3, "--bounds", f"{target}.toml", "--out", "m.skops",
             "--force")  # fmt: skip
        said = done("evaluate", "m.skops", "held.csv", "--target", target, "--epsilon", 1)
        data = run("evaluate", "m.skops", "held.csv", "--target", target, "--json").stdout
        found = json.loads(data)["metrics"]
        assert all(name in said for name in (*names, *found))
        assert set(names) <= found.keys()


def test_prediction_intervals_of_a_file(folder):
    done("fit", "people.csv", "--epsilon", 8, "--bounds", "cost.toml", "--out", "m.skops")
    said = done("prediction-intervals", "m.skops", "held.csv", "--target", "cost", "--level", 0.8,
                "--epsilon", 2, "--out", "band.json")  # fmt: skip
    assert "probability 0.8 at least" in said
    assert "epsilon=2 (pure)" in said
    pyarrow.csv.write_csv(people(2000, 5), folder / "new.csv")
    done("predict", "m.skops", "new.csv", "--out", "scores.csv", "--band", "band.json",
         "--keep", "cost")  # fmt: skip
    scores = pyarrow.csv.read_csv(folder / "scores.csv").to_pandas()
    inside = (scores["low"] <= scores["cost"]) & (scores["cost"] <= scores["high"])
    assert 0.76 < inside.mean() < 1
    assert (
        (scores["low"] <= scores["prediction"]) & (scores["prediction"] <= scores["high"])
    ).all()
    done("fit", "people.csv", "--epsilon", 8, "--bounds", "sick.toml", "--out", "c.skops")
    complains("for regressions", "prediction-intervals", "c.skops", "held.csv", "--target", "sick")
    complains("was not fitted", "predict", "c.skops", "new.csv", "--band", "band.json", "--force")


def test_a_fit_with_intervals_prints_its_summary(folder):
    said = done("fit", "people.csv", "--epsilon", 8, "--bounds", "cost.toml", "--intervals",
                "--report", "r.html")  # fmt: skip
    assert "coef std err sampling privacy z P>|z|" in said
    assert "city" in said  # one category is left out, or all would add up to the constant
    model = privopt.load("model.skops")
    low = model[-1].conf_int()[:-1, 0]
    assert np.isfinite(low).all()
    assert (low < np.ravel(model[-1].coef_)).all()
    assert "Coefficients and how sure they are" in (folder / "r.html").read_text()
    assert done("statement", "model.skops")
