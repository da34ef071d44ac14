"""Facts: every public constant a solver or a bound may use, each with its norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import scipy.sparse as sp

from privopt.geometry import Domain, WholeSpace
from privopt.geometry.norms import Norm, dual, ratio
from privopt.geometry.probed import check_domain
from privopt.losses import Foreign, GuardedVector, VectorLoss
from privopt.ownership import own_type
from privopt.privacy.budget import Budget, Neighbouring, records_moved
from privopt.privacy.kinds import GaussianKind, Kind
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem

EXPECTED_MARGIN = 15.0
"""Size of |<x, theta>| to expect of a good solution when the domain does not say."""


@dataclass(frozen=True)
class Facts:
    """Public constants of a problem with n records and p parameters (intercept included).

    Constants of a record's loss are on the scale of the sum over records. ``n`` is the declared
    number of records, never the realised one where that is private. ``repeats`` is how many models
    are fitted to the same records, one release after the other. ``prior`` lists the losses of
    releases that the same budget pays for before the solver's own. ``sparse`` says that the
    features come as a sparse matrix, which is as public as their number. ``group`` is how many
    records one user may own, where the guarantee is for users; solvers calibrate for one record.
    ``chunked``: records lie in chunks, and are never together.
    """

    problem: Problem
    n: int
    p: int
    neighbouring: Neighbouring
    repeats: int = 1
    prior: tuple[Kind, ...] = ()
    sparse: bool = False
    group: int = 1
    chunked: bool = False

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n must be a positive number of records, got {self.n}.")
        if self.p < 1:
            raise ValueError("there must be at least one feature or an intercept.")
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}.")
        if self.group < 1:
            raise ValueError(f"group must be at least 1, got {self.group}.")
        object.__setattr__(self, "problem", self.problem.over(self.features))
        self.problem.domain.check_dimension(self.p)
        for domain in _foreign(self.problem.domain):
            check_domain(domain, self.p)
        if isinstance(self.problem.loss, GuardedVector):
            self.problem.loss.probe(self.p)

    @classmethod
    def of_rows(
        cls,
        problem: Problem,
        X: Any,
        n: int,
        neighbouring: Neighbouring,
        *,
        repeats: int = 1,
        group: int = 1,
        chunked: bool = False,
    ) -> Facts:
        """What is public about rows: how wide they are, and whether they are sparse. ``n`` is the
        public number of records."""
        p = problem.dimension(int(X.shape[1]))
        return cls(
            problem,
            n,
            p,
            neighbouring,
            repeats,
            sparse=sp.issparse(X),
            group=group,
            chunked=chunked,
        )

    # ------------------------------------------------------------ the loss
    @property
    def convex(self) -> bool:
        return self.problem.loss.convex

    @property
    def smooth(self) -> bool:
        return self.problem.loss.smooth

    @property
    def one_signed(self) -> bool:
        return self.problem.loss.one_signed

    @property
    def loss_name(self) -> str:
        loss = self.problem.loss
        return loss.name if isinstance(loss, Foreign | GuardedVector) else type(loss).__name__

    @property
    def vector(self) -> bool:
        """Whether the loss is a function of the whole vector theta, not of one margin."""
        return isinstance(self.problem.loss, VectorLoss)

    @property
    def bends(self) -> int:
        """In how many directions one record's loss can bend."""
        return self.p if self.vector else 1

    def row_bound(self, norm: Norm) -> float:
        """Largest dual norm of a row, so that |<x, u>| <= row_bound(norm) ||u||_norm."""
        size = self.problem.size
        return size if norm == "l2" else size * ratio(dual(norm), "l2", self.p)

    def lipschitz(self, norm: Norm = "l2") -> float:
        """Lipschitz constant of one record's loss."""
        if self.vector:
            far = math.inf
            if self.bounded:
                domain = self.problem.domain
                centre = domain.centre(self.p)
                far = domain.radius("l2", self.p) + math.hypot(*centre.tolist())
            own = self.problem.loss.lipschitz_on(self.problem.size, far)
            return own * ratio(dual(norm), "l2", self.p)
        return self.problem.loss.lipschitz_in(norm, self.row_bound(norm))

    def smoothness(self, norm: Norm = "l2") -> float:
        """Smoothness of one record's loss."""
        return self.problem.loss.smoothness_in(norm, self.row_bound(norm))

    def weak_convexity(self, norm: Norm = "l2") -> float:
        """Weak convexity of one record's loss: 0 if convex, infinite if not declared."""
        return self.problem.loss.weak_convexity_in(norm, self.row_bound(norm))

    @property
    def strong_convexity(self) -> float:
        """Strong convexity in l2 of the whole sum that holds for every data set."""
        return self.n * self.problem.l2

    @property
    def features(self) -> int:
        """Number of columns, the constant one not counted."""
        return self.p - (self.problem.intercept > 0)

    @property
    def span(self) -> int:
        """In how many dimensions noise matters: the parameters, or the declared rank of the rows
        where nothing else holds the parameters together. Of bounds only."""
        rank, whole = self.problem.rank, isinstance(self.problem.domain, WholeSpace)
        if rank is None or not whole or self.problem.l2 > 0:
            return self.p
        return min(self.p, rank + (self.problem.intercept > 0))

    # ------------------------------------------------------------ the domain
    @property
    def bounded(self) -> bool:
        return self.problem.domain.bounded

    def radius(self, norm: Norm = "l2") -> float:
        """Largest distance from the domain's centre; the expected solution size if unbounded."""
        if self.bounded:
            return self.problem.domain.radius(norm, self.p)
        expected = self.problem.theta_norm
        return (EXPECTED_MARGIN / self.problem.size if expected is None else expected) * ratio(
            norm, "l2", self.p
        )

    def diameter(self, norm: Norm = "l2") -> float:
        return self.problem.domain.diameter(norm, self.p) if self.bounded else math.inf

    # ------------------------------------------------------------ what is spent before
    @property
    def prior_mu(self) -> float:
        """GDP parameter of the Gaussian releases before the solver's own."""
        return math.sqrt(sum(kind.mu**2 for kind in self.prior if isinstance(kind, GaussianKind)))

    @property
    def prior_epsilon(self) -> float:
        """Pure epsilon of the releases before the solver's own."""
        return sum(kind.pure(self.neighbouring) for kind in self.prior)

    # ------------------------------------------------------------ how much there is to learn from
    def plenty(self, budget: Budget, pure: bool) -> float:
        """n mu / p, with mu = 1 / (noise of a sum in units of what one record's change moves).

        Of one model's part of the budget; pure noise in p dimensions is about sqrt(p) as large in
        each.
        """
        if pure:
            mu = budget.epsilon / (self.repeats * math.sqrt(self.p))
        else:
            mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(self.repeats)
        return self.n * mu / (self.p * self.relation_factor)

    # ------------------------------------------------------------ the relation
    @property
    def relation_factor(self) -> int:
        """How many records' worth one change moves a sum: 2 under replace_one, else 1."""
        return records_moved(self.neighbouring)


def _foreign(domain: Domain) -> Iterator[Domain]:
    """The constraint sets of others, looked for inside the library's own too."""
    if not own_type(type(domain)):
        yield domain
        return
    for one in fields(domain):
        held = getattr(domain, one.name)
        if isinstance(held, Domain):
            yield from _foreign(held)
