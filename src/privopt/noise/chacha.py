"""ChaCha20 in torch operations: cryptographic random bits on any device.

The block function of Bernstein (2008) with a 64-bit counter, on many blocks at once: words are
signed 32-bit integers whose sums wrap around.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privopt.noise.tensors import fused

ROUNDS = 20
WORDS = 16
"""Words of a block."""
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
NUMBERS = 8
"""Gaussians of a block."""
SIZES = (1 << 20, 1 << 22, 1 << 25)
"""Numbers drawn at a time: what a step leaves over is for the next."""


def blocks(key: Tensor, nonce: Tensor, start: int, count: int) -> Tensor:
    """Keystream of ``count`` blocks from a block number on, 16 words by blocks."""
    device = key.device
    number = torch.arange(start, start + count, dtype=torch.int64, device=device)
    # Narrowing keeps the low bits: both halves of the block number.
    counter = torch.stack([number.to(torch.int32), (number >> 32).to(torch.int32)])
    constants = torch.tensor(CONSTANTS, dtype=torch.int32, device=device)
    wide = [words.repeat_interleave(count) for words in (constants, key, nonce)]
    first = torch.cat([wide[0], wide[1], counter.flatten(), wide[2]]).view(WORDS, count)
    a, b, c, d = first.clone().view(4, 4, count).unbind(0)
    for _ in range(ROUNDS // 2):
        a, b, c, d = _quarter_rounds(a, b, c, d)
        a, b, c, d = _quarter_rounds(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return first + torch.cat([a, b, c, d])


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
    """Quarter rounds side by side."""
    for left, right in ((16, 12), (8, 7)):
        a = a + b
        d = _rotated(d ^ a, left)
        c = c + d
        b = _rotated(b ^ c, right)
    return a, b, c, d


def _rotated(x: Tensor, by: int) -> Tensor:
    """To the left; the shift to the right copies the sign, which is masked away."""
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


def words_apart(key: Tensor, nonce: Tensor, number: Tensor) -> list[Tensor]:
    """The same keystream word by word: many operations, which a compiler makes one."""
    low = number.to(torch.int32)
    none = torch.zeros_like(low)
    first = [none + c for c in CONSTANTS] + [none + k for k in key.unbind()]
    first += [low, (number >> 32).to(torch.int32)] + [none + n for n in nonce.unbind()]
    state = list(first)
    for _ in range(ROUNDS // 2):
        for shift in (0, 1):  # columns, then diagonals
            for i in range(4):
                at = [4 * row + (i + shift * row) % 4 for row in range(4)]
                found = _quarter_rounds(*(state[j] for j in at))
                for j, word in zip(at, found, strict=True):
                    state[j] = word
    return [x + y for x, y in zip(first, state, strict=True)]


def gaussians(words: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Two standard Gaussians from each four words (Box and Muller, 1958).

    They are computed in double precision from two uniforms of 53 bits, so that tails reach beyond
    eight deviations.
    """
    found: list[Tensor] = []
    for four in range(0, len(words), 4):
        high, turn, low, rest = (word.to(torch.int64) for word in words[four : four + 4])
        length = (-2 * _uniform(high, low).log()).sqrt()
        angle = _uniform(turn, rest) * (2 * torch.pi)
        found += [(length * angle.cos()).to(dtype), (length * angle.sin()).to(dtype)]
    return found


def _uniform(high: Tensor, low: Tensor) -> Tensor:
    """In (0, 1], from 31 bits and 22 bits."""
    whole = ((high & 0x7FFFFFFF) << 22) + (low & 0x3FFFFF) + 1
    return whole.to(torch.float64) * 2.0**-53


def _numbers(
    key: Tensor, nonce: Tensor, start: Tensor, count: int, dtype: torch.dtype
) -> list[Tensor]:
    number = torch.arange(count, dtype=torch.int64, device=key.device) + start
    return gaussians(words_apart(key, nonce, number), dtype)


class Keystream:
    """A key and the next block; nothing is given twice."""

    __slots__ = ("_dtype", "_fused", "_key", "_next", "_nonce", "_ready")

    def __init__(self, words: Tensor, dtype: torch.dtype = torch.float64) -> None:
        """Ten random words: a key of 256 bits and a nonce of 64."""
        self._key, self._nonce, self._next = words[:8], words[8:10], 0
        self._dtype = dtype
        self._ready: list[Tensor] = []
        self._fused = fused(_numbers, words.device)

    def normal(self, count: int) -> Tensor:
        """Independent standard Gaussians, in memory of their own."""
        taken = [torch.zeros(0, dtype=self._dtype, device=self._key.device)]
        size = next((size for size in SIZES if size >= count), SIZES[-1])
        while count > 0:
            if not self._ready:
                self._ready = self._drawn(size // NUMBERS)
            first = self._ready.pop(0)
            taken.append(first[:count])
            if len(first) > count:
                self._ready.insert(0, first[count:])
            count -= len(first)
        return torch.cat(taken)

    def _drawn(self, needed: int) -> list[Tensor]:
        """The numbers of so many blocks that were not used before."""
        start, self._next = self._next, self._next + needed
        if self._fused is _numbers:  # row by row instead of word by word: fewer operations
            return gaussians(blocks(self._key, self._nonce, start, needed), self._dtype)  # type: ignore[arg-type]
        first = torch.tensor(start, device=self._key.device)
        return self._fused(self._key, self._nonce, first, needed, self._dtype)
