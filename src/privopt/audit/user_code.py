"""Functions and estimators of the user's own, by name: what ``privopt audit module:name`` runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from privopt.audit.fits import fitting
from privopt.audit.neighbours import Pair, hostile_pairs
from privopt.audit.replay import record, replay
from privopt.audit.statistical import Finding, audit
from privopt.audit.table import crowd_pair, lone_pair, opposed_pair
from privopt.audit.trials import Trial
from privopt.noise import SeededSource
from privopt.privacy import Budget, Certificate

PAIRS: dict[str, Callable[[Budget, int, int, bool], Pair]] = {
    "one record alone": lone_pair,
    "one against all": crowd_pair,
    "one against a few": opposed_pair,
}


def loaded(path: str) -> Any:
    """The object named ``module:name``; the module may lie in the current folder."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        raise ValueError(f"there is no {name!r} in a module {module!r} to audit.") from None
    finally:
        sys.path.remove(here)


def trial_of(target: Any, budget: Budget, n: int) -> Trial:
    """A function of (X, y, source), a function of (X, y) with noise of its own, or an estimator."""
    if inspect.isclass(target):
        if not hasattr(target, "fit"):
            raise ValueError(f"{target.__name__} has no fit: audit a function or an estimator.")
        return fitting(target, budget, n)
    if not callable(target):
        raise ValueError("what is audited must be a function of (X, y, source) or an estimator.")
    if len(inspect.signature(target).parameters) == 2:
        return lambda X, y, source: target(X, y)
    return target


def attack_user_code(
    path: str,
    budget: Budget,
    *,
    runs: int,
    confidence: float,
    n: int = 20,
    p: int = 1,
    classification: bool = True,
    seed: int = 0,
) -> dict[str, Finding]:
    """Audits on a few hostile pairs; all bounds hold together with the confidence."""
    run = trial_of(loaded(path), budget, n)
    each = 1 - (1 - confidence) / len(PAIRS)
    found = {}
    for name, pair_of in PAIRS.items():
        pair = pair_of(budget, n, p, classification)
        claimed = _claimed(run, pair, budget)
        found[name] = audit(run, pair, claimed, runs=runs, confidence=each, seed=seed)
    return found


def _claimed(run: Trial, pair: Pair, budget: Budget) -> Certificate | Budget:
    """The certificate of an estimator, with its whole curve; of a function, its budget."""
    certificate = getattr(run(*pair.first, SeededSource(0)), "privacy_", None)
    return budget if certificate is None else certificate


def replay_user_code(path: str, budget: Budget, *, classification: bool = True) -> list[str] | None:
    """Findings of replay on all hostile pairs; None if the function releases nothing through a
    gate, so that replay cannot tell noise from data."""
    pairs = hostile_pairs(budget.neighbouring, classification=classification)
    run = trial_of(loaded(path), budget, len(pairs[0].first[0]))

    def fixed(X: np.ndarray, y: np.ndarray) -> Any:
        return run(X, y, SeededSource(0))

    _, tape = record(fixed, pairs[0].first)
    if not tape.releases:
        return None
    return [f"{pair.name}: {text}" for pair in pairs for text in replay(fixed, pair)]
