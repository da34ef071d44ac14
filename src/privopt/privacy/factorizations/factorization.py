"""A factorization of prefix sums: how the noise of a stream is correlated, and what that costs.

With A the lower triangular matrix of ones, A = B C. The stream of vectors g_1..g_n is released as
g_t + a_t, where a = C^-1 z, z independent standard Gaussian rows times sigma; its running sums
carry b = A a = B z. Whoever sees all of it sees C g + z: one Gaussian release.

Theorem (Denisov et al., 2022). For lower triangular C the transcript is exactly as private as one
Gaussian mechanism with mu = sensitivity / sigma, also if g_t is chosen adaptively. One record that
takes part in the steps pi, each time with a vector u_i of norm at most 1, moves C g by
||sum_i C_i u_i||^2 = sum_ij X_ij <u_i, u_j> <= sum_ij |X_ij|, X = C'C, with equality for
X >= 0 on pi, where all u_i are equal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.privacy.budget import Refused
from privopt.privacy.participation import Participation, Pattern

Draw = Callable[[], np.ndarray]
"""A fresh vector of independent standard Gaussian coordinates."""
WholeDraw = Callable[[float], np.ndarray]
"""A fresh vector of independent integers, with a standard deviation in proportion to the number."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What a stream of integers adds to the law of its factorization (docs/proofs/streams.md).

    Step t draws integers K_t of standard deviation 1/C_tt in some public unit and makes
    a_t = K_t - rint(P_t), P_t = sum over j < t of (C_tj / C_tt) a_j. ``least`` and ``most`` bound
    1/C_tt; the computed P_t is off by at most ``error``; one participation of a record changes the
    sum behind P_t in at most ``rows`` steps.
    """

    least: float
    most: float
    error: float
    rows: int


class NoiseStream(ABC):
    """The secret state behind one stream of noise: buffers and a step, never a generator's state.

    Whoever holds it can subtract part of the noise of later steps.
    """

    step: int = 0

    @abstractmethod
    def next(self, draw: Draw) -> np.ndarray:
        """a_t = b_t - b_(t-1) in units of sigma, as a new array."""

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        """a_t in integers, fresh ones less the nearest integer to what earlier steps bring in.

        A stream is asked for integers in all of its steps or in none.
        """
        raise Refused("this noise has no stream of integers.")

    @abstractmethod
    def vectors(self) -> list[np.ndarray]:
        """The buffers, in a fixed order."""

    @abstractmethod
    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        """Set the buffers of the given step."""

    def state_dict(self) -> dict[str, Any]:
        """What has to be kept in order to go on: secret, to be stored apart from the model."""
        return {"step": self.step, "vectors": [vector.copy() for vector in self.vectors()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        step, vectors = int(state["step"]), list(state["vectors"])
        shapes = {np.shape(vector) for vector in vectors}
        if step < 0 or len(shapes) > 1:
            raise ValueError("this is not the state of a noise stream.")
        self.load_vectors(step, [np.array(vector, dtype=float) for vector in vectors])
        self.step = step


@dataclass(frozen=True)
class Factorization(ABC):
    """Public description of correlated noise for at most ``steps`` steps."""

    name: ClassVar[str]
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a stream has at least one step, got {self.steps}.")

    # ------------------------------------------------------------ privacy
    @abstractmethod
    def encode(self, values: np.ndarray) -> np.ndarray:
        """C applied to the first rows of a matrix (steps by columns), C square and causal.

        Of the steps' noise it recovers the independent Gaussians; of a record's indicator it is
        what that record moves.
        """

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        """mu^2 sigma^2 of a record that takes part in a pattern, once ``released`` steps are out.

        The sum of |X_ij| over the pattern: exact if X >= 0 there, else an upper bound.
        """
        released = self._released(released)
        return np.array([self._loss_squared(pattern, released) for pattern in patterns])

    def _loss_squared(self, pattern: Pattern, released: int) -> float:
        steps = [step for step in pattern if step < released]
        if not steps:
            return 0.0
        unit = np.zeros((released, len(steps)))
        unit[steps, np.arange(len(steps))] = 1.0
        columns = self.encode(unit)
        return float(np.abs(columns.T @ columns).sum())

    @abstractmethod
    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        """Largest ``losses_squared`` of all patterns a participation rule allows."""

    def bands(self) -> int | None:
        """Number of non-zero diagonals of C, if it is banded; None otherwise."""
        return None

    def _released(self, released: int | None) -> int:
        if released is None:
            return self.steps
        if not 0 <= released <= self.steps:
            raise Refused(f"this stream was declared for {self.steps} steps, got {released}.")
        return released

    # ------------------------------------------------------------ error
    @abstractmethod
    def row_norms(self) -> np.ndarray:
        """Standard deviation of b_t, a coordinate of the running sum's noise, at sigma = 1."""

    def errors(self, sensitivity_squared: float) -> tuple[float, float]:
        """Largest and root mean square standard deviation of the running sums at mu = 1."""
        norms = math.sqrt(sensitivity_squared) * self.row_norms()
        return float(norms.max()), float(np.sqrt(np.mean(norms**2)))

    # ------------------------------------------------------------ noise
    @abstractmethod
    def vectors_kept(self) -> int:
        """How many vectors a stream of this noise keeps in the end."""

    @abstractmethod
    def stream(self) -> NoiseStream:
        """A fresh stream of this noise."""

    def rounding(self, largest: float) -> Rounding | None:
        """How a stream of integers differs from this noise, if no fresh integer is beyond
        ``largest``; None if there is no such stream."""
        return None


UNIT = 2.0**-53
"""Relative error of one operation in double precision."""


def less_past(fresh: np.ndarray, past: np.ndarray) -> np.ndarray:
    """Fresh integers less the nearest ones to what earlier steps bring in, computed apart: what
    is taken off depends on the past alone."""
    return fresh - np.rint(past).astype(np.int64)
