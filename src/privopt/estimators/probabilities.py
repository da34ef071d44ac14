"""From scores to class probabilities, by the inverse link of the loss that was minimised."""

from __future__ import annotations

import numpy as np

from privopt.losses import CappedLogistic
from privopt.solvers import Plan


def probabilities(scores: np.ndarray, plan: Plan | None = None) -> np.ndarray:
    """One column per class; more than two classes are the softmax of their scores where they were
    fitted together, else one-against-rest probabilities normalised."""
    if plan is not None and plan.solver.joint:
        # The exact inverse link of the cap was measured: docs/estimators.md.
        z = scores - scores.max(axis=1, keepdims=True)
        q = np.exp(z)
        return q / q.sum(axis=1, keepdims=True)
    # A cap of 1 is the logistic loss.
    cap = 1.0 if plan is None else plan.settings.public().get("cap", 1.0)
    positive = CappedLogistic(cap).probability(scores)
    if scores.ndim == 1:
        return np.column_stack([1 - positive, positive])
    return positive / np.maximum(positive.sum(axis=1, keepdims=True), 1e-300)
