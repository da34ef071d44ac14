"""Which records a view holds. Choices are secret: amplification by sampling assumes it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

import numpy as np

from privopt.noise import Source
from privopt.noise.keyed import fresh_key


class Sampler(Protocol):
    """Draws each record independently, or a set of given size, and puts records in order."""

    def choose(self, count: int, rate: float, view: int) -> np.ndarray: ...
    def draw(self, count: int, size: int, view: int) -> np.ndarray: ...
    def order(self, count: int) -> np.ndarray:
        """A uniform order of the records, the same at every call."""
        ...

    def groups(self, count: int, groups: int) -> np.ndarray:
        """A uniform group for each record, independent of all others, the same at every call."""
        ...

    def allocate(self, count: int, turns: int, round: int) -> np.ndarray:
        """A uniform turn for each record, independent of all others and of other rounds."""
        ...


class GeometricSkips:
    """Poisson sampling in time proportional to the batch: jump from one chosen record to the next.

    The gap between chosen records is geometric, so the inclusions are independent with the exact
    rate, and no batch size is ever fixed or redrawn.
    """

    __slots__ = ("_groups", "_key", "_orders", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._key: bytes | None = None
        self._orders: dict[int, np.ndarray] = {}
        self._groups: dict[tuple[int, int], np.ndarray] = {}

    @property
    def key(self) -> bytes:
        """Of coins that are drawn where the records lie."""
        if self._key is None:
            self._key = fresh_key(self._source)
        return self._key

    def groups(self, count: int, groups: int) -> np.ndarray:
        key = count, groups
        if key not in self._groups:
            self._groups[key] = self._source.coins.integers(groups, size=count)
        return self._groups[key]

    def allocate(self, count: int, turns: int, round: int) -> np.ndarray:
        return self._source.coins.integers(turns, size=count)

    def order(self, count: int) -> np.ndarray:
        if count not in self._orders:
            # Kept: with a new order each time a record would change its cell between two models.
            self._orders[count] = self._source.coins.permutation(count)
        return self._orders[count]

    def choose(self, count: int, rate: float, view: int) -> np.ndarray:
        if rate >= 1 or count == 0:
            return np.arange(count)
        chosen: list[np.ndarray] = []
        last = -1
        while last < count:
            left = (count - last) * rate
            gaps = self._source.coins.geometric(rate, size=int(left + 4 * math.sqrt(left) + 8))
            # Gaps beyond the end of the data all mean the same; capping them avoids overflow.
            places = last + np.cumsum(np.minimum(gaps, count + 1))
            chosen.append(places)
            last = int(places[-1])
        places = np.concatenate(chosen)
        return places[places < count]

    def draw(self, count: int, size: int, view: int) -> np.ndarray:
        return self._source.coins.choice(count, size, replace=False, shuffle=False)


class KeyedCoins:
    """Coins that belong to a record's identity and a view's number, for coupling two runs.

    A neighbouring data set then samples every common record exactly as the original did.
    """

    __slots__ = ("_ids", "_key")

    def __init__(self, ids: Sequence[int], key: int = 0) -> None:
        self._ids, self._key = list(ids), key

    def choose(self, count: int, rate: float, view: int) -> np.ndarray:
        if len(self._ids) != count:
            raise ValueError("keyed coins need one identity per record.")
        coins = np.array([self._coin(identity, view) for identity in self._ids])
        return np.flatnonzero(coins < rate)

    def draw(self, count: int, size: int, view: int) -> np.ndarray:
        if len(self._ids) != count:
            raise ValueError("keyed coins need one identity per record.")
        coins = np.array([self._coin(identity, view) for identity in self._ids])
        return np.argsort(coins, kind="stable")[:size]

    def order(self, count: int) -> np.ndarray:
        if len(self._ids) != count:
            raise ValueError("keyed coins need one identity per record.")
        return np.argsort([self._coin(identity, -1) for identity in self._ids])

    def groups(self, count: int, groups: int) -> np.ndarray:
        if len(self._ids) != count:
            raise ValueError("keyed coins need one identity per record.")
        coins = np.array([self._coin(identity, -2) for identity in self._ids])
        return (coins * groups).astype(np.int64)

    def allocate(self, count: int, turns: int, round: int) -> np.ndarray:
        if len(self._ids) != count:
            raise ValueError("keyed coins need one identity per record.")
        coins = np.array([self._coin(identity, -3 - round) for identity in self._ids])
        return (coins * turns).astype(np.int64)

    def _coin(self, identity: int, view: int) -> float:
        text = f"{self._key}/{identity}/{view}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64


COUPLING: ContextVar[Sampler | None] = ContextVar("privopt_coupling", default=None)
"""Coins for the oracles of this context, so that an audit can couple two runs."""
