"""Flower: a strategy for its server, and a mod for its clients. Needs the extra ``flower``.

Any Flower client works unchanged: it gets the model as ``arrays`` and answers with the arrays that
it trained. Weights and metrics that it sends are not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from privopt.federated.clipping import Clip
from privopt.federated.server import Server
from privopt.privacy import Certificate, Refused

CLIP = "privopt-clip-norm"
ROUND = "server-round"


class Layout:
    """A model's arrays as one vector, and back."""

    def __init__(self, arrays: ArrayRecord) -> None:
        self._keys = list(arrays.keys())
        found = [np.asarray(array.numpy()) for array in arrays.values()]
        self._shapes, self._types = [a.shape for a in found], [a.dtype for a in found]
        self.sizes = tuple(a.size for a in found)
        if not found or any(kind.kind != "f" for kind in self._types):
            raise ValueError("a federated model is trained as arrays of floating-point numbers.")

    def vector(self, arrays: ArrayRecord) -> np.ndarray:
        """Refuses arrays that are not those of the model."""
        return np.concatenate([a.ravel() for a in self._found(arrays)], dtype=float)

    @np.errstate(all="ignore")  # a warning that one answer causes would tell of it
    def difference(self, arrays: ArrayRecord, sent: list[np.ndarray]) -> np.ndarray:
        """What an answer adds to the model that was sent, in the model's own precision."""
        found, kind = self._found(arrays), np.result_type(*self._types)
        update, start = np.empty(sum(self.sizes), dtype=kind), 0
        for after, before in zip(found, sent, strict=True):
            stop = start + before.size
            np.subtract(after.ravel(), before.ravel(), out=update[start:stop], casting="same_kind")
            start = stop
        return update

    def _found(self, arrays: ArrayRecord) -> list[np.ndarray]:
        if list(arrays.keys()) != self._keys:
            raise ValueError("an answer holds other arrays than the model.")
        found = [np.asarray(array.numpy()) for array in arrays.values()]
        if [a.shape for a in found] != self._shapes or any(a.dtype.kind != "f" for a in found):
            raise ValueError("an answer holds arrays of other shapes or types than the model.")
        return found

    def arrays(self, vector: np.ndarray) -> ArrayRecord:
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        return ArrayRecord(
            {
                key: Array(part.reshape(shape).astype(kind))
                for key, part, shape, kind in zip(
                    self._keys, parts, self._shapes, self._types, strict=True
                )
            }
        )


