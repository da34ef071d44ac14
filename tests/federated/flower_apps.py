"""A small federated problem for Flower: each node holds points, and the model is their mean.

``python -m tests.federated.flower_apps NAME`` runs one of Flower's own simulations: they want a
process of their own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp

from privopt.federated import FTRL, SecureFTRL, Server, clipping_mod, counting_mod
from privopt.noise import SeededSource, SilentSource

WIDTH = 6


def points(node: int) -> np.ndarray:
    return SeededSource(node).noise.normal(1.0, 0.3, size=(5, WIDTH))


def first() -> ArrayRecord:
    return ArrayRecord({"a": Array(np.zeros((2, 2), np.float32)), "b": Array(np.zeros(2))})


def client(mods: Any = None) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content["arrays"]
        flat = np.concatenate([a.numpy().ravel() for a in arrays.values()])
        mine = points(int(context.node_config["partition-id"])).mean(axis=0)
        new = flat + 0.5 * (mine - flat)
        trained = ArrayRecord({"a": Array(new[:4].reshape(2, 2)), "b": Array(new[4:])})
        metrics = MetricRecord({"num-examples": -5, "loss": float(np.abs(mine - flat).sum())})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    return app


def simulated(main: Any, app: ClientApp, nodes: int) -> None:
    """Flower's own simulation, on one actor for each of two processors."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server = ServerApp()
    server.main()(main)
    resources = {"num_cpus": 1, "num_gpus": 0}
    ray = {"num_cpus": 2, "include_dashboard": False, "logging_level": "error"}
    run_simulation(
        server, app, nodes, backend_config={"client_resources": resources, "init_args": ray}
    )


def hundred_clients() -> dict[str, Any]:
    """Thirty rounds, and what the server knows of them."""
    strategy = FTRL(
        epsilon=4.0, delta=1e-5, rounds=30, report_goal=10, clip_norm=0.5, min_separation=10,
        noise="banded",
    )  # fmt: skip
    simulated(lambda grid, context: strategy.start(grid, first()), client([clipping_mod]), 100)
    people, rule = strategy.server.people, strategy.server.plan.rule
    return {
        "certificate": json.loads(strategy.certificate().to_json()),
        "times": people.times,
        "kept": all(rule.allows(pattern) for pattern in people.patterns),
    }


class Numbers(NumPyClient):
    """The same problem, as an older kind of client."""

    def __init__(self, node: int) -> None:
        self._mine = points(node).mean(axis=0)

    def fit(self, parameters: Any, config: Any) -> Any:
        flat = np.concatenate([a.ravel() for a in parameters])
        new = flat + 0.5 * (self._mine - flat)
        return [new[:4].reshape(2, 2), new[4:]], 7, {"loss": float(np.abs(new).sum())}


def secure() -> dict[str, Any]:
    """Three rounds of SecAgg+ without noise, beside the same rounds in the open."""
    strategy = SecureFTRL(
        epsilon=4.0, delta=1e-5, rounds=3, report_goal=5, clip_norm=0.5, min_separation=2,
        noise="blt", random_state=SilentSource(),
    )  # fmt: skip
    asked, begin = [], Server.begin_round

    def watched(server: Server, nodes: Any) -> Any:
        asked.append(begin(server, nodes))
        return asked[-1]

    Server.begin_round = watched  # type: ignore[method-assign]
    start = [np.zeros((2, 2)), np.zeros(2)]

    def main(grid: Any, context: Any) -> None:
        strategy.run(grid, context, start)

    app = ClientApp(
        client_fn=lambda context: Numbers(int(context.node_id) % 1000).to_client(),
        mods=[secaggplus_mod, counting_mod],
    )
    simulated(main, app, 12)
    model = np.zeros(6)
    for nodes in asked:
        steps = [0.5 * (points(node % 1000).mean(axis=0) - model) for node in nodes]
        model = model + sum(s * min(1, 0.5 / np.linalg.norm(s)) for s in steps) / 5
    return {
        "model": strategy.server.model.tolist(),
        "expected": model.tolist(),
        "asked": [len(nodes) for nodes in asked],
        "assumptions": list(strategy.certificate().assumptions),
        "epsilon": strategy.certificate().epsilon,
    }


if __name__ == "__main__":
    found = {"hundred": hundred_clients, "secure": secure}[sys.argv[1]]()
    print(json.dumps(found))
