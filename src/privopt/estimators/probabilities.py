"""From scores to class probabilities, by the inverse link of the loss that was minimised."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax

from privopt.losses import CappedLogistic
from privopt.solvers import Plan


def probabilities(scores: np.ndarray, plan: Plan | None = None) -> np.ndarray:
    """One column per class; more than two classes are the softmax of their scores where they were
    fitted together, else one-against-rest probabilities normalised."""
    if plan is not None and plan.solver.joint:
        return softmax(scores, axis=1)
    loss = None if plan is None else plan.facts.problem.loss
    capped = isinstance(loss, CappedLogistic)
    positive = loss.probability(scores) if capped else expit(scores)
    if scores.ndim == 1:
        return np.column_stack([1 - positive if capped else expit(-scores), positive])
    return positive / np.maximum(positive.sum(axis=1, keepdims=True), 1e-300)
