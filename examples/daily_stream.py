"""A model that learns day by day, is killed on the way, and goes on.

Each day brings a batch of visits. The model is published every evening, with the epsilon spent so
far; the budget covers all thirty days. On day 12 the process dies in the middle of its work, and
the next one resumes from the checkpoint.

    python examples/daily_stream.py
"""

import tempfile
from pathlib import Path

import numpy as np

from privopt import OnlineLogisticRegression

DAYS, VISITS = 30, 400
# Public knowledge: minutes on the page, pages seen, items in the basket.
BOUNDS = ([0, 0, 0], [60, 40, 20])


def visits(day: int) -> tuple[np.ndarray, np.ndarray]:
    """What one day brings: three numbers for each visit, and whether it ended with a purchase."""
    rng = np.random.default_rng(day)
    X = rng.gamma([2.0, 3.0, 1.0], [6.0, 3.0, 3.0], size=(VISITS, 3))
    score = X @ [0.02, -0.1, 0.5] - 0.8
    return X, rng.random(VISITS) < 1 / (1 + np.exp(-score))


def opened(folder: Path) -> OnlineLogisticRegression:
    return OnlineLogisticRegression(
        epsilon=1.0,
        delta=1e-6,
        n_steps=DAYS,
        bounds=BOUNDS,
        classes=[False, True],
        checkpoint=folder,
    )


def main() -> None:
    X_later, y_later = visits(1000)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "stream"
        model = opened(folder)
        for day in range(12):
            model.partial_fit(*visits(day))
        del model  # the process dies

        model = opened(folder).resume()
        print(f"resumed after day {model.steps_}, epsilon {model.epsilon_spent():.3f} spent so far")
        for day in range(model.steps_, DAYS):
            model.partial_fit(*visits(day))
            if model.steps_ % 6 == 0:
                score, spent = model.score(X_later, y_later), model.epsilon_spent()
                print(f"day {model.steps_}: accuracy {score:.3f}, epsilon {spent:.3f}")
        print(model.privacy_)


if __name__ == "__main__":
    main()
