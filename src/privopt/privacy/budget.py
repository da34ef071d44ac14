"""What a user is willing to spend, and against whom: the privacy budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Neighbouring = Literal["zero_out", "replace_one", "add_remove"]
NEIGHBOURING: tuple[str, ...] = get_args(Neighbouring)


def replaces(neighbouring: Neighbouring) -> bool:
    """Whether a neighbour has another record where this one was. Nobody else asks for the name of
    the relation: what follows from it follows from here."""
    return neighbouring == "replace_one"


def records_moved(neighbouring: Neighbouring) -> int:
    """How many records' worth one change moves a sum: under replace_one one leaves and another
    comes, so 2; else 1."""
    return 2 if replaces(neighbouring) else 1


class PrivacyWarning(UserWarning):
    """A setting that is allowed but weakens what the guarantee means."""


class Refused(RuntimeError):
    """A request that cannot be answered with a true guarantee.

    The text never depends on data: rows leak through messages.
    """


@dataclass(frozen=True, slots=True)
class Budget:
    """An (epsilon, delta) budget under a named neighbouring relation.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float, default=0.0
        In [0, 1). ``0`` asks for pure differential privacy.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
        ``zero_out``: one record is replaced by an empty one that contributes nothing; the number
        of rows is public. ``replace_one``: one record is replaced by any other; the number of rows
        is public. ``add_remove``: one record is added or removed; the number of rows is private.
    unit : str, default="record"
        Whom one row stands for. It is written into the certificate.
    """

    epsilon: float
    delta: float = 0.0
    neighbouring: Neighbouring = "zero_out"
    unit: str = "record"

    def __post_init__(self) -> None:
        if not _is_real(self.epsilon) or not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be a positive finite number, got {self.epsilon!r}.")
        if not _is_real(self.delta) or not 0 <= self.delta < 1:
            raise ValueError(
                f"delta must lie in [0, 1), got {self.delta!r}: "
                "take 0 for pure privacy or a value well below 1/n."
            )
        if self.neighbouring not in NEIGHBOURING:
            raise ValueError(
                f"neighbouring must be one of {', '.join(NEIGHBOURING)}; got {self.neighbouring!r}."
            )
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @property
    def pure(self) -> bool:
        """Whether delta is zero."""
        return self.delta == 0.0


def _is_real(value: object) -> bool:
    return not isinstance(value, (bool, str)) and hasattr(value, "__float__")
