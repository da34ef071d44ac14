"""From scores to class probabilities, by the inverse link of the loss that was minimised."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from privopt.losses import CappedLogistic, Loss


def probabilities(scores: np.ndarray, loss: Loss | None = None) -> np.ndarray:
    """One column per class; more than two classes are one-against-rest scores normalised."""
    capped = isinstance(loss, CappedLogistic)
    positive = loss.probability(scores) if capped else expit(scores)
    if scores.ndim == 1:
        return np.column_stack([1 - positive if capped else expit(-scores), positive])
    return positive / np.maximum(positive.sum(axis=1, keepdims=True), 1e-300)
