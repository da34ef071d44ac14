"""One training run in several processes: each clips its part of a batch, and owns a share of the
noise.

The flat vector of all parameters is cut into one share for each process. Process 0 draws the
batches. In a step each process clips its part; the sums of a share are added up in its owner, which
releases them with noise of its own key; then all gather the noisy shares, and take the same
optimizer step. A process that fails stops all of them before anything is released; without one of
them there is no step.

Why the noisy shares are one release of the whole vector: let S in R^d be the sum over all
processes, moved by one record by at most its sensitivity in l2, and let process r release S_r +
Z_r, its
share of S with Z_r ~ N(0, sigma^2 I). The shares are disjoint and make up all d coordinates, and
the keys are independent, so what is released is S + Z with Z ~ N(0, sigma^2 I_d): the Gaussian
mechanism on S. Noise that is correlated over steps, x = C^-1 z, takes each coordinate by itself, so
that the same holds for all steps together. Each process logs this one event.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from privopt.noise import Source
from privopt.privacy.budget import Refused

Result = TypeVar("Result")


class Processes:
    """This process alone, or all those of torch.distributed's default group."""

    def __init__(self) -> None:
        self.rank, self.count = _place()
        launched = dist.is_available() and dist.is_torchelastic_launched()
        if launched and not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise Refused(
                "this is one of several processes that do not know each other: call "
                "torch.distributed.init_process_group before make_private."
            )

    @property
    def first(self) -> bool:
        """Whether this is the process that draws batches."""
        return self.rank == 0

    def told(self, value: Any) -> Any:
        """What process 0 says."""
        if self.count == 1:
            return value
        box = [value if self.first else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def deal(self, step: int, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """This process's part of the members of a step, which process 0 draws for all.

        The parts are disjoint and make up the batch: a record is in it at the schedule's rate.
        """
        if self.count == 1:
            return draw()
        there, members = self.told((step, draw()) if self.first else None)
        if there != step:
            raise Refused(
                f"process {self.rank} is at step {step}, process 0 at {there}: all of them step "
                "through their loaders together, and load the same state."
            )
        return members[self.rank :: self.count]

    def together(self, action: Callable[[], Result], device: torch.device) -> Result:
        """The result of an action that succeeds in every process; if it fails in one, all raise."""
        result, problem, others = None, None, 0
        try:
            result = action()
        except Exception as found:
            problem = found
        if self.count > 1:
            problems = torch.tensor(int(problem is not None), device=device)
            dist.all_reduce(problems)
            others = int(problems)
        if problem is not None:
            raise problem
        if others:
            raise Refused("another process refused, and says why: none of them goes on.")
        return cast(Result, result)

    def check_same(self, facts: Any, device: torch.device) -> None:
        """Refuse processes with different settings: their sums would have different
        sensitivities."""

        def check() -> None:
            if self.told(facts) != facts:
                raise Refused("the processes were given different settings, data or states.")

        self.together(check, device)

    def check_unchanged(self) -> None:
        if _place() != (self.rank, self.count):
            raise Refused(
                "processes have joined or left since make_private: initialise torch.distributed "
                "before it."
            )

    def align(self, model: nn.Module) -> None:
        """Parameters and buffers of process 0 in all processes."""
        if self.count > 1:
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    dist.broadcast(tensor, src=0)

    # ------------------------------------------------------------ shares
    def source(self, source: Source) -> Source:
        """Where the noise of this process's share comes from."""
        return source if self.count == 1 else source.of_process(self.rank)

    def shares(self, size: int) -> list[slice]:
        """Who owns which coordinates of a vector: one piece for each process, none twice."""
        cuts = [size * rank // self.count for rank in range(self.count + 1)]
        return [slice(start, stop) for start, stop in pairwise(cuts)]

    def own(self, whole: Tensor) -> Tensor:
        """This process's share of a vector."""
        return whole[self.shares(len(whole))[self.rank]]

    def collect(self, total: Tensor) -> Tensor:
        """This process's share of the sum over all processes; the rest of ``total`` is used up."""
        for owner, share in self._filled(total):
            dist.reduce(share, dst=owner)
        return self.own(total)

    def gather(self, noisy: Tensor, size: int) -> Tensor:
        """The whole released vector, from the shares that every process has released."""
        if self.count == 1:
            return noisy
        whole = noisy.new_zeros(size)
        self.own(whole).copy_(noisy)
        for owner, share in self._filled(whole):
            dist.broadcast(share, src=owner)
        return whole

    def _filled(self, whole: Tensor) -> list[tuple[int, Tensor]]:
        """Owners of shares with something in them, if they have to be exchanged."""
        owners = enumerate(self.shares(len(whole))) if self.count > 1 else ()
        return [(owner, whole[share]) for owner, share in owners if share.start < share.stop]

    def states(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The states of all processes, in process 0; the others are given nothing."""
        if self.count == 1:
            return [state]
        found: list[Any] | None = [None] * self.count if self.first else None
        dist.gather_object(state, found, dst=0)
        return found or []


def _place() -> tuple[int, int]:
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
