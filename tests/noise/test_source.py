"""Where random bits come from: secure by default, reproducible on request, silent for dry runs."""

import copy
import os
import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

from privopt.noise import (
    SecureSource,
    SeededSource,
    SilentSource,
    Source,
    gaussian,
    gumbel,
    laplace,
    norm_gamma,
    source_for,
)

STREAMS = ("noise", "coins")


def words(source, stream, count=4):
    """64-bit words: two streams that differ at random agree with probability 2^-256."""
    return getattr(source, stream).integers(2**64, size=count, dtype=np.uint64).tolist()


# ------------------------------------------------------------------------------ secure
@pytest.mark.parametrize("stream", STREAMS)
def test_two_secure_sources_differ(stream):
    seen = [tuple(words(SecureSource(), stream)) for _ in range(20)]
    assert len(set(seen)) == 20


def test_noise_and_coins_have_keys_of_their_own():
    source = SecureSource()
    assert words(source, "noise") != words(source, "coins")


def test_a_secure_source_goes_on_and_does_not_repeat():
    source = SecureSource()
    draws = words(source, "noise", 1000) + words(source, "noise", 1000)
    assert len(set(draws)) == 2000


def test_nobody_can_seed_a_secure_source():
    """The global seeds of numpy do not reach it."""
    found = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        found.append(words(SecureSource(), "noise"))
    assert found[0] != found[1]


def test_the_key_is_what_the_operating_system_gives(monkeypatch):
    """16 bytes for each stream, used as the AES key itself and not as a seed."""
    from randomgen import AESCounter

    keys, asked = [bytes(range(16)), bytes(range(100, 116))], []

    def urandom(size):
        asked.append(size)
        return keys[len(asked) - 1]

    monkeypatch.setattr(os, "urandom", urandom)
    source = SecureSource()
    found = {stream: words(source, stream) for stream in STREAMS}
    words(source, "noise")
    monkeypatch.undo()
    assert asked == [16, 16]
    expected = [
        np.random.Generator(AESCounter(key=int.from_bytes(key, "little"))).integers(
            2**64, size=4, dtype=np.uint64
        )
        for key in keys
    ]
    assert sorted(found.values()) == sorted(e.tolist() for e in expected)


