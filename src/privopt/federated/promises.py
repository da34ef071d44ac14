"""What a federated training promises, what it assumes, and what its certificate says of it."""

from __future__ import annotations

from typing import Any

PERSON = "each id is one person, and nobody answers for another: ids are authenticated elsewhere"
AVAILABLE = "who can be reached in a round does not depend on what others hold"
KEPT = "the folder of the checkpoint is not copied, nor brought back to an earlier round"
UNKNOWN = "nobody is asked by another process: the rule is kept in memory, not on disk"
SECURE = "people clip their updates themselves: the server adds up what it cannot see"
SECRET = "who was asked in which round stays secret"


def assumptions_of(server: Any) -> tuple[str, ...]:
    """What nobody here can enforce."""
    sampled = server.plan.asking == "poisson"
    return (
        PERSON,
        AVAILABLE,
        KEPT if server.lasts else UNKNOWN,
        *((SECRET,) if sampled else ()),
        *((SECURE,) if server.secure else ()),
    )


def settings_of(server: Any) -> dict[str, Any]:
    """What a certificate says of the training."""
    plan, rule = server.plan, server.plan.rule
    return {
        "participation": f"each person is asked in {rule.times} rounds at most, at least "
        f"{rule.min_separation_steps} apart: enforced by the server",
        "rounds": plan.rounds,
        "rounds_done": server.round,
        "report_goal": server.report_goal,
        "noise": plan.factorization.name,
        "noise_multiplier": plan.multiplier,
        "clip_norm": server.clip.norm,
        "adaptive": server.adaptive or 0.0,
        "sampling_rate": plan.rate,
    }


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
