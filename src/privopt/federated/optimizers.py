"""What a server does with the mean of a round's updates. All of it is post-processing.

Anything with these three methods will do, or a function of the model and the update that remembers
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class ServerOptimizer(Protocol):
    """From a model and a noisy mean update to the next model."""

    def step(self, model: np.ndarray, update: np.ndarray) -> np.ndarray: ...
    def state(self) -> dict[str, np.ndarray]:
        """What has to be kept to go on after a restart."""
        ...

    def load(self, state: dict[str, np.ndarray]) -> None: ...


class SGD:
    """Federated averaging, with a rate and momentum of the server's own.

    With momentum this is DP-FTRLM (Kairouz et al., 2021): there v_t = m v_(t-1) + S_t with S_t the
    sum of all updates so far, and the model is the first one plus rate times v_t. Both sides of
    that recursion are the running sums of those here.
    """

    def __init__(self, learning_rate: float = 1.0, momentum: float = 0.0) -> None:
        self.learning_rate, self.momentum = learning_rate, momentum
        self._velocity: np.ndarray | None = None

    def step(self, model: np.ndarray, update: np.ndarray) -> np.ndarray:
        if self.momentum:
            before = 0.0 if self._velocity is None else self._velocity
            update = self._velocity = self.momentum * before + update
        return model + self.learning_rate * update

    def state(self) -> dict[str, np.ndarray]:
        return {} if self._velocity is None else {"velocity": self._velocity}

    def load(self, state: dict[str, np.ndarray]) -> None:
        self._velocity = state.get("velocity")

    def __repr__(self) -> str:
        return f"SGD({self.learning_rate:g}, momentum={self.momentum:g})"


class Adam:
    """FedAdam (Reddi et al., 2021); ``yogi=True`` is FedYogi."""

    def __init__(
        self,
        learning_rate: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.99),
        tau: float = 1e-3,
        yogi: bool = False,
    ) -> None:
        self.learning_rate, self.betas, self.tau, self.yogi = learning_rate, betas, tau, yogi
        self._first: np.ndarray | None = None
        self._second = np.zeros(0)

    def step(self, model: np.ndarray, update: np.ndarray) -> np.ndarray:
        if self._first is None:
            self._first, self._second = np.zeros_like(update), np.full_like(update, self.tau**2)
        (one, two), square = self.betas, update**2
        self._first = one * self._first + (1 - one) * update
        if self.yogi:
            self._second = self._second - (1 - two) * square * np.sign(self._second - square)
        else:
            self._second = two * self._second + (1 - two) * square
        return model + self.learning_rate * self._first / (np.sqrt(self._second) + self.tau)

    def state(self) -> dict[str, np.ndarray]:
        return {} if self._first is None else {"first": self._first, "second": self._second}

    def load(self, state: dict[str, np.ndarray]) -> None:
        self._first, self._second = state.get("first"), state.get("second", np.zeros(0))

    def __repr__(self) -> str:
        return (
            f"{'Yogi' if self.yogi else 'Adam'}({self.learning_rate:g}, {self.betas}, {self.tau:g})"
        )


class Plain:
    """A function of model and update, as an optimizer without a memory."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def step(self, model: np.ndarray, update: np.ndarray) -> np.ndarray:
        return np.asarray(self._function(model, update))

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def load(self, state: dict[str, np.ndarray]) -> None:
        pass

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", type(self._function).__name__)


def optimizer_of(given: Any) -> ServerOptimizer:
    """What the user gave, or plain averaging."""
    if given is None:
        return SGD()
    if isinstance(given, ServerOptimizer):
        return given
    if callable(given):
        return Plain(given)
    raise ValueError(
        "server_optimizer is SGD, Adam, or an object of your own with step, state and load, or a "
        f"function of model and update; got {type(given).__name__}."
    )
