"""Private running sums of a stream of vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from privopt.ledger import Dataset, account_for
from privopt.mechanisms import (
    CorrelatedGaussian,
    Run,
    Steps,
    choose_correlated,
    correlated_noise,
    grid_of,
    resolution_of,
)
from privopt.noise import Source, source_for
from privopt.oracle import Oracle, RowBounds, RowSum
from privopt.oracle.labels import numbers
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Budget, Certificate, Neighbouring, Participation, Refused
from privopt.privacy.budget import records_moved
from privopt.privacy.factorizations import Factorization, named
from privopt.privacy.factorizations.open_ended import OpenEnded
from privopt.privacy.profiles import gaussian_mu


class PrefixSums(Iterator[np.ndarray]):
    """Running sums of a stream, each one private as soon as it is there.

    Iterating takes the next item of the stream and gives the sum of all so far. What has been given
    is covered by ``certificate``, at every moment and at the end.
    """

    def __init__(
        self,
        items: Iterator[Any],
        bound: float,
        budget: Budget,
        factorization: Factorization,
        participation: Participation,
        source: Source,
        account: Dataset | None = None,
    ) -> None:
        self._items, self._bound, self._budget = items, bound, budget
        squared = factorization.sensitivity_squared(participation)
        mu = gaussian_mu(budget.epsilon, budget.delta)
        # In units of the sensitivity, which is twice the bound under replace_one.
        self._noise = factorization, math.sqrt(squared) / mu * (1 + 1e-12), participation
        self._settle(1)
        self._source = source
        declared = Steps(self._declared, factorization.steps)
        self._run = Run(budget, declared, source, what="prefix_sums")
        self._run.pay(account)
        self._total: np.ndarray | None = None

    def _declared(self, step: int) -> tuple[CorrelatedGaussian, Sensitivity]:
        """What each step may release; the stream itself refuses one beyond its last."""
        moved = records_moved(self._budget.neighbouring) * self._bound
        grid = grid_of(self._mechanism, moved, self._coordinates)
        return self._mechanism, Sensitivity("l2", moved, self._bound, view=1, grid=grid)

    def _settle(self, coordinates: int) -> None:
        """Noise for so many coordinates, a public number: in integers where there is room."""
        self._coordinates = coordinates
        whole = choose_correlated(
            None, *self._noise, coordinates=coordinates, epsilon=self._budget.epsilon
        )
        self._mechanism = correlated_noise(*self._noise, discrete_noise=whole)

    @property
    def noise_std(self) -> np.ndarray:
        """Standard deviation of each coordinate's noise, one entry for each step so far."""
        steps, factorization = self._run.released, self._mechanism.factorization
        records = records_moved(self._budget.neighbouring)
        scale = self._mechanism.noise_multiplier * records * self._bound
        if isinstance(factorization, OpenEnded):
            return scale * np.array([factorization.row_norm(t) for t in range(1, steps + 1)])
        return scale * factorization.row_norms()[:steps]

    @property
    def certificate(self) -> Certificate:
        """What the sums given so far have cost."""
        mechanism, rule = self._mechanism, self._mechanism.participation
        assert rule is not None
        return self._run.certify(
            assumptions=(
                "each record is in one step at most"
                if rule.times == 1
                else f"each record is in {rule.times} steps at most, at least "
                f"{rule.min_separation_steps} apart",
                "the number of steps and their order do not depend on the records",
            ),
            settings={
                "noise": mechanism.factorization.name,
                "n_steps": mechanism.factorization.steps,
                "noise_multiplier": mechanism.multiplier,
                "bound": self._bound,
            },
        )

    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def __next__(self) -> np.ndarray:
        try:
            item = next(self._items)
        except StopIteration:
            if self._run.mark is not None:
                self._run.settle(self.certificate)
            raise
        batch = _rows(item)
        if self._total is not None and batch.shape[1] != len(self._total):
            raise ValueError(f"all items of the stream have {len(self._total)} coordinates.")
        if not self._run.released:
            self._settle(batch.shape[1])
        oracle = self._run.read(
            lambda: Oracle.over(
                batch,
                np.zeros(len(batch)),
                neighbouring=self._budget.neighbouring,
                bounds=RowBounds(self._bound),
                source=self._source,
                classification=False,
            )
        )
        sealed = oracle.everything().ask(
            RowSum(self._bound), resolution=resolution_of(self._mechanism)
        )
        step = self._run.gate.release(self._mechanism, sealed)
        total = step if self._total is None else self._total + step
        self._total = total
        return total.copy()


