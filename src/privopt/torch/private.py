"""Private training of a torch model: the user's optimizer, clipped sums, noise, one certificate."""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader

from privopt.ledger import Dataset, account_for
from privopt.mechanisms import CorrelatedGaussian
from privopt.noise import source_for
from privopt.noise.tensors import DeviceSource
from privopt.oracle.reach import Reach
from privopt.oracle.sealed import KEY, Sealed
from privopt.privacy import Accountant, Budget, Certificate, Neighbouring, Refused, spend
from privopt.privacy.factorizations import Independent
from privopt.torch.batches import (
    FixedOrder,
    PoissonBatches,
    PrivateLoader,
    Schedule,
    check_loader,
)
from privopt.torch.bill import Bill, events
from privopt.torch.checks import check_model, check_optimizer, probe
from privopt.torch.clip import Clip, Clipping
from privopt.torch.compiled import CompiledSum
from privopt.torch.engine import Engine, LossFunction, Part
from privopt.torch.noise import TensorGate, TensorGaussian
from privopt.torch.plan import Plan, choose_plan

ASSUMPTIONS = (
    "the output for one example depends on that example alone (tried on made-up inputs)",
    "the loss of one example depends on its own output and target alone",
)
DEVICE_NOISE = "the noise comes from the device's own generator, which is not cryptographic"


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    *,
    epsilon: float,
    delta: float,
    epochs: int,
    clip_norm: float = 1.0,
    noise: str = "auto",
    batches: str = "auto",
    clipping: Clipping = "flat",
    neighbouring: Neighbouring = "zero_out",
    unit: str = "record",
    n_public: int | None = None,
    microbatch: int | None = None,
    compile: bool | str = False,
    device_noise: bool = False,
    ledger: Any = None,
    dataset: str | None = None,
    random_state: object = None,
) -> PrivateTraining:
    """Prepare a model, its optimizer and its data for private training.

    Parameters
    ----------
    model : nn.Module
        Any model that treats the examples of a batch separately. Layers that do not are refused by
        name, before any data is used.
    optimizer : Optimizer
        The user's own. It sees noisy gradients only, so whatever it does is post-processing.
    loader : DataLoader
        Its data set and its ``batch_size`` are used; batches are drawn anew.
    epsilon, delta, neighbouring, unit
        The budget, as in ``Budget``.
    epochs : int
        Passes over the data that the budget pays for.
    clip_norm : float, default=1.0
        Bound on the norm of one example's gradient: the sensitivity of a step.
    noise : str, default="auto"
        ``independent`` (DP-SGD), ``banded``, ``blt``, ``honaker``, ``tree`` or ``sqrt_toeplitz``
        (DP-FTRL). ``auto`` takes what adds the least noise to the running sums of gradients.
    batches : {"auto", "poisson", "fixed"}, default="auto"
        ``poisson``: secret coins, amplified; independent and banded noise only. ``fixed``: the same
        batches in every epoch. ``auto`` takes Poisson where there is a choice.
    clipping : {"flat", "per_layer", "automatic"}, default="flat"
        See ``Clip``.
    n_public : int, optional
        Under add_remove: a public guess of the number of records, which is private there.
    microbatch : int, optional
        Largest number of examples at a time, for memory. Noise is added once per step.
    compile : bool or str, default=False
        Compile the step, for batches filled up to a fixed size; a string names torch's backend.
        ``step`` then needs ``targets``, and a loss that uses nothing else.
    device_noise : bool, default=False
        On an accelerator, draw noise with its own generator instead of ChaCha20: faster, not
        cryptographic.
    ledger, dataset : Ledger or path, str; optional
        The budget that pays for all epochs, before the first step.
    random_state : int, optional
        A seed for tests: the result is then not private, and the certificate says so.

    Formal guarantee
    ----------------
    Step t releases S_t + noise, S_t the sum over the batch of clipped gradients. One record moves
    S_t by at most clip_norm (twice that under replace_one), in the steps that hold it. Poisson
    batches: each step is a sampled Gaussian; with b groups and banded noise of at most b bands, a
    record pays for its own group's steps (Choquette-Choo et al., 2023). Fixed batches: the whole
    run is one Gaussian with mu^2 = 1_pi' C'C 1_pi / multiplier^2 for a record in the steps pi
    (Denisov et al., 2022). Division by the expected batch size comes after the noise.
    """
    budget = Budget(epsilon, delta, neighbouring, unit)
    if budget.pure:
        raise ValueError("Gaussian noise needs delta > 0: take a value well below 1/n.")
    if not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs must be a positive integer, got {epochs!r}.")
    if microbatch is not None and microbatch < 1:
        raise ValueError(f"microbatch must be positive, got {microbatch!r}.")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise Refused("training in several processes is not there yet: each would add its noise.")
    loader = check_loader(loader)
    check_model(model)
    engine = Engine(model, Clip(float(clip_norm), clipping))
    check_optimizer(engine, optimizer)
    count, batch_size = len(loader.dataset), int(loader.batch_size or 1)  # type: ignore[arg-type]
    if neighbouring == "add_remove" and n_public is None:
        raise ValueError("under add_remove the number of records is private: give n_public.")
    records = count if n_public is None else int(n_public)
    if neighbouring != "add_remove" and records != count:
        raise ValueError(f"under {neighbouring} the number of records is public: drop n_public.")
    if not 1 <= batch_size <= records:
        raise ValueError(f"a batch of {batch_size} does not fit into {records} records.")
    source = source_for(random_state)
    plan = choose_plan(budget, records, batch_size, epochs, noise, batches, engine.size)
    schedule: Schedule
    if plan.batches == "fixed":
        schedule = FixedOrder(count, batch_size, source)
    else:
        schedule = PoissonBatches(count, records, batch_size, plan.groups, source)
    gate = TensorGate(DeviceSource(source, fast=device_noise), engine.like())
    return PrivateTraining(
        engine,
        optimizer,
        PrivateLoader(loader, schedule, plan.factorization.steps),
        schedule,
        gate,
        budget,
        plan,
        microbatch,
        compile=("inductor" if compile is True else compile) or None,
        private=source.private,
        assumptions=ASSUMPTIONS + (DEVICE_NOISE,) * (device_noise and engine.like().is_cuda),
        account=account_for(ledger, dataset),
    )


