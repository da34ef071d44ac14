"""ChaCha20 in torch operations: cryptographic random bits on any device.

The block function of Bernstein (2008) with a 64-bit counter, on many blocks at once: words are
signed 32-bit integers whose sums wrap around.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 20
WORDS = 16
"""Words of a block."""
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
CHUNK = 1 << 22
"""Numbers drawn at a time, for memory."""


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
    """Four quarter rounds side by side, one for each column."""
    for left, right in ((16, 12), (8, 7)):
        a = a + b
        d = _rotated(d ^ a, left)
        c = c + d
        b = _rotated(b ^ c, right)
    return a, b, c, d


def _rotated(x: Tensor, by: int) -> Tensor:
    """To the left; the shift to the right copies the sign, which is masked away."""
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


class Keystream:
    """A key and the next block; nothing is drawn twice."""

    __slots__ = ("_key", "_next", "_nonce")

    def __init__(self, words: Tensor) -> None:
        """Ten random words: a key of 256 bits and a nonce of 64."""
        self._key, self._nonce, self._next = words[:8], words[8:10], 0

    def normal(self, count: int) -> Tensor:
        """Independent standard Gaussians in double precision (Box and Muller, 1958).

        Each pair takes two uniforms of 53 bits, so that tails reach beyond eight deviations.
        """
        parts = [self._normal(min(CHUNK, count - at)) for at in range(0, count, CHUNK)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def _normal(self, count: int) -> Tensor:
        pairs = -(-count // 2)
        needed = -(-4 * pairs // WORDS)
        words = blocks(self._key, self._nonce, self._next, needed).flatten()
        self._next += needed
        words = words[: 4 * pairs].view(4, pairs).to(torch.int64)
        high, low = words[:2] & 0x7FFFFFFF, words[2:] & 0x3FFFFF
        uniform = ((high << 22) + low + 1).to(torch.float64) * 2.0**-53  # in (0, 1]
        length = (-2 * uniform[0].log()).sqrt()
        angle = uniform[1] * (2 * torch.pi)
        return torch.cat([length * angle.cos(), length * angle.sin()])[:count]
