"""Gaussian noise as a torch tensor: from the source itself, or from a device's own generator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from privopt.noise.source import Source, volume

if TYPE_CHECKING:
    from torch import Tensor


class DeviceSource(Source):
    """Coins of another source; noise on an accelerator from its own generator.

    The generator is keyed by 63 bits of the other source, once for each process and device. It is
    fast and of good quality, but not cryptographic.
    """

    __slots__ = ("_generators", "_process", "_source", "private")

    def __init__(self, source: Source) -> None:
        self._source, self.private = source, source.private
        self._process, self._generators = os.getpid(), {}

    @property
    def noise(self) -> np.random.Generator:
        return self._source.noise

    @property
    def coins(self) -> np.random.Generator:
        return self._source.coins

    @property
    def volume(self) -> float:
        return volume(self._source)

    def generator(self, device: Any) -> Any:
        import torch

        if self._process != os.getpid():
            self._process, self._generators = os.getpid(), {}
        if device not in self._generators:
            generator = torch.Generator(device)
            generator.manual_seed(int(self._source.noise.integers(2**63)))
            self._generators[device] = generator
        return self._generators[device]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise source cannot be pickled or copied: make a new one.")


def gaussian_like(source: Source, std: float, like: Tensor) -> Tensor:
    """Independent N(0, std^2) coordinates, with the shape, type and device of a tensor."""
    import torch

    if isinstance(source, DeviceSource) and like.device.type != "cpu":
        draw = torch.empty_like(like).normal_(generator=source.generator(like.device))
    else:
        draw = torch.from_numpy(source.noise.standard_normal(tuple(like.shape))).to(like)
    return draw.mul_(std * volume(source))
