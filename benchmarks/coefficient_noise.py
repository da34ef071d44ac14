"""How much of a coefficient is noise: what the report says beside what repeated fits show."""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import folder
from privopt.report import spread_of
from privopt.tables import Column, Schema, Target, learn

EPSILON, DELTA, FITS, REPORTS = 1.0, 1e-6, 30, 5

# Bounds and categories as the description of the census data gives them.
NUMBERS = {
    "age": (0, 120),
    "fnlwgt": (0, 1_500_000),
    "education-num": (0, 16),
    "capital-gain": (0, 100_000),
    "capital-loss": (0, 5000),
    "hours-per-week": (0, 100),
}
CATEGORIES = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov "
    "Without-pay Never-worked",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th "
    "12th Masters 1st-4th 10th Doctorate 5th-6th Preschool",
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed "
    "Married-spouse-absent Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras Philippines "
    "Italy Poland Jamaica Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador "
    "Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
    "Trinadad&Tobago Peru Hong Holand-Netherlands",
}
ORDER = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
)


def table(home: Path) -> pa.Table:
    with gzip.open(home / "adult" / "adult.data.gz", "rt") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == len(ORDER)]
    columns = dict(zip(ORDER, zip(*rows, strict=True), strict=True))
    return pa.table({n: [float(v) for v in c] if n in NUMBERS else c for n, c in columns.items()})


def schema() -> Schema:
    columns = {name: Column("numeric", low, high) for name, (low, high) in NUMBERS.items()}
    for name, words in CATEGORIES.items():
        columns[name] = Column("categorical", categories=tuple(words.split()))
    return Schema(Target("income", "classes", ("<=50K", ">50K")), columns)


def main(_: list[str]) -> None:
    home = folder()
    if home is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    people, facts = table(home), schema()
    coefs, estimates, bounds = [], [], []
    for seed in range(FITS):
        model = learn.build(facts, None, {"epsilon": EPSILON, "delta": DELTA})
        model[-1].set_params(random_state=seed)
        learn.fit(model, people, facts.target)
        coefs.append(model[-1].coef_[0])
        if seed < REPORTS:
            spread = spread_of(model)
            assert spread.estimate is not None
            assert spread.bound is not None
            estimates.append(spread.estimate[0])
            bounds.append(spread.bound[0])
    seen = np.std(coefs, axis=0, ddof=1)
    figures = []
    for name, said in (("estimate", estimates), ("bound", bounds)):
        ratio = seen / np.array(said)
        for words, share in (("median", 0.5), ("95 %", 0.95), ("largest", 1.0)):
            figures.append(Figure(f"seen over {name}, {words}", float(np.quantile(ratio, share))))
    report("coefficient_noise", f"Deviation of {len(seen)} coefficients in {FITS} fits", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
