"""Steps of a training that was paid for: each is free once, whoever takes it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

import privopt
from privopt.ledger.legs import hand_over, take
from privopt.privacy import Budget, Refused
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.spend import Spend

STEPS, EPOCH = 24, 6
BUDGET = Budget(1.0, 1e-6)


def paid(count):
    return Spend({(): charge_of(GaussianKind(0.01, 0.01), count=max(count, 1))})


@dataclass
class World:
    """A ledger, one run that it paid for, and what its processes have truly done."""

    account: Any
    mark: Any
    taken: Counter = field(default_factory=Counter)
    charged: Counter = field(default_factory=Counter)


@dataclass
class Leg:
    """A process that goes on from a state."""

    world: World
    done: int
    until: int = 0
    entry: str | None = None

    def step(self):
        world = self.world
        if self.entry is None or self.done >= self.until:
            self.until = min(STEPS, (self.done // EPOCH + 1) * EPOCH)
            steps = range(self.done, self.until)
            self.entry, again = take(
                world.account, world.mark, steps, lambda: paid(len(steps)), BUDGET, "torch"
            )
            if again:
                world.charged.update(steps)
        world.taken[self.done] += 1
        self.done += 1

    def save(self):
        if self.entry is not None and self.done < self.until:
            hand_over(self.world.account, self.world.mark, self.entry, self.done)
        self.entry = None
        return self.done


@pytest.fixture
def world(tmp_path):
    ledger = privopt.Ledger.create(tmp_path / "ledger.db", epsilon=1e4, delta=0.5, dataset="d")
    account = ledger.dataset("d")
    reservation = account.reserve(paid(STEPS), BUDGET, what="torch", touched=True)
    return World(account, reservation.mark)


def test_an_ordinary_run_with_checkpoints_pays_once(world):
    spent = world.account.spent
    leg = Leg(world, 0)
    while leg.done < STEPS:
        leg.step()
        if leg.done % 4 == 0:
            leg = Leg(world, leg.save())  # by itself or by another process
    assert not world.charged
    assert world.account.spent == spent


def test_a_crash_pays_again_for_the_steps_since_its_checkpoint(world):
    leg = Leg(world, 0)
    for _ in range(8):
        leg.step()
    state = leg.save()
    leg.step()  # and it crashes, in the second epoch
    resumed = Leg(world, state)
    while resumed.done < STEPS:
        resumed.step()
    assert set(world.charged) == set(range(8, 12))


def test_twenty_runs_from_one_state_pay_twenty_times(world):
    leg = Leg(world, 0)
    for _ in range(8):
        leg.step()
    state = leg.save()
    for _ in range(20):
        one = Leg(world, state)
        while one.done < STEPS:
            one.step()
    assert world.charged == Counter(dict.fromkeys(range(8, STEPS), 19))


@pytest.mark.parametrize("seed", range(12))
def test_what_was_taken_was_paid(world, seed):
    """Processes save, stop, crash and go on from any state there was, in any order."""
    made = random.Random(seed)
    states, legs = [0], [Leg(world, 0)]
    for _ in range(120):
        leg = made.choice(legs)
        event = made.random()
        if event < 0.75 and leg.done < STEPS:
            leg.step()
        elif event < 0.85:
            states.append(leg.save())
        else:
            legs.append(Leg(world, made.choice(states)))
    for step, count in world.taken.items():
        assert count <= 1 + world.charged[step]
    privopt.Ledger.open(world.account.path).verify()


def test_another_ledger_is_refused(world, tmp_path):
    other = privopt.Ledger.create(tmp_path / "other.db", epsilon=1.0, delta=1e-3, dataset="d")
    for account in (other.dataset("d"),):
        with pytest.raises(Refused, match="give the same ledger"):
            take(account, world.mark, range(3), lambda: paid(3), BUDGET, "torch")
    with pytest.raises(Refused, match="give the same ledger"):
        take(world.account, world.mark | {"hash": "0"}, range(3), lambda: paid(3), BUDGET, "torch")


def test_a_budget_that_is_short_refuses_and_enters_nothing(tmp_path):
    ledger = privopt.Ledger.create(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6, dataset="d")
    account = ledger.dataset("d")
    large = Spend({(): charge_of(GaussianKind(0.2, 0.2))})
    mark = account.reserve(large, BUDGET, touched=True).mark
    world = World(account, mark)
    take(account, mark, range(3), lambda: large, BUDGET, "torch")
    before = account.counts
    huge = Spend({(): charge_of(GaussianKind(0.3, 0.3), count=9)})
    with pytest.raises(Refused, match="is short"):
        take(account, mark, range(2, 5), lambda: huge, BUDGET, "torch")
    assert account.counts == before
    assert not world.charged
