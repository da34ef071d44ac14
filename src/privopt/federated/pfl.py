"""pfl-research: a privacy mechanism for its simulations. Needs the package ``pfl``.

Install it without its dependencies beside this library, ``pip install --no-deps pfl multiprocess
dill``: it pins an older dp-accounting, which this does not use.

The simulator asks whom the server chose, trains them, and hands over what each of them made. Here
that is clipped, added up and gone: the simulator's own sum is one of zeros. Where the simulator
would add noise to it, the server's release takes its place. So nothing that is private passes by
the server, wherever this stands in the list of postprocessors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from pfl.data.federated_dataset import FederatedDatasetBase  # type: ignore
from pfl.internal.ops.selector import get_default_framework_module as ops  # type: ignore
from pfl.metrics import Metrics, Weighted  # type: ignore
from pfl.privacy.privacy_mechanism import CentralPrivacyMechanism  # type: ignore

from privopt.federated.server import Server
from privopt.privacy import Certificate, Refused

METRICS = "metrics that the simulator adds up beside the model stay with those who hold the data"


class PFLMechanism(CentralPrivacyMechanism):
    """``Server`` as a privacy mechanism of pfl-research.

    Parameters
    ----------
    parameters : int
        How many numbers the model has.
    **made
        Those of ``Server``: epsilon, delta, rounds, report_goal, clip_norm, min_separation, noise,
        population, adaptive, ask, checkpoint, ledger. What becomes of the mean update is the
        algorithm's, so ``optimizer`` is not among them.

    Examples
    --------
    ::

        private = PFLMechanism(
            1_000_000,
            epsilon=8,
            delta=1e-6,
            rounds=200,
            report_goal=100,
            clip_norm=0.3,
            min_separation=20,
        )
        backend = SimulatedBackend(
            training_data=private.cohorts(make_dataset, user_ids),
            val_data=...,
            postprocessors=[private],
        )
        FederatedAveraging().run(params, backend, model, train_params)
        print(private.certificate())
    """

    def __init__(self, parameters: int, **made: Any) -> None:
        super().__init__()
        if "optimizer" in made:
            raise TypeError("the model is moved by pfl's algorithm: leave optimizer out.")
        self.server = Server(np.zeros(parameters), optimizer=_mean_update, **made)

    def certificate(self) -> Certificate:
        """What all rounds so far have cost each person."""
        return self.server.certificate(METRICS)

    def cohorts(
        self, make_dataset: Callable[[Any], Any], user_ids: Sequence[Any]
    ) -> FederatedDatasetBase:
        """The people to train on: those whom the server asks, round after round.

        ``make_dataset`` gives the data of one of ``user_ids``, under that ``user_id``.
        """
        return Cohorts(self.server, make_dataset, user_ids)

    # ------------------------------------------------------------ what the simulator calls
    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> tuple[Any, Metrics]:
        """Take what a person made; zeros go on in its place."""
        metadata, weights = stats.get_weights()
        parts = [np.asarray(ops().to_numpy(part)).ravel() for part in weights]
        if user_context.user_id is None:
            raise Refused("datasets need a user_id: privacy is for people.")
        self.server.answer(user_context.user_id, np.concatenate(parts), self.server.ticket)
        nothing = [ops().to_tensor(np.zeros(tuple(part.shape))) for part in weights]
        return stats.from_weights(metadata * 0, nothing), Metrics()

    def postprocess_server(
        self, *, stats: Any, central_context: Any, aggregate_metrics: Any
    ) -> tuple[Any, Metrics]:
        """The release in place of the sum, with the report goal for its weight."""
        metadata, weights = stats.get_weights()
        noise, goal = self.server.noise_std, self.server.report_goal
        total = goal * self.server.end_round()
        shapes = [tuple(part.shape) for part in weights]
        cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        parts = zip(np.split(total, cuts), shapes, strict=True)
        noisy = [ops().to_tensor(part.reshape(shape)) for part, shape in parts]
        name = self._central_dp_noise_format_fn("DP noise std. dev. of the mean")
        metrics = Metrics([(name, Weighted.from_unweighted(noise))])
        return stats.from_weights(metadata * 0 + goal, noisy), metrics


class Cohorts(FederatedDatasetBase):
    """Datasets of those whom a server asks."""

    def __init__(
        self, server: Server, make_dataset: Callable[[Any], Any], user_ids: Sequence[Any]
    ) -> None:
        super().__init__()
        if self._get_ops().distributed.world_size > 1:
            raise Refused("one process asks and releases: run the simulation in one.")
        self._server, self._make, self._people = server, make_dataset, list(user_ids)

    def __next__(self) -> tuple[Any, int]:
        raise Refused("people are asked a round at a time: use get_cohort.")

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Any, int]]:
        """Whom the server asks in the next round."""
        server = self._server
        if cohort_size != server.ask:
            raise ValueError(
                f"cohort_size={cohort_size} and ask={server.ask} say two things: the report goal, "
                "or ask where it is given, is how many are asked."
            )
        for person in server.begin_round(self._people):
            dataset = self._make(person)
            if dataset.user_id != person:
                raise ValueError("make_dataset(user_id) gives a dataset with that user_id.")
            yield dataset, self._get_seed()


def _mean_update(model: np.ndarray, update: np.ndarray) -> np.ndarray:
    return update
