"""States of a training: what is kept, and how another run goes on from there."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privopt.mechanisms import CorrelatedGaussian, Run
from privopt.privacy import Budget, Refused
from privopt.torch.batches import PrivateLoader, Schedule
from privopt.torch.curve import LossCurve
from privopt.torch.fingerprints import Roster
from privopt.torch.legs import Legs
from privopt.torch.noise import TensorGaussian
from privopt.torch.processes import Processes
from privopt.torch.states import GONE_ON, joined, noted_before, write_secret

SAME_RECORDS = "the run went on with the records it began with, in the same order (not checked)"


class Resumable:
    """A training whose state can be written and read."""

    loader: PrivateLoader
    budget: Budget
    _run: Run
    _legs: Legs
    _leg: str | None
    _schedule: Schedule
    _mechanism: TensorGaussian | CorrelatedGaussian
    _processes: Processes
    _records: Roster | None
    _curve: LossCurve | None
    _resumed: tuple[str, ...]
    _tail: Tensor
    _like: Tensor
    _width: int

    @property
    def steps(self) -> int:
        raise NotImplementedError

    @property
    def steps_done(self) -> int:
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on: steps, batches and buffers of noise, never a generator's state.

        Secret, unlike the model: keep it apart from what is published. Model and optimizer have
        state dicts of their own. In several processes it is the state of this one alone, with the
        noise of its share: save that of each of them, or ``state_dicts`` once.
        """
        self._check_between_epochs(self.steps_done)
        self._legs.hand_over(self.steps_done)
        processes, share = self._processes, self._processes.shares(self._width)
        drawn = torch.from_numpy(np.array(self._schedule.state()))
        correlated = isinstance(self._mechanism, CorrelatedGaussian)
        return {
            "settings": self.settings(),
            "budget": asdict(self.budget),
            "private": self._run.private,
            "charged": self._run.mark,
            "steps_done": self.steps_done,
            "leg": self._leg,
            "process": processes.rank,
            "share": [share[processes.rank].start, share[processes.rank].stop],
            "average": self._tail.cpu(),
            "schedule": drawn if processes.first else None,
            "records": self._records.state() if processes.first and self._records else None,
            "curve": None if self._curve is None else self._curve.state(),
            "noise": self._run.noise_state(self._mechanism) if correlated else None,  # type: ignore
        }

    def _check_between_epochs(self, done: int) -> None:
        """Records keep the batch that they are allocated to until the epoch ends."""
        if self._schedule.sampling.turns and done % self._schedule.steps_per_epoch:
            raise Refused(
                "the places of an epoch are a secret that no state may hold: save when an epoch "
                "with allocated batches is over."
            )

    def state_dicts(self) -> list[dict[str, Any]]:
        """The states of all processes, for one file. All of them call it together; process 0 is
        given the list, the others an empty one."""
        return self._processes.states(self.state_dict())

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Go on where another run stopped. Steps already taken count; new noise is fresh.

        ``state`` is the one this process has saved, or a list of those of all processes, of which
        there may have been more or fewer. Two runs that go on from one state are two uses of the
        data: publish one of them.
        """
        if self.steps_done:
            raise Refused("this run has begun: load a state into a fresh one.")
        own = self._processes.shares(self._width)[self._processes.rank]
        states = state if isinstance(state, list) else [state]
        for one in states:
            if one.get("settings") != self.settings() or one.get("budget") != asdict(self.budget):
                raise Refused("this state was written with other settings or another budget.")
        state = joined(states, own)
        done = int(state["steps_done"])
        self._check_between_epochs(done)
        if not 0 <= done <= self.steps or state["average"].shape != self._like.shape:
            raise Refused("this is not the state of such a run.")
        if self._processes.first:
            if state["schedule"] is None:
                raise Refused("process 0 draws the batches: load its state there, or all states.")
            self._resumed += self._legs.follow(state["charged"])
            if self._records is None or not self._records.load(state["records"]):
                self._resumed += (SAME_RECORDS,)
            self._schedule.load(state["schedule"].numpy())
        self._tail = state["average"].to(self._like)
        if isinstance(self._mechanism, CorrelatedGaussian):
            self._run.resume(done, [(self._mechanism, state["noise"])])
        else:
            self._run.resume(done)
        charged, private = state["charged"], bool(state["private"])
        self._run.follow(charged, paid=charged is not None, private=private)
        self._leg = state["leg"]
        if self._curve is not None:
            self._curve.load(state["curve"])
        self.loader.resume(done)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``state_dicts`` to a file that its owner alone can read; all processes call it."""
        states = self.state_dicts()
        if states:  # in process 0
            write_secret(states, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on with the run that ``save`` has written; model and optimizer have files of their
        own."""
        self.load_state_dict(torch.load(path, weights_only=True))
        if self._processes.first and noted_before(path):
            self._resumed += (GONE_ON,)
