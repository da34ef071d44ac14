"""Where randomness comes from. No other package of privopt draws a random number."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import numpy as np
from numpy.random import Generator


class Source:
    """Two independent streams of random numbers: ``noise`` and ``coins``.

    Sampling coins have a stream of their own, so that replaying a run without drawing its noise
    still chooses the same records.
    """

    private: bool = False

    @property
    def noise(self) -> Generator:
        raise NotImplementedError

    @property
    def coins(self) -> Generator:
        raise NotImplementedError

    def apart(self) -> Generator:
        """A new stream, for a sampler that draws as often as the data makes it: where the other
        streams stand must not tell how often that was."""
        raise NotImplementedError

    def of_process(self, rank: int) -> Source:
        """The source of one of several processes that add noise to one release, each to its share:
        the streams of different ranks are independent."""
        raise NotImplementedError


class SecureSource(Source):
    """AES-128 in counter mode, keyed by the operating system; a new key after every fork.

    The state can be neither pickled nor copied: whoever holds it can subtract the noise.
    """

    private = True
    __slots__ = ("_coins", "_noise", "_process")

    def __init__(self) -> None:
        self._process = -1

    def _key(self) -> None:
        self._noise, self._coins = (_fresh_generator() for _ in range(2))
        self._process = os.getpid()

    @property
    def noise(self) -> Generator:
        if self._process != os.getpid():
            self._key()
        return self._noise

    @property
    def coins(self) -> Generator:
        if self._process != os.getpid():
            self._key()
        return self._coins

    def apart(self) -> Generator:
        return _fresh_generator()

    def of_process(self, rank: int) -> Source:
        return SecureSource()  # keyed by the operating system: unlike any other

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secure noise source cannot be pickled or copied: make a new one.")


def _fresh_generator() -> Generator:
    from randomgen import AESCounter

    # ``key`` is used as it is; ``seed`` would be expanded by a generator that is not cryptographic.
    bits: Any = AESCounter(key=int.from_bytes(os.urandom(16), "little"))
    return Generator(bits)


class SeededSource(Source):
    """Reproducible randomness for tests and teaching. What it makes is marked not private."""

    __slots__ = ("_coins", "_noise", "_seeds")

    def __init__(self, seed: int | np.integer | np.random.RandomState) -> None:
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31))
        self._begin(np.random.SeedSequence(int(seed)))

    def _begin(self, seeds: np.random.SeedSequence) -> None:
        self._seeds = seeds
        noise, coins = seeds.spawn(2)
        self._noise = Generator(np.random.Philox(noise))
        self._coins = Generator(np.random.Philox(coins))

    @property
    def noise(self) -> Generator:
        return self._noise

    @property
    def coins(self) -> Generator:
        return self._coins

    def apart(self) -> Generator:
        return Generator(np.random.Philox(self._seeds.spawn(1)[0]))

    def of_process(self, rank: int) -> Source:
        other = SeededSource.__new__(type(self))
        # Two numbers: ``spawn`` gives this seed's own streams one.
        other._begin(np.random.SeedSequence(self._seeds.entropy, spawn_key=(rank, 0)))
        return other


class SilentSource(SeededSource):
    """No noise at all, for dry runs and for tests of what a solver converges to. Never private.

    The samplers of this package multiply their draws by ``volume``; here it is zero.
    """

    volume = 0.0

    def __init__(self) -> None:
        super().__init__(0)


def source_for(random_state: object) -> Source:
    """``None`` gives secure noise; an integer or RandomState gives reproducible noise."""
    if random_state is None:
        return SecureSource()
    if isinstance(random_state, Source):
        return random_state
    if isinstance(random_state, (int, np.integer, np.random.RandomState)) and not isinstance(
        random_state, bool
    ):
        if not isinstance(random_state, np.random.RandomState) and random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}.")
        return SeededSource(random_state)
    raise ValueError(
        "random_state must be None (secure noise, private) or an integer "
        f"(reproducible, not private), got {type(random_state).__name__}."
    )


def fresh_name() -> str:
    """A random name that nobody had before: 128 bits from the operating system."""
    return os.urandom(16).hex()


def volume(source: Source) -> float:
    """1 for every source that makes noise, 0 for the silent one."""
    return getattr(source, "volume", 1.0)
