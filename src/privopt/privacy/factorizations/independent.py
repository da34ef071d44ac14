"""Independent noise in each step: C = I, the noise of noisy gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.privacy.factorizations.factorization import (
    Draw,
    Factorization,
    NoiseStream,
    Rounding,
    WholeDraw,
)
from privopt.privacy.participation import Participation, Pattern


@dataclass(frozen=True)
class Independent(Factorization):
    """Fresh noise in every step; the running sum's error grows like the square root of t."""

    name: ClassVar[str] = "independent"

    def encode(self, values: np.ndarray) -> np.ndarray:
        return values

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        released = self._released(released)
        return np.array([float(sum(s < released for s in pattern)) for pattern in patterns])

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        released = self._released(released)
        return float(participation.fitted(released).times if released else 0)

    def bands(self) -> int:
        return 1

    def row_norms(self) -> np.ndarray:
        return np.sqrt(np.arange(1, self.steps + 1))

    def vectors_kept(self) -> int:
        return 0

    def stream(self) -> NoiseStream:
        return _Fresh()

    def rounding(self, largest: float) -> Rounding:
        return Rounding(1.0, 1.0, 0.0, 0)


class _Fresh(NoiseStream):
    def next(self, draw: Draw) -> np.ndarray:
        self.step += 1
        return draw()

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        self.step += 1
        return draw(1.0)

    def vectors(self) -> list[np.ndarray]:
        return []

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        if vectors:
            raise ValueError("independent noise keeps no buffers.")
