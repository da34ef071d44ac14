"""The budget of one data set: what is left, and who may take from it."""

from __future__ import annotations

import math
from pathlib import Path

from privopt.ledger.chain import Account, Release
from privopt.ledger.reservation import Reservation
from privopt.ledger.store import Store, store_at
from privopt.noise import fresh_name
from privopt.privacy import Budget, Certificate, Refused, Spend
from privopt.privacy.certificate import charges_to_list, round_down, round_up
from privopt.privacy.filters import DELTA_UNITS, EPSILON_UNITS, SQUARE_UNITS, Cost, rest, spent
from privopt.privacy.profiles import gaussian_epsilon


class Dataset:
    """The budget of one data set."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    @property
    def _account(self) -> Account:
        return store_at(self.path).refresh().accounts[self.name]

    @property
    def budget(self) -> Budget:
        """The total."""
        return self._account.budget

    @property
    def gaussian(self) -> bool:
        """Whether squares are added up, and not epsilons."""
        return self._account.left.gaussian

    @property
    def left(self) -> tuple[float, float]:
        """(epsilon, delta) of the largest fit that would still be paid."""
        account = self._account
        return rest(account.budget, account.left)

    @property
    def spent(self) -> tuple[float, float]:
        """(epsilon, delta) of everything that was charged, together."""
        account = self._account
        return spent(account.budget, account.left)

    @property
    def counts(self) -> dict[str, int]:
        """How many releases are open, committed, burned and voided."""
        account = self._account
        return {"open": len(account.open), **account.count}

    def reserve(
        self,
        planned: Spend,
        budget: Budget,
        *,
        what: str = "release",
        key: str | None = None,
        touched: bool = False,
    ) -> Reservation:
        """Take the cost of a declared spend, or refuse in one sentence.

        ``touched`` reserves and touches in one transaction. A ``key`` names the release: as long as
        it was not voided, the same key is not charged again; if it was committed, the reservation
        comes back with its ``answer``.
        """
        self._check(budget)
        cost = Cost.of(planned, budget, gaussian=self.gaussian)
        store = store_at(self.path)
        with store.writing():
            self._recover(store)
            account = store.chain.accounts[self.name]
            before = account.keys.get(key) if key is not None else None
            left = account.left.after(cost) if before is None else None
            if left is not None:
                body = {
                    "cost": cost.to_dict(),
                    "left": left.to_dict(),
                    "touched": touched,
                    "key": key,
                    "what": what,
                    "charges": charges_to_list(planned.frontier()),
                }
                entry = store.append(self.name, fresh_name(), "reserve", body)
                return Reservation(
                    self.path,
                    self.name,
                    entry.release,
                    entry.number,
                    entry.hash,
                    durable=key is not None,
                )
        # Refused after the transaction, so that what was recovered in it stays recovered.
        if before is not None:
            return self._again(store, before, cost, what)
        raise Refused(_short(account, cost))

    def burn(self, certificate: Certificate) -> None:
        """Charge a release that was made without this ledger."""
        budget = Budget(
            certificate.epsilon, certificate.delta, certificate.neighbouring, certificate.unit
        )
        planned = Spend(dict(certificate.charges))
        self.reserve(planned, budget, what=f"{certificate.solver}, elsewhere", touched=True).burn()

    def burn_open(self) -> int:
        """Burn every reservation that is open, whoever owns it; returns how many there were."""
        store = store_at(self.path)
        with store.writing():
            names = list(store.chain.accounts[self.name].open)
            for name in names:
                store.append(self.name, name, "burn", {"why": "by hand"})
        return len(names)

    def _check(self, budget: Budget) -> None:
        mine = self._account.budget
        if budget.neighbouring != mine.neighbouring:
            raise Refused(
                f"the budget of {self.name!r} is kept under {mine.neighbouring}: a guarantee under "
                f"{budget.neighbouring} cannot be charged to it."
            )
        if budget.unit != mine.unit:
            raise Refused(
                f"the budget of {self.name!r} is kept per {mine.unit}: a guarantee per "
                f"{budget.unit} cannot be charged to it."
            )

    def _recover(self, store: Store) -> None:
        """Settle what dead processes left open: untouched is given back, touched is burned."""
        for name, account in store.chain.accounts.items():
            for release in list(account.open.values()):
                if not store.locks.alive(release.number):
                    action = "void" if release.state == "reserved" else "burn"
                    store.append(name, release.name, action, {"why": "its process is gone"})

    def _again(self, store: Store, release: Release, cost: Cost, what: str) -> Reservation:
        """The same key once more."""
        if (release.cost, release.what) != (cost, what):
            raise Refused("this key was used for another release: take a new one.")
        if release.state == "burned":
            raise Refused(
                "the release with this key was lost after its budget was spent: "
                "a new key is charged anew."
            )
        if release.answer is None:
            raise Refused("the release with this key is being made: wait for it.")
        answer = store.entry(release.answer).content
        entry = store.entry(release.number)
        return Reservation(
            self.path, self.name, release.name, entry.number, entry.hash, answer=answer
        )

    def __str__(self) -> str:
        budget, (epsilon, delta) = self.budget, self.spent
        room, at = self.left
        how = "squares of Gaussian losses add up" if self.gaussian else "epsilons and deltas add up"
        return (
            f"{self.name}: epsilon={round_up(epsilon)} at delta={delta:.4g} of "
            f"epsilon={budget.epsilon:g} at delta={budget.delta:g} is spent, {budget.neighbouring},"
            f" per {budget.unit} ({how}); left for one fit: epsilon={round_down(room)} at "
            f"delta={at:.4g}"
        )


def _short(account: Account, cost: Cost) -> str:
    epsilon, delta = rest(account.budget, account.left)
    needed, at = cost.epsilon / EPSILON_UNITS, cost.delta / DELTA_UNITS
    if account.left.gaussian:
        if cost.square is None or (cost.aside and account.left.composition == "gaussian"):
            return (
                f"the budget of {account.name!r} adds up Gaussian losses, and none is known to "
                "bound this fit: use a solver with Gaussian noise, or a ledger with "
                f'composition="basic" (epsilon={round_down(epsilon)} at delta={delta:.4g} is left).'
            )
        if cost.aside > account.left.aside:
            return (
                f"the budget of {account.name!r} adds up Gaussian losses, and the part of delta "
                "that it keeps for fits of another kind is used up: give this fit a smaller delta, "
                "or take Gaussian noise on all records."
            )
        needed, at = gaussian_epsilon(math.sqrt(cost.square / SQUARE_UNITS), delta), delta
    return (
        f"the budget of {account.name!r} is short: this fit needs epsilon={round_up(needed)} at "
        f"delta={at:.4g}, and epsilon={round_down(epsilon)} at delta={delta:.4g} is left."
    )
