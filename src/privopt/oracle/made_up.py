"""Sealed values without records behind them: what an audit shows to a mechanism by itself."""

from __future__ import annotations

from typing import Any

from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity


def made_up(payload: Any, sensitivity: Sensitivity) -> Sealed:
    """A number that nobody's data went into, with the sensitivity it is to be released at.

    For audits alone: nothing checks that the payload moves by no more than that.
    """
    return Sealed(KEY, payload, sensitivity)
