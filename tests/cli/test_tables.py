"""From a file to a model, predictions and a report: what is written, and errors in one sentence."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import privopt
from privopt import Certificate, LogisticRegression
from privopt.cli import app
from tests.covering import covering

ROWS = 1500


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def text_of(result):
    return " ".join(result.output.split())


def complains(result, words):
    """Exit code 2, one sentence on the error channel, no traceback."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    sentence = " ".join(result.stderr.split())
    assert sentence.startswith("error: ")
    assert words in sentence
    assert sentence[-1] in ".?"
    assert ". " not in sentence
    assert "Traceback" not in result.output


BOUNDS = """
[target]
column = "sick"
kind = "classes"
classes = ["no", "yes"]

[columns.age]
kind = "numeric"
lower = 18
upper = 98

[columns.city]
kind = "categorical"
categories = ["Bonn", "Ulm"]

[columns.name]
kind = "ignored"
"""


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 98, ROWS)
    city = rng.choice(["Bonn", "Ulm", "Rome"], ROWS)
    score = (age - 58) / 15 + 2.0 * (city == "Ulm")
    return pa.table(
        {
            "age": pa.array(age, mask=rng.random(ROWS) < 0.05),
            "city": city,
            "name": [f"secret{i}" for i in range(ROWS)],
            "sick": np.where(score + rng.logistic(size=ROWS) > 0, "yes", "no"),
        }
    )


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    """A folder with a file and its bounds, as a user has it."""
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(table, "data.csv")
    pyarrow.parquet.write_table(table, "data.parquet")
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    return tmp_path


FIT = ("fit", "data.csv", "--target", "sick", "--epsilon", 4, "--delta", 1e-6)


# ---------------------------------------------------------------- init-bounds
def test_init_bounds_does_not_read_types_off_cells(folder):
    """One cell changes the type that a reader infers; nothing that is written changes."""
    texts = []
    for cell in ("41", "HIV-positive", "true", "1e400", ""):
        (folder / "one.csv").write_text(f"age,sick\n18,0\n{cell},1\n")
        result = run("init-bounds", "one.csv", "--target", "sick", "--force", "--out", "new.toml")
        assert result.exit_code == 0, result.output
        texts.append((folder / "new.toml").read_text())
        plans = run("plan", "one.csv", "--target", "sick", "--epsilon", 1)
        texts[-1] += plans.output
    assert len(set(texts)) == 1
    assert texts[0].count('kind = "?"') == 2
    complains(run(*FIT, "--bounds", "new.toml"), "fill in kind in [target] of new.toml")
    run("init-bounds", "one.csv", "--target", "sick", "--task", "regression", "--out", "t.toml")
    assert 'kind = "number"' in (folder / "t.toml").read_text()


def test_init_bounds_writes_names_and_types_only(folder):
    result = run("init-bounds", "data.parquet", "--target", "sick", "--out", "new.toml")
    assert result.exit_code == 0, result.output
    text = (folder / "new.toml").read_text()
    assert 'column = "sick"' in text
    assert text.count('"?"') == 6  # in the comment, classes, two bounds, two lists of categories
    for value in ("yes", "Bonn", "Ulm", "secret", "18", "97"):
        assert value not in text.replace('["no", "yes"]', "")
    complains(run(*FIT, "--bounds", "new.toml"), "fill in classes in [target] of new.toml")


def test_init_bounds_does_not_overwrite_work(folder):
    arguments = ("init-bounds", "data.csv", "--target", "sick")
    complains(run(*arguments), "bounds.toml is there already")
    assert (folder / "bounds.toml").read_text() == BOUNDS
    assert run(*arguments, "--force").exit_code == 0
    assert "?" in (folder / "bounds.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data.csv", "--target", "sik"], "data.csv has no column 'sik': did you mean 'sick'?"),
        (["data.csv", "--target", "Age"], "did you mean 'age'?"),
        (["no.csv", "--target", "y"], "there is no file no.csv"),
        (["data.doc", "--target", "y"], "data.doc must end in .csv, .tsv, .txt or .parquet"),
        (["empty.csv", "--target", "y"], "empty.csv is empty"),
        (["twice.csv", "--target", "a"], "two columns named 'a'"),
        (["../", "--target", "a"], "is a folder"),
    ],
)
def test_init_bounds_errors(folder, arguments, words):
    (folder / "data.doc").write_text("a,y\n1,0\n")
    (folder / "empty.csv").write_text("")
    (folder / "twice.csv").write_text("a,a\n1,2\n")
    complains(run("init-bounds", *arguments, "--out", "new.toml"), words)
    assert not (folder / "new.toml").exists()


