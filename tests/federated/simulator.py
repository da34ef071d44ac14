"""A simulator as pfl-research has it: its own classes where it is installed, and otherwise the few
that an adapter touches, with their names and their order of calls (pfl 0.5)."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Statistics:
    """What a user made: matrices, and a weight."""

    def __init__(self, matrices: list[np.ndarray], weight: Any = 1.0) -> None:
        self.matrices, self.weight = matrices, weight

    def get_weights(self) -> tuple[np.ndarray, list[np.ndarray]]:
        return np.array([self.weight]), list(self.matrices)

    def from_weights(self, metadata: np.ndarray, weights: list[np.ndarray]) -> Statistics:
        return Statistics([np.asarray(w) for w in weights], float(metadata[0]))

    def __add__(self, other: Statistics) -> Statistics:
        pairs = zip(self.matrices, other.matrices, strict=True)
        return Statistics([a + b for a, b in pairs], self.weight + other.weight)

    def average(self) -> list[np.ndarray]:
        return [matrix / self.weight for matrix in self.matrices]


def stand_in() -> None:
    """Modules with pfl's names, unless pfl is there."""
    if find_spec("pfl") is not None or "pfl" in sys.modules:
        return

    class FederatedDatasetBase:
        def __init__(self) -> None:
            self._random_state = np.random.RandomState(0)

        def _get_ops(self) -> Any:
            return operations

        def _get_seed(self) -> int:
            return int(self._random_state.randint(0, 2**32, dtype=np.uint32))

    class CentralPrivacyMechanism:
        def __init__(self) -> None:
            self._central_dp_noise_format_fn = lambda name: f"Central DP | {name} on summed stats"

    class Weighted:
        def __init__(self, value: float) -> None:
            self.overall_value = value

        @classmethod
        def from_unweighted(cls, value: float) -> Weighted:
            return cls(value)

    class Metrics(dict[Any, Any]):
        def __init__(self, pairs: Any = ()) -> None:
            super().__init__(pairs)

    operations = SimpleNamespace(
        to_numpy=np.asarray,
        to_tensor=lambda values: np.asarray(values, dtype=np.float32),
        distributed=SimpleNamespace(world_size=1),
    )
    parts = {
        "pfl": {},
        "pfl.data": {},
        "pfl.data.federated_dataset": {"FederatedDatasetBase": FederatedDatasetBase},
        "pfl.internal": {},
        "pfl.internal.ops": {},
        "pfl.internal.ops.selector": {"get_default_framework_module": lambda: operations},
        "pfl.metrics": {"Metrics": Metrics, "Weighted": Weighted},
        "pfl.privacy": {},
        "pfl.privacy.privacy_mechanism": {"CentralPrivacyMechanism": CentralPrivacyMechanism},
    }
    for name, own in parts.items():
        module = sys.modules[name] = ModuleType(name)
        vars(module).update(own)


def iteration(
    data: Any, train: Any, postprocessors: list[Any], cohort_size: int
) -> Statistics | None:
    """One central iteration: each user trained and postprocessed, in turn; the sum; the server's
    part, in the reverse order."""
    context = SimpleNamespace(cohort_size=cohort_size, seed=0)
    total = None
    for dataset, seed in data.get_cohort(cohort_size):
        stats = train(dataset)
        user = SimpleNamespace(user_id=dataset.user_id, seed=seed, num_datapoints=1)
        for one in postprocessors:
            stats, _ = one.postprocess_one_user(stats=stats, user_context=user)
        total = stats if total is None else total + stats
    if total is not None:
        for one in postprocessors[::-1]:
            total, _ = one.postprocess_server(
                stats=total, central_context=context, aggregate_metrics={}
            )
    return total