class PrivateTraining:
    """A training run under one budget; made by ``make_private``.

    ``loader`` gives the batches, ``step`` uses one of them. Losses and gradients of examples do not
    leave this object: what an optimizer, a scheduler or a log may see is noisy.
    """

    def __init__(
        self,
        engine: Engine,
        optimizer: Optimizer,
        loader: PrivateLoader,
        schedule: Schedule,
        gate: TensorGate,
        budget: Budget,
        plan: Plan,
        microbatch: int | None,
        *,
        compile: str | None,
        private: bool,
        assumptions: tuple[str, ...],
        account: Dataset | None = None,
    ) -> None:
        self.model, self.optimizer, self.loader = engine.model, optimizer, loader
        self.budget, self.plan = budget, plan
        self._engine, self._schedule, self._gate = engine, schedule, gate
        self._microbatch, self._private, self._assumptions = microbatch, private, assumptions
        self._like = self._tail = engine.like()
        self._probed = False
        self._compiled: CompiledSum | None = None
        if compile is not None:
            self._compiled = CompiledSum(engine, microbatch or schedule.likely_size(), compile)
        self._mechanism: TensorGaussian | CorrelatedGaussian
        if isinstance(plan.factorization, Independent):
            self._mechanism = TensorGaussian(plan.noise_multiplier)
        else:
            self._mechanism = CorrelatedGaussian(plan.factorization, plan.noise_multiplier)
            gate.stream(self._mechanism)  # refuses noise that is not there for models
        reaches = [self._reach(step) for step in range(self.steps)]
        self._bill = Bill(account, budget, self._mechanism, reaches)

    # ------------------------------------------------------------ training
    @property
    def steps(self) -> int:
        """Steps that the budget pays for."""
        return self.plan.factorization.steps

    @property
    def steps_done(self) -> int:
        return self.loader.done

    @property
    def run_by_example(self) -> tuple[str, ...]:
        """Parts of the model that no rule covers, once the first step has shown them: slower."""
        return tuple(unit.name for unit in self._engine.units if isinstance(unit, Part))

    @property
    def expected_batch_size(self) -> float:
        """The public divisor of every step."""
        return self._schedule.expected_batch_size

    @property
    def noise_std(self) -> float:
        """Standard deviation of one step's fresh noise in a coordinate of the summed gradient."""
        return self.plan.noise_multiplier * self._reach(0).radius

    def step(self, loss: LossFunction, *inputs: Any, targets: Any = (), **keywords: Any) -> None:
        """One private step: clip, sum, add noise once, and call the optimizer.

        Parameters
        ----------
        loss : callable
            From the model's output (and ``targets``, if given) to one loss for each example.
        *inputs, **keywords
            What the model is called with. Every tensor holds one row for each example.
        targets : tensor or tuple of tensors, optional
            Handed to ``loss`` after the output; needed if the batch is cut into microbatches.
        """
        count = self.loader.waiting
        if count is None:
            raise Refused("step takes the batch that private.loader has just given, once.")
        goals = targets if isinstance(targets, tuple) else (targets,)
        for leaf in tree_leaves((inputs, keywords, goals)):
            if isinstance(leaf, Tensor) and (leaf.dim() == 0 or len(leaf) != count):
                raise Refused(
                    f"step takes the {count} examples that private.loader has just given; a "
                    "tensor has another number of rows."
                )
        if not self._engine.unchanged(self._like.device):
            raise Refused("the model has moved or trains other parameters: call make_private then.")
        if not self._probed:
            probe(self._engine, inputs, keywords)
            self._probed = True
        total = torch.zeros_like(self._like)
        size = self._microbatch or max(count, 1)
        if self._compiled is not None:
            size = self._compiled.size
        if (count > size or self._compiled is not None) and not tree_leaves(goals):
            raise ValueError("microbatches and compiled steps need targets=...: they cut them too.")
        engine = self._compiled or self._engine
        for start in range(0, count, size):
            stop = min(start + size, count)
            cut = _slice(start, stop) if stop - start < count else lambda tree: tree
            few = cut(inputs), cut(keywords), cut(goals)
            engine.clipped_sum(loss, *few, stop - start, total)
        self._release(total)
        self.optimizer.step()
        self._average()

    def _release(self, total: Tensor) -> None:
        self._bill.pay(self._private)
        sealed = Sealed(KEY, total, self._reach(self.steps_done))
        noisy = self._gate.release(self._mechanism, sealed)  # type: ignore[arg-type]
        self.loader.stepped()
        noisy = noisy / self._schedule.expected_batch_size
        start = 0
        for parameter in self._engine.parameters:
            stop = start + parameter.numel()
            parameter.grad = noisy[start:stop].view_as(parameter).to(parameter.dtype)
            start = stop

    def _average(self) -> None:
        taken = self.steps_done - (self.steps - self.steps // 5)
        if taken > 0:
            flat = [p.detach().flatten().to(self._like) for p in self._engine.parameters]
            now = torch.cat(flat)
            self._tail = now if taken == 1 else self._tail + (now - self._tail) / taken

    def averaged(self) -> nn.Module:
        """A copy of the model with the average of its parameters over the last fifth of all steps.

        Averaging is free: it sees noisy iterates alone. It helps correlated noise most.
        """
        model = copy.deepcopy(self.model)
        if self.steps_done > self.steps - self.steps // 5:
            trained = [p for p in model.parameters() if p.requires_grad]
            parts = self._tail.split([p.numel() for p in trained])
            with torch.no_grad():
                for p, part in zip(trained, parts, strict=True):
                    p.copy_(part.view_as(p))
        return model

    def _reach(self, step: int) -> Reach:
        clip = self._engine.clip.norm
        movement = 2 * clip if self.budget.neighbouring == "replace_one" else clip
        cells, sampling = self._schedule.cells(step), self._schedule.sampling
        return Reach("l2", movement, clip, cells, step + 1, sampling)

    # ------------------------------------------------------------ guarantee
    def epsilon_spent(self, delta: float | None = None) -> float:
        """Epsilon of the steps so far, at the budget's delta or another one."""
        if not self.steps_done:
            return 0.0
        accountant = Accountant(self.budget.neighbouring)
        return accountant.epsilon(
            spend(self._gate.log), self.budget.delta if delta is None else delta
        )

    def certificate(self) -> Certificate:
        """The guarantee of everything released so far: every intermediate model included."""
        certificate = Certificate.from_log(
            self._gate.log,
            self.budget,
            solver="torch",
            private=self._private,
            assumptions=self._assumptions,
            settings=self.settings(),
        )
        return self._bill.settle(certificate, self.steps_done == self.steps)

    def settings(self) -> dict[str, Any]:
        """Public numbers of the run, as plain JSON values."""
        return {
            "noise": self.plan.noise,
            "noise_multiplier": self.plan.noise_multiplier,
            "batches": self.plan.batches,
            "groups": self.plan.groups,
            "rate": self._schedule.sampling.rate,
            "expected_batch_size": self._schedule.expected_batch_size,
            "steps": self.steps,
            "steps_per_epoch": self._schedule.steps_per_epoch,
            "clip_norm": self._engine.clip.norm,
            "clipping": self._engine.clip.kind,
            "parameters": self._engine.size,
        }

    # ------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on: steps, batches and buffers of noise, never a generator's state.

        Secret, unlike the model: keep it apart from what is published. Model and optimizer have
        state dicts of their own.
        """
        correlated = isinstance(self._mechanism, CorrelatedGaussian)
        return {
            "settings": self.settings(),
            "budget": asdict(self.budget),
            "private": self._private,
            "charged": self._bill.mark,
            "steps_done": self.steps_done,
            "average": self._tail.cpu(),
            "schedule": torch.from_numpy(np.array(self._schedule.state())),
            "noise": self._gate.noise_state(self._mechanism) if correlated else None,  # type: ignore
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another run stopped. Steps already taken count; new noise is fresh.

        Two runs that go on from one state are two uses of the data: publish one of them.
        """
        if self.steps_done:
            raise Refused("this run has begun: load a state into a fresh one.")
        if state.get("settings") != self.settings() or state.get("budget") != asdict(self.budget):
            raise Refused("this state was written with other settings or another budget.")
        done = int(state["steps_done"])
        if not 0 <= done <= self.steps:
            raise Refused("this is not the state of such a run.")
        self._schedule.load(state["schedule"].numpy())
        self._tail = state["average"].to(self._like)
        path = None
        if isinstance(self._mechanism, CorrelatedGaussian):
            stream = self._gate.stream(self._mechanism)
            stream.load_state_dict(state["noise"])
            path = stream.path
            if len(path.cells) != done:
                raise Refused("this is not the state of such a run.")
        for event in events(self._mechanism, map(self._reach, range(done)), path):
            self._gate.log.append(event)
        self._bill.mark = state["charged"]
        self._private = self._private and bool(state["private"])
        self.loader.resume(done)


def _slice(start: int, stop: int) -> Any:
    def cut(tree: Any) -> Any:
        return tree_map(lambda x: x[start:stop] if isinstance(x, Tensor) else x, tree)

    return cut
