"""What a plan is expected to lose, as far as made-up data can tell."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Prediction:
    """What a solver loses on made-up data, over the situations that were tried.

    Attributes
    ----------
    error : float
        Excess of the objective, in the median situation.
    score : float
        Share lost of what a model that has learned nothing loses, in the geometric mean, where
        shares too small to say anything count as one that does. Solvers are ranked by it.
    share : float
        The share in the median situation.
    worst : float
        The largest share in any situation.
    points : float
        Accuracy lost (classification), or R2, in the median situation; 0 for losses of vectors.
    """

    error: float
    score: float
    share: float
    worst: float
    points: float

    def sentence(self, classification: bool) -> str:
        """In units that people know."""
        lost = f"{100 * self.share:.2g} % of what there is to learn"
        worst = f"{100 * min(self.worst, 1.0):.2g} % in the worst of the situations tried"
        points = ""
        if self.points >= 1e-4:
            many, few = f"{100 * self.points:.2g} points of accuracy", f"{self.points:.2g} of R2"
            points = f", about {many if classification else few}"
        return f"privacy is expected to cost {lost}{points}; {worst}."

    def times(self, factor: float) -> Prediction:
        """The same, all of it multiplied."""
        return Prediction(*(factor * getattr(self, one.name) for one in fields(self)))

    def towards(self, other: Prediction, part: float) -> Prediction:
        """At this part of the way to another, in logarithms, and never rising."""

        def mixed(first: float, last: float) -> float:
            first, last = max(first, 1e-12), max(last, 1e-12)
            return first * min(1.0, last / first) ** part

        return Prediction(
            *(mixed(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        )