# ---------------------------------------------------------------- fit, predict, report
def test_from_a_file_to_a_model_predictions_and_a_report(folder, table):
    """The three commands of the quick start, and what they leave behind."""
    result = run(*FIT, "--bounds", "bounds.toml", "--out", "model.skops", "--report", "report.html")
    assert result.exit_code == 0, result.output
    assert "epsilon=4 (delta=1e-06), zero_out" in text_of(result)
    certificate = Certificate.from_json((folder / "model.certificate.json").read_text())
    assert certificate.private
    assert certificate.assumptions == ()
    assert certificate.solver == "standardized_objective"
    assert certificate.settings["p"] == 4  # age, two cities, the constant

    new = table.drop_columns(["name"]).append_column("shoe", pa.array([40] * ROWS))
    pyarrow.csv.write_csv(new, "new.csv")
    result = run("predict", "model.skops", "new.csv", "--out", "scores.csv")
    assert result.exit_code == 0, result.output
    assert "columns the model does not use are ignored: sick, shoe" in text_of(result)
    scores = pyarrow.csv.read_csv("scores.csv")
    assert scores.column_names == ["prediction", "probability_no", "probability_yes"]
    truth = table.column("sick").to_numpy()
    assert np.mean(scores.column("prediction").to_numpy() == truth) > 0.75
    sums = scores.column("probability_no").to_numpy() + scores.column("probability_yes").to_numpy()
    assert np.allclose(sums, 1)

    again = privopt.load("model.skops")
    assert (again.predict(new) == scores.column("prediction").to_numpy()).all()
    assert "secret1" not in (folder / "report.html").read_text()
    result = run("report", "model.skops", "--out", "second.html", "--card", "card.md")
    assert result.exit_code == 0, result.output
    assert (folder / "second.html").read_text() == (folder / "report.html").read_text()
    assert "| age | numeric | 18 to 98 |" in (folder / "card.md").read_text()


def test_fit_prints_json(folder):
    result = run(*FIT, "--bounds", "bounds.toml", "--json")
    found = json.loads(result.stdout)
    assert found["wrote"] == ["model.skops", "model.certificate.json"]
    assert found["certificate"]["guarantee"]["neighbouring"] == "zero_out"


def test_fit_with_other_options(folder):
    common = ("--neighbouring", "add_remove", "--n-public", 1400, "--solver", "noisy_gd")
    result = run(*FIT, "--data-norm", 0.8, "--classes", "no,yes", *common)
    complains(result, "column 'city' of data.csv holds something that is not a number")
    numbers = pyarrow.parquet.read_table("data.parquet").select(["age", "sick"])
    pyarrow.csv.write_csv(numbers, "data.csv")
    result = run(*FIT, "--data-norm", 0.8, *common)
    assert result.exit_code == 0, result.output
    assert "classes was read from y" in text_of(result)
    certificate = Certificate.from_json((folder / "model.certificate.json").read_text())
    assert (certificate.solver, certificate.neighbouring) == ("noisy_gd", "add_remove")
    assert certificate.settings["n"] == 1400


REGRESSION = """
[target]
column = "age"
kind = "number"
lower = 18
upper = 98
undeclared = "empty"
[columns.city]
kind = "categorical"
categories = ["Bonn", "Ulm", "Rome"]
[columns.sick]
kind = "categorical"
categories = ["no", "yes"]
[columns.name]
kind = "ignored"
"""


@pytest.mark.parametrize(
    ("model", "setting"),
    [
        (None, None),
        ("Ridge", "alpha=2"),
        ("QuantileRegressor", "quantile=0.9"),
    ],
)
def test_regression_models(folder, model, setting):
    (folder / "bounds.toml").write_text(REGRESSION)
    options = (["--model", model] if model else []) + (["--set", setting] if setting else [])
    fit = ("fit", "data.parquet", "--epsilon", 4, "--delta", 1e-6, "--bounds", "bounds.toml")
    result = run(*fit, *options)
    assert result.exit_code == 0, result.output
    assert type(privopt.load("model.skops")[-1]).__name__ == (model or "LinearRegression")
    assert run("predict", "model.skops", "data.csv", "--out", "s.parquet").exit_code == 0
    values = pyarrow.parquet.read_table("s.parquet").column("prediction").to_numpy()
    assert np.isfinite(values).all()
    assert len(values) == ROWS


