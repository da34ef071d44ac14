"""What a training asks of its batches: clipped sums, sealed with the public facts of their step."""

from __future__ import annotations

from torch import Tensor

from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Neighbouring, records_moved
from privopt.torch.batches import Schedule
from privopt.torch.curve import LossCurve
from privopt.torch.engine import Engine


class ClippedSums:
    """The sum of one batch after the other, each example clipped as the engine clips it."""

    def __init__(
        self,
        engine: Engine,
        schedule: Schedule,
        neighbouring: Neighbouring,
        curve: LossCurve | None = None,
    ) -> None:
        self._engine, self._schedule, self._curve = engine, schedule, curve
        self._records = records_moved(neighbouring)

    def sensitivity(self, step: int) -> Sensitivity:
        """What is public about the sum of a step."""
        # That of now: a sum is no larger than it was clipped.
        clip = self._engine.clip.norm
        if self._curve is not None:
            clip = self._curve.joint(clip)
        clip *= self._schedule.parts  # each of them has a loss, too
        cells, sampling = self._schedule.cells(step), self._schedule.sampling
        return Sensitivity("l2", self._records * clip, clip, cells, step + 1, sampling)

    def sealed(self, total: Tensor, step: int) -> Sealed:
        """The clipped sum of a step, or the share of it that this process owns."""
        return Sealed(KEY, total, self.sensitivity(step))