def prefix_sums(
    stream: Iterable[Any],
    *,
    bound: float,
    epsilon: float,
    delta: float,
    n_steps: int | None = None,
    noise: str = "auto",
    participation: Participation | None = None,
    neighbouring: str = "zero_out",
    random_state: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
) -> PrefixSums:
    """Private running sums of a stream of vectors, with one budget for all of them.

    Parameters
    ----------
    stream : iterable
        Items arrive one by one: a vector (one record), or a matrix (the records of this step, one
        in each row, maybe none). Private; a row with NaN or infinity counts as empty.
    bound : float
        Public. Each record is scaled down to this l2 norm.
    epsilon, delta : float
        Of all sums together; delta must be positive.
    n_steps : int, optional
        Public number of steps at most; one more is refused. Without it the stream may go on
        forever, with trees of noise of doubling lengths.
    noise : str, default="auto"
        ``independent``, ``tree``, ``honaker``, ``sqrt_toeplitz``, ``banded`` or ``blt``; "auto"
        takes the smallest error. Without ``n_steps`` it is trees by Honaker's estimator.
    participation : Participation, optional
        How often one record may come; once, by default. You have to enforce it.
    neighbouring : {"zero_out", "replace_one"}, default="zero_out"
    random_state : int, optional
        Makes the noise reproducible, and the certificate say that the result is not private.
    ledger : Ledger or path, optional
        Charges the whole stream to the budget of ``dataset`` before its first item is read, or
        refuses it.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.

    Returns
    -------
    PrefixSums
        Iterate over it for the sums; ``certificate`` states what those given so far have cost.

    Examples
    --------
    >>> import numpy as np, privopt
    >>> sums = privopt.prefix_sums(
    ...     np.ones((1000, 2)), bound=2.0, epsilon=2.0, delta=1e-6, n_steps=1000
    ... )
    >>> *_, last = sums
    >>> bool(np.all(abs(last - 1000) < 100)), sums.certificate.epsilon <= 2.0
    (True, True)
    """
    if not 0 < bound < math.inf:
        raise ValueError(f"bound must be positive and finite, got {bound!r}.")
    if neighbouring == "add_remove":
        raise ValueError(
            "a stream's later items would change their step when a record is added or removed: "
            'use neighbouring="zero_out" or "replace_one".'
        )
    budget = Budget(epsilon, delta, cast(Neighbouring, neighbouring))
    if budget.pure:
        raise ValueError("running sums need delta > 0: their noise is Gaussian.")
    rule = Participation.single_pass() if participation is None else participation
    if n_steps is None:
        if noise not in ("auto", "honaker"):
            raise ValueError(f'noise={noise!r} needs n_steps: declare it, or use noise="honaker".')
        if rule.times > 1:
            raise ValueError("records that come back need n_steps: declare the number of steps.")
        factorization: Factorization = OpenEnded()
    else:
        if n_steps < 1:
            raise ValueError(f"n_steps must be positive, got {n_steps}.")
        factorization = named(noise, n_steps, rule)
    source, account = source_for(random_state), account_for(ledger, dataset)
    return PrefixSums(iter(stream), bound, budget, factorization, rule, source, account)


def _rows(item: Any) -> np.ndarray:
    if hasattr(item, "detach"):
        item = item.detach().double().cpu()
    elif sp.issparse(item):
        raise Refused("an item of a stream is dense: call .toarray() on it first.")
    batch = np.atleast_2d(np.asarray(numbers(item, "an item of a stream"), dtype=float))
    if batch.ndim != 2 or not batch.shape[1]:
        raise Refused("an item of a stream is a vector, or a matrix with one record in each row.")
    return batch
