"""Ours against diffprivlib, Opacus and scikit-learn on real data, under the same bounds.

Two comparisons, each at one relation and one delta: diffprivlib promises pure privacy when one
record is replaced, so ours runs with ``delta=0`` and ``replace_one``; Opacus promises
(epsilon, 1e-6) when one is added or removed, so ours runs with ``delta=1e-6`` and ``zero_out``,
whose sensitivities are the same. Columns are mapped to [-1, 1] by public bounds for every peer.

``python -m benchmarks.peers --diffprivlib /path/to/python [names]``; diffprivlib needs an
environment of its own. Without it that column stays empty. What was measured is kept, set by set,
in ``benchmarks/results/peers-*.json`` and not measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LinearRegression as PlainRegression
from sklearn.linear_model import LogisticRegression as PlainClassifier
from sklearn.metrics import r2_score

from benchmarks.measure import RESULTS, Figure, console, report
from benchmarks.real_data import DataSet, folder, load
from privopt import LinearRegression, LogisticRegression
from privopt.estimators.bounds import ColumnBounds

DELTA, SEEDS, EPSILONS = 1e-6, 10, (0.1, 1.0, 4.0)
SETS = ("adult", "covtype", "w8a", "ijcnn1", "diabetes130", "california", "bike")
COLUMNS = ("diffprivlib", "ours, pure", "Opacus", "ours", "not private")


def ours(data: DataSet, epsilon: float, **how: Any) -> dict[str, Any]:
    """Test scores over seeds."""
    common = {"bounds": data.bounds, **how}
    found = []
    for seed in range(SEEDS):
        if data.target_bounds is None:
            model = LogisticRegression(epsilon, classes=[0, 1], random_state=seed, **common)
        else:
            model = LinearRegression(
                epsilon, target_bounds=data.target_bounds, random_state=seed, **common
            )
        found.append(float(model.fit(data.X, data.y).score(data.X_test, data.y_test)))
    return {"scores": found}


def scaled(data: DataSet) -> dict[str, np.ndarray]:
    """Dense columns in [-1, 1], for peers that have no column bounds."""
    bounds = ColumnBounds.declared(data.bounds, data.X.shape[1])
    parts = [bounds.apply(X) for X in (data.X, data.X_test)]
    X, X_test = (part.toarray() if sp.issparse(part) else part for part in parts)
    found = {"X": X.astype(float), "y": data.y, "X_test": X_test.astype(float)}
    found["y_test"] = data.y_test
    if data.target_bounds is not None:
        found["target_bounds"] = np.array(data.target_bounds)
    return found


def peer(interpreter: str, script: str, data: DataSet, epsilon: float) -> dict[str, Any]:
    """Scores of a peer, from a process of its own."""
    task = "classify" if data.target_bounds is None else "regress"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "data.npz"
        np.savez(path, **scaled(data))
        file = str(Path(__file__).parent / script)
        command = [interpreter, file, str(path), task, str(SEEDS), str(epsilon)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def plain(data: DataSet) -> float:
    """scikit-learn's own score, on the same scaled columns."""
    part = scaled(data)
    if data.target_bounds is None:
        model = PlainClassifier(max_iter=300).fit(part["X"], part["y"])
        return float(model.score(part["X_test"], part["y_test"]))
    guess = PlainRegression().fit(part["X"], part["y"]).predict(part["X_test"])
    return float(r2_score(part["y_test"], np.clip(guess, *data.target_bounds)))


def measured(name: str, diffprivlib: str | None) -> dict[str, Any]:
    """Everything about one data set; what is on disk is not measured again."""
    file = RESULTS / f"peers-{name}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    data = load(name)
    if "not private" not in found:
        found["not private"] = plain(data)
    columns: dict[str, Callable[[float], dict[str, Any]]] = {
        "ours": lambda epsilon: ours(data, epsilon, delta=DELTA),
        "ours, pure": lambda epsilon: ours(data, epsilon, neighbouring="replace_one"),
        "diffprivlib": lambda epsilon: peer(str(diffprivlib), "peer_diffprivlib.py", data, epsilon),
        "Opacus": lambda epsilon: peer(sys.executable, "peer_opacus.py", data, epsilon),
    }
    if diffprivlib is None:
        del columns["diffprivlib"]
    for column, measure in columns.items():
        for epsilon in EPSILONS:
            part = found.setdefault(column, {})
            if str(epsilon) not in part:
                part[str(epsilon)] = measure(epsilon)
                RESULTS.mkdir(exist_ok=True)
                file.write_text(json.dumps(found, indent=1))
                console.print(f"{name}, epsilon {epsilon:g}: {column} done")
    return found


def row(name: str, epsilon: float, found: dict[str, Any]) -> str:
    """One line of the table in the documentation."""
    cells = []
    for column in COLUMNS:
        part = found.get(column)
        if isinstance(part, dict):
            scores = part[str(epsilon)]["scores"]
            cells.append(f"{statistics.mean(scores):.3f} ± {statistics.stdev(scores):.3f}")
        else:
            cells.append("" if part is None else f"{part:.3f}")
    return f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--diffprivlib", help="a Python that has diffprivlib")
    options = parser.parse_args(arguments)
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    lines, figures = [], []
    for name in options.names or SETS:
        found = measured(name, options.diffprivlib)
        for epsilon in EPSILONS:
            lines.append(row(name, epsilon, found))
            for mine, other in (("ours, pure", "diffprivlib"), ("ours", "Opacus")):
                if other in found:
                    pair = (found[mine], found[other])
                    means = [statistics.mean(one[str(epsilon)]["scores"]) for one in pair]
                    label = f"{name}, epsilon {epsilon:g}: ahead of {other} by"
                    figures.append(Figure(label, means[0] - means[1], 0.0, ">="))
    console.print("| data | epsilon | " + " | ".join(COLUMNS) + " |", highlight=False)
    for line in lines:
        console.print(line, highlight=False)
    report("peers", f"Test accuracy or R^2, mean of {SEEDS} fits, the same bounds", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
