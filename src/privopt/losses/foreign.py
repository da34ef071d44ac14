"""Losses that the library did not write: their constants are read once, when they are met."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from array_api_compat import array_namespace, is_numpy_array

from privopt.losses.loss import Array, Loss
from privopt.privacy.budget import Refused


@dataclass(frozen=True)
class Foreign(Loss):
    """A foreign loss behind the constants that it stated. Its own ``lipschitz_in``,
    ``smoothness_in`` and ``weak_convexity_in`` are never asked."""

    inner: Loss
    stated: tuple[float, ...] = field(init=False)
    kinds: tuple[bool, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stated", _stated(self.inner))
        object.__setattr__(self, "kinds", _kinds(self.inner))

    @property
    def name(self) -> str:
        held = getattr(self.inner, "loss", None)
        name = type(self.inner).__name__
        return f"{name}({held.name})" if isinstance(held, Foreign) else name

    @property
    @abstractmethod
    def assumption(self) -> str:
        """What privacy rests on and nothing enforces."""

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self.kinds[0]

    @property
    def one_signed(self) -> bool:  # type: ignore[override]
        return self.kinds[1]

    @property
    def classification(self) -> bool:  # type: ignore[override]
        return self.kinds[2]

    @property
    def lipschitz(self) -> float:
        return self.stated[0]

    @property
    def smoothness(self) -> float:
        return self.stated[1]

    @property
    def strong_convexity(self) -> float:
        return self.stated[2]

    @property
    def weak_convexity(self) -> float:
        return self.stated[3]

    @property
    def linear_beyond(self) -> float:
        return self.stated[4]

    def __repr__(self) -> str:
        return repr(self.inner)


def read_only(values: Array) -> Array:
    """The same numbers, where an edit cannot reach them."""
    if not is_numpy_array(values):
        return values.clone() if hasattr(values, "clone") else values
    view = values.view()
    view.flags.writeable = False
    return view


def real_numbers(found: Any, like: Array) -> Array:
    """One real number for each entry of ``like``."""
    xp = array_namespace(like)
    if is_numpy_array(like):
        found = xp.asarray(found)
    if tuple(found.shape) != tuple(like.shape):
        raise Refused("a loss gives one number for each record.")
    if xp.isdtype(found.dtype, "real floating"):
        return found
    if not xp.isdtype(found.dtype, ("bool", "integral")):
        raise Refused("a loss gives real numbers.")
    return xp.astype(found, xp.float64)


def _stated(loss: Loss) -> tuple[float, ...]:
    found = (
        float(loss.lipschitz),
        float(loss.smoothness),
        float(loss.strong_convexity),
        float(loss.weak_convexity),
        float(loss.linear_beyond),
    )
    if not all(value >= 0.0 for value in found):
        raise ValueError(
            f"{type(loss).__name__} states a constant that is negative or no number: lipschitz, "
            "smoothness, strong_convexity, weak_convexity and linear_beyond are at least 0."
        )
    return found


def _kinds(loss: Loss) -> tuple[bool, ...]:
    return bool(loss.convex), bool(loss.one_signed), bool(loss.classification)
