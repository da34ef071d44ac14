"""What an attacker can do at most, from a certificate: tests between two neighbouring data sets.

Formal guarantee
----------------
Let a test decide, from everything that was released, whether a record was there. If the release is
(epsilon, delta)-DP in both directions then its true-positive rate t and false-positive rate f obey
t <= delta + e^epsilon f and 1 - f <= delta + e^epsilon (1 - t) (Kairouz, Oh and Viswanath, 2015).
That holds for every delta with its own epsilon(delta), so the smallest bound over a list of deltas
is one. Nothing is estimated: the attacker may know all other records and the algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from privopt.privacy import Certificate
from privopt.privacy.certificate import DELTAS


@dataclass(frozen=True)
class Attack:
    """Bounds on what anybody can learn about one record."""

    certificate: Certificate

    @cached_property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """(delta, epsilon) pairs that all hold, smallest delta first; infinite ones left out."""
        stated = self.certificate.delta
        deltas = sorted({*DELTAS, stated})
        pairs = [(delta, self.certificate.epsilon_at(delta)) for delta in deltas]
        return tuple((delta, epsilon) for delta, epsilon in pairs if math.isfinite(epsilon))

    def true_positives(self, false_positives: float) -> float:
        """Largest rate of right alarms of any test with this rate of false ones."""
        best = 1.0
        for delta, epsilon in self.curve:
            size = math.exp(min(epsilon, 700.0))
            best = min(
                best,
                delta + size * false_positives,
                1 - max(1 - delta - false_positives, 0.0) / size,
            )
        return best

    @property
    def mu(self) -> float:
        """The guarantee as one number: see ``Certificate.mu``."""
        return self.certificate.mu

    def guesses(self) -> float:
        """Largest share of right guesses when the record is there with probability one half.

        A test is right with probability (t + 1 - f)/2; both bounds together give
        t - f <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
        """
        gap = min(
            (math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0))))
            for delta, epsilon in self.curve
        )
        return (1 + min(gap, 1.0)) / 2

    def belief(self, false_positives: float) -> float:
        """Largest probability that the record is there once such a test says so; 1/2 before."""
        true = self.true_positives(false_positives)
        return true / (true + false_positives)
