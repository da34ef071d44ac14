"""A ledger: one budget for each data set, in a file that no crash and no race can overspend.

A fit *reserves* its cost, which counts at once, *touches* it before the first random bit is drawn,
and *commits* before its answer is handed out. Only what was never touched can be given back. A
touched reservation whose process is gone is burned: a crash loses budget, never privacy.
"""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, cast

from privopt.ledger.chain import Entry, damaged
from privopt.ledger.dataset import Dataset
from privopt.ledger.store import Store, store_at
from privopt.noise import fresh_name
from privopt.privacy import Budget, Certificate, Neighbouring, Refused
from privopt.privacy.certificate import charges_from_list
from privopt.privacy.filters import Composition, Cost, Remaining

SEEDED = "a seeded run is not private, and a ledger does not take it: leave random_state=None."


class Ledger:
    """Budgets of data sets, kept in an SQLite file.

    Holds nothing but the path: it can be copied, cloned, pickled and sent to other processes.

    Parameters
    ----------
    path : str or path
        A ledger's file on a local disk. ``Ledger.create`` makes one.

    Examples
    --------
    >>> import tempfile, privopt
    >>> path = tempfile.mkdtemp() + "/ledger.db"
    >>> ledger = privopt.Ledger.create(path, epsilon=2.0, dataset="survey")
    >>> ledger.dataset("survey").left
    (2.0, 0.0)
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._store.refresh()

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        epsilon: float,
        delta: float = 0.0,
        *,
        neighbouring: str = "zero_out",
        unit: str = "record",
        dataset: str = "data",
        composition: Composition = "auto",
    ) -> Ledger:
        """Give a data set its total budget; makes the file if there is none.

        Parameters
        ----------
        path : str or path
        epsilon, delta : float
            What all fits on the data set may spend together.
        neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
            Every fit must state its guarantee under this relation.
        unit : str, default="record"
            Whom one row stands for.
        dataset : str, default="data"
        composition : {"auto", "basic", "gaussian"}, default="auto"
            How fits add up; see ``privopt.privacy.filters``. ``"basic"`` adds epsilons and deltas
            and takes every fit. ``"gaussian"`` adds squares, which is far less for several fits
            with Gaussian noise, and refuses fits whose loss it cannot bound so. ``"auto"`` starts
            as basic and turns Gaussian at the first fit whose noise is all Gaussian, with a part
            of delta kept for fits of other kinds: it takes every fit.
        """
        budget = Budget(epsilon, delta, cast(Neighbouring, neighbouring), unit)
        if not dataset:
            raise ValueError("a data set needs a name.")
        left = Remaining.whole(budget, composition)
        store = store_at(Path(path), create=True)
        with store.writing():
            if dataset in store.chain.accounts:
                raise Refused(f"{dataset!r} already has a budget in this ledger: it never grows.")
            body = {
                "budget": asdict(budget),
                "composition": composition,
                "left": left.to_dict(),
                "ledger": fresh_name(),  # two ledgers with equal entries have different hashes
            }
            store.append(dataset, "", "create", body)
        return cls(path)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Ledger:
        """The ledger in a file; every entry is checked."""
        return cls(path)

    @property
    def _store(self) -> Store:
        return store_at(self.path)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets that have a budget."""
        return tuple(self._store.refresh().accounts)

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        chain = self._store.refresh()
        return chain.number, chain.last

    def dataset(self, name: str | None = None) -> Dataset:
        """The budget of a data set; without a name, of the only one."""
        names = self.datasets
        if name is None:
            if len(names) != 1:
                raise Refused(f"this ledger holds {len(names)} data sets: name one of them.")
            name = names[0]
        if name not in names:
            raise Refused(f"this ledger has no budget for {name!r}: create one first.")
        return Dataset(self.path, name)

    def verify(self, certificate: Certificate | None = None) -> int:
        """Check every entry from the first, and SQLite's pages; returns the number of entries.

        The cost of each fit is computed again from the mechanisms that were stored with it. With a
        certificate: also that the entry it names is there, which an old copy of the whole folder
        would not have.
        """
        store = self._store
        entries = store.entries()
        store.sound()
        for entry in entries:
            if entry.action == "reserve":
                self._check_cost(entry, store.chain.accounts[entry.dataset].budget.neighbouring)
        if certificate is not None:
            named = certificate.ledger
            if named is None:
                raise Refused("this certificate was not charged to any ledger.")
            number = named["entry"]
            if number > len(entries) or entries[number - 1].hash != named["hash"]:
                raise Refused(
                    "this ledger does not hold the entry that the certificate names: it is another "
                    "ledger, or an older copy."
                )
        return len(entries)

    @staticmethod
    def _check_cost(entry: Entry, neighbouring: Neighbouring) -> None:
        body = entry.content
        cost = Cost.from_dict(body["cost"])
        if not all(cost.covers(c, neighbouring) for _, c in charges_from_list(body["charges"])):
            raise damaged(f"entry {entry.number} costs less than its mechanisms do")

    @classmethod
    def accept(cls, path: str | PathLike[str]) -> Ledger:
        """Open a ledger whose head was lost, and write it anew.

        A person's decision: what is there is declared to be all there was. Compare it with the
        certificates of the last fits first (``verify``).
        """
        store_at(Path(path)).accept_head()
        return cls(path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"


def account_for(ledger: Any, dataset: str | None) -> Dataset | None:
    """The budget that ``ledger=`` and ``dataset=`` name: a ledger, its path, or nothing."""
    if ledger is None:
        if dataset is not None:
            raise ValueError("dataset= names a budget in a ledger: give ledger= as well.")
        return None
    if isinstance(ledger, (str, PathLike)):
        ledger = Ledger(ledger)
    if not isinstance(ledger, Ledger):
        raise ValueError(f"ledger must be a Ledger or its path, got {type(ledger).__name__}.")
    return ledger.dataset(dataset)
