"""Noise on tensors: independent Gaussians, and streams of correlated ones, through the gate."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from privopt.mechanisms import CorrelatedGaussian, Gaussian
from privopt.mechanisms.correlated import Stream
from privopt.noise import Source
from privopt.noise.source import volume
from privopt.noise.tensors import fused, gaussian_like
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Refused
from privopt.privacy.factorizations import BLT, Factorization, NoiseStream, Restarts, Tree
from privopt.privacy.factorizations.toeplitz import Toeplitz


class TensorGaussian(Gaussian):
    """``Gaussian`` on a tensor, on the tensor's device: the same event and the same guarantee."""

    def run(self, payload: Tensor, sensitivity: Sensitivity, source: Source) -> Any:
        return gaussian_like(source, self.multiplier * sensitivity.radius, payload).add_(payload)


class TensorStream(Stream):
    """One stream of a gate, with its buffers on a device."""

    __slots__ = ()

    def __init__(self, mechanism: CorrelatedGaussian, like: Tensor) -> None:
        super().__init__(mechanism)
        self._noise = TensorNoise(mechanism.factorization, like)

    def run(self, payload: Tensor, sensitivity: Sensitivity, source: Source) -> Any:
        if not volume(source):
            return payload.clone()
        self._failed = True
        noise: Any = self._noise.next(lambda: gaussian_like(source, 1.0, payload))  # type: ignore
        self._failed = False
        std = self._mechanism.multiplier * sensitivity.radius
        return torch.add(payload, noise, alpha=std, out=noise)


class TensorNoise(NoiseStream):
    """A factorization's stream on tensors; its state is made of tensors as well."""

    def __init__(self, factorization: Factorization, like: Tensor) -> None:
        self._like = like
        self._inner = tensor_noise(factorization)

    @property
    def step(self) -> int:  # type: ignore[override]
        return self._inner.step

    def next(self, draw: Any) -> Any:
        return self._inner.next(draw)

    def vectors(self) -> list[Any]:
        return self._inner.vectors()

    def load_vectors(self, step: int, vectors: list[Any]) -> None:
        if any(vector.shape != self._like.shape for vector in vectors):
            raise ValueError("this is the noise of another model.")
        self._inner.load_vectors(step, [v.to(self._like, copy=True) for v in vectors])
        self._inner.step = step

    def state_dict(self) -> dict[str, Any]:
        vectors = [vector.detach().cpu().clone() for vector in self.vectors()]
        return {"step": self.step, "vectors": vectors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_vectors(int(state["step"]), list(state["vectors"]))


def tensor_noise(factorization: Factorization) -> NoiseStream:
    """The stream of a factorization on tensors. Those of trees compute on anything."""
    if isinstance(factorization, BLT):
        return _Buffers(factorization.decays, factorization.weights)
    if isinstance(factorization, Toeplitz):
        column = factorization.column()
        return _Ring(column[: factorization.bands() or len(column)])
    if isinstance(factorization, (Tree, Restarts)) or factorization.bands() == 1:
        return factorization.stream()
    raise Refused(f"{factorization.name} noise needs a matrix: it is not there for models.")


class _Ring(NoiseStream):
    """x_t = (z_t - sum over 1 <= j < bands of c_j x_(t-j)) / c_0: the last bands - 1 are kept."""

    def __init__(self, coefficients: np.ndarray) -> None:
        self._first, self._rest = float(coefficients[0]), coefficients[1:].copy()
        self._kept = torch.zeros(0)
        self._advance: Any = None

    def next(self, draw: Any) -> Any:
        noise = draw()
        room = len(self._rest)
        if room:
            if self.step == 0:
                self._kept = noise.new_zeros(room, noise.numel())
            if self._advance is None:
                self._advance = fused(_past_taken_off, noise.device)
            # Row r of the ring holds the value of the latest step that is r modulo the room.
            age = (self.step - 1 - np.arange(room)) % room
            weights = torch.as_tensor(self._rest[age]).to(noise)
            noise = self._advance(noise, self._kept, weights, self._first)
            self._kept[self.step % room] = noise
        else:
            noise.div_(self._first)
        self.step += 1
        return noise

    def vectors(self) -> list[Any]:
        return list(self._kept[: min(self.step, len(self._rest))]) if len(self._rest) else []

    def load_vectors(self, step: int, vectors: list[Any]) -> None:
        if len(vectors) != min(step, len(self._rest)):
            raise ValueError("this is not the state of banded noise at that step.")
        if vectors:
            self._kept = vectors[0].new_zeros(len(self._rest), vectors[0].numel())
            self._kept[: len(vectors)] = torch.stack(vectors)


class _Buffers(NoiseStream):
    """x_t = z_t - sum_i w_i S_i,  S_i <- decay_i S_i + x_t."""

    def __init__(self, decays: tuple[float, ...], weights: tuple[float, ...]) -> None:
        self._decays, self._weights = decays, weights
        self._kept: list[Tensor] = []
        self._advance: Any = None

    def next(self, draw: Any) -> Any:
        noise = draw()
        if self.step == 0:
            self._kept = [torch.zeros_like(noise) for _ in self._decays]
        if self._advance is None:
            self._advance = fused(_buffers_advanced, noise.device)
        noise = self._advance(noise, self._kept, self._weights, self._decays)
        self.step += 1
        return noise

    def vectors(self) -> list[Any]:
        return list(self._kept)

    def load_vectors(self, step: int, vectors: list[Any]) -> None:
        if len(vectors) != (len(self._decays) if step else 0):
            raise ValueError("this is not the state of buffered noise at that step.")
        self._kept = list(vectors)


def _past_taken_off(noise: Tensor, kept: Tensor, weights: Tensor, first: float) -> Tensor:
    # Rows that are not yet filled are zero.
    return torch.addmv(noise, kept.T, weights, alpha=-1).div_(first)


def _buffers_advanced(
    noise: Tensor, kept: list[Tensor], weights: tuple[float, ...], decays: tuple[float, ...]
) -> Tensor:
    # One vector each: a compiler reads and writes each of them once.
    for one, weight in zip(kept, weights, strict=True):
        noise = noise - weight * one
    for one, decay in zip(kept, decays, strict=True):
        one.mul_(decay).add_(noise)
    return noise
