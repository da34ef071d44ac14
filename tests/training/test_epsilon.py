"""Epsilon at every step: never above the budget, never less than before, all of it at the end."""

from __future__ import annotations

import math

import pytest

from .models import cross_entropy
from .runs import NOISES, RELATIONS, data, training

SHIFTS = {"blt", "honaker", "tree", "sqrt_toeplitz"}
"""Noise on fixed batches, which shift when a record is added or removed."""
PAIRS = [
    (noise, relation)
    for noise in [*NOISES, "auto"]
    for relation in RELATIONS
    if relation != "add_remove" or noise not in SHIFTS
]


@pytest.mark.parametrize(("noise", "relation"), PAIRS)
def test_epsilon_is_known_at_every_step(noise, relation):
    n, batch_size = 9, 1  # "auto" takes groups in turns there
    public = {"n_public": n} if relation == "add_remove" else {}
    private = training(
        None,
        data(n),
        batch_size=batch_size,
        epochs=2,
        noise=noise,
        neighbouring=relation,
        **public,
    )
    spent = [private.epsilon_spent()]
    for _ in range(2):
        for x, y in private.loader:
            private.step(cross_entropy, x, targets=y)
            spent.append(private.epsilon_spent())
            assert private.certificate().epsilon == pytest.approx(spent[-1])
    assert spent[0] == 0 < spent[1]
    assert spent == sorted(spent)
    assert 1.9 < spent[-1] <= 2.0


def test_at_another_delta():
    private = training()
    x, y = next(iter(private.loader))
    private.step(cross_entropy, x, targets=y)
    assert private.epsilon_spent(1e-9) > private.epsilon_spent() > private.epsilon_spent(0.01)
    assert private.epsilon_spent(0.0) == math.inf
    with pytest.raises(ValueError, match="delta must lie in"):
        private.epsilon_spent(math.nan)
