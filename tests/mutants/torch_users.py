"""Planted bugs in the training of models for users, and the check that notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed
from typing import Any

import numpy as np

from privopt.audit import replay, user_pairs

from .mutant import Mutant

PEOPLE = tuple(range(12))


def moved_by_users() -> str | None:
    """No release moves by more than one clip norm when all rows of a user change."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from privopt.torch import make_private

    def run(X: np.ndarray, y: np.ndarray, clipping: str = "rows") -> Any:
        model = nn.Linear(X.shape[1] - 1, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        private = make_private(
            model,
            torch.optim.SGD(model.parameters(), 1.0),
            DataLoader(TensorDataset(torch.tensor(X[:, :-1]), torch.tensor(y)), batch_size=4),
            epsilon=4.0, delta=1e-4, epochs=1, clip_norm=0.5, noise="blt", random_state=0,
            user_ids=X[:, -1].astype(int), rows_per_user=3, user_clipping=clipping,
        )  # fmt: skip
        for x, t in private.loader:
            private.step(lambda out, t: (out[:, 0] - t) ** 2, x, targets=t)
        return model.weight.detach().numpy(), private.certificate().to_json()

    for pair in user_pairs("replace_one")[:4]:
        for clipping in ("rows", "together"):
            found = replay(
                lambda X, y, how=clipping: run(X, y, how),
                changed(pair, first_ids=PEOPLE, second_ids=PEOPLE),
            )
            if found:
                return found[0]
    return None


def torch_users() -> Iterator[Mutant]:
    from privopt.torch import users

    def all_rows(self: Any, user: int, key: bytes) -> np.ndarray:
        return self._rows[user]

    def row_by_row(self: Any, rows: Any, count: int) -> Any:
        alike = [x[:, None].expand(-1, 3, *x.shape[1:]) for x in rows]
        return [*alike, rows[0].new_ones(count, 3)], count

    for name, patches in {
        "each row is clipped, and charged as one": (
            (users.Users, "parts", property(lambda self: 1)),
        ),
        "all rows of a user enter": ((users.Users, "choose", all_rows),),
        "rows of a user are clipped apart": ((users.Together, "_cut", row_by_row),),
    }.items():
        yield Mutant(f"torch users: {name}", patches, moved_by_users, "replay")
