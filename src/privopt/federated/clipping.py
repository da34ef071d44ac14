"""How much of a person's model update enters a round, as a vector in the unit ball.

Updates are stated in units of the clip norm, so that the norm may change between rounds without
changing the sensitivity of the stream of sums: a round releases sum_i u_i / C_t plus noise, and is
multiplied by the public C_t afterwards.

Adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy, 2021) moves C_t toward a quantile of the
norms. Whether a person's norm is at most C_t enters as one number more, b = +-``BIT`` / 2 beside
an update in the ball of radius sqrt(1 - BIT^2 / 4): together they are in the unit ball, so the same
noise in the same release pays for both, at half a percent more of it. log C_t moves by a public
multiple of the noisy sums of b, whose noise is that of running sums: small where it is correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BIT = 0.2
"""How far the two answers to "is your norm at most C?" are apart, in units of the sensitivity."""
LARGEST = math.exp(20.0)
"""An adaptive norm stays within this factor of where it began."""


@dataclass(frozen=True)
class Clip:
    """One norm for the whole update, or one for each of its layers, of these ``sizes``."""

    norms: tuple[float, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, clip_norm: float | Sequence[float], sizes: Sequence[int]) -> Clip:
        """Refuses what is not a norm, or not one for each layer."""
        each = isinstance(clip_norm, (Sequence, np.ndarray))
        norms = tuple(float(norm) for norm in clip_norm) if each else (float(clip_norm),)  # type: ignore
        if not norms or not all(0 < norm < math.inf for norm in norms):
            raise ValueError(
                f"clip_norm must be positive and finite, or such a number for each layer; got "
                f"{clip_norm!r}."
            )
        if each and len(norms) != len(sizes):
            raise ValueError(
                f"clip_norm has {len(norms)} numbers, and the model {len(sizes)} layers: give one "
                "for each, or one for all."
            )
        return cls(norms, tuple(sizes) if each else (sum(sizes),))

    @property
    def norm(self) -> float:
        """Norm of the longest update that is left as it is."""
        return math.hypot(*self.norms)

    @np.errstate(all="ignore")
    def unit(self, update: np.ndarray, scale: float = 1.0) -> np.ndarray:
        """The update, each layer cut to its norm times ``scale``, in units of the whole norm."""
        whole = self.norm * scale
        if len(self.norms) == 1:
            length = float(np.linalg.norm(update))
            return update * (1 / max(length, whole)) if math.isfinite(length) else update * 0.0
        parts = np.split(update, np.cumsum(self.sizes)[:-1])
        cut = []
        for part, norm in zip(parts, self.norms, strict=True):
            length = float(np.linalg.norm(part))
            cut.append(part * (norm / self.norm / max(length, norm * scale)))
        return np.concatenate(cut)


@dataclass(frozen=True)
class Quantile:
    """Where an adaptive clip norm goes, and how fast: log C changes by ``rate`` a round at most,
    but for noise."""

    quantile: float
    rate: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise ValueError(f"adaptive clips to a quantile in (0, 1), got {self.quantile!r}.")

    @staticmethod
    def joined(unit: np.ndarray, fits: bool) -> np.ndarray:
        """An update in the unit ball, and the answer, in the unit ball together."""
        answer = BIT / 2 if fits else -BIT / 2
        return np.append(unit * math.sqrt(1 - BIT**2 / 4), answer)

    @staticmethod
    def parted(noisy: np.ndarray) -> tuple[np.ndarray, float]:
        """The noisy sums of updates and of answers, each +-1/2."""
        return noisy[:-1] / math.sqrt(1 - BIT**2 / 4), float(noisy[-1]) / BIT

    def moved(self, scale: float, answers: float, goal: float) -> float:
        """The next norm; whoever did not answer pulls it nowhere."""
        change = -self.rate * (answers / goal - (self.quantile - 0.5))
        return float(np.clip(scale * math.exp(np.clip(change, -1.0, 1.0)), 1 / LARGEST, LARGEST))
