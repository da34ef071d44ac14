"""Random numbers that a user's own code draws: the same in two runs that are compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def draw_again() -> None:
    """On the CPU, from here on the random numbers that ``same_random_numbers`` began with."""
    # Not torch.manual_seed: it would reach devices whose state is not put back.
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


@contextmanager
def same_random_numbers(device: torch.device | None = None) -> Iterator[None]:
    """The same random numbers in every run inside, and the user's own afterwards."""
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        cuda = device is not None and device.type == "cuda"
        with torch.random.fork_rng([device] if cuda else []):
            draw_again()
            if cuda:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(0)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002
