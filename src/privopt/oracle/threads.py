"""Blocks of rows on all cores, one thread each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

Block = TypeVar("Block")


def each(apply: Callable[[Block], Any], blocks: Sequence[Block], in_parallel: bool) -> list[Any]:
    """The results of all blocks, in their order."""
    quiet = np.geterr()  # a thread of its own would warn of what the caller's ignores

    def run(share: Sequence[Block]) -> list[Any]:
        with np.errstate(**quiet):
            return [apply(block) for block in share]

    workers = _workers()
    if workers == 1 or not in_parallel:
        return run(blocks)
    cut = math.ceil(len(blocks) / (4 * workers))  # a core that is busy elsewhere gets less
    shares = [blocks[i : i + cut] for i in range(0, len(blocks), cut)]
    with _blas().limit(limits=1):
        results = list(_pool(os.getpid(), workers).map(run, shares))
    return [result for share in results for result in share]


def _workers() -> int:
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(int(limit) if limit.isdigit() else 64, cores or 1))


@lru_cache(maxsize=1)
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork.
    return ThreadPoolExecutor(workers, thread_name_prefix="privopt")


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
