"""What a server keeps on disk to go on after a restart, and what may not change meanwhile."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from privopt.federated.optimizers import ServerOptimizer
from privopt.mechanisms import CorrelatedGaussian, Run
from privopt.privacy import Refused

NOISE, OPTIMIZER, STREAM = "noise/", "optimizer/", "stream"


def secret_of(
    run: Run, mechanism: Any, optimizer: ServerOptimizer, model: np.ndarray, update: np.ndarray
) -> dict[str, np.ndarray]:
    """The noise, and beside it the update with the model and the optimizer that it will move:
    public, but too long for the record."""
    kept = {"model": model, "update": update}
    kept |= {f"{OPTIMIZER}{k}": np.asarray(v) for k, v in optimizer.state().items()}
    if isinstance(mechanism, CorrelatedGaussian):
        state = run.noise_state(mechanism)
        noise = dict(state["noise"])
        kept |= {f"{NOISE}{i}": vector for i, vector in enumerate(noise.pop("vectors"))}
        kept[STREAM] = np.array(json.dumps({**state, "noise": noise}))
    return kept


def go_on(
    run: Run, mechanism: Any, optimizer: ServerOptimizer, rounds: int, kept: dict[str, np.ndarray]
) -> np.ndarray:
    """Go to the round that left these, and give its model."""
    own = {name: value for name, value in kept.items() if name.startswith(OPTIMIZER)}
    optimizer.load({name.removeprefix(OPTIMIZER): value for name, value in own.items()})
    states = []
    if isinstance(mechanism, CorrelatedGaussian):
        state = json.loads(str(kept[STREAM]))
        count = sum(name.startswith(NOISE) for name in kept)
        state["noise"]["vectors"] = [kept[f"{NOISE}{i}"] for i in range(count)]
        states.append((mechanism, state))
    run.resume(rounds, states)
    return moved(optimizer, kept["model"], kept["update"])


def moved(optimizer: ServerOptimizer, model: np.ndarray, update: np.ndarray) -> np.ndarray:
    """The next model."""
    found = np.asarray(optimizer.step(model.copy(), update.copy()), dtype=float)
    if found.shape != model.shape:
        raise ValueError("server_optimizer gives a model of another shape.")
    return found


def refuse_changes(now: dict[str, Any], then: dict[str, Any]) -> None:
    """A training keeps what it promised."""
    changed = [name for name, value in now.items() if then.get(name) != value]
    if changed:
        raise Refused(
            f"{changed[0]} cannot change within a training: set it back, or use another "
            "checkpoint, and a new budget."
        )
