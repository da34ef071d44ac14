"""Noise on devices: ChaCha20 against its published vector, and the law of its Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from privopt.noise import SecureSource, SeededSource, SilentSource
from privopt.noise.chacha import Keystream, _numbers, _uniform, blocks, gaussians, words_apart
from privopt.noise.tensors import DeviceSource, gaussian_like


def words(*values):
    return torch.from_numpy(np.array(values, dtype=np.uint32).view(np.int32))


KEY = words(*np.frombuffer(bytes(range(32)), dtype="<u4"))


def test_the_published_block():
    """RFC 8439, 2.3.2; its first nonce word is the upper half of our block number."""
    found = blocks(KEY, words(0x4A000000, 0), 1 + (0x09000000 << 32), 1).flatten()
    expected = """
        e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3
        466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2
    """
    assert [f"{int(w) & 0xFFFFFFFF:08x}" for w in found] == expected.split()


def test_blocks_in_one_go_are_blocks_one_by_one():
    many = blocks(KEY, words(1, 2), 2**32 - 2, 5)
    for i in range(5):
        assert torch.equal(many[:, i], blocks(KEY, words(1, 2), 2**32 - 2 + i, 1)[:, 0])
    assert len({tuple(column.tolist()) for column in many.T}) == 5


def test_words_one_by_one_are_the_blocks():
    number = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**40 + 3])
    found = torch.stack(words_apart(KEY, words(7, 9), number))
    for i, start in enumerate(number.tolist()):
        assert torch.equal(found[:, i], blocks(KEY, words(7, 9), start, 1)[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fused_numbers_are_the_same(dtype):
    start = 2**32 - 3
    plain = gaussians(blocks(KEY, words(7, 9), start, 5), dtype)
    fused = _numbers(KEY, words(7, 9), torch.tensor(start), 5, dtype)
    assert [x.dtype for x in fused] == [dtype] * 8
    assert all(map(torch.equal, plain, fused))


def test_a_uniform_number_is_made_of_53_bits():
    """31 bits on top of 22, from the least above zero to one itself; all others are ignored."""
    high, low = torch.tensor([0, -1, 1, 0, 0, -(2**31)]), torch.tensor([0, -1, 0, 1, 2**22, 0])
    expected = [1, 2**53, 2**22 + 1, 2, 1, 1]
    assert (_uniform(high, low) * 2.0**53).tolist() == expected


@pytest.mark.statistical
def test_the_gaussians():
    """Kolmogorov-Smirnov, correlation and tails: false alarms below 1e-6 together."""
    draw = Keystream(words(*range(10))).normal(200_000).numpy()
    assert stats.kstest(draw, "norm").pvalue > 2e-7
    half = len(draw) // 2
    for other in (draw[half:], np.roll(draw[:half], 1)):
        assert abs(np.corrcoef(draw[:half], other)[0, 1]) < 5.3 / np.sqrt(half)
    beyond = int(np.sum(np.abs(draw) > 4))
    assert stats.binomtest(beyond, len(draw), 2 * stats.norm.sf(4)).pvalue > 2e-7


def test_nothing_is_drawn_twice(monkeypatch):
    monkeypatch.setattr("privopt.noise.chacha.SIZES", (64, 128))
    stream = Keystream(words(*range(10)))
    draws = torch.cat([stream.normal(n) for n in (1, 7, 64, 100, 3, 300, 56, 1)])
    assert len(draws) == 532
    assert len(torch.unique(draws)) == 532
    assert len(stream.normal(0)) == 0


@pytest.mark.parametrize("fast", [False, True])
def test_a_device_source_draws_by_its_own_key(fast):
    like = torch.zeros(5, 3)
    one, other = (DeviceSource(SecureSource(), fast) for _ in range(2))
    assert one.private
    assert not torch.equal(one.normal_like(like), other.normal_like(like))
    assert not torch.equal(one.normal_like(like), one.normal_like(like))
    seeded = [DeviceSource(SeededSource(1), fast).normal_like(like) for _ in range(2)]
    assert torch.equal(*seeded)
    assert seeded[0].shape == (5, 3)
    assert not DeviceSource(SeededSource(1)).private


def test_a_forked_process_draws_other_noise(monkeypatch):
    source = DeviceSource(SeededSource(1))
    source.normal_like(torch.zeros(3))
    before = source._generators
    monkeypatch.setattr("os.getpid", lambda: -5)
    source.normal_like(torch.zeros(3))
    assert source._generators is not before


def test_gaussian_like():
    like = torch.zeros(4, dtype=torch.float64)
    expected = 2 * SeededSource(3).noise.standard_normal(4)
    np.testing.assert_allclose(gaussian_like(DeviceSource(SeededSource(3)), 2.0, like), expected)
    assert not gaussian_like(DeviceSource(SilentSource()), 2.0, like).any()
    with pytest.raises(TypeError, match="cannot be pickled"):
        DeviceSource(SecureSource()).__reduce__()


def test_uniform_numbers_lie_in_the_unit_interval_and_use_every_bit():
    """31 bits and 22 bits of two words, no overlap: the largest is one, the smallest 2^-53."""
    from privopt.noise.chacha import _uniform

    def word(value):
        return torch.tensor([value], dtype=torch.int64)

    assert float(_uniform(word(0), word(0))) == 2.0**-53
    assert float(_uniform(word(2**31 - 1), word(2**22 - 1))) == 1.0
    assert float(_uniform(word(0), word(-1))) == 2.0**-31
    assert float(_uniform(word(-1), word(-1))) == 1.0
