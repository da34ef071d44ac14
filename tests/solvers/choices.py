"""Exact laws of short runs: every sequence of private choices, with its probability."""

from __future__ import annotations

import itertools

import numpy as np

from privopt.mechanisms import Gate
from privopt.mechanisms.selection import flip_probabilities
from privopt.noise import SilentSource
from privopt.oracle import Oracle, VertexDraw
from privopt.privacy.kinds import BoundedRange


def exact_law(plan, X, y, steps: int, count: int) -> np.ndarray:
    """Probability of each of the count^steps sequences of choices on a data set.

    A hook answers every release with the next choice of the sequence and multiplies up its chance
    under the noise that the mechanism draws.
    """
    problem, chances = plan.facts.problem, []
    for path in itertools.product(range(count), repeat=steps):
        left, chance = list(path), 1.0

        def force(mechanism, payload, sensitivity, event, run, left=left):
            nonlocal chance
            scores = payload.scores() if isinstance(payload, VertexDraw) else payload
            scaled = scores / (mechanism.multiplier * sensitivity.radius)
            if isinstance(event.kinds[0], BoundedRange):
                law = np.exp(scaled - scaled.max())
                law /= law.sum()
            else:
                law = flip_probabilities(scaled)
            chance *= law[left[0]]
            return left.pop(0)

        source = SilentSource()
        oracle = Oracle.over(
            X,
            y,
            neighbouring=plan.budget.neighbouring,
            bounds=plan.solver.row_bounds(problem),
            source=source,
            classification=problem.loss.classification,
        )
        plan.solver.run(oracle, Gate(source, hook=force), problem, plan.settings)
        assert left == []
        chances.append(chance)
    return np.array(chances)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Smallest delta at epsilon between two laws, in the worse direction."""
    factor = np.exp(epsilon)
    return float(max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum()))
