"""The server of a private federated training, whatever carries its messages.

A round has three steps. ``begin_round`` enters whom it asks in the ledger of participations;
``answer`` takes an update, cuts it to the clip norm and adds it up; ``end_round`` releases the sum
with noise, divides by the public report goal, lets the optimizer move the model, writes the round
down, and only then shows it. What one person moves is at most the clip norm, in rounds that the
rule allows, whoever answers and whatever they say.

Order on disk: people as asked, before they are; once a round is over, its noise, the update that it
released, model and optimizer in one secret file, and last the public record that names the round.
Only then the optimizer, which may be anybody's code, sees the update; whoever goes on lets it see
the same again. A server that dies before has released nothing: who was asked has had a turn, and
the round is repeated with fresh noise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, cast

import numpy as np

from privopt.federated.clipping import Clip, Quantile
from privopt.federated.optimizers import optimizer_of
from privopt.federated.participations import DAMAGED, Participations
from privopt.federated.plan import check_count, mechanism_for, plan_for
from privopt.federated.promises import assumptions_of, promises, settings_of
from privopt.federated.restart import go_on, moved, refuse_changes, secret_of
from privopt.ledger import account_for
from privopt.mechanisms import Run, Steps
from privopt.mechanisms.checkpoint import Checkpoint, Saved
from privopt.noise import fresh_name, source_for
from privopt.oracle.contributions import Contributions
from privopt.oracle.counting import grid_step
from privopt.oracle.sensitivity import Grid, Sensitivity
from privopt.privacy import Budget, Certificate, Neighbouring, Refused
from privopt.privacy.budget import records_moved

ROUNDS, PEOPLE = "rounds", "people"  # folders
ASKED = "asked"
AGAIN = "begin again from the checkpoint."
TWIN = "a server is not copied, since two would release one round: go on from its checkpoint."


def alone(method: Callable[..., Any]) -> Any:
    """One thread at a time: two answers of one person would both be the first."""

    @wraps(method)
    def waits(self: Server, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **named)

    return waits


class Server:
    """Rounds of federated learning under one budget, for people.

    Parameters
    ----------
    start : ndarray
        The first model, public: a vector.
    epsilon, delta, neighbouring
        The budget of all rounds together, per person.
    rounds : int
        How many rounds the budget pays for.
    report_goal : int
        How many answers a round wants. Sums are divided by it, however many come.
    clip_norm : float or sequence of float
        Bound on the l2 norm of a person's update, or of each layer's part of it.
    min_separation : int, optional
        A person asked in round t is asked again in round t + min_separation at the earliest.
    max_participations : int, optional
        How often one person may be asked; by default as often as the separation allows.
    noise : str, default="auto"
        ``banded``, ``blt``, ``honaker``, ``tree``, ``sqrt_toeplitz``, ``independent``.
    population : int, optional
        Instead of ``min_separation``: everybody is asked by a coin with chance
        report_goal / population, and the noise counts on it (DP-FedAvg).
    ask : int, optional
        How many are asked where some do not answer; the report goal by default.
    layers, adaptive : optional
        Sizes of the model's layers; a quantile of the norms to which ``clip_norm`` is moved, within
        the same budget.
    optimizer : ServerOptimizer or callable, optional
        What happens to the mean update; plain averaging by default.
    secure : bool, default=False
        Answers come as one sum of integers that people clip themselves.
    checkpoint : path, optional
        A folder to go on from.
    ledger, dataset, random_state : optional
        As everywhere; the ledger pays for all rounds before the first.

    Formal guarantee
    ----------------
    Round t releases sum_i u_i + noise in units of the clip norm, |u_i| <= 1. Under the rule the
    whole training is one Gaussian release with mu = sens / multiplier, where sens^2 is the largest
    1_pi' C'C 1_pi over all sets of rounds pi that the ledger of participations lets a person be
    asked in, also if answers depend on earlier models (Denisov et al., 2022). With ``population``
    each round is a Poisson sample and pays as in ``make_private``. A person who does not answer
    counts as one whose update is zero.
    """

    def __init__(
        self,
        start: np.ndarray,
        *,
        epsilon: float,
        delta: float,
        rounds: int,
        report_goal: int,
        clip_norm: float | Sequence[float],
        min_separation: int | None = None,
        max_participations: int | None = None,
        noise: str = "auto",
        population: int | None = None,
        ask: int | None = None,
        layers: Sequence[int] | None = None,
        adaptive: float | None = None,
        optimizer: Any = None,
        secure: bool = False,
        neighbouring: str = "zero_out",
        checkpoint: str | os.PathLike[str] | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model = np.array(start, dtype=float)
        if self.model.ndim != 1 or not self.model.size or not np.isfinite(self.model).all():
            raise ValueError("start is the first model: a vector of finite numbers.")
        given = ("rounds", rounds), ("report_goal", report_goal), ("ask", ask)
        for name, value in (*given, ("population", population)):
            check_count(name, value)
        sizes = (self.model.size,) if layers is None else tuple(int(size) for size in layers)
        if sum(sizes) != self.model.size:
            raise ValueError(f"layers are {sum(sizes)} numbers, and the model {self.model.size}.")
        self.budget = Budget(epsilon, delta, cast(Neighbouring, neighbouring), "user")
        if self.budget.pure:
            raise ValueError("federated rounds need delta > 0: take a value well below 1 / people.")
        self.report_goal, self.ask = int(report_goal), int(ask or report_goal)
        self.clip = Clip.of(clip_norm, sizes)
        self._adaptive = None if adaptive is None else Quantile(float(adaptive))
        if self._adaptive is not None and (secure or len(self.clip.norms) > 1):
            raise ValueError(
                "adaptive needs one clip_norm, and to see each update: drop secure aggregation."
            )
        self._width = self.model.size + (self._adaptive is not None)
        self.optimizer = optimizer_of(optimizer)
        self.secure = secure
        self.plan = plan_for(
            *(self.budget, rounds, self.report_goal, noise, self._width),
            *(population, min_separation, max_participations, secure),
        )
        self._mechanism = mechanism_for(self.plan, self.budget, self.ask, self._width, secure)
        moved = float(records_moved(self.budget.neighbouring))
        finer = getattr(self._mechanism, "resolution", None)
        self._grid = None if finer is None else Grid(grid_step(moved, finer), self._width)
        self.scale, self.round, self._lock = 1.0, 0, RLock()
        self._sum: Contributions | None = None
        self._unit, self._summed = 1.0, False
        self._open: str | None = None
        self._whole, self._process = True, os.getpid()
        self._begin(checkpoint, ledger, dataset, random_state)

    # ------------------------------------------------------------ what is promised
    def _declared(self, round: int) -> tuple[Any, Sensitivity]:
        """What each round may release."""
        moved, plan = float(records_moved(self.budget.neighbouring)), self.plan
        cells, sampling = plan.cells(round), plan.sampling
        view = round + 1 if plan.asking == "poisson" else 1
        return self._mechanism, Sensitivity(
            "l2", moved, 1.0, cells, view, sampling, grid=self._grid
        )

    def _begin(
        self,
        folder: str | os.PathLike[str] | None,
        ledger: Any,
        dataset: str | None,
        seed: int | None,
    ) -> None:
        """A new training, or the one in the folder."""
        home = None if folder is None else Path(folder)
        found = None if home is None else Checkpoint.load(home / ROUNDS)
        done = 0 if found is None else int(found[1].model["step"])
        if isinstance(seed, (int, np.integer)) and done:
            seed = int(seed) + 1_000_003 * done  # noise is never drawn twice
        self._source = source_for(seed)
        declared = Steps(self._declared, self.plan.rounds)
        self._run = Run(self.budget, declared, self._source, what=self.solver)
        if found is not None:
            refuse_changes(promises(self), found[1].model["settings"])
        self.people = Participations(self.plan.rule, None if home is None else home / PEOPLE)
        self._checkpoint: Checkpoint | None = None
        if found is not None:
            self._load(*found)
            return
        if self.people.times:
            raise Refused(DAMAGED)
        self._run.pay(account_for(ledger, dataset))
        self._run.settle_declared()
        if home is not None:
            self._checkpoint = Checkpoint(home / ROUNDS, fresh_name())
            self._checkpoint.begin(self._public(1.0))

    @property
    def solver(self) -> str:
        return "federated_ftrl" if self.plan.asking == "rule" else "federated_averaging"

    # ------------------------------------------------------------ a round
    @property
    def rounds_left(self) -> int:
        """How many rounds the budget still pays for."""
        return self.plan.rounds - self.round

    @property
    def clip_norm(self) -> float:
        """The bound on the norm of an update in the next round."""
        return self.clip.norm * self.scale

    @property
    def ticket(self) -> str | None:
        """Names the open round: what does not name it answers another."""
        return self._open

    @alone
    def begin_round(self, available: Sequence[Any]) -> list[Any]:
        """Whom to ask, of those who can be reached; they are entered before this returns."""
        self._check_whole()
        if not self.rounds_left:
            raise Refused(
                f"all {self.plan.rounds} rounds of the budget are used: declare more from the "
                "start, or begin another training with a budget of its own."
            )
        chosen = self._chosen(list(available))
        self.people.ask(chosen, self.round)
        self._sum = Contributions(self._width, self._declared(self.round)[1])
        self._open, self._summed = f"{fresh_name()}/{self.round}", False
        return chosen

    def _chosen(self, available: list[Any]) -> list[Any]:
        plan, coins = self.plan, self._source.coins
        self.people.refuse_twice(available)  # who is listed twice would have two coins
        may = self.people.may(available, self.round)
        free = [person for person, free in zip(available, may, strict=True) if free]
        if plan.asking == "poisson":
            turn = self.round % plan.groups
            groups = self.people.groups(free, plan.groups)
            mine = [one for one, group in zip(free, groups, strict=True) if group == turn]
            return [person for person in mine if coins.random() < plan.rate]
        if not free:
            raise Refused(
                "nobody may be asked in this round: all who can be reached were asked less than "
                f"{plan.rule.min_separation_steps} rounds ago, or {plan.rule.times} times. Reach "
                "more people; nothing is lost."
            )
        if len(free) <= self.ask:
            return free
        return [free[i] for i in coins.choice(len(free), self.ask, replace=False)]

    @alone
    def answer(self, person: Any, update: np.ndarray, ticket: str | None = None) -> bool:
        """Take a person's update; whether it counts. Late, double and foreign ones do not, nor
        those that name another round."""
        if self.secure:
            raise Refused("under secure aggregation answers come as one sum: call answered_sum.")
        update, total = np.asarray(update), self._sum
        if update.shape != self.model.shape or update.dtype.kind not in "fiu":
            raise ValueError(
                f"an update holds the model's {self.model.size} numbers, in one vector: this one "
                f"has shape {update.shape} of {update.dtype}. It does not count."
            )
        if total is None or ticket not in (None, self._open) or not self.people.answered(person):
            return False
        self._run.read(lambda: self._add(total, update))
        return True

    @np.errstate(all="ignore")
    def _add(self, total: Contributions, update: np.ndarray) -> None:
        if self._adaptive is None and len(self.clip.norms) == 1:
            total.add(update, self.clip_norm)  # which cuts it
            return
        unit = self.clip.unit(update.astype(float), self.scale)
        if self._adaptive is not None:
            fits = float(np.linalg.norm(update)) <= self.clip_norm
            unit = self._adaptive.joined(np.where(np.isfinite(unit), unit, 0.0), fits)
        total.add(unit)

    @alone
    def answered_sum(self, counts: np.ndarray, most: int) -> None:
        """Take the sum of a whole round: integers, each person's of norm ``most`` at most."""
        if not self.secure or self._summed or self._sum is None or self._grid is None:
            raise Refused("a sum is taken once in a round, and under secure aggregation alone.")
        total, grid = self._sum, self._grid
        each = math.floor(1.0 / grid.step / most)
        if each < 1:
            raise Refused("what people count is finer than the noise: use fewer steps.")
        self.people.close()
        self._summed = True
        self._run.read(lambda: total.add_counts(np.asarray(counts, dtype=np.int64) * each))
        self._unit = each * most * grid.step

    @alone
    def end_round(self) -> np.ndarray:
        """Release the round, write it down, and give the next model."""
        self._check_whole()
        if self._sum is None:
            raise Refused("no round is open: call begin_round.")
        self.people.close()
        self.people.still_mine()
        total, self._sum, self._open = self._sum, None, None
        self._whole = False  # from here on the noise has moved
        noisy = np.asarray(self._run.gate.release(self._mechanism, total.sealed()))
        noisy, scale = noisy / self._unit, self.scale
        if self._adaptive is not None:
            noisy, answers = self._adaptive.parted(noisy)
            scale = self._adaptive.moved(scale, answers, self.report_goal)
        update = noisy * (self.clip_norm / self.report_goal)
        if self._checkpoint is not None:
            secret = secret_of(self._run, self._mechanism, self.optimizer, self.model, update)
            self._checkpoint.save(self._public(scale), secret | self._asked(), [])
        self.model = moved(self.optimizer, self.model, update)
        self.scale, self.round, self._whole = scale, self.round + 1, True
        return self.model.copy()

    def __reduce__(self) -> Any:
        raise Refused(TWIN)

    def _check_whole(self) -> None:
        if not self._whole or self._process != os.getpid():
            raise Refused(
                "the last round did not finish, or this is a copy of a server in another process: "
                + AGAIN
            )

    # ------------------------------------------------------------ what it has cost
    def certificate(self, *assumed: str) -> Certificate:
        """What all rounds so far have cost each person; ``assumed`` by what carries messages."""
        return self._run.certify(
            assumptions=(*assumptions_of(self), *assumed),
            settings=settings_of(self),
        )

    @property
    def lasts(self) -> bool:
        """Whether it is kept on disk."""
        return self._checkpoint is not None

    @property
    def noise_name(self) -> str:
        """The noise with all its numbers."""
        return repr(self._mechanism)

    @property
    def adaptive(self) -> float | None:
        """The quantile that the clip norm moves to."""
        return None if self._adaptive is None else self._adaptive.quantile

    @property
    def noise_std(self) -> float:
        """Standard deviation of the fresh noise in a coordinate of a round's mean update."""
        per_clip = self._mechanism.multiplier * records_moved(self.budget.neighbouring)
        return per_clip * self.clip_norm / self.report_goal

    # ------------------------------------------------------------ on disk
    def _public(self, scale: float) -> dict[str, Any]:
        return {
            "settings": promises(self),
            "scale": scale,
            "private": self._run.private,
            "mark": self._run.mark,
        }

    def _asked(self) -> dict[str, np.ndarray]:
        """Secret where people are sampled: it is the sizes of batches."""
        return {ASKED: np.array(self.people.times)}

    def _load(self, checkpoint: Checkpoint, saved: Saved) -> None:
        facts = saved.model
        if self.people.times < int(saved.noise.pop(ASKED, np.array(0))):
            raise Refused(DAMAGED)
        self.round, self.scale = int(facts["step"]), float(facts["scale"])
        self._run.follow(facts["mark"], paid=True, private=facts["private"])
        if self.round:
            self.model = go_on(self._run, self._mechanism, self.optimizer, self.round, saved.noise)
        self._checkpoint = checkpoint
