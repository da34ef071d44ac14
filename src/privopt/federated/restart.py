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
    run: Run, mechanism: Any, optimizer: ServerOptimizer, model: np.ndarray
) -> dict[str, np.ndarray]:
    """The noise, and beside it model and optimizer: public, but too long for the record."""
    kept = {"model": model}
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
    return kept["model"]


def promises(server: Any) -> dict[str, Any]:
    """What a training promises: none of it may change when it goes on."""
    plan, budget = server.plan, server.budget
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbouring": budget.neighbouring,
        "rounds": plan.rounds,
        "report_goal": server.report_goal,
        "clip_norm": list(server.clip.norms),
        "layers": list(server.clip.sizes),
        "min_separation": plan.rule.min_separation_steps,
        "max_participations": plan.rule.times,
        "noise": server.noise_name,
        "population": [plan.asking, plan.groups, plan.rate],
        "adaptive": server.adaptive,
        "server_optimizer": repr(server.optimizer),
        "secure": server.secure,
        "model": server.model.size,
    }


def refuse_changes(now: dict[str, Any], then: dict[str, Any]) -> None:
    """A training keeps what it promised."""
    changed = [name for name, value in now.items() if then.get(name) != value]
    if changed:
        raise Refused(
            f"{changed[0]} cannot change within a training: set it back, or use another "
            "checkpoint, and a new budget."
        )
