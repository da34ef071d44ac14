"""Coins that are a function of a secret key, a view and a record: the same wherever they are drawn.

The coin of record i is the i-th number of 64 bits of AES in counter mode, under a key made for the
view: any worker computes it without the coins of other records, and a task that is run twice draws
the same batch. A record is chosen if its coin is below the rate times 2^64, cut off: never more
often than the rate says, which is what amplification is accounted for.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np

from privopt.noise.source import Source


def fresh_key(source: Source) -> bytes:
    """A secret key for the coins of one run."""
    return os.urandom(16) if source.private else source.coins.bytes(16)


def chosen(key: bytes, view: int, rate: float, first: int, count: int) -> np.ndarray:
    """Which of ``count`` records, the first of which is number ``first``, a view holds."""
    if rate >= 1 or count == 0:
        return np.arange(count)
    from randomgen import AESCounter

    own = hashlib.blake2b(b"view %d" % view, key=key, digest_size=16).digest()
    bits = AESCounter(key=int.from_bytes(own, "little"))
    bits.advance(first)
    coins = np.asarray(bits.random_raw(count))
    return np.flatnonzero(coins < np.uint64(int(rate * 2.0**64)))
