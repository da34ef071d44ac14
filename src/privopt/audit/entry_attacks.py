"""Attacks on the public ways in that are no solver and no fit: quantiles, streams, a search, an
evaluation, the training of a torch model.

Calls are those of the replay (``entries``), at a budget of the audit. Of the pairs searched for
each, a pilot with seeds of its own takes the one that tells most.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from privopt.audit.entries import ENTRIES, Call, Make, harmless_beside
from privopt.audit.neighbours import Pair
from privopt.audit.statistical import Finding, attack, audit
from privopt.noise import SeededSource
from privopt.privacy import Budget, Certificate, Refused

PILOT = 20
"""Runs on each data set of a pair, to choose one."""
PILOT_SEED = 1 << 20


@dataclass(frozen=True)
class Entry:
    """Which call of which public name, what share of the runs it gets, among how many pairs the
    pilot chooses, and what an attacker looks at; without that, the likelihood ratio of what was
    released."""

    name: str
    call: int
    share: float = 1.0
    pairs: int = 8
    score: Callable[[Any], float] | None = None

    @property
    def make(self) -> Make:
        return ENTRIES[self.name][self.call]


ATTACKED: dict[str, Entry] = {
    "quantile(loss)": Entry("quantile", 1),
    "quantile(rank)": Entry("quantile", 4),
    "prefix_sums": Entry("prefix_sums", 0),
    "prefix_sums(blt)": Entry("prefix_sums", 5),
    "OnlineLogisticRegression": Entry("OnlineLogisticRegression", 0, 0.25, 4),
    "OnlineLinearRegression": Entry("OnlineLinearRegression", 0, 0.25, 4),
    # A search keeps its runs to itself: its score is what is published.
    "PrivateSearchCV": Entry("PrivateSearchCV", 0, 0.05, 1, lambda found: float(found[1])),
    "evaluate": Entry("evaluate", 1, 0.5),
    "torch.make_private": Entry("torch.make_private", 0, 0.1, 3),
}
"""By the name of the row."""


def attacked(name: str | None = None) -> list[str]:
    """Rows of one public name, or of all."""
    return [row for row, entry in ATTACKED.items() if name in (None, row, entry.name)]


def call_of(row: str, budget: Budget) -> Call:
    """Refuses a budget or a relation that the entry does not take."""
    return ATTACKED[row].make(budget, SeededSource(0).noise)


@lru_cache(maxsize=256)
def takes_budget(row: str, budget: Budget) -> bool:
    """Whether a run on harmless records is taken, and spends delta if it is given."""
    try:
        call = call_of(row, budget)
        found = call.run(*harmless_beside(call.pairs[0]), SeededSource(0))
    except (Refused, ValueError, ImportError):
        return False
    return certificate_of(found).delta == budget.delta


def audit_entry(row: str, budget: Budget, *, runs: int, confidence: float, seed: int) -> Finding:
    """A lower bound on what an entry loses, on the pair that the pilot chose."""
    entry, call = ATTACKED[row], call_of(row, budget)
    count = max(20, round(entry.share * runs))
    pair = _chosen(call, entry)
    claimed = certificate_of(call.run(*pair.first, SeededSource(0)))
    return audit(
        call.run, pair, claimed, runs=count, confidence=confidence, seed=seed, score=entry.score
    )


def certificate_of(found: Any) -> Certificate:
    """The certificate among what a call makes public."""
    texts = [found] if isinstance(found, str) else [part for part in found if isinstance(part, str)]
    kept = json.loads(texts[-1])
    return Certificate.from_json(json.dumps(kept.get("certificate", kept)))


def _chosen(call: Call, entry: Entry) -> Pair:
    """Of some pairs the one whose scores lie furthest apart, in units of their spread."""
    pairs = call.pairs[:: max(1, len(call.pairs) // entry.pairs)][: entry.pairs]
    if len(pairs) == 1:
        return pairs[0]

    def apart(pair: Pair) -> float:
        first, second = attack(call.run, pair, runs=PILOT, seed=PILOT_SEED, score=entry.score)
        spread = float(np.sqrt((np.var(first) + np.var(second)) / 2))
        return float(np.mean(first) - np.mean(second)) / max(spread, 1e-9)

    return max(pairs, key=apart)
