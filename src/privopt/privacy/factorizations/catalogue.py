"""Noise by name, and the table of errors by which one is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from privopt.privacy.factorizations.banded import Banded
from privopt.privacy.factorizations.blt import BLT
from privopt.privacy.factorizations.dense import DenseOptimal, FullHonaker
from privopt.privacy.factorizations.factorization import Factorization
from privopt.privacy.factorizations.honaker import Honaker
from privopt.privacy.factorizations.independent import Independent
from privopt.privacy.factorizations.square_root import SquareRoot
from privopt.privacy.factorizations.tree import Tree
from privopt.privacy.participation import Participation

Name = Literal[
    "independent", "tree", "honaker", "sqrt_toeplitz", "banded", "blt", "honaker_full", "dense"
]
STREAMING: tuple[Name, ...] = ("independent", "tree", "honaker", "sqrt_toeplitz", "banded", "blt")
"""Names that ``compare`` ranks; the others need a matrix and are for reference."""

SINGLE_PASS = Participation.single_pass()

MOST_VECTORS = 64
"""Vectors of the model's size that "auto" lets a stream keep."""


@dataclass(frozen=True)
class Candidate:
    """A factorization with its cost and its error: standard deviation of a coordinate of the
    running sums, for contributions of norm at most one and mu = 1."""

    name: str
    factorization: Factorization
    sensitivity_squared: float
    largest_error: float
    mean_error: float
    vectors_kept: int


@lru_cache(maxsize=256)
def named(
    name: str,
    steps: int,
    participation: Participation = SINGLE_PASS,
    most_vectors: int = MOST_VECTORS,
) -> Factorization:
    """A factorization by name, tuned for a rule; "auto" takes the first that ``compare`` lists,
    and tunes none that keeps too many vectors.

    The answer depends on public numbers alone, and the same question gets the same object.
    """
    if name == "auto":
        few = [n for n in STREAMING if kept(n, steps, participation) <= most_vectors]
        found = [candidate(n, named(n, steps, participation), participation) for n in few]
        return min(found, key=lambda c: (c.vectors_kept > most_vectors, c.mean_error)).factorization
    if name not in get_args(Name):
        raise ValueError(f"noise must be auto or one of {', '.join(get_args(Name))}, got {name!r}.")
    rule = participation.fitted(steps)
    if name == "banded":
        return Banded.for_rule(steps, rule)
    if name == "blt":
        return BLT.optimised(steps, rule)
    if name == "dense":
        separation = rule.min_separation_steps if rule.times > 1 else None
        return DenseOptimal(steps, separation)
    simple: dict[str, type[Factorization]] = {
        "independent": Independent,
        "tree": Tree,
        "honaker": Honaker,
        "sqrt_toeplitz": SquareRoot,
        "honaker_full": FullHonaker,
    }
    return simple[name](steps)


def kept(name: Name, steps: int, participation: Participation) -> int:
    """How many vectors a stream of this name keeps in the end, before it is tuned; none where that
    is few anyway."""
    rule = participation.fitted(steps)
    if name == "banded":
        return (steps if rule.times == 1 else rule.min_separation_steps) - 1
    return steps - 1 if name == "sqrt_toeplitz" else 0


@lru_cache(maxsize=256)
def compare(
    steps: int, participation: Participation = SINGLE_PASS, most_vectors: int = MOST_VECTORS
) -> tuple[Candidate, ...]:
    """All named noises for a stream, those that keep few enough vectors first, then by mean error.

    Error and sensitivity are those of the rule, exact or bounded from above; nothing is read from
    data.
    """
    found = [
        candidate(name, named(name, steps, participation), participation) for name in STREAMING
    ]
    return tuple(sorted(found, key=lambda c: (c.vectors_kept > most_vectors, c.mean_error)))


def candidate(name: str, factorization: Factorization, participation: Participation) -> Candidate:
    """One row of the table."""
    loss = factorization.sensitivity_squared(participation)
    largest, mean = factorization.errors(loss)
    return Candidate(name, factorization, loss, largest, mean, factorization.vectors_kept())
