"""From what an attacker may achieve to epsilon.

If a release is (epsilon, delta)-DP in both directions, a test for one record with false-alarm rate
f has a rate of right alarms t <= delta + e^epsilon f and 1 - f <= delta + e^epsilon (1 - t)
(Kairouz, Oh and Viswanath, 2015). Either of the two keeps t below a wish, so the larger epsilon is
enough.
"""

from __future__ import annotations

import math


def epsilon_against(right: float, false: float, delta: float = 0.0) -> float:
    """The largest epsilon at which every test with this rate of false alarms has at most this rate
    of right ones, whatever the algorithm.

    Parameters
    ----------
    right, false : float
        Rates of right and of false alarms, 0 < false < right < 1.
    delta : float, default=0.0

    Examples
    --------
    >>> round(epsilon_against(0.05, 0.01), 3)
    1.609
    """
    if not 0 < false < right < 1:
        raise ValueError(
            "rates must satisfy 0 < false alarms < right alarms < 1: nobody is kept from guessing, "
            f"got {false!r} and {right!r}."
        )
    if not 0 <= delta < right - false:
        raise ValueError(
            f"delta must be smaller than {right - false:g}, the advantage that is allowed."
        )
    return max(math.log((right - delta) / false), math.log((1 - delta - false) / (1 - right)))
