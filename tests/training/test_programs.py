"""A random family of programs: mixing ones release nothing that moves too far, honest ones run.

``--programs N`` runs N of each kind instead of a few.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from privopt import Refused

from .programs import Program

ROOM = 1e-2


def same_luck(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def movement(program, private, x, y):
    """In clip norms, how far one record, replaced, moves the sum that would be released: at most
    two of them if records do not meet."""
    engine = private._engine
    worst = 0.0
    size = program.microbatch or len(x)
    for seed in range(3):
        sums = []
        for other in (None, 0, 1, 2):
            rows, goals = x.clone(), y.clone()
            if other is not None:
                rows[other] = rows[other + 3] * (-6 if rows.is_floating_point() else 1)
                goals[other] = (goals[other] + 1) % 3
            loss, given = program.arguments(rows, goals)
            same_luck(seed)
            calls = program.mixture.calls
            total = 0
            for start in range(0, len(rows), size):
                cut = slice(start, start + size)
                targets = (given["targets"][cut],) if given else ()
                parts, _ = engine.clipped(
                    loss,
                    (rows[cut],),
                    {},
                    targets,
                    len(rows[cut]),
                    weights=torch.ones(1, len(rows[cut]), dtype=engine.dtype),
                )
                total = total + parts[0]
            program.mixture.calls = calls
            sums.append(total)
        worst = max(worst, *(float((s - sums[0]).norm()) for s in sums[1:]))
    return worst / engine.clip.norm


def train(program):
    """How many steps were taken, and the largest movement among them."""
    private = program.private()
    taken, worst = 0, 0.0
    while taken < program.steps:
        for batch in private.loader:
            x, y = batch
            if taken == 3:
                program.mixture.switch(True)
            loss, given = program.arguments(x, y)
            with torch.autocast("cpu", torch.bfloat16, enabled=program.half):
                private.step(loss, x, **given)
            taken += 1
            if program.mixing:
                worst = max(worst, movement(program, private, x, y))
            if taken == program.steps:
                break
    return taken, worst


def verdict(seed, mixing):
    """None if all is well, and else what happened."""
    program = Program(seed, mixing)
    kind = program.mixture.__dict__ | {"model": program.model.kind, "how": program.delivery}
    try:
        _, worst = train(program)
    except Refused as refusal:
        return None if mixing else f"{kind}: refused: {refusal}"
    if mixing and worst > 2 + ROOM:
        return f"{kind}: moved {worst:.2f} clip norms"
    return None


@pytest.mark.parametrize("mixing", [True, False])
def test_programs(mixing, request):
    count = request.config.getoption("--programs")
    found = [verdict(seed, mixing) for seed in range(count)]
    assert [text for text in found if text] == []
