"""One training run in several processes: each clips its share, and noise is added once.

Process 0 draws the batches, receives the sum of all clipped sums, adds the noise and tells the
others the result. They draw nothing, hold no noise, and take the same optimizer step. A process
that fails stops all of them before anything is released; without process 0 there is no step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from privopt.privacy.budget import Refused


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
        """Whether this is the process that draws."""
        return self.rank == 0

    def told(self, value: Any) -> Any:
        """What process 0 says."""
        if self.count == 1:
            return value
        box = [value if self.first else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def share(self, step: int, draw: Callable[[], np.ndarray]) -> np.ndarray:
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

    def agree(self, problem: Exception | None, device: torch.device) -> None:
        """Raise in every process if one of them has a problem."""
        others = 0
        if self.count > 1:
            problems = torch.tensor(int(problem is not None), device=device)
            dist.all_reduce(problems)
            others = int(problems)
        if problem is not None:
            raise problem
        if others:
            raise Refused("another process refused, and says why: none of them goes on.")

    def check_same(self, facts: Any, device: torch.device) -> None:
        """Refuse processes with different settings: their sums would have different reaches."""
        same = self.told(facts) == facts
        problem = None if same else Refused("the processes were given different settings or data.")
        self.agree(problem, device)

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

    def collect(self, total: Tensor) -> None:
        """Add up the sums of all processes in process 0."""
        if self.count > 1:
            dist.reduce(total, dst=0)

    def tell(self, noisy: Tensor) -> None:
        """Process 0 gives everybody what it has released."""
        if self.count > 1 and self.first:
            dist.broadcast(noisy, src=0)

    def listen(self, mechanism: Any, payload: Tensor, reach: Any, event: Any, run: Any) -> Tensor:
        """A hook for the gates of the other processes: they log what process 0 releases, and draw
        no noise of their own."""
        dist.broadcast(payload, src=0)
        return payload


def _place() -> tuple[int, int]:
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