def test_models_without_empty_records(folder):
    (folder / "bounds.toml").write_text(REGRESSION)
    lasso = ("fit", "data.parquet", "--epsilon", 4, "--bounds", "bounds.toml", "--model", "Lasso")
    complains(run(*lasso), "Lasso cannot count records as empty")
    (folder / "bounds.toml").write_text(BOUNDS)
    sparse = ("--model", "SparseLogisticRegression", "--set", "radius=5")
    assert run(*FIT, "--bounds", "bounds.toml", *sparse).exit_code == 0
    assert run("predict", "model.skops", "data.csv").exit_code == 0


@pytest.mark.parametrize("kind", ["integers", "booleans", "true as text"])
def test_labels_that_are_not_text(folder, table, kind):
    sick = table.column("sick").to_numpy() == "yes"
    values = {"integers": sick.astype(int), "booleans": sick, "true as text": sick.astype(str)}
    changed = table.set_column(3, "sick", pa.array(values[kind]))
    pyarrow.csv.write_csv(changed, "data.csv")
    classes = "[0, 1]" if kind == "integers" else "[false, true]"
    (folder / "bounds.toml").write_text(BOUNDS.replace('["no", "yes"]', classes))
    result = run(*FIT, "--bounds", "bounds.toml")
    assert result.exit_code == 0, result.output
    model = privopt.load("model.skops")
    assert model.classes_.tolist() == [0, 1]
    assert model[-1].score(model[0].transform(table), sick) > 0.75


def test_a_guarantee_for_users(folder):
    """Three rows each, of which two count; the column of owners stays out of the model."""
    people = pyarrow.parquet.read_table("data.parquet")
    owners = pa.array([f"user{i // 3}" for i in range(ROWS)])
    pyarrow.parquet.write_table(people.set_column(2, "name", owners), "data.parquet")
    fit = ("fit", "data.parquet", "--epsilon", 4, "--bounds", "bounds.toml", "--users", "name")
    result = run(*fit, "--rows-per-user", 2)
    assert result.exit_code == 0, result.output
    certificate = Certificate.from_json((folder / "model.certificate.json").read_text())
    assert certificate.unit == "user"
    assert certificate.settings["n"] == ROWS * 2 // 3
    complains(run(*fit), "--users and --rows-per-user belong together")
    fit = ("fit", "data.parquet", "--bounds", "bounds.toml", "--rows-per-user", 2, "--users")
    complains(run(*fit, "age"), "says whose row it is")
    complains(run(*fit, "nam"), "did you mean 'name'?")


def test_an_undeclared_label_is_refused_or_empty(folder, table):
    labels = table.column("sick").to_pylist()
    labels[0], labels[1] = "unknown-label", None
    pyarrow.parquet.write_table(table.set_column(3, "sick", pa.array(labels)), "data.parquet")
    fit = ("fit", "data.parquet", "--epsilon", 4, "--bounds", "bounds.toml")
    result = run(*fit)
    complains(result, "holds a label that is missing or not declared")
    assert "unknown-label" not in result.output
    declared = BOUNDS.replace("classes =", 'undeclared = "empty"\nclasses =')
    (folder / "bounds.toml").write_text(declared)
    assert run(*fit).exit_code == 0


