"""Losses of a record that are functions of the whole vector theta, not of one margin."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.geometry.norms import Norm
from privopt.noise import SeededSource
from privopt.ownership import own
from privopt.privacy.budget import Refused


@dataclass(frozen=True)
class VectorLoss(ABC):
    """A function f(theta; x, y) of a vector of as many numbers as a row has.

    Values and gradients are asked for records line by line: what a line gives must depend on that
    line alone. The gradient is clipped where records are read, so noisy gradients need nothing of
    the constants; ``lipschitz_on`` is what they clip to by default.

    Attributes
    ----------
    convex : bool
    """

    convex: ClassVar[bool] = True
    classification: ClassVar[bool] = False
    one_signed: ClassVar[bool] = False
    curved: ClassVar[bool] = False

    @abstractmethod
    def value(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """One number for each row of X."""

    @abstractmethod
    def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """One line for each row of X, a subgradient at a kink."""

    @abstractmethod
    def lipschitz_on(self, size: float, far: float) -> float:
        """Largest l2 norm of a gradient, for rows no longer than ``size`` and a theta no longer
        than ``far``; maybe infinite."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """The Lipschitz constant in l2 of the gradient in theta; infinite at a kink."""

    @property
    def smooth(self) -> bool:
        return math.isfinite(self.smoothness)

    @property
    def weak_convexity(self) -> float:
        """Some w for which f + w ||theta||^2/2 is convex."""
        return 0.0 if self.convex else self.smoothness

    @property
    def strong_convexity(self) -> float:
        """Some s for which f - s ||theta||^2/2 is convex."""
        return 0.0

    def rounded(self, width: float) -> VectorLoss | None:
        """A smooth convex loss of the same Lipschitz constant that is at most ``width`` times
        ``bias`` above or below this one; None if there is none."""
        return None

    bias: ClassVar[float] = 0.0
    """See ``rounded``."""

    isotropic: ClassVar[float] = 0.0
    """a where f is a/2 ||theta - c(x, y)||^2 plus a constant: one step reaches the minimiser."""

    # ------------------------------------------------------------ what other losses answer too
    def smoothness_in(self, norm: Norm, data_bound: float) -> float:
        """In a norm other than l2 what l2 allows: ||.||_l2 is at most ||.||_l1."""
        return self.smoothness if norm != "linf" else math.inf

    def weak_convexity_in(self, norm: Norm, data_bound: float) -> float:
        return self.weak_convexity if norm != "linf" else math.inf

    def pieces(self, y: np.ndarray) -> None:
        """Not two lines."""
        return

    def standard(self, mean: float, deviation: float, plenty: float) -> None:
        """Nothing to standardise."""
        return

    def typical(self, plenty: float) -> None:
        return


@dataclass(frozen=True)
class EuclideanDistance(VectorLoss):
    """f(theta; x) = ||theta - x||: its minimiser is the Euclidean (geometric) median."""

    bias: ClassVar[float] = 0.5

    def value(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return _lengths(theta - X)

    def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        apart = theta - X
        sizes = _lengths(apart)
        return apart / np.where(sizes > 0, sizes, 1.0)[:, None]

    def lipschitz_on(self, size: float, far: float) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return math.inf

    def rounded(self, width: float) -> VectorLoss:
        return RoundedDistance(width)


@dataclass(frozen=True)
class RoundedDistance(VectorLoss):
    """The distance r = ||theta - x||, its tip rounded off: r^2 / (2 w) within w, r - w/2 beyond.

    Parameters
    ----------
    width : float
        w; the smoothness is 1 / w, and the loss is at most w/2 below the distance.
    """

    width: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", float(self.width))
        if not (math.isfinite(self.width) and self.width > 0.0):
            raise ValueError(f"RoundedDistance needs a positive finite width; got {self.width}.")

    def value(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = _lengths(theta - X)
        inside = np.minimum(r, self.width)
        return inside * inside / (2 * self.width) + (r - inside)

    def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        apart = theta - X
        return apart / np.maximum(_lengths(apart), self.width)[:, None]

    def hessian(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The sum of the records' Hessians: (I - u u^T [r > w]) / max(r, w)."""
        apart = theta - X
        r = _lengths(apart)
        weights = 1 / np.maximum(r, self.width)
        outer = apart * (weights * np.sqrt(weights) * (r > self.width))[:, None]
        return np.eye(theta.size) * float(weights.sum()) - outer.T @ outer

    def lipschitz_on(self, size: float, far: float) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return 1 / self.width


