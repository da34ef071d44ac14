"""ChaCha20 in torch operations: cryptographic random bits on any device.

The block function of Bernstein (2008) with a 64-bit counter, on many blocks at once: words are
signed 32-bit integers whose sums wrap around.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privopt.noise.tensors import fused

ROUNDS = 20
WORDS = 16
"""Words of a block."""
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
LARGE, SMALL = 1 << 22, 1 << 20
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


def words_apart(key: Tensor, nonce: Tensor, number: Tensor) -> Tensor:
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
    return torch.stack([x + y for x, y in zip(first, state, strict=True)])


def gaussians(words: Tensor) -> Tensor:
    """Two standard Gaussians in double precision from four words (Box and Muller, 1958).

    Each pair takes two uniforms of 53 bits, so that tails reach beyond eight deviations.
    """
    words = words.view(4, -1).to(torch.int64)
    high, low = words[:2] & 0x7FFFFFFF, words[2:] & 0x3FFFFF
    uniform = ((high << 22) + low + 1).to(torch.float64) * 2.0**-53  # in (0, 1]
    length = (-2 * uniform[0].log()).sqrt()
    angle = uniform[1] * (2 * torch.pi)
    return torch.cat([length * angle.cos(), length * angle.sin()])


def _numbers(key: Tensor, nonce: Tensor, number: Tensor) -> Tensor:
    return gaussians(words_apart(key, nonce, number))


class Keystream:
    """A key and the next block; nothing is given twice."""

    __slots__ = ("_fused", "_key", "_next", "_nonce", "_ready")

    def __init__(self, words: Tensor) -> None:
        """Ten random words: a key of 256 bits and a nonce of 64."""
        self._key, self._nonce, self._next = words[:8], words[8:10], 0
        self._ready = torch.zeros(0, dtype=torch.float64, device=words.device)
        self._fused = fused(_numbers, words.device)

    def normal(self, count: int) -> Tensor:
        """Independent standard Gaussians in double precision."""
        parts, size = [self._ready[:count]], SMALL if count <= SMALL else LARGE
        self._ready = self._ready[count:]
        missing = count - len(parts[0])
        while missing > 0:
            fresh = self._drawn(size)
            parts.append(fresh[:missing])
            self._ready, missing = fresh[missing:], missing - size
        return torch.cat(parts)

    def _drawn(self, count: int) -> Tensor:
        """At least so many numbers, from blocks that were not used before."""
        needed = -(-2 * count // WORDS)
        start, self._next = self._next, self._next + needed
        if self._fused is _numbers:  # row by row instead of word by word: fewer operations
            return gaussians(blocks(self._key, self._nonce, start, needed))
        number = torch.arange(start, self._next, dtype=torch.int64, device=self._key.device)
        return self._fused(self._key, self._nonce, number)
