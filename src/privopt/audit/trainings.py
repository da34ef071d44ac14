"""Trainings as an audit runs them: of a torch model, over rounds of people, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

import privopt
from privopt.audit.fits import LABELS
from privopt.privacy import Budget

ROUNDS = 6


def trained_model(
    X: np.ndarray, y: np.ndarray, source: Any, budget: Budget, noise: str, clip: float, size: int,
    records: int,
) -> Any:  # fmt: skip
    """Two epochs of a linear model, and its certificate; under add_remove it takes the public
    number of records."""
    import torch
    from torch.nn import Linear
    from torch.utils.data import DataLoader, TensorDataset

    from privopt.noise.random_numbers import same_random_numbers
    from privopt.torch import make_private

    # Missing values make an example empty; a label is a number in the loss.
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    with same_random_numbers():
        model = Linear(X.shape[1], 1).double()
    private_number = budget.neighbouring == "add_remove"
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 0.5),
        DataLoader(data, batch_size=min(size, records if private_number else len(X))),
        epsilon=budget.epsilon,
        delta=budget.delta,
        epochs=2,
        clip_norm=clip,
        noise=noise,
        neighbouring=budget.neighbouring,
        n_public=records if private_number else None,
        random_state=int(source.noise.integers(2**31)),
    )
    for x, t in private.loader:
        private.step(lambda out, t: torch.nn.functional.softplus(-out[:, 0] * t), x, targets=t)
    weights = [part.detach().numpy() for part in private.model.parameters()]
    return weights, private.certificate().to_json()


def federated_rounds(
    X: np.ndarray, source: Any, budget: Budget, noise: str, clip: float, goal: int, apart: int,
    adaptive: float | None,
) -> Any:  # fmt: skip
    """A row is what a person sends in any round, moved by the model of that round."""
    from privopt.federated import Server

    server = Server(
        np.zeros(X.shape[1]),
        epsilon=budget.epsilon,
        delta=budget.delta,
        rounds=ROUNDS,
        report_goal=goal,
        clip_norm=clip,
        min_separation=apart,
        noise=noise,
        adaptive=adaptive,
        neighbouring=budget.neighbouring,
        random_state=source,
    )
    models = []
    for _ in range(ROUNDS):
        for person in server.begin_round(range(len(X))):
            server.answer(person, X[person] - 0.1 * server.model)
        models.append(server.end_round())
    return models, server.clip_norm, server.certificate().to_json()


def refitted_blocks(X: np.ndarray, y: np.ndarray, source: Any, budget: Budget, size: int) -> Any:
    """The last model of a stream of blocks, and its certificate."""
    model = privopt.LogisticRegression(
        budget.epsilon,
        budget.delta,
        neighbouring=budget.neighbouring,
        bounds=(-1.0, 1.0),
        classes=list(LABELS),
        nan_policy="empty",
    )
    seed = int(source.noise.integers(2**31))
    stream = privopt.RefitStream(model, block_size=size, random_state=seed)
    broken = ~np.isin(y, LABELS)
    stream.fit(np.where(broken[:, None], np.nan, X), np.where(broken, 1.0, y).astype(int))
    return stream.coef_, stream.privacy_.to_json()


def searched_candidates(X: np.ndarray, y: np.ndarray, source: Any, budget: Budget, law: str) -> Any:
    """What a search shows, and its certificate."""
    model = privopt.LogisticRegression(classes=list(LABELS), nan_policy="empty")
    search = privopt.PrivateSearchCV(
        model,
        {"data_norm": [0.5, 2.0]},
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbouring=budget.neighbouring,
        law=law,
        n_runs=2.0,
        random_state=int(source.noise.integers(2**31)),
    )
    broken = ~np.isin(y, LABELS)
    X, y = np.where(broken[:, None], np.nan, X), np.where(broken, 1.0, y).astype(int)
    search.fit(X, y)
    return search.best_index_, search.best_score_, search.privacy_.to_json()
