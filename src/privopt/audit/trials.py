"""One run of an audited function, and what it would have been on the neighbouring data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from privopt.audit.neighbours import Pair
from privopt.audit.replay import Release
from privopt.audit.scores import before_noise, transcript_score
from privopt.mechanisms import HOOK, Mechanism
from privopt.noise import SeededSource, Source
from privopt.oracle.sampling import COUPLING, GeometricSkips
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Event

Trial = Callable[[np.ndarray, np.ndarray, Source], Any]
"""From private data and a source of noise to everything that becomes public."""

Likelihood = Callable[[list[Release], list[Any], list[Any]], Any]
"""From the releases of a run and the values behind them on both data sets to a score."""


class PublicOrder(GeometricSkips):
    """Secret batches, but the order of the records is given to the attacker.

    No guarantee here rests on a secret order, and a record's place is then known.
    """

    __slots__ = ()

    def order(self, count: int) -> np.ndarray:
        return np.arange(count)


class Everyone(PublicOrder):
    """Every batch holds every record, a batch of fixed size the first ones: what a release would
    have been with the changed record in it."""

    __slots__ = ()

    def choose(self, count: int, rate: float, view: int) -> np.ndarray:
        return np.arange(count)

    def draw(self, count: int, size: int, view: int) -> np.ndarray:
        return np.arange(size)


class _Recorder:
    """A gate's hook that keeps releases, or, given releases, their sealed values on other data."""

    def __init__(self, given: list[Release] | None = None) -> None:
        self.given, self.releases, self.payloads = given, [], []

    def __call__(
        self,
        mechanism: Mechanism,
        payload: Any,
        sensitivity: Sensitivity,
        event: Event,
        run: Callable[[], Any],
    ) -> Any:
        kept = payload.copy() if isinstance(payload, np.ndarray) else payload
        self.payloads.append(kept)
        if self.given is None:
            result = run()
            self.releases.append(Release(mechanism, kept, sensitivity, event, result))
            return result
        if len(self.payloads) > len(self.given):
            raise ValueError("the number of releases depends on data: replay finds such bugs.")
        return self.given[len(self.payloads) - 1].result


class Side:
    """Runs on one of the two data sets, each scored by its releases."""

    def __init__(
        self,
        run: Trial,
        pair: Pair,
        side: int,
        source: SeededSource,
        score: Callable[[Any], float] | None = None,
        likelihood: Likelihood = transcript_score,
    ) -> None:
        self._run, self._source, self._score = run, source, score
        self._likelihood = likelihood
        self._data = (pair.first, pair.second)
        self._side = side
        self._coins = PublicOrder(source)
        self._everyone = Everyone(source)
        self._known: tuple[list[Any], list[Any]] | None = None

    def once(self) -> float | np.ndarray:
        recorder = _Recorder()
        result = self._play(self._data[self._side], self._coins, recorder)
        if self._score is not None:
            return float(self._score(result))
        if not recorder.releases:
            return np.concatenate([np.ravel(v) for v in _numbers(result)])
        one, other = self._values(recorder)
        return self._likelihood(recorder.releases, one, other)

    def _values(self, recorder: _Recorder) -> tuple[list[Any], list[Any]]:
        """Values of every release before noise, on both data sets, the released values given."""
        releases = recorder.releases
        if self._known is not None:
            return self._known
        if all(release.sensitivity.sampling.full for release in releases):
            payloads = (recorder.payloads, self._replay(1 - self._side, releases))
        else:
            # Which records a batch held is secret: both values are computed without it.
            payloads = tuple(self._replay(s, releases) for s in (self._side, 1 - self._side))
        mine, theirs = (
            [before_noise(release, value) for release, value in zip(releases, side, strict=True)]
            for side in payloads
        )
        both = (mine, theirs) if self._side == 0 else (theirs, mine)
        if len(releases) == 1:
            self._known = both  # the value of a first release depends on no noise
        return both

    def _replay(self, side: int, releases: list[Release]) -> list[Any]:
        recorder = _Recorder(releases)
        self._play(self._data[side], self._everyone, recorder)
        if len(recorder.payloads) != len(releases):
            raise ValueError("the number of releases depends on data: replay finds such bugs.")
        return recorder.payloads

    def _play(self, data: Any, coins: GeometricSkips, recorder: _Recorder) -> Any:
        hook, coupling = HOOK.set(recorder), COUPLING.set(coins)
        try:
            return self._run(data[0].copy(), data[1].copy(), self._source)
        finally:
            HOOK.reset(hook)
            COUPLING.reset(coupling)


def _numbers(result: Any) -> list[np.ndarray]:
    """Every number in what a function returned, in order."""
    if isinstance(result, (list, tuple)):
        return [number for part in result for number in _numbers(part)]
    try:
        return [np.asarray(result, dtype=float)]
    except (TypeError, ValueError):
        raise TypeError(
            "an audited function must release through privopt or return numbers; "
            "otherwise give score=..."
        ) from None
