"""Private training of a torch model: the user's optimizer, clipped sums, noise, one certificate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from privopt.ledger import Dataset
from privopt.mechanisms import CorrelatedGaussian, Run, Steps
from privopt.noise.source import fresh_name
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Budget, Certificate, Refused
from privopt.privacy.certificate import round_up
from privopt.privacy.factorizations import Independent
from privopt.torch.apart import Apart
from privopt.torch.arguments import Asked, leaves_of
from privopt.torch.batches import PrivateLoader, Schedule
from privopt.torch.belongings import Belongings
from privopt.torch.compiled import CompiledSum
from privopt.torch.curve import LossCurve
from privopt.torch.engine import Engine, Part
from privopt.torch.fingerprints import Roster
from privopt.torch.given import CHANGED, Given
from privopt.torch.gradients import Gradients
from privopt.torch.legs import Legs
from privopt.torch.lengths import Lengths
from privopt.torch.losses import LossFunction
from privopt.torch.noise import TensorGaussian
from privopt.torch.oracle import ClippedSums
from privopt.torch.plan import TrainingPlan
from privopt.torch.processes import Processes
from privopt.torch.rehearsals import Rehearsals
from privopt.torch.resumable import Resumable
from privopt.torch.users import Users
from privopt.torch.views import LossOfViews
from privopt.torch.watch import Watch

GUARD = "_privopt_guard"
"""Where an optimizer keeps the hook of the newest run."""


class PrivateTraining(Resumable):
    """A training run under one budget; made by ``make_private``.

    ``loader`` gives the batches, ``step`` uses one of them. Losses and gradients of examples do not
    leave this object: what an optimizer, a scheduler or a log may see is noisy.
    """

    def __init__(
        self,
        engine: Engine,
        optimizers: Sequence[Optimizer],
        loader: PrivateLoader,
        schedule: Schedule,
        run: Callable[[Steps], Run],
        budget: Budget,
        plan: TrainingPlan,
        microbatch: int | None,
        *,
        compile: str | None,
        apart: Apart | None,
        assumptions: tuple[str, ...],
        account: Dataset | None,
        processes: Processes,
        records: Roster | None,
        curve: LossCurve | None,
        users: Users | None = None,
        lengths: Lengths | None = None,
        repeats: int = 1,
    ) -> None:
        self.model, self.loader = engine.given_model, loader
        self.optimizers, self._of_views = tuple(optimizers), LossOfViews(engine.views)
        self.budget, self.plan, self.users = budget, plan, users
        self._engine, self._schedule = engine, schedule
        self._microbatch, self._assumptions = microbatch, assumptions
        self._sums = ClippedSums(engine, schedule, budget.neighbouring, curve)
        self._like = self._tail = engine.like()
        self._records, self._curve, self._lengths = records, curve, lengths
        self._repeats = repeats
        self._width = engine.size + (curve is not None)
        self._gradients = Gradients(engine.parameters)
        self._belongings = Belongings(engine.model, engine.parameters)
        self._given, self._apart = Given(engine, apart is not None), apart
        self._watch_over = Watch(engine, compile is not None)
        self._rehearsals = Rehearsals(engine, self._belongings, self._watch_over, lengths)
        self._aligned = self._released = False
        self._processes = processes
        self._resumed: tuple[str, ...] = ()  # what the certificate of a resumed run assumes
        self._leg: str | None = None  # from one resumption to the next: tells states apart
        self._compiled: CompiledSum | None = None
        if compile is not None:
            share = -(-schedule.likely_size() // processes.count)
            self._compiled = CompiledSum(engine, microbatch or share, compile)
        self._mechanism: TensorGaussian | CorrelatedGaussian
        if isinstance(plan.factorization, Independent):
            self._mechanism = TensorGaussian(plan.noise_multiplier)
        else:
            self._mechanism = CorrelatedGaussian(plan.factorization, plan.noise_multiplier)
        declared = Steps(self._declared, self.steps)
        self._run = run(declared)
        self._legs = Legs(account, self._run, declared, self.steps, schedule.steps_per_epoch)
        for one in self.optimizers:
            self._watch(one)
        self.optimizers[-1].register_step_post_hook(lambda *_: self._average())
        facts = self.settings(), asdict(budget), self._run.private, loader.records
        processes.check_same(facts, self._like.device)

    def _watch(self, optimizer: Optimizer) -> None:
        """Refuse a step that would use gradients without noise."""
        guard = getattr(optimizer, GUARD, None)
        if guard is not None:
            guard.remove()  # of an earlier run, whose last batch may wait for ever
        setattr(optimizer, GUARD, optimizer.register_step_pre_hook(lambda *_: self._guard()))

    def _guard(self) -> None:
        if self.loader.waiting is not None:
            raise Refused(
                "a batch of private.loader waits for private.step: an optimizer's step of its own "
                "would use gradients without noise."
            )

    def __repr__(self) -> str:
        spent, plan = round_up(self.epsilon_spent()), self.plan
        return (
            f"PrivateTraining({type(self.model).__name__} of {self._engine.size} trained numbers, "
            f"{plan.noise} noise on {plan.batches} batches, {self.steps_done} of {self.steps} "
            f"steps, epsilon {spent} of {self.budget.epsilon:g} at delta {self.budget.delta:g}"
            f"{'' if self.users is None else f', {self.users}'})"
        )

    # ------------------------------------------------------------ training
    @property
    def optimizer(self) -> Any:
        """The optimizer, or the tuple of them if there are several."""
        return self.optimizers[0] if len(self.optimizers) == 1 else self.optimizers

    @property
    def finished(self) -> bool:
        """Whether all steps of the budget are taken."""
        return self.steps_done == self.steps

    @property
    def loss_curve(self) -> list[float]:
        """Private means of the loss, one for each epoch that is over; empty if none was asked
        for."""
        return [] if self._curve is None else list(self._curve.means)

    @property
    def steps(self) -> int:
        """Steps that the budget pays for."""
        return self.plan.factorization.steps

    @property
    def steps_done(self) -> int:
        return self.loader.done

    @property
    def run_by_example(self) -> tuple[str, ...]:
        """Parts on copies of most of their parameters, as the first step has shown: slower."""
        return tuple(u.name for u in self._engine.units if isinstance(u, Part) and u.slow)

    @property
    def expected_batch_size(self) -> float:
        """The public divisor of every step."""
        return self._schedule.expected_batch_size

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return self._processes.count

    @property
    def noise_std(self) -> float:
        """Standard deviation of one step's fresh noise in a coordinate of the summed gradient."""
        return self.plan.noise_multiplier * self._sums.sensitivity(0).radius

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
        self.backward(loss, *inputs, targets=targets, **keywords)
        for optimizer in self.optimizers:
            optimizer.step()

    def backward(
        self, loss: LossFunction, *inputs: Any, targets: Any = (), **keywords: Any
    ) -> None:
        """The private part of ``step``: noisy gradients for all parameters, and no update.

        For training loops that call ``optimizer.step()`` themselves. The step counts as taken.
        """
        processes = self._processes
        processes.check_unchanged()
        if self._released:
            self._gradients.check_used()
        self._begin()
        goals = targets if isinstance(targets, tuple) else (targets,)
        loss = self._of_views(loss)

        def paid() -> Tensor:
            count, size = self._checked(inputs, keywords, goals)
            asked = Asked(loss, inputs, keywords, goals, count)
            if 0 < count <= size and not self._legs.due(self.steps_done):
                found = self._run.read(lambda: self._begun(asked))
                if found is not None:
                    return found
            if self._apart is None:
                self._rehearsals.check(inputs, keywords)
            self._legs.pay(self.steps_done)
            return self._run.read(lambda: self._sum(asked, size))

        self._release(processes.together(paid, self._like.device))

    def _begin(self) -> None:
        """Before the first step: all processes go on from one state, and with one model."""
        if not self._aligned:
            processes = self._processes
            processes.check_same((self._leg, self.steps_done), self._like.device)
            processes.align(self.model)
            self._leg = processes.told(fresh_name())
            self._resumed = processes.told(self._resumed)
            self._aligned = True

    def _checked(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any], goals: tuple[Any, ...]
    ) -> tuple[int, int]:
        """How many examples wait, and how many are taken at a time; refuses other batches."""
        count = self.loader.waiting
        if count is None:
            raise Refused("step takes the batch that private.loader has just given, once.")
        leaves, spec = leaves_of((inputs, keywords, goals))
        rows = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if any(leaf.dim() == 0 or len(leaf) != count for leaf in rows):
            raise Refused(
                "step takes the examples that private.loader has just given, one row each; a "
                "tensor has another number of rows."
            )
        if not self._engine.unchanged(self._like.device):
            raise Refused("the model has moved or trains other parameters: call make_private then.")
        self._given.check(spec, rows, self.loader.given)
        size = self._microbatch or max(count, 1)
        if self._compiled is not None:
            size = self._compiled.size
        if self._lengths is not None:
            self._lengths.check((inputs, keywords, goals))
        if (count > size or self._compiled or self._lengths) and not tree_leaves(goals):
            raise ValueError("microbatches, lengths and compiled steps need targets=... to cut.")
        return count, size

    def _begun(self, asked: Asked) -> Tensor | None:
        """The sum, begun before it is looked whether the model is what it was; None if not."""
        if self._compiled is None:
            return None
        try:
            self._compiled.begin(asked[1:4], asked.count)
            with self._belongings.kept():
                if not self._rehearsals.known(asked.inputs, asked.keywords):
                    return None
                self._watch_over.look(*asked)
                total, lost = self._compiled.started(*asked)
        finally:
            self._compiled.drop()
        if bool(lost):  # waits for the device, after all that the host has to do meanwhile
            return None
        self._given.taken()
        return total

    def _sum(self, asked: Asked, size: int) -> Tensor:
        """The clipped gradients of the waiting examples; the model stays what it was."""
        with self._belongings.kept():
            parts = [asked] if self._lengths is None else self._lengths.parts(asked)
            sums = [self._clipped(part, size) for part in parts]
            total = sum(sums[1:], sums[0]) if sums else self._like.new_zeros(self._width)
        self._given.taken()
        return total

    def _clipped(self, asked: Asked, size: int) -> Tensor:
        """Of examples in one shape."""
        known = None
        if self._apart is None:
            known = self._watch_over.look(*asked.part(0, size))
        if 0 < asked.count <= size:
            return self._clipped_sum(asked, known)
        total = self._like.new_zeros(self._width)
        for start in range(0, asked.count, size):
            part = asked.part(start, start + size)
            total += self._clipped_sum(part, known if start == 0 else None)
        return total

    def _clipped_sum(self, asked: Asked, known: Tensor | None) -> Tensor:
        """Of some examples; a check may have found it already."""
        total = known
        if total is None:
            total = (self._apart or self._compiled or self._engine).clipped_sum(*asked)
        if self._curve is None:
            return total
        losses, self._engine.losses = self._engine.losses, None
        return self._curve.joined(total, losses)

    def _release(self, total: Tensor) -> None:
        processes = self._processes
        sealed = self._sums.sealed(processes.collect(total), self.steps_done)
        release: Any = partial(self._run.gate.release, self._mechanism, sealed)  # type: ignore[arg-type]
        before = self._run.released
        try:
            noisy = processes.gather(processes.together(release, total.device), len(total))
        finally:
            if self._run.released > before:
                self.loader.stepped()  # also if it was interrupted: it is paid for, and over
        self._released = True
        if self._curve is not None:
            self._curve.note(self.steps_done - 1, noisy[-1])
        self._gradients.fill(noisy[: self._engine.size], self._schedule.expected_batch_size)

    def _average(self) -> None:
        """After the optimizer's step."""
        taken = self.steps_done - (self.steps - self.steps // 5)
        fresh, self._released = self._released, False
        if fresh and taken > 0:
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

    def _declared(self, step: int) -> tuple[Any, Sensitivity]:
        """What each step may release."""
        return self._mechanism, self._sums.sensitivity(step)

    # ------------------------------------------------------------ guarantee
    def epsilon_spent(self, delta: float | None = None) -> float:
        """Epsilon of the steps so far, at the budget's delta or another one."""
        return self._run.epsilon(delta=delta) if self._run.released else 0.0

    def certificate(self) -> Certificate:
        """The guarantee of everything released so far: every intermediate model included."""
        self._belongings.check()
        changed = self._given.changed or self._watch_over.outside
        assumptions = self._assumptions + (CHANGED,) * changed + self._resumed
        found = self._run.certify(assumptions=assumptions, settings=self.settings())
        if self.finished:
            self._run.settle(found)
        return found

    def assume(self, *statements: str) -> None:
        """State more in the certificate, as those who prepare the records may have to."""
        self._assumptions += statements

    def settings(self) -> dict[str, Any]:
        """Public numbers of the run."""
        return {
            "noise": self.plan.noise,
            "noise_multiplier": self.plan.noise_multiplier,
            "batches": self.plan.batches,
            "groups": self.plan.groups,
            "rate": self._schedule.sampling.rate,
            "expected_batch_size": self._schedule.expected_batch_size,
            "steps": self.steps,
            "steps_per_epoch": self._schedule.steps_per_epoch,
            "clip_norm": self._engine.clip.norm * self._schedule.parts,
            "clipping": self._engine.clip.kind,
            "examples": "checked" if self._apart is None else "apart",
            "parameters": self._engine.size,
            **({} if self._engine.views == 1 else {"views": self._engine.views}),
            **({} if self._repeats == 1 else {"repeats": self._repeats}),
            **({} if self._lengths is None else {"lengths": list(self._lengths.all)}),
            **({} if self._curve is None else {"loss_curve": self._curve.bound}),
            **({} if self.users is None else self.users.settings()),
        }
