"""Dask: chunks stay in the workers' memory, sums meet in a tree of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.engines.engine import FAN, Engine, Task, attempt_sent, opened, total
from privopt.noise import fresh_name


class Dask(Engine):
    """Chunks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        Connected to the cluster; by default one of this machine is started, without a dashboard,
        and ended by ``close``. A cluster is encrypted as its own ``security`` says.
    **how
        Handed to ``LocalCluster`` where one is started.
    """

    trusted = (
        "the workers of the Dask cluster see rows",
        "this process and the scheduler of Dask see exact sums and unreleased iterates",
    )

    def __init__(self, client: Any = None, **how: Any) -> None:
        try:
            import cloudpickle
            from distributed import Client, LocalCluster
        except ImportError:
            raise ImportError('Dask is not installed: pip install "privopt[dask]".') from None
        self._dumps, self._started = cloudpickle.dumps, None
        if client is None:
            quiet = {"dashboard_address": None, "host": "127.0.0.1", "threads_per_worker": 1}
            self._started = LocalCluster(**(quiet | how))
            client = Client(self._started)
        self._client = client

    def keep(self, task: Task, *handles: Sequence[Any]) -> list[Any]:
        # Sent once, by a task of its own, which is run again where a worker dies with it.
        payload = self._submit(bytes, self._dumps(task))
        return [
            self._submit(attempt_sent, payload, *values) for values in zip(*handles, strict=True)
        ]

    def add(self, task: Task, *handles: Sequence[Any]) -> Any:
        level = self.keep(task, *handles)
        while len(level) > 1:
            level = [self._submit(total, *level[i : i + FAN]) for i in range(0, len(level), FAN)]
        return opened(self._client.gather(level[0]))

    def close(self) -> None:
        if self._started is not None:
            self._client.close()
            self._started.close()
            self._started = None

    def _submit(self, function: Any, *values: Any) -> Any:
        # A key of its own: one made of function and arguments would show these, and be run once.
        return self._client.submit(function, *values, key=f"privopt-{fresh_name()}", retries=2)
