"""A run of a stream between two steps: leaders, noise, who took part, and what it has cost.

Everything but the noise is public: parameters, releases and what follows from them.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privopt.estimators.participants import Participants
from privopt.estimators.public_trace import PublicTrace
from privopt.estimators.stream_leader import StreamLeader
from privopt.ledger import Dataset
from privopt.mechanisms import (
    CorrelatedGaussian,
    Run,
    Steps,
    choose_correlated,
    correlated_noise,
    grid_of,
    resolution_of,
)
from privopt.mechanisms.checkpoint import AGAIN, Checkpoint
from privopt.noise import Source, fresh_name
from privopt.oracle import Oracle, Query, RowBounds
from privopt.oracle.queries import movement
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Budget, Certificate, Event, Refused
from privopt.privacy.factorizations import Factorization, named
from privopt.privacy.factorizations.open_ended import OpenEnded
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.quadratic_leader import QuadraticLeader

OneLeader = StreamLeader | QuadraticLeader


@dataclass(frozen=True)
class Recipe:
    """What a stream promises before its first step.

    ``models`` share the budget; ``steps`` is the number of batches, None for an open-ended stream;
    each batch is cut into ``parts`` by position, and each part is one step of the noise.
    ``sensitivity`` is how far one change moves what a step releases, ``bounds`` what rows are
    clipped to before any question. Of one unit of privacy at most ``rows`` are in a batch.
    """

    budget: Budget
    problem: Problem
    query: Query
    rule: Participation
    steps: int | None
    noise: str
    models: int
    solver: str
    bounds: RowBounds
    parts: int = 1
    rows: int = 1

    @property
    def classification(self) -> bool:
        return self.problem.loss.classification

    @property
    def sensitivity(self) -> float:
        return float(movement(self.query, self.budget.neighbouring))

    @property
    def rule_of_parts(self) -> Participation:
        """The rule of batches, in steps of the noise: from the last part of one batch to the first
        of another."""
        apart = (self.rule.min_separation_steps - 1) * self.parts + 1
        return Participation.separated(self.rule.times, apart)

    def factorization(self, before: int = 0) -> Factorization:
        """The noise of a stream that begins after so many batches."""
        if self.steps is None:
            return OpenEnded()
        return named(self.noise, (self.steps - before) * self.parts, self.rule_of_parts)

    def multiplier(self, factorization: Factorization, spent: tuple[Spent, ...] = ()) -> float:
        """sens/mu for what is left of the budget: all streams together are mu-GDP."""
        whole = gaussian_mu(self.budget.epsilon, self.budget.delta) ** 2
        left = whole - sum((self.rows * stream.mu) ** 2 for stream in spent)
        if left <= 1e-6 * whole:
            raise Refused(
                "nothing of the budget is left for another stream: raise epsilon to pay for both."
            )
        square = factorization.sensitivity_squared(self.rule_of_parts) * self.models
        return self.rows * math.sqrt(square / left) * (1 + 1e-12)


@dataclass(frozen=True)
class Spent:
    """A stream that was given up: its steps, its loss, and the noise it left in the sums."""

    steps: int
    mu: float
    single: float
    noise: float


class OnlineRun:
    """One run: a stream of noise for each model, and the leaders that follow it."""

    def __init__(
        self,
        recipe: Recipe,
        leaders: Sequence[OneLeader],
        source: Source,
        *,
        spent: tuple[Spent, ...] = (),
        key: str = "",
    ) -> None:
        self.recipe, self.leaders, self.spent = recipe, list(leaders), spent
        self.key = key or fresh_name()
        self.thetas = [leader.iterate() for leader in leaders]
        self.totals = [np.zeros_like(theta) for theta in self.thetas]
        self.checkpoint: Checkpoint | None = None
        self.unnamed, self.live = False, 0
        self.participants = Participants(recipe.rule, self.key)
        self.trace = PublicTrace(recipe.problem, recipe.classification)
        self._source = source
        self._process, self._whole = os.getpid(), True
        self.factorization = recipe.factorization(sum(stream.steps for stream in spent))
        self.multiplier = recipe.multiplier(self.factorization, spent)
        noise = self.factorization, self.multiplier, recipe.rule_of_parts
        self._coordinates = self.leaders[0].coordinates
        whole = choose_correlated(
            None, *noise, coordinates=self._coordinates, epsilon=recipe.budget.epsilon
        )
        self._mechanisms = [correlated_noise(*noise, discrete_noise=whole) for _ in leaders]
        self._resolution = resolution_of(self._mechanisms[0])
        self._row_norms: np.ndarray | None = None
        releases = self.factorization.steps * recipe.models
        declared = Steps(self._declared, releases, recipe.models)
        self._run = Run(
            recipe.budget,
            declared,
            source,
            what=recipe.solver,
            group=recipe.rows,
            past=tuple(self._past()),
        )

    @property
    def steps(self) -> int:
        """Batches committed so far, of all streams."""
        return sum(stream.steps for stream in self.spent) + self.live

    # ------------------------------------------------------------ a step
    def check(self, rows: int, names: Any) -> list[str]:
        """Refuse what was not promised, before anything is computed; digests of the names."""
        if not self._whole or self._process != os.getpid():
            raise Refused(
                "the last step did not finish, or this is a copy of a stream in another process: "
                "resume() from the checkpoint, or " + AGAIN
            )
        if self.recipe.steps is not None and self.steps >= self.recipe.steps:
            raise Refused(
                f"this stream was declared for {self.recipe.steps} steps, and all are done: "
                "begin another with clone(), which has a budget of its own."
            )
        return [] if names is None else self.participants.digests(names, rows, self.steps)

    def step(self, X: Any, labels: Sequence[np.ndarray]) -> list[OneLeader]:
        """Release one batch, part by part; the leaders as they will be once it is committed."""
        parts, rows = self.recipe.parts, X.shape[0]
        leaders = [copy.copy(leader) for leader in self.leaders]
        for part in range(parts):
            here = slice(rows * part // parts, rows * (part + 1) // parts)
            noise = self._noise(self.live * parts + part + 1)
            self._part(X[here], [y[here] for y in labels], leaders, noise)
        return leaders

    def _part(
        self, X: Any, labels: Sequence[np.ndarray], leaders: list[OneLeader], noise: float
    ) -> None:
        oracle = self._run.read(
            lambda: Oracle.over(
                X,
                labels[0],
                neighbouring=self.recipe.budget.neighbouring,
                bounds=self.recipe.bounds,
                source=self._source,
                classification=self.recipe.classification,
            )
        )
        for index, (leader, mechanism) in enumerate(zip(leaders, self._mechanisms, strict=True)):
            if index:
                oracle = oracle.labelled(labels[index], classification=self.recipe.classification)
            if isinstance(leader, StreamLeader):
                sealed = leader.ask(oracle, self._resolution)
            else:
                view = oracle.everything()
                sealed = view.ask(self.recipe.query, resolution=self._resolution)
            self._whole = False  # from here on the noise has moved
            leader.take(self._run.gate.release(mechanism, sealed), noise)

    def commit(
        self, leaders: Sequence[OneLeader], records: list[str], unnamed: bool, extra: Any
    ) -> None:
        """Write the step down, then let it be seen."""
        thetas = [leader.iterate() for leader in leaders]
        totals = [total + theta for total, theta in zip(self.totals, thetas, strict=True)]
        live, unnamed = self.live + 1, self.unnamed or unnamed
        if self.checkpoint is not None:
            model = self._public(leaders, totals, live, unnamed)
            model |= {"enrolled": self.participants.enrolled + len(records), "extra": extra}
            self.checkpoint.save(model, self._secret(), records)
        self.participants.enter(self.steps, records)
        self.leaders, self.thetas, self.totals = list(leaders), thetas, totals
        self.live, self.unnamed, self._whole = live, unnamed, True

    def noise(self, live: int) -> float:
        """Standard deviation of a coordinate of the sums after so many batches of this stream."""
        return self._noise(live * self.recipe.parts)

    def _noise(self, parts: int) -> float:
        """Standard deviation of a coordinate of the sums after so many steps of this noise."""
        scale = self._mechanisms[0].noise_multiplier * self.recipe.sensitivity
        before = self.spent[-1].noise if self.spent else 0.0
        return math.hypot(scale * self._row_norm(parts), before)

    def _row_norm(self, steps: int) -> float:
        """Noise of the sums after so many steps, in units of that of one; of all steps at once."""
        if not steps:
            return 0.0
        if isinstance(self.factorization, OpenEnded):
            return self.factorization.row_norm(steps)
        if self._row_norms is None:
            self._row_norms = self.factorization.row_norms()
        return float(self._row_norms[steps - 1])

    # ------------------------------------------------------------ what it has cost
    def certificate(self, settings: dict[str, Any], assumptions: tuple[str, ...]) -> Certificate:
        """What has been guaranteed so far."""
        return self._run.certify(
            assumptions=(*assumptions, *self._promises()),
            settings={**settings, "noise": self.factorization.name, "steps": self.steps},
        )

    def pay(self, account: Dataset | None) -> None:
        """Pay for all steps of this stream, before the first of them."""
        self._run.pay(account)
        self._run.settle_declared()

    def epsilon_at_end(self) -> float:
        """Epsilon once all declared steps are done."""
        return self._run.epsilon(self.factorization.steps * self.recipe.models)

    def given_up(self, seen: int = 0) -> tuple[Spent, ...]:
        """The streams so far, the live one among them. It pays for ``seen`` steps in all where that
        is more than were committed, and for one that did not finish."""
        released = max(self.live + (not self._whole), seen - self.steps + self.live)
        if not released:
            return self.spent
        parts = min(released * self.recipe.parts, self.factorization.steps)
        square = self.factorization.sensitivity_squared(self.recipe.rule_of_parts, parts)
        mu = math.sqrt(square * self.recipe.models) / self.multiplier
        stream = Spent(self.live, mu, mu * self._share(), self.noise(self.live))
        return (*self.spent, stream)

    def _promises(self) -> tuple[str, ...]:
        rule = self.recipe.rule
        if not self.unnamed:
            return ()
        apart = f", {rule.min_separation_steps} steps apart" if rule.times > 1 else ""
        return (f"each record is in at most {rule.times} step(s){apart}: not checked, not named",)

    def _declared(self, index: int) -> tuple[CorrelatedGaussian, Sensitivity]:
        """What each release may be, model after model; streams refuse a step beyond their last."""
        model, query = index % self.recipe.models, self.recipe.query
        radius = float(query.radius())
        mechanism, moved = self._mechanisms[model], self.recipe.sensitivity
        grid = grid_of(mechanism, moved, self._coordinates)
        return mechanism, Sensitivity(query.norm, moved, radius, view=model + 1, grid=grid)

    def _past(self) -> Iterator[Event]:
        """The releases of streams that were given up: k Gaussians of mu/sqrt(k) lose what one of mu
        does."""
        for stream in self.spent:
            count = max(stream.steps, 1) * self.recipe.models * self.recipe.parts
            share = 1 / math.sqrt(count)
            kind = GaussianKind(stream.mu * share, stream.single * share)
            for _ in range(count):
                yield Event("CorrelatedGaussian", (kind,))

    def _share(self) -> float:
        return float(self.recipe.query.radius()) / self.recipe.sensitivity

    # ------------------------------------------------------------ on disk
    def public(self, extra: Any) -> dict[str, Any]:
        """All but the noise, as JSON values."""
        model = self._public(self.leaders, self.totals, self.live, self.unnamed)
        return {**model, "enrolled": self.participants.enrolled, "extra": extra}

    def _public(
        self, leaders: Sequence[OneLeader], totals: list[np.ndarray], live: int, unnamed: bool
    ) -> dict[str, Any]:
        return {
            "key": self.key,
            "spent": [asdict(stream) for stream in self.spent],
            "live": live,
            "unnamed": unnamed,
            "private": self._run.private,
            "mark": self._run.mark,
            "leaders": [
                {name: _listed(getattr(leader, name)) for name in leader.STATE}
                for leader in leaders
            ],
            "totals": [total.tolist() for total in totals],
        }

    def load(self, model: dict[str, Any], records: list[list[str]]) -> None:
        """Go to the step of a model on disk."""
        for leader, state in zip(self.leaders, model["leaders"], strict=True):
            for name, value in state.items():
                setattr(leader, name, np.array(value) if isinstance(value, list) else value)
        self.thetas = [leader.iterate() for leader in self.leaders]
        self.totals = [np.array(total) for total in model["totals"]]
        self.live, self.unnamed = model["live"], model["unnamed"]
        self._run.follow(model["mark"], paid=True, private=model["private"])
        self.participants = Participants(self.recipe.rule, self.key, records)
        if self.participants.enrolled != model["enrolled"]:
            raise Refused("the list of participations was cut or altered: use another folder.")

    def follow(self, old: OnlineRun) -> None:
        """Go on with the model of another stream."""
        for leader, before in zip(self.leaders, old.leaders, strict=True):
            for name in leader.STATE:
                setattr(leader, name, getattr(before, name))
        self.thetas = [leader.iterate() for leader in self.leaders]
        self.totals, self.unnamed, self.trace = old.totals, old.unnamed, old.trace
        self._run.follow(None, paid=False, private=old._run.private)
        self.participants = old.participants
        self.participants.rule = self.recipe.rule

    def _secret(self) -> dict[str, np.ndarray]:
        """The noise buffers of every model, by name, and what else a stream keeps."""
        found: dict[str, np.ndarray] = {}
        for index, mechanism in enumerate(self._mechanisms):
            state = self._run.noise_state(mechanism)
            noise = dict(state["noise"])
            for place, vector in enumerate(noise.pop("vectors")):
                found[f"{index}.{place}"] = vector
            found[f"{index}.state"] = np.array(json.dumps({**state, "noise": noise}))
        return found

    def load_secret(self, found: dict[str, np.ndarray]) -> None:
        """Go on with the noise of the step that ``load`` went to."""
        if not self.live:
            return
        states = []
        for index, mechanism in enumerate(self._mechanisms):
            state = json.loads(str(found[f"{index}.state"]))
            count = sum(name.startswith(f"{index}.") for name in found) - 1
            state["noise"]["vectors"] = [found[f"{index}.{place}"] for place in range(count)]
            states.append((mechanism, state))
        self._run.resume(self.live * self.recipe.parts * self.recipe.models, states)


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
