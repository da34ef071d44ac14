"""A foreign loss as a table, read before there are data.

The loss of one record is a function of one margin, or of margin minus label. So its slope is read
once on a public grid and never called again: what a record adds cannot depend on other records, on
their order, or on what the code remembers. Between nodes the slope is linear; where its values
break a stated constant, they are moved until they keep it. Lipschitz constant, smoothness,
convexity and sign therefore hold by construction, for the function that is minimised.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from privopt.losses.foreign import Foreign, read_only, real_numbers
from privopt.losses.loss import Array, Loss
from privopt.privacy.budget import Refused

OCTAVE = 1024
"""Nodes between a power of two and the next."""
LOW, HIGH = -8, 60
"""Powers of two between which nodes stand; the slope is linear below and constant above."""


@dataclass(frozen=True, repr=False)
class Tabulated(Foreign):
    """A foreign loss of two classes, or of the residual alone, held to what it states.

    ``branches``: one function of the margin for label -1 and one for +1, or one of the residual.
    Values are integrals of slopes; the loss's own are read at 0 alone.
    """

    branches: tuple[Curve | TwoLines, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = (-1.0, 1.0) if self.classification else (0.0,)
        branches = tuple(_branch(self, label) for label in labels)
        object.__setattr__(self, "branches", branches)

    @property
    def assumption(self) -> str:
        return (
            f"the loss {self.name} was written without a look at the data: it enters as a table of "
            "its slopes, made before the data were read"
        )

    @property
    def strong_convexity(self) -> float:
        # A slope that stays within bounds, or stops, does not rise for ever.
        return self.stated[2] if math.isinf(self.lipschitz) and math.isinf(self.stated[4]) else 0.0

    @property
    def linear_beyond(self) -> float:
        # The slope bends up to the next node.
        far = self.stated[4]
        return far if math.isinf(far) else (far + self.classification) * (1 + 2 / OCTAVE) + 1e-2

    def value(self, z: Array, y: Array) -> Array:
        return self._read("value", z, y)

    def slope(self, z: Array, y: Array) -> Array:
        return self._read("slope", z, y)

    def curvature(self, z: Array, y: Array) -> Array:
        return self._read("curvature", z, y)

    def pieces(self, y: Array) -> tuple[Array, Array, Array] | None:
        ends = [one for one in self.branches if isinstance(one, TwoLines)]
        if len(ends) < len(self.branches):
            return None
        if not self.classification:
            (one,) = ends
            return y + one.kink, 0.0 * y + one.below, 0.0 * y + one.above
        xp, (minus, plus) = array_namespace(y), ends
        kink, below, above = (
            xp.where(y > 0, 0.0 * y + getattr(plus, part), 0.0 * y + getattr(minus, part))
            for part in ("kink", "below", "above")
        )
        return kink, below, above

    def _range(self, margin: float, label: float) -> float:
        if self.classification:
            return max(one.variation(margin) for one in self.branches)
        (one,) = self.branches
        steepest = min(self.lipschitz, one.steepest(margin + label))
        return min(2 * margin * steepest, one.variation(math.inf))

    def _read(self, name: str, z: Array, y: Array) -> Array:
        """A function of the branch that the label chooses, in the type and place of ``z``."""
        if not is_numpy_array(z):
            xp = array_namespace(z)
            y = xp.asarray(y)
            found = self._read(name, np.asarray(z.detach().cpu()), np.asarray(y.detach().cpu()))
            return xp.asarray(found, dtype=z.dtype, device=device(z))
        kind = np.result_type(z, np.float32)
        if not self.classification:
            return getattr(self.branches[0], name)(z - y).astype(kind, copy=False)
        z, y = np.broadcast_arrays(z, y)
        found, ones = np.empty(z.shape, kind), y > 0
        for one, where in zip(self.branches, (~ones, ones), strict=True):
            found[where] = getattr(one, name)(z[where])
        return found


# ---------------------------------------------------------------- one function of one number
@dataclass(frozen=True, eq=False)
class Curve:
    """A slope that is linear between nodes and constant beyond the last ones."""

    nodes: np.ndarray
    slopes: np.ndarray
    values: np.ndarray
    travelled: np.ndarray
    """The integral of |slope| from 0 to each node, or more."""

    @classmethod
    def through(cls, nodes: np.ndarray, slopes: np.ndarray, value: float) -> Curve:
        gaps = np.diff(nodes)
        areas = gaps * (slopes[1:] + slopes[:-1]) / 2
        paths = gaps * (np.abs(slopes[1:]) + np.abs(slopes[:-1])) / 2
        return cls(nodes, slopes, value + _from_middle(areas), np.abs(_from_middle(paths)))

    def slope(self, z: np.ndarray) -> np.ndarray:
        found = np.interp(z, self.nodes, self.slopes)
        return np.where(found == found, found, 0.0)

    def curvature(self, z: np.ndarray) -> np.ndarray:
        cell = self._cell(z)
        bend = np.diff(self.slopes)[cell] / np.diff(self.nodes)[cell]
        return np.where(np.abs(z) <= self.nodes[-1], bend, 0.0)

    def value(self, z: np.ndarray) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        cell = self._cell(z)
        inside = np.clip(z, self.nodes[0], self.nodes[-1])
        start = self.slopes[cell]
        mean = (start + np.interp(inside, self.nodes, self.slopes)) / 2
        found = self.values[cell] + mean * (inside - self.nodes[cell])
        out = z - inside
        return found if not out.any() else found + self.slope(z) * out

    def variation(self, far: float) -> float:
        """The integral of |slope| over [-far, far], or more."""
        if not far < self.nodes[-1]:
            return math.inf if self.slopes[[0, -1]].any() else float(self.travelled[[0, -1]].sum())
        right = int(np.searchsorted(self.nodes, far))
        left = int(np.searchsorted(self.nodes, -far, side="right")) - 1
        return float(self.travelled[left] + self.travelled[right]) * (1 + 1e-9)

    def steepest(self, far: float) -> float:
        """The largest |slope| over [-far, far], or more."""
        inside = np.abs(self.nodes) <= far * (1 + 2 / OCTAVE) + 2.0**LOW
        return float(np.abs(self.slopes[inside]).max())

    def _cell(self, z: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self.nodes, z, side="right") - 1
        return np.clip(found, 0, len(self.nodes) - 2)


@dataclass(frozen=True, slots=True)
class TwoLines:
    """A line that bends once."""

    kink: float
    below: float
    above: float
    start: float
    """The value at 0."""

    def slope(self, z: np.ndarray) -> np.ndarray:
        return np.where(z > self.kink, self.above, self.below)

    def curvature(self, z: np.ndarray) -> np.ndarray:
        return 0.0 * z

    def value(self, z: np.ndarray) -> np.ndarray:
        def rise(at: np.ndarray) -> np.ndarray:
            return np.where(at > self.kink, self.above, self.below) * (at - self.kink)

        return self.start + rise(np.asarray(z, dtype=float)) - rise(np.zeros(()))

    def variation(self, far: float) -> float:
        if math.isinf(far):
            return math.inf if self.below or self.above else 0.0
        bend = min(max(self.kink, -far), far)
        return abs(self.below) * (bend + far) + abs(self.above) * (far - bend)

    def steepest(self, far: float) -> float:
        return max(abs(self.below), abs(self.above))


# ---------------------------------------------------------------- reading
def tabulable(loss: Loss) -> bool:
    """Whether two functions of the margin say all, or one of the residual; seen on made-up
    margins and labels that are short in binary, so that no difference is rounded."""
    if loss.classification:
        return True
    z, y = np.arange(-640, 640, 3) / 64.0, np.resize(np.arange(-9, 9) / 8.0, 427)
    with np.errstate(all="ignore"):
        whole = _slopes(loss, z, y)
        alone = _slopes(loss, z - y, np.zeros_like(y))
    return bool(np.allclose(whole, alone, rtol=1e-9, atol=1e-12, equal_nan=True))


def _slopes(loss: Loss, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = real_numbers(loss.slope(read_only(z), read_only(y)), z)
    return np.asarray(found, dtype=float)


def _branch(loss: Tabulated, label: float) -> Curve | TwoLines:
    with np.errstate(all="ignore"):
        zero, one = np.zeros(1), np.full(1, label)
        start = float(real_numbers(loss.inner.value(read_only(zero), read_only(one)), zero)[0])
        start = start if math.isfinite(start) else 0.0
        lines = loss.inner.pieces(read_only(one))
        if lines is not None:
            kink, below, above = (float(real_numbers(part, one)[0]) for part in lines)
            return _two_lines(loss, kink, below, above, start)
        nodes, far = _nodes(), loss.stated[4]
        at = np.clip(nodes, label - far, label + far)  # constant from there on
        read = _slopes(loss.inner, at, np.full_like(at, label))
        _check_alone(loss, at, read, label)
    return Curve.through(nodes, _held(loss, nodes, read, label), start)


def _two_lines(loss: Tabulated, kink: float, below: float, above: float, start: float) -> TwoLines:
    most = loss.lipschitz
    if not all(map(math.isfinite, (kink, below, above))):
        raise Refused(f"{loss.name}: pieces must give three finite numbers for each label.")
    held = [min(max(slope, -most), most) for slope in (below, above)]
    if loss.convex:
        held[1] = max(held)
    if loss.one_signed:
        sign = math.copysign(1.0, sum(held))
        held = [sign * max(sign * slope, 0.0) for slope in held]
    if held != [below, above]:
        _warn(loss)
    return TwoLines(kink, held[0], held[1], start)


def _nodes() -> np.ndarray:
    octave = 1 + np.arange(OCTAVE) / OCTAVE
    right = np.concatenate([octave * 2.0**k for k in range(LOW, HIGH)])
    near = np.arange(1, OCTAVE) * 2.0**LOW / OCTAVE
    right = np.concatenate([near, right])
    return np.concatenate([-right[::-1], [0.0], right])


def _check_alone(loss: Tabulated, nodes: np.ndarray, read: np.ndarray, label: float) -> None:
    """A loss that gives other slopes in other company is not what its author thinks."""
    for some in (slice(None, None, -1), slice(3, None, 997), slice(40_000, 40_001)):
        again = _slopes(loss.inner, nodes[some].copy(), np.full_like(nodes[some], label))
        if not np.allclose(again, read[some], rtol=1e-6, atol=1e-9, equal_nan=True):
            raise Refused(
                f"{loss.name} gives a record another slope when other records stand beside it: a "
                "loss reads each record by itself, and the same one twice alike."
            )


def _held(loss: Tabulated, nodes: np.ndarray, read: np.ndarray, label: float) -> np.ndarray:
    """The slopes nearest to 0 first, each then moved to where the constants allow it."""
    least = loss.strong_convexity if loss.convex else -loss.weak_convexity
    most, middle = loss.smoothness, len(nodes) // 2
    values = read.copy()
    if not math.isfinite(values[middle]):
        values[middle] = 0.0
    right = _outward(values[middle:], np.diff(nodes[middle:]), least, most)
    left = _outward(-values[middle::-1], np.diff(nodes[middle:]), least, most)
    held = np.concatenate([-left[:0:-1], right])
    if math.isfinite(far := loss.stated[4]):
        first, last = np.searchsorted(nodes, (label - far, label + far))
        first, last = max(int(first) - 1, 0), min(int(last), len(nodes) - 1)
        held[:first], held[last:] = held[first], held[last]
    if math.isfinite(loss.lipschitz):
        held = np.clip(held, -loss.lipschitz, loss.lipschitz)
    if loss.one_signed:
        near = np.abs(nodes) <= 64.0
        low, high = (0.0, math.inf) if held[near].sum() > 0 else (-math.inf, 0.0)
        held = np.clip(held, low, high)
    if not np.allclose(held, read, rtol=1e-6, atol=1e-9):
        _warn(loss)
    return held


def _outward(values: np.ndarray, gaps: np.ndarray, least: float, most: float) -> np.ndarray:
    """Slopes along a ray, none rising by less than ``least`` or more than ``most`` a unit."""
    values = values.copy()
    with np.errstate(all="ignore"):
        low, high = least * gaps, most * gaps
        rises = np.diff(values)
        wrong = ~((rises >= low) & (rises <= high))
    at = 0
    while True:
        found = np.flatnonzero(wrong[at:])
        if not found.size:
            return values
        at += int(found[0])
        while at < len(gaps):  # from here on until the values are the loss's own again
            before, new = values[at], values[at + 1]
            new = new if new == new else before
            kept = min(max(new, before + low[at]), before + high[at])
            rejoined = kept == values[at + 1]
            values[at + 1] = kept
            at += 1
            if rejoined:
                break


def _from_middle(steps: np.ndarray) -> np.ndarray:
    """Sums of steps from the middle node outward, signed."""
    half = len(steps) // 2
    left = -np.cumsum(steps[:half][::-1])[::-1]
    return np.concatenate([left, [0.0], np.cumsum(steps[half:])])


def _warn(loss: Tabulated) -> None:
    warnings.warn(
        f"the loss {loss.name} breaks a constant that it states, on margins that have nothing to "
        "do with data: it is held to it, so another function is minimised than was written.",
        stacklevel=2,
    )