def in_a_child(work):
    """What ``work()`` returns in a forked child: a list of integers below 2^64."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons: fork with threads
        child = os.fork()
    if child == 0:
        try:
            os.write(write, np.array(work(), dtype=np.uint64).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return np.frombuffer(data, dtype=np.uint64).tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("stream", STREAMS)
def test_a_fork_gets_a_new_key(stream):
    source = SecureSource()
    words(source, stream)  # the key exists before the fork
    children = [in_a_child(lambda: words(source, stream)) for _ in range(2)]
    parent = words(source, stream)
    assert all(len(child) == 4 for child in children)
    assert children[0] != children[1]
    assert parent not in children
    # and with a seeded source the helper does see the same stream: it is able to notice
    seeded = SeededSource(0)
    assert in_a_child(lambda: words(seeded, stream)) == words(seeded, stream)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_parent_goes_on_after_a_fork():
    source = SecureSource()
    before = source.noise
    in_a_child(lambda: words(source, "noise"))
    assert source.noise is before


@pytest.mark.parametrize(
    "take",
    [pickle.dumps, lambda s: pickle.dumps(s, protocol=2), copy.copy, copy.deepcopy],
    ids=["pickle", "old pickle", "copy", "deepcopy"],
)
@pytest.mark.parametrize("used", [False, True])
def test_a_secure_source_cannot_be_pickled_or_copied(take, used):
    source = SecureSource()
    if used:
        words(source, "noise")
    with pytest.raises(TypeError, match="cannot be pickled or copied: make a new one"):
        take(source)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        take({"inside": [source]}) if take is not copy.copy else take(source)


@pytest.mark.statistical
def test_secure_draws_are_standard_normal():
    # not seeded, on purpose: the only check here that can fail by chance, once in 10^9 runs
    sample = gaussian(SecureSource(), 2.0, 20_000)
    assert stats.kstest(sample, stats.norm(scale=2).cdf).pvalue > 1e-9
    assert stats.kstest(sample, stats.norm(scale=1).cdf).pvalue < 1e-9


def test_only_the_secure_source_is_private():
    assert SecureSource().private is True
    assert SeededSource(0).private is False
    assert SilentSource().private is False
    assert Source.private is False


# ------------------------------------------------------------------------------ seeded
@pytest.mark.parametrize("stream", STREAMS)
def test_a_seed_reproduces_and_seeds_differ(stream):
    assert words(SeededSource(7), stream) == words(SeededSource(np.int64(7)), stream)
    assert words(SeededSource(7), stream) != words(SeededSource(8), stream)


def test_a_random_state_is_drawn_from_once():
    state = np.random.RandomState(3)
    first, second = SeededSource(state), SeededSource(state)
    again = SeededSource(np.random.RandomState(3))
    assert words(again, "noise") == words(first, "noise")
    assert words(first, "noise") != words(second, "noise")


def test_streams_do_not_disturb_each_other():
    """Replay draws no noise and must still choose the same records."""
    quiet, noisy = SeededSource(5), SeededSource(5)
    gaussian(noisy, 1.0, 1000)
    laplace(noisy, 1.0, 10)
    assert words(quiet, "coins") == words(noisy, "coins")
    assert words(SeededSource(5), "noise") != words(SeededSource(5), "coins")


@pytest.mark.parametrize("make", [SecureSource, lambda: SeededSource(0)])
def test_processes_have_streams_of_their_own(make):
    """Of one source or of copies of it in other processes, and apart from its own streams."""
    one, other = make(), make()
    sources = [one, *(one.of_process(rank) for rank in range(4)), other.of_process(4)]
    seen = [tuple(words(source, stream)) for source in sources for stream in STREAMS]
    seen += [tuple(one.apart().integers(2**64, size=4, dtype=np.uint64)) for _ in range(4)]
    assert len(set(seen)) == len(seen) == 16
    assert all(source.private == one.private for source in sources)


def test_a_seed_reproduces_the_streams_of_processes():
    draws = [words(SeededSource(7).of_process(3), "noise") for _ in range(2)]
    assert draws[0] == draws[1] != words(SeededSource(8).of_process(3), "noise")
    assert not gaussian(SilentSource().of_process(3), 1.0, 5).any()


def test_a_seeded_source_leaves_the_global_generator_alone():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    gaussian(SeededSource(1), 1.0, 10)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


# ------------------------------------------------------------------------------ silent
def test_a_silent_source_makes_no_noise_at_all():
    source = SilentSource()
    for sampler in (gaussian, laplace, gumbel, norm_gamma):
        draw = sampler(source, 1e6, 20)
        assert draw.shape == (20,)
        assert not np.any(draw)


def test_a_silent_source_still_tosses_coins():
    assert len(set(words(SilentSource(), "coins", 100))) == 100
    assert words(SilentSource(), "coins") == words(SilentSource(), "coins")


# ------------------------------------------------------------------------------ random_state
def test_what_random_state_means():
    assert isinstance(source_for(None), SecureSource)
    assert source_for(None) is not source_for(None)
    for seed in (0, np.int32(0), np.uint8(0)):
        source = source_for(seed)
        assert isinstance(source, SeededSource)
        assert words(source, "noise") == words(SeededSource(0), "noise")
    assert isinstance(source_for(np.random.RandomState(0)), SeededSource)
    mine = SecureSource()
    assert source_for(mine) is mine


@pytest.mark.parametrize(
    "random_state",
    [True, np.True_, 1.0, "0", [0], np.random.default_rng(0)],
    ids=lambda v: type(v).__name__,
)
def test_everything_else_is_refused_in_one_sentence(random_state):
    with pytest.raises(ValueError, match="random_state must be None") as caught:
        source_for(random_state)
    assert type(random_state).__name__ in str(caught.value)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_bare_source_has_no_bits(stream):
    with pytest.raises(NotImplementedError):
        getattr(Source(), stream)