class FTRL(Strategy):
    """Private federated learning as a Flower strategy: a rule of participation that is enforced,
    correlated noise, one certificate.

    Parameters
    ----------
    epsilon, delta, rounds, report_goal, clip_norm, min_separation, max_participations, noise
        As in ``privopt.federated.Server``, like the keywords that follow.
    population : int, optional
        DP-FedAvg instead: nodes are sampled, and the noise counts on it.
    server_optimizer : ServerOptimizer or callable, optional
        ``SGD()``, plain averaging, by default.
    adaptive, ask, neighbouring, checkpoint, ledger, dataset, random_state : optional
        As in ``Server``.
    min_available_nodes : int, optional
        Wait until so many nodes are connected; the report goal by default.

    Examples
    --------
    ::

        strategy = privopt.federated.FTRL(
            epsilon=8, delta=1e-6, rounds=1600, report_goal=100, clip_norm=0.3, min_separation=200
        )
        result = strategy.start(grid, initial_arrays)
        print(strategy.certificate())
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        rounds: int,
        report_goal: int,
        clip_norm: float | Sequence[float],
        min_separation: int | None = None,
        max_participations: int | None = None,
        noise: str = "auto",
        population: int | None = None,
        server_optimizer: Any = None,
        min_available_nodes: int | None = None,
        **more: Any,
    ) -> None:
        self._made: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "rounds": rounds,
            "report_goal": report_goal,
            "clip_norm": clip_norm,
            "min_separation": min_separation,
            "max_participations": max_participations,
            "noise": noise,
            "population": population,
            "optimizer": server_optimizer,
            **more,
        }
        self._wait_for = report_goal if min_available_nodes is None else min_available_nodes
        self._server: Server | None = None
        self._layout: Layout | None = None
        self._sent: Any = None  # the model that the open round went out with

    # ------------------------------------------------------------ before and after
    def prepare(self, arrays: ArrayRecord) -> None:
        """Make the server, or go on from its checkpoint; ``start`` does so by itself."""
        if self._server is None:
            layout = Layout(arrays)
            vector = layout.vector(arrays)
            self._server = Server(vector, layers=layout.sizes, **self._made)
            self._layout = layout

    @property
    def server(self) -> Server:
        """The server behind this strategy, once there is a model."""
        if self._server is None:
            raise Refused("the strategy has no model yet: start it, or call prepare(arrays).")
        return self._server

    @property
    def arrays(self) -> ArrayRecord:
        """The model of the last round that is over."""
        assert self._layout is not None
        return self._layout.arrays(self.server.model)

    def certificate(self) -> Certificate:
        """What all rounds so far have cost each person."""
        return self.server.certificate()

    def start(  # type: ignore[override]
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run ``num_rounds`` rounds, or all that the budget still pays for.

        ``evaluate_fn`` runs at the server: give it public records only.
        """
        self.prepare(initial_arrays)
        left = self.server.rounds_left
        if not left or (num_rounds is not None and num_rounds > left):
            raise Refused(
                f"the budget pays for {left} more rounds: declare more from the start, or begin "
                "another training with a budget of its own."
            )
        rounds = left if num_rounds is None else num_rounds
        return super().start(
            grid, self.arrays, rounds, timeout, train_config, evaluate_config, evaluate_fn
        )

    def summary(self) -> None:
        server = self.server
        rule = server.plan.rule
        log(INFO, "\t├──> Budget per person: epsilon %g, delta %g", *_budget(server))
        log(INFO, "\t├──> Rounds: %d of %d left", server.rounds_left, server.plan.rounds)
        log(
            INFO,
            "\t├──> A person is asked %d times at most, %d rounds apart",
            *(rule.times, rule.min_separation_steps),
        )
        noise = server.plan.factorization.name, server.plan.multiplier
        log(INFO, "\t└──> Noise: %s, multiplier %.4g", *noise)

    # ------------------------------------------------------------ a round
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to those who are asked; they are in the ledger before the first one leaves."""
        self.prepare(arrays)
        server = self.server
        chosen = server.begin_round(self._available(grid))
        asked = ConfigRecord(dict(config))
        asked[ROUND] = server.round + 1
        asked[CLIP] = [norm * server.scale for norm in server.clip.norms]
        sent = self.arrays
        self._sent = [np.asarray(array.numpy()) for array in sent.values()]
        content = RecordDict({"arrays": sent, "config": asked})
        kind, ticket = MessageType.TRAIN, server.ticket
        return [Message(content, int(node), kind, group_id=ticket) for node in chosen]

    def _available(self, grid: Grid) -> list[int]:
        while len(nodes := sorted(grid.get_node_ids())) < self._wait_for:
            time.sleep(0.5)
        return nodes

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model. No metric: what clients report of their data is not paid for."""
        server = self.server
        for reply in replies:
            if not reply.has_error():
                self._take(reply)
        server.end_round()
        return self.arrays, None

    def _take(self, reply: Message) -> None:
        assert self._layout is not None
        node, ticket = reply.metadata.src_node_id, reply.metadata.group_id
        try:
            (found,) = reply.content.array_records.values()
            update = self._layout.difference(found, self._sent)
        except Exception as problem:  # whatever a client sends, the round goes on
            log(WARNING, "\t> An answer of node %d does not count: %s", node, problem)
        else:
            self.server.answer(node, update, ticket)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: what clients would report is not paid for."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return None


def clipping_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Clips a client's update before it leaves, to the norm that the server sent; nothing else of
    what the client trained is sent. The server clips again."""
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    sent = next(iter(message.content.array_records.values()))
    layout, config = Layout(sent), next(iter(message.content.config_records.values()))
    before = layout.vector(sent)
    norms: Any = config[CLIP]
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    (found,) = reply.content.array_records.values()
    clip = Clip.of(norms if len(norms) > 1 else norms[0], layout.sizes)
    update = clip.unit(layout.vector(found) - before) * clip.norm
    update = np.where(np.isfinite(update), update, 0.0)
    return Message(RecordDict({"arrays": layout.arrays(before + update)}), reply_to=message)


def _budget(server: Server) -> tuple[float, float]:
    return server.budget.epsilon, server.budget.delta