# ---------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "age"], "--target is 'age', but bounds.toml was written for 'sick'"),
        (["--target", "sik", "--bounds", "no.toml"], "did you mean 'sick'?"),
        (["--bounds", "no.toml"], "`privopt init-bounds` writes one"),
        (["--epsilon", 0], "epsilon must be a positive finite number"),
        (["--delta", 1.5], "delta must lie in [0, 1)"),
        (["--neighbouring", "add_remove"], "give n_public"),
        (["--solver", "adam"], "unknown solver 'adam'; choose from auto, approximate_minima"),
        (["--model", "LogisticRegresion"], "did you mean 'LogisticRegression'?"),
        (["--model", "Ridge"], "there is no model 'Ridge' for a label"),
        (["--set", "alpha"], "--set takes NAME=VALUE"),
        (["--set", "alfa=1"], "LogisticRegression has no setting 'alfa'"),
        (["--set", "random_state=1"], "has no setting 'random_state'"),
        (["--classes", "no,yes"], "are for a fit without --bounds"),
        (["--out", "../"], "is a folder"),
    ],
)
def test_fit_errors(folder, arguments, words):
    before = sorted(path.name for path in folder.iterdir())
    complains(run(*FIT, "--bounds", "bounds.toml", *arguments), words)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_three_mistakes_of_a_newcomer(folder):
    wrong = run("fit", "data.csv", "--target", "sik", "--data-norm", 1)
    complains(wrong, "data.csv has no column 'sik': did you mean 'sick'?")
    complains(run(*FIT), "bounds are missing: `privopt init-bounds data.csv --target sick` writes")
    text = BOUNDS.replace(
        'kind = "classes"\nclasses = ["no", "yes"]', 'kind = "number"\nlower = 0\nupper = 1'
    )
    (folder / "bounds.toml").write_text(text)
    complains(run(*FIT, "--bounds", "bounds.toml"), 'declare labels with kind = "classes"')


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lower = 18", "lower = 98", "lower must be below upper in [columns.age]"),
        ("lower = 18", 'lower = "?"', "bounds are missing: fill in lower in [columns.age]"),
        ("lower = 18", "", "bounds are missing: fill in lower in [columns.age]"),
        ("lower = 18", 'lower = "x"', "lower in [columns.age] must be a finite number"),
        ("lower = 18", "lower = -inf", "must be a finite number"),
        ("lower = 18", "lowr = 18", "unknown key 'lowr' in [columns.age]: did you mean 'lower'?"),
        ("lower = 18", "lower = ", "bounds.toml is not valid TOML"),
        ('kind = "ignored"', 'kind = "skip"', "must be one of numeric, categorical, ignored"),
        ('kind = "ignored"', "", "kind in [columns.name] must be one of"),
        ("[columns.name]", "[columns.nam]", "bounds are missing for column 'name'"),
        ("[columns.age]", "[columns.Age]", "which data.csv does not have: did you mean 'age'?"),
        ('["Bonn", "Ulm"]', '["Bonn", "Bonn"]', "must be at least 1 different value(s)"),
        ('["Bonn", "Ulm"]', '["Bonn", 1]', "must be all text, all numbers or all true/false"),
        ('["Bonn", "Ulm"]', "3", "must be a list of values"),
        ('["no", "yes"]', '["no"]', "must be at least 2 different value(s)"),
        ('["no", "yes"]', '["?"]', "fill in classes in [target]"),
        ('["no", "yes"]', '["well", "ill"]', "label that is missing or not declared"),
        ("[target]", "[targets]", "unknown key 'targets': did you mean 'target'?"),
        ('column = "sick"', 'column = "age"', "lists the target 'age' among the columns too"),
        (
            'kind = "categorical"\ncategories = ["Bonn", "Ulm"]',
            'kind = "numeric"\nlower = 0\nupper = 1',
            "column 'city' of data.csv holds something that is not a number",
        ),
    ],
)
def test_mistakes_in_the_bounds_file(folder, old, new, words):
    assert old in BOUNDS
    (folder / "bounds.toml").write_text(BOUNDS.replace(old, new))
    arguments = [a for a in FIT if a not in ("--target", "sick")]
    result = run(*arguments, "--bounds", "bounds.toml")
    complains(result, words)
    assert "secret" not in result.output
    assert not (folder / "model.skops").exists()


def test_files_that_cannot_be_read(folder):
    (folder / "bad.parquet").write_bytes(b"nothing of the kind")
    (folder / "ragged.csv").write_text("age,city,name,sick\n1,secret\n")
    (folder / "head.csv").write_text("age,city,name,sick\n")
    for name in ("bad.parquet", "ragged.csv"):
        result = run("fit", name, "--bounds", "bounds.toml")
        complains(result, "could not be read as a table")
        assert "secret" not in result.output
    complains(run("fit", "head.csv", "--bounds", "bounds.toml"), "column names but no rows")


def test_predict_errors(folder):
    complains(run("predict", "no.skops", "data.csv"), "there is no file no.skops")
    (folder / "bad.skops").write_bytes(b"nothing of the kind")
    complains(run("predict", "bad.skops", "data.csv"), "is damaged or is not a saved model")
    privopt.save(LogisticRegression(1.0).fit(np.eye(4), [0, 1, 0, 1]), folder / "plain.skops")
    complains(run("predict", "plain.skops", "data.csv"), "does not know the columns of a table")
    privopt.save(LogisticRegression(1.0), folder / "unfitted.skops")
    complains(run("report", "unfitted.skops"), "was not fitted")
    assert run(*FIT, "--bounds", "bounds.toml").exit_code == 0
    (folder / "new.csv").write_text("aged,city\n20,Ulm\n")
    complains(run("predict", "model.skops", "new.csv"), "no column 'age': did you mean 'aged'?")
    complains(run("predict", "model.skops", "data.csv", "--out", "s.xls"), "must end in .csv")


