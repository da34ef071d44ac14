"""Gaussian noise as a torch tensor, drawn where the tensor lives."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from privopt.noise.source import Source, volume

if TYPE_CHECKING:
    from torch import Tensor


def fused(function: Callable[..., Any], device: Any) -> Callable[..., Any]:
    """The function as one kernel, where the device has a compiler for it."""
    import torch

    if device.type != "cuda" or find_spec("triton") is None:
        return function
    return torch.compile(function, dynamic=False)


class DeviceSource(Source):
    """Another source on the processor; on an accelerator a generator keyed by that source.

    ChaCha20 is cryptographic. ``fast`` takes the device's own generator instead, keyed by 63 bits:
    of good quality, but not cryptographic. Keys are drawn once for each process, device and type.
    """

    __slots__ = ("_fast", "_generators", "_process", "_source", "private")

    def __init__(self, source: Source, fast: bool = False) -> None:
        self._source, self._fast, self.private = source, fast, source.private
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

    def normal_like(self, like: Tensor, std: float = 1.0) -> Tensor:
        """Gaussians from the device of a tensor."""
        import torch

        generator = self._generator(like.device, like.dtype)
        if self._fast:
            return torch.empty_like(like).normal_(0.0, std, generator=generator)
        draw = generator.normal(like.numel()).view_as(like)
        return draw if std == 1.0 else draw.mul_(std)

    def _generator(self, device: Any, dtype: Any) -> Any:
        import torch

        from privopt.noise.chacha import Keystream

        if self._process != os.getpid():
            self._process, self._generators = os.getpid(), {}
        if (device, dtype) not in self._generators:
            if self._fast:
                made: Any = torch.Generator(device)
                made.manual_seed(int(self._source.noise.integers(2**63)))
            else:
                bits = self._source.noise.integers(-(2**31), 2**31, size=10, dtype=np.int32)
                made = Keystream(torch.from_numpy(bits).to(device), dtype)
            self._generators[device, dtype] = made
        return self._generators[device, dtype]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise source cannot be pickled or copied: make a new one.")


def gaussian_like(source: Source, std: float, like: Tensor) -> Tensor:
    """Independent N(0, std^2) coordinates, with the shape, type and device of a tensor."""
    import torch

    std *= volume(source)
    if isinstance(source, DeviceSource) and like.device.type != "cpu":
        return source.normal_like(like, std)
    draw = torch.from_numpy(source.noise.standard_normal(tuple(like.shape))).to(like)
    return draw.mul_(std)
