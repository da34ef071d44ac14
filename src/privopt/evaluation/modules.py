"""A torch module as a model that predicts: numbers, the log-odds of two classes, or one score for
each class. Torch is not imported before a module is there."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax


def is_module(model: Any) -> bool:
    """Whether it is a torch module."""
    return any(
        kind.__module__ == "torch.nn.modules.module" and kind.__name__ == "Module"
        for kind in type(model).__mro__
    )


class Module:
    """Called in evaluation mode and without gradients, and left in the mode that it had."""

    def __init__(self, module: Any, classes: np.ndarray | None) -> None:
        self.module, self.classes = module, classes

    def predict(self, X: Any) -> np.ndarray:
        if self.classes is None:
            return self._out(X)[:, 0]
        return self.classes[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """One column is the log-odds of the second class, several are scores of classes."""
        out = self._out(X)
        if out.shape[1] == 1:
            return np.column_stack([expit(-out[:, 0]), expit(out[:, 0])])
        return softmax(out, axis=1)

    def _out(self, X: Any) -> np.ndarray:
        import torch

        training = self.module.training
        weight = next(iter(self.module.parameters()), None)
        rows = X if hasattr(X, "detach") else torch.as_tensor(_numbers(X))
        if weight is not None:
            kind = weight.dtype if rows.is_floating_point() else rows.dtype
            rows = rows.to(weight.device, kind)
        try:
            self.module.eval()
            with torch.no_grad():
                return self.module(rows).double().cpu().numpy().reshape(len(rows), -1)
        finally:
            self.module.train(training)


def _numbers(X: Any) -> np.ndarray:
    rows = np.asarray(X)
    return rows.astype(float) if rows.dtype == object else rows