def test_fit_shows_the_warning_about_delta(folder):
    with pytest.warns(UserWarning, match="publishing whole records at random"):
        result = run(*FIT, "--bounds", "bounds.toml", "--delta", 0.1)
    assert result.exit_code == 0


def test_an_exception_that_is_no_complaint_is_not_swallowed(monkeypatch, folder):
    """A bug must look like a bug."""

    def broken(self, X, y):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(LogisticRegression, "fit", broken)
    result = run(*FIT, "--bounds", "bounds.toml")
    assert isinstance(result.exception, ZeroDivisionError)


def test_shapes_of_the_columns_that_are_declared_as_numbers(folder):
    given = ("--bounds", "bounds.toml", "--epsilon", 8, "--delta", 1e-6)
    result = run("fit", "data.csv", *given, "--set", "features=splines", "--report", "report.html")
    assert result.exit_code == 0, result.output
    (shape,) = privopt.load("model.skops")[-1].shapes_
    assert shape.column == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "age: straight part and shape" in page


# ---------------------------------------------------------------- no cell is quoted
CELLS = ("HIV-positive", "271828182845904523x", "1e400271828", "2,7,1828")


@pytest.mark.parametrize(
    ("cell", "column", "suffix"),
    covering([*product(CELLS, ("age", "sick", "city"), ("csv", "parquet"))]),
)
def test_no_command_quotes_a_cell(folder, table, column, cell, suffix):
    texts = table.column(column).cast(pa.string()).to_pylist()
    texts[7] = cell
    place = table.column_names.index(column)
    hostile = table.set_column(place, column, pa.array(texts))
    file = f"data.{suffix}"
    write = pyarrow.csv.write_csv if suffix == "csv" else pyarrow.parquet.write_table
    write(hostile, folder / file)
    whole = ("--epsilon", 4, "--delta", 1e-6)
    target = ("--target", "sick")
    for arguments in (
        ("fit", file, *target, *whole, "--bounds", "bounds.toml"),
        ("fit", file, *target, *whole, "--data-norm", 1.0, "--classes", "no,yes"),
        ("fit", file, *target, *whole, "--data-norm", 1.0),
        ("init-bounds", file, *target, "--out", "new.toml", "--force"),
        ("plan", file, *target, "--epsilon", 1),
        ("plan", file, *target, "--epsilon", 1, "--bounds", "bounds.toml"),
    ):
        said = run(*arguments)
        text = said.output + repr(said.exception)
        for canary in ("HIV", "271828", "7,1828"):
            assert canary not in text, arguments
    assert "HIV" not in (folder / "new.toml").read_text()


def test_what_is_there_is_not_replaced_unasked(folder):
    """Before a budget is spent, and for all files that would be written."""
    fit = (*FIT, "--bounds", "bounds.toml")
    assert run(*fit).exit_code == 0
    for name in ("model.skops", "model.certificate.json"):
        before = Path(name).read_bytes()
        complains(run(*fit), "model.skops is there already")
        assert Path(name).read_bytes() == before
    Path("model.skops").unlink()
    complains(run(*fit), "model.certificate.json is there already")
    assert run(*fit, "--force").exit_code == 0
    assert run("predict", "model.skops", "data.csv").exit_code == 0
    complains(run("predict", "model.skops", "data.csv"), "scores.csv is there already")


def test_ids_travel_with_the_scores(folder):
    assert run(*FIT, "--bounds", "bounds.toml").exit_code == 0
    done = run("predict", "model.skops", "data.csv", "--keep", "name")
    assert done.exit_code == 0
    lines = Path("scores.csv").read_text().splitlines()
    source = Path("data.csv").read_text().splitlines()
    assert lines[0].startswith('"name","prediction"')
    place = source[0].replace('"', "").split(",").index("name")
    kept = [line.split(",")[0].strip('"') for line in lines[1:]]
    assert kept == [line.split(",")[place].strip('"') for line in source[1:]]
    complains(run("predict", "model.skops", "data.csv", "--keep", "nme", "--force"), "'nme'")
