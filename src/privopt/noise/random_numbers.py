"""Random numbers that a user's own code draws: the same in two runs that are compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def draw_again(seed: int = 0) -> None:
    """On the CPU, from here on the random numbers that ``same_random_numbers`` began with."""
    # Not torch.manual_seed: it would reach devices whose state is not put back.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


@contextmanager
def same_random_numbers(device: torch.device | None = None, seed: int | None = 0) -> Iterator[None]:
    """The same random numbers in every run inside with one seed, and the user's own afterwards.
    None: those that the user's own code would draw next."""
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        cuda = device is not None and device.type == "cuda"
        with torch.random.fork_rng([device] if cuda else []):
            if seed is not None:
                draw_again(seed)
                if cuda:
                    with torch.cuda.device(device):
                        torch.cuda.manual_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002


def normals_like(weight: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Normal numbers of a tensor's kind, from the generators that a user's code draws from."""
    return torch.randn(shape, dtype=weight.dtype, device=weight.device)


def luck(device: torch.device | None = None) -> bytes:
    """Where the generators stand that a user's code draws from by default."""
    states = [torch.get_rng_state()]
    if device is not None and device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    arrays: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    words = hash((random.getstate(), repr(arrays[2:])))
    drawn = b"".join(state.numpy().tobytes() for state in states)
    return drawn + np.asarray(arrays[1]).tobytes() + str(words).encode()
