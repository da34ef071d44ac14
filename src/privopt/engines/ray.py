"""Ray: chunks stay in the cluster's object stores, sums meet in a tree of tasks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

from privopt.engines.engine import FAN, Engine, Task, attempt_sent, opened, total

NAME = "privopt"
"""Of every task: what is shown of one says nothing of its arguments."""


class Ray(Engine):
    """Chunks on a Ray cluster: the one that is connected to, or one of this machine.

    Parameters
    ----------
    **how
        Handed to ``ray.init`` where no cluster is connected to yet. The dashboard and usage
        statistics are off, and nobody but this machine is listened to, unless it says otherwise.
        Ray is told nothing of a cluster's encryption: see ``RAY_USE_TLS``.
    """

    trusted = (
        "the workers of the Ray cluster see rows",
        "this process, the scheduler and the object stores of Ray see exact sums and unreleased "
        "iterates",
    )

    def __init__(self, **how: Any) -> None:
        try:
            import ray
            from ray import cloudpickle
        except ImportError:
            raise ImportError('Ray is not installed: pip install "privopt[ray]".') from None
        self._ray, self._dumps, self._own = ray, cast(Any, cloudpickle).dumps, False
        if not ray.is_initialized():
            quiet: dict[str, Any] = {
                "include_dashboard": False,
                "log_to_driver": False,
                "logging_level": "ERROR",
                "configure_logging": False,
                "_node_ip_address": "127.0.0.1",
            }
            with warnings.catch_warnings():  # of what later versions of Ray will do
                warnings.simplefilter("ignore", FutureWarning)
                cast(Any, ray).init(**({"address": "local"} | quiet | how))
            self._own = True
        options: dict[str, Any] = {"name": NAME, "max_retries": 3, "num_cpus": 1}
        self._attempt = ray.remote(attempt_sent).options(**options)
        self._total = ray.remote(total).options(**options)

    def keep(self, task: Task, *handles: Sequence[Any]) -> list[Any]:
        payload = self._ray.put(self._dumps(task))
        return [self._attempt.remote(payload, *values) for values in zip(*handles, strict=True)]

    def add(self, task: Task, *handles: Sequence[Any]) -> Any:
        level = self.keep(task, *handles)
        while len(level) > 1:
            level = [self._total.remote(*level[i : i + FAN]) for i in range(0, len(level), FAN)]
        return opened(self._ray.get(level[0]))

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()
            self._own = False
