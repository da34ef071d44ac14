"""Secure aggregation: the server learns the sum of a round's updates and none of them.

Flower's SecAgg+ adds up vectors modulo 2^32 behind masks that cancel. It was made for weighted
means of parameters; here it carries integers exactly. A client clips its update to the unit ball,
counts it in steps of 1/``most`` and gives the integers as its parameters, all with the same weight.
With clipping range R = most and quantization range 2R the workflow\'s quantizer is the identity on
integers within R, and n * 2R <= 2^32 leaves room for the sum and for the weights. What comes out is
the sum over n; times n it is an integer again, far below 2^53.

The integers go on the grid of the noise (docs/proofs/streams.md), a public number of its steps for
each: a person still moves the sum by one sensitivity at most, if the own client clipped. That, and
that the server adds the noise, cannot be checked by others and stands in the certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Context, Message, MessageType
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    NDArrays,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import Strategy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid

from privopt.federated.clipping import Clip
from privopt.federated.flower import CLIP, ROUND
from privopt.federated.server import Server
from privopt.oracle.contributions import counts_within
from privopt.privacy import Certificate, Refused

STEPS = "privopt-steps"
MODULUS = 1 << 32
WEIGHT = 1000
"""Everybody's: the workflow's largest, so that it multiplies by one."""


def steps_for(people: int) -> int:
    """How many steps a clip norm may have, so that so many people's sum stays below the modulus."""
    most = MODULUS >> (people - 1).bit_length() + 1
    if most < 1 << 8:
        raise ValueError(f"secure aggregation has no room for {people} people in one round.")
    return most


class SecureFTRL(Strategy):
    """``FTRL`` behind Flower's SecAgg+ workflow.

    Takes the keywords of ``Server`` (``server_optimizer`` for its ``optimizer``), but neither
    ``adaptive`` nor noise without integers. Clients are Flower's ``NumPyClient`` and the like, in a
    ``ClientApp(client_fn, mods=[secaggplus_mod, privopt.federated.counting_mod])``.
    """

    def __init__(self, *, server_optimizer: Any = None, **made: Any) -> None:
        if made.get("population") is not None:
            raise ValueError(
                "sampled rounds have no largest size, and sums modulo 2^32 need one: give "
                "min_separation in place of population."
            )
        self._made = {**made, "optimizer": server_optimizer, "secure": True}
        self._server: Server | None = None
        self._shapes: list[tuple[tuple[int, ...], Any]] = []

    @property
    def server(self) -> Server:
        if self._server is None:
            raise Refused("the strategy has no model yet: call run.")
        return self._server

    def certificate(self) -> Certificate:
        """What all rounds so far have cost each person."""
        return self.server.certificate()

    def prepare(self, arrays: Sequence[np.ndarray]) -> None:
        """Make the server, or go on from its checkpoint; ``run`` does so by itself."""
        found = [np.asarray(array) for array in arrays]
        self._shapes = [(array.shape, array.dtype) for array in found]
        vector = np.concatenate([array.ravel().astype(float) for array in found])
        self._server = Server(vector, layers=[array.size for array in found], **self._made)
        self._most = steps_for(self._server.ask)

    def run(
        self,
        grid: Grid,
        context: Context,
        arrays: Sequence[np.ndarray],
        *,
        num_rounds: int | None = None,
        num_shares: float = 1.0,
        reconstruction_threshold: float = 0.6,
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        """Rounds of the workflow, as many as the budget still pays for; the last model."""
        self.prepare(arrays)
        rounds = self.server.rounds_left if num_rounds is None else num_rounds
        workflow = SecAggPlusWorkflow(
            num_shares,
            reconstruction_threshold,
            max_weight=float(WEIGHT),
            clipping_range=float(self._most),
            quantization_range=2 * self._most,
            modulus_range=MODULUS,
            timeout=timeout,
        )
        legacy = LegacyContext(context, ServerConfig(num_rounds=rounds), self)
        DefaultWorkflow(fit_workflow=workflow, evaluate_workflow=lambda grid, context: None)(
            grid, legacy
        )
        return self.arrays

    @property
    def arrays(self) -> list[np.ndarray]:
        """The model of the last round that is over."""
        return shaped(self.server.model, self._shapes)

    # ------------------------------------------------------------ what the workflow calls
    def initialize_parameters(self, client_manager: Any) -> Parameters:
        client_manager.wait_for(self.server.ask)
        return ndarrays_to_parameters(self.arrays)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: Any
    ) -> list[tuple[Any, FitIns]]:
        nodes = {int(proxy.node_id): proxy for proxy in client_manager.all().values()}
        chosen, server = self.server.begin_round(sorted(nodes)), self.server
        told: dict[str, Any] = {ROUND: server.round + 1, STEPS: self._most}
        told |= {f"{CLIP}-{i}": norm for i, norm in enumerate(server.clip.norms)}
        model = ndarrays_to_parameters(self.arrays)
        return [(nodes[node], FitIns(model, dict(told))) for node in chosen]

    def aggregate_fit(
        self, server_round: int, results: list[tuple[Any, FitRes]], failures: Any
    ) -> tuple[Parameters | None, dict[str, Any]]:
        """Each result holds the same mean over all who answered: their sum, over their number."""
        if results:
            mean = parameters_to_ndarrays(results[0][1].parameters)
            counts = np.rint(np.concatenate([a.ravel() for a in mean]) * len(results))
            self.server.answered_sum(counts.astype(np.int64), self._most)
        self.server.end_round()
        return ndarrays_to_parameters(self.arrays), {}

    def configure_evaluate(self, *arguments: Any, **named: Any) -> list[Any]:
        return []

    def aggregate_evaluate(self, *arguments: Any, **named: Any) -> tuple[None, dict[str, Any]]:
        return None, {}

    def evaluate(self, *arguments: Any, **named: Any) -> None:
        return None


def counting_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """What a client sends into secure aggregation: its clipped update in whole steps, and nothing
    else. Stands behind ``secaggplus_mod`` in the list of mods."""
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    asked = compat.recorddict_to_fitins(message.content, keep_input=True)
    before, config = parameters_to_ndarrays(asked.parameters), dict(asked.config)
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    trained = parameters_to_ndarrays(
        compat.recorddict_to_fitres(reply.content, keep_input=True).parameters
    )
    counts = counted_update(before, trained, config)
    answer = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(counts), WEIGHT, {})
    return Message(compat.fitres_to_recorddict(answer, False), reply_to=message)


def counted_update(before: NDArrays, trained: NDArrays, config: dict[str, Any]) -> NDArrays:
    """A clipped update in whole steps, as arrays of the model's shapes."""
    if [a.shape for a in before] != [a.shape for a in trained]:
        raise ValueError("an answer holds arrays of other shapes than the model.")
    norms = [float(config[f"{CLIP}-{i}"]) for i in range(sum(CLIP in key for key in config))]
    clip = Clip.of(norms if len(norms) > 1 else norms[0], [a.size for a in before])
    steps = [
        (after.astype(float) - first).ravel() for after, first in zip(trained, before, strict=True)
    ]
    counts = counts_within(clip.unit(np.concatenate(steps)), 1.0, int(config[STEPS]))
    return shaped(counts.astype(float), [(array.shape, float) for array in before])


def shaped(vector: np.ndarray, shapes: list[tuple[tuple[int, ...], Any]]) -> list[np.ndarray]:
    """A vector as arrays."""
    sizes = [int(np.prod(shape)) for shape, _ in shapes]
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    return [
        part.reshape(shape).astype(kind) for part, (shape, kind) in zip(parts, shapes, strict=True)
    ]
