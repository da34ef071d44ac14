"""Losses of a stream's models on public records, and their regret. No private record enters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.numerics.newton import minimise
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows
from privopt.oracle.rows import RowBounds
from privopt.problem import Problem

FLAT = 1e-7
"""Ridge for each record, so that the best fixed model is unique."""


@dataclass(frozen=True)
class Entry:
    """A public batch, and the mean loss on it of the models in force before a step."""

    X: Any
    labels: Sequence[np.ndarray]
    loss: float


class PublicTrace:
    """One entry for each step that came with public records."""

    def __init__(self, problem: Problem, classification: bool) -> None:
        self._problem, self._classification = problem, classification
        self.entries: list[Entry] = []

    def entry(self, X: Any, labels: Sequence[np.ndarray], thetas: Sequence[np.ndarray]) -> Entry:
        """The mean loss of the models on a batch, rows clipped as private ones are."""
        return Entry(X, labels, self._mean_loss(X, labels, thetas))

    def _mean_loss(
        self, X: Any, labels: Sequence[np.ndarray], thetas: Sequence[np.ndarray]
    ) -> float:
        functions = self._objectives(X, labels)
        values = [f.value(theta) for f, theta in zip(functions, thetas, strict=True)]
        return float(np.sum(values)) / X.shape[0]

    def regret(self) -> np.ndarray:
        """Running mean of the losses minus those of the best fixed models of all batches."""
        stack = sp.vstack if sp.issparse(self.entries[0].X) else np.concatenate
        X: Any = stack([entry.X for entry in self.entries])
        models = len(self.entries[0].labels)
        labels = [np.concatenate([e.labels[k] for e in self.entries]) for k in range(models)]
        count, problem = X.shape[0], self._problem
        best = [
            minimise(
                function,
                regularisation=FLAT * count,
                centre=np.zeros(function.dimension),
                linear=np.zeros(function.dimension),
                gradient_norm=1e-3 * FLAT * count,
                domain=problem.domain,
                smoothness=count * problem.loss.smoothness * problem.size**2,
            )
            for function in self._objectives(X, labels)
        ]
        gaps = [e.loss - self._mean_loss(e.X, e.labels, best) for e in self.entries]
        return np.cumsum(gaps) / np.arange(1, len(gaps) + 1)

    def _objectives(self, X: Any, labels: Sequence[np.ndarray]) -> list[Objective]:
        problem = self._problem
        bounds = RowBounds(problem.row_norm, problem.intercept)
        return [
            Objective(make_rows(X, y, bounds, self._classification).precise(), problem.loss)
            for y in labels
        ]
