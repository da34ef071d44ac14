"""Rows of a user clipped together, or one by one: loss of logistic regression at one epsilon for
users, by how many rows each brings and how alike they are."""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measure import Figure, console, report
from privopt.torch import make_private

USERS, WIDTH, EPOCHS, SEEDS = 400, 20, 10, 2
RATES = (1.0, 4.0, 16.0)


def made(rows: int, alike: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around a point of each user's own; ``alike`` of their variance is the point's."""
    draws = np.random.default_rng(seed)
    points = np.repeat(draws.normal(size=(USERS, WIDTH)), rows, axis=0)
    X = alike**0.5 * points + (1 - alike) ** 0.5 * draws.normal(size=points.shape)
    truth = np.random.default_rng(99).normal(size=WIDTH)
    y = draws.random(len(X)) < 1 / (1 + np.exp(-X @ truth))
    return torch.tensor(X).float(), torch.tensor(y).float()


def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(out[:, 0], target, reduction="none")


def trained(rows: int, alike: float, clipping: str, rate: float, seed: int) -> float:
    """Loss on other users."""
    torch.manual_seed(seed)
    model = nn.Linear(WIDTH, 1)
    nn.init.zeros_(model.weight)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), rate),
        DataLoader(TensorDataset(*made(rows, alike, seed)), batch_size=50),
        epsilon=1.0, delta=1e-5, epochs=EPOCHS, clip_norm=0.1, noise="independent",
        batches="poisson", user_ids=np.repeat(np.arange(USERS), rows), rows_per_user=rows,
        user_clipping=clipping, random_state=seed,
    )  # fmt: skip
    while not private.finished:
        for x, y in private.loader:
            private.step(loss, x, targets=y)
    X, y = made(20, 0.0, 1000)
    with torch.no_grad():
        return float(loss(private.averaged()(X), y).mean())


def best(rows: int, alike: float, clipping: str) -> float:
    """At the best of some rates, for both kinds of clipping alike."""
    seeds = range(SEEDS)
    return min(
        float(np.mean([trained(rows, alike, clipping, rate, s) for s in seeds])) for rate in RATES
    )


def main(arguments: list[str]) -> None:
    figures = []
    for alike in (0.0, 0.9):
        for rows in (1, 4, 16):
            together, apart = (best(rows, alike, how) for how in ("together", "rows"))
            what = f"{rows} rows of a user, {alike:.0%} alike: loss together"
            figures.append(Figure(what, together, apart * 1.02, note=f"one by one {apart:.4f}"))
            console.print(f"{what} {together:.4f}, one by one {apart:.4f}")
    report("user_clipping", "Clipping users, epsilon 1", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
