r"""A training curve that is private: each epoch's mean loss, released with the gradients.

Let v_i = (g_i, w l_i) be what an example gives to a step: its gradient, clipped to norm C, and its
loss, cut to [0, B] and weighed by w = r C / B. Its norm is at most sqrt(C^2 + r^2 C^2) =
C sqrt(1 + r^2), so the sum of the v_i over a batch is a query of that sensitivity (twice that under
replace_one, where both records lie in a ball of that radius), on the same batch, in the same step.
It is released as one vector with one Gaussian: the loss is a coordinate more, and no event, no
batch and no composition is added. Whatever the accountant says of a run of that clip norm, sampled
or correlated, holds. The price is that noise is sqrt(1 + r^2) times as large, half a percent for
r = 1/10: r^2 / (1 + r^2) of a record's squared loss goes to the curve, the rest to the gradient.

The mean over an epoch is post-processing: the noisy coordinates are added up and divided by w and
by the expected number of examples, both public. With independent noise of multiplier m its standard
deviation is m B sqrt(1 + r^2) / (r b sqrt(E)) for E steps of expected size b.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from privopt.privacy.budget import Refused

RATIO = 0.1
"""Length of the loss's coordinate in clip norms."""


class LossCurve:
    """Adds a batch's losses to its gradients, and the noisy sums to means of epochs."""

    def __init__(self, bound: float, clip_norm: float, batch: float, steps_per_epoch: int) -> None:
        if not 0 < bound < math.inf:
            raise ValueError(
                "loss_curve is the largest loss of an example that counts, a positive number from "
                f"outside the data; got {bound!r}."
            )
        self.bound = float(bound)
        self._weight, self._batch = RATIO * clip_norm / bound, batch
        self._epoch = steps_per_epoch
        self.means: list[float] = []
        self._sum, self._steps = 0.0, 0

    def joint(self, clip_norm: float) -> float:
        """Norm of what one example may give: its clipped gradient and its cut and weighed loss."""
        return math.hypot(clip_norm, self._weight * self.bound)

    def joined(self, gradient: Tensor, losses: Tensor | None) -> Tensor:
        """A clipped sum of gradients, and behind it that of the losses. A loss that is missing
        counts as zero, as its gradient does."""
        if losses is None:
            raise Refused("the losses of this step are not known: leave loss_curve=None.")
        cut = torch.nan_to_num(losses.to(gradient), nan=0.0, posinf=self.bound, neginf=0.0)
        total = cut.clamp(0.0, self.bound).sum() * self._weight
        return torch.cat([gradient, total.reshape(1)])

    def note(self, step: int, noisy: Tensor) -> None:
        """Take in the released coordinate of a step."""
        self._sum = self._sum + noisy.detach()
        self._steps += 1
        if (step + 1) % self._epoch == 0:
            self.means.append(float(self._sum) / (self._weight * self._batch * self._steps))
            self._sum, self._steps = 0.0, 0

    def state(self) -> dict[str, Any]:
        """Public numbers."""
        return {"means": list(self.means), "sum": float(self._sum), "steps": self._steps}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from them."""
        self.means, self._sum = [float(x) for x in state["means"]], float(state["sum"])
        self._steps = int(state["steps"])
