"""Users in place of records: who is drawn, which of their rows, and what of them is clipped.

A batch draws users, and of each of them at most ``rows_per_user`` rows, anew in every step. Then

- ``together``: each user's rows give one gradient, that of the sum of their losses, and it is
  clipped to C. Users run by themselves, so nothing has to be assumed of the model.
- ``rows``: each row's gradient is clipped to C / rows_per_user, in one pass for all.

Either way a user moves the sum by at most C, under whatever noise. Let a user's rows have
gradients m + e_i, with independent e_i of size s. Long gradients are cut to one length, so what
counts is how much of that length is m: |m| / sqrt(m^2 + s^2 / k) of k rows together, and
|m| / sqrt(m^2 + s^2) row by row. So together is never behind: it is ahead by a factor of 1 for rows
that are alike, and of up to sqrt(k) for rows that hardly are, at a pass for each user. (Charles et
al., 2024, call them ULS and ELS.)
"""

from __future__ import annotations

import math
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privopt.noise import Source
from privopt.oracle.identities import canonical_ids
from privopt.torch.apart import Apart
from privopt.torch.batches import PrivateLoader
from privopt.torch.engine import Engine

CLIPPINGS = ("together", "rows")
IDS = "all rows of one user carry one id, and nobody has two"


class Users:
    """Whose the rows of a data set are."""

    def __init__(self, user_ids: Any, rows_per_user: int, clipping: str, rows: int) -> None:
        most = rows_per_user
        if not isinstance(most, (int, np.integer)) or isinstance(most, bool) or most < 1:
            raise ValueError(f"rows_per_user must be a positive integer, got {rows_per_user!r}.")
        if clipping not in CLIPPINGS:
            raise ValueError(f'user_clipping must be "together" or "rows", got {clipping!r}.')
        names = np.array(canonical_ids(user_ids, rows, "user_ids"))
        _, owners = np.unique(names, return_inverse=True)
        order = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[order], np.arange(owners.max(initial=-1) + 2))
        self._rows = [order[a:b] for a, b in pairwise(cuts)]
        self.most, self.clipping = int(most), clipping

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def parts(self) -> int:
        """How many clipped gradients one user may have in a batch."""
        return self.most if self.clipping == "rows" else 1

    def settings(self) -> dict[str, Any]:
        return {"rows_per_user": self.most, "user_clipping": self.clipping}

    def choose(self, user: int, key: bytes) -> np.ndarray:
        """Some of a user's rows, all if they are few; a choice of its own under each key."""
        mine = self._rows[user]
        if len(mine) <= self.most:
            return mine
        coins = [blake2b(b"%d" % row, key=key, digest_size=8).digest() for row in mine]
        return mine[np.argsort(coins)[: self.most]]

    def __str__(self) -> str:
        if self.most == 1:
            return "one row of each user"
        ahead = math.sqrt(self.most)
        if self.clipping == "together":
            return (
                f"{self.most} rows of a user clipped together: up to {ahead:.2g} times less noise "
                'beside the signal than user_clipping="rows", which is faster'
            )
        return (
            f"{self.most} rows of a user clipped one by one: faster, and up to {ahead:.2g} times "
            'more noise beside the signal than user_clipping="together", if rows differ'
        )

    def check(self, compiled: bool, curve: bool) -> None:
        """Refuse what one of the two kinds of clipping cannot."""
        if compiled and self.clipping == "together":
            raise ValueError(
                "users that are clipped together run by themselves, which is not compiled: drop "
                'compile, or take user_clipping="rows".'
            )
        if curve and self.clipping == "rows":
            raise ValueError(
                "a mean over rows is divided by how many there are, and users bring different "
                'numbers: drop loss_curve, or take user_clipping="together", where each user has '
                "one loss, the mean over the rows."
            )


class UserLoader(PrivateLoader):
    """Batches of users: the schedule draws them, and each brings some of their rows."""

    def __init__(self, users: Users, source: Source, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.users, self._key = users, source.coins.bytes(32)
        self._brought: dict[int, list[np.ndarray]] = {}

    def brought(self, step: int) -> list[np.ndarray]:
        """The rows of each user of a step."""
        if step not in self._brought:
            drawn, key = super()._members(step), self._key + step.to_bytes(8, "big")
            self._brought[step] = [self.users.choose(int(user), key) for user in drawn]
        return self._brought[step]

    def _members(self, step: int) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.brought(step)])

    def stepped(self) -> None:
        self._brought.pop(self.done, None)
        super().stepped()

    def resume(self, done: int) -> None:
        self._brought.clear()
        super().resume(done)


class Together(Apart):
    """``Engine.clipped_sum`` of users: one gradient for the rows of each."""

    def __init__(self, engine: Engine, loader: UserLoader, microbatch: int | None) -> None:
        super().__init__(engine)
        self._loader, self._together, self._most = loader, loader.users.most, microbatch

    def _outline(self, given: Any, rows: list[Tensor]) -> None:
        """Rules of layers are for single examples."""

    def _cut(self, rows: list[Tensor], count: int) -> tuple[list[Tensor], int]:
        """Rows of each user, filled up with the first one, and which of them count."""
        lengths = np.array([len(mine) for mine in self._loader.brought(self._loader.done)], int)
        starts = np.cumsum(lengths) - lengths
        there = np.arange(self._loader.users.most) < lengths[:, None]
        places = starts[:, None] + np.where(there, np.arange(self._loader.users.most), 0)
        cut = [row[torch.from_numpy(places).to(row.device)] for row in rows]
        return [*cut, self._engine.like().new_tensor(there.astype(float))], len(lengths)

    def _at_a_time(self, outline: Any, count: int) -> int:
        """Users, of so many rows in a microbatch, and one at least."""
        size = super()._at_a_time(outline, count)
        most = size if self._most is None else self._most // self._loader.users.most
        return max(1, min(size, most))