@dataclass(frozen=True)
class SquaredDistance(VectorLoss):
    """f(theta; x) = ||theta - x||^2 / 2: its minimiser is the mean of the rows.

    One noisy step from the centre is an exact step to the mean: ``noisy_gd`` takes it.
    """

    curved: ClassVar[bool] = True
    isotropic: ClassVar[float] = 1.0

    def value(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        apart = theta - X
        return np.einsum("ij,ij->i", apart, apart) / 2

    def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return theta - X

    def hessian(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The sum of the records' Hessians."""
        return np.eye(theta.size) * len(X)

    def lipschitz_on(self, size: float, far: float) -> float:
        return size + far

    @property
    def smoothness(self) -> float:
        return 1.0

    @property
    def strong_convexity(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Linear(VectorLoss):
    """f(theta; x) = -<theta, x>: on a ball its minimiser is the direction of the rows' mean.

    The loss that lower bounds are proved with.
    """

    def value(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -np.einsum("ij,j->i", X, theta)

    def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -np.asarray(X, dtype=float)

    def hessian(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Nothing bends."""
        return np.zeros((theta.size, theta.size))

    def lipschitz_on(self, size: float, far: float) -> float:
        return size

    @property
    def smoothness(self) -> float:
        return 0.0


def _lengths(vectors: np.ndarray) -> np.ndarray:
    """Row by row, in an order of additions that does not depend on where a row stands."""
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors))


# ---------------------------------------------------------------- of somebody else's
PROBES = 64


@dataclass(frozen=True, repr=False)
class GuardedVector(VectorLoss):
    """A vector loss that the library did not write: called for one record at a time.

    So a record's gradient reads no other record; where the code fails it counts as zero, since a
    refusal would tell of the record. What it states is read once, and its smoothness is tried on
    made-up points before there are data. That the code remembers nothing, and is convex, is not
    enforced: ``assumption``. It has no Hessian here, so no objective is perturbed with it:
    that would rest on constants which nothing enforces.
    """

    inner: VectorLoss

    def __post_init__(self) -> None:
        stated = float(self.inner.smoothness), float(self.inner.strong_convexity)
        if not all(value >= 0.0 for value in stated):
            raise ValueError(f"{self.name} states a constant that is negative or no number.")
        object.__setattr__(self, "_stated", (*stated, bool(self.inner.convex)))

    @property
    def name(self) -> str:
        return type(self.inner).__name__

    @property
    def assumption(self) -> str:
        """What accuracy, and nothing of privacy but that no record is remembered, rests on."""
        return (
            f"the loss {self.name} remembers no record: not proved; it was asked one record at a "
            "time, and its gradients were clipped"
        )

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self._stated[2]  # type: ignore[attr-defined]

    @property
    def smoothness(self) -> float:
        return self._stated[0]  # type: ignore[attr-defined]

    @property
    def strong_convexity(self) -> float:
        return self._stated[1]  # type: ignore[attr-defined]

    def lipschitz_on(self, size: float, far: float) -> float:
        return float(self.inner.lipschitz_on(size, far))

    def value(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._called(self.inner.value, theta, X, y, ())

    def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._called(self.inner.gradient, theta, X, y, (theta.size,))

    def probe(self, p: int) -> None:
        """Refuse a stated smoothness, or a gradient, that made-up points contradict."""
        rng = SeededSource(0).coins
        x = np.clip(rng.standard_normal((PROBES, p)), -2, 2) / math.sqrt(p)
        y = np.where(rng.uniform(0.0, 1.0, PROBES) < 0.5, 1.0, -1.0)
        for i in range(PROBES):
            one, way = rng.standard_normal(p), rng.standard_normal(p)
            near = one + 10.0 ** rng.uniform(-3, 0) * way / np.linalg.norm(way)
            record = x[i : i + 1], y[i : i + 1]
            _answer(self.inner.value, one, *record, ())
            here, there = (_answer(self.inner.gradient, t, *record, (p,)) for t in (one, near))
            moved, far = np.linalg.norm(here - there), np.linalg.norm(one - near)
            if self.smooth and moved > self.smoothness * far * (1 + 1e-6) + 1e-9:
                raise ValueError(
                    f"{self.name} states a smoothness of {self.smoothness:g}, and its gradient "
                    f"moves by {moved / far:.3g} for each unit of theta."
                )

    def _called(
        self, function: Any, theta: np.ndarray, X: np.ndarray, y: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray:
        found = np.zeros((len(X), *shape))
        for i in range(len(X)):
            try:
                found[i] = _answer(function, theta, X[i : i + 1], y[i : i + 1], shape)
            except Exception:
                found[i] = 0.0
        return found

    def __repr__(self) -> str:
        return repr(self.inner)


def _answer(
    function: Any, theta: np.ndarray, X: np.ndarray, y: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """What foreign code says of one record; what is not a number counts as zero."""
    with np.errstate(all="ignore"):
        answer = np.asarray(function(theta.copy(), X.copy(), y.copy()), dtype=float)
    if answer.shape != (1, *shape):
        raise Refused("a loss gives one value and one gradient for each record.")
    return np.where(np.isfinite(answer[0]), answer[0], 0.0)


def met_vector(loss: VectorLoss) -> VectorLoss:
    """The loss itself if the library wrote it, else behind a guard."""
    return loss if type(loss) is GuardedVector or own(loss) else GuardedVector(loss)
