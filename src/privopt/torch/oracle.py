"""What a training asks of its batches: clipped sums, sealed with the public facts of their step."""

from __future__ import annotations

from torch import Tensor

from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Neighbouring, records_moved
from privopt.torch.batches import Schedule


class ClippedSums:
    """The sum of one batch after the other, each example clipped to ``clip_norm``."""

    def __init__(self, clip_norm: float, schedule: Schedule, neighbouring: Neighbouring) -> None:
        self._clip, self._schedule = clip_norm, schedule
        self._movement = records_moved(neighbouring) * clip_norm

    def sensitivity(self, step: int) -> Sensitivity:
        """What is public about the sum of a step."""
        cells, sampling = self._schedule.cells(step), self._schedule.sampling
        return Sensitivity("l2", self._movement, self._clip, cells, step + 1, sampling)

    def sealed(self, total: Tensor, step: int) -> Sealed:
        """The clipped sum of a step, or the share of it that this process owns."""
        return Sealed(KEY, total, self.sensitivity(step))
