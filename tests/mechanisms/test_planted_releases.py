"""A nearly noiseless release behind each honest one: refused on every road before it is opened."""

import traceback

import numpy as np
import pytest

import privopt
from privopt.losses import Logistic
from privopt.mechanisms import Gate, Gaussian, Laplace
from privopt.noise import SilentSource
from privopt.oracle import Sealed
from privopt.privacy import Accountant, Budget, Refused, charge_of
from privopt.privacy.kinds import GaussianKind
from privopt.problem import Problem

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 2)), RNG.integers(0, 2, 60)
APPROXIMATE = dict(epsilon=1.0, delta=1e-6)


def _stream(make, y):
    model = make(n_steps=4, **APPROXIMATE)
    for part in np.array_split(np.arange(60), 4):
        extra = {"classes": [0, 1]} if y is Y else {}
        model.partial_fit(X[part], y[part], **extra)


def _sums():
    list(privopt.prefix_sums(X, bound=1.0, n_steps=60, **APPROXIMATE))


def _train():
    torch = pytest.importorskip("torch")
    from privopt.torch import make_private

    data = torch.utils.data.TensorDataset(torch.tensor(X).float(), torch.tensor(Y).float())
    model = torch.nn.Linear(2, 1)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.utils.data.DataLoader(data, batch_size=20),
        epochs=1,
        **APPROXIMATE,
    )
    for x, y in private.loader:
        private.step(lambda out, t: (out[:, 0] - t) ** 2, x, targets=y)


ROADS = {
    "solve": lambda: privopt.solve(
        Problem(Logistic()), X, 2.0 * Y - 1, budget=Budget(1.0, 1e-6), solver="noisy_gd"
    ),
    "LogisticRegression": lambda: privopt.LogisticRegression(**APPROXIMATE).fit(X, Y),
    "quantile": lambda: privopt.quantile(X[:, 0], 0.5, bounds=(-3, 3), epsilon=1.0),
    "OnlineLogisticRegression": lambda: _stream(privopt.OnlineLogisticRegression, Y),
    "OnlineLinearRegression": lambda: _stream(privopt.OnlineLinearRegression, X[:, 0]),
    "prefix_sums": _sums,
    "torch": _train,
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.filterwarnings("ignore::privopt.PrivacyWarning")
def test_a_planted_release_is_refused_before_it_is_opened(monkeypatch, road):
    honest, opening, inside, leaked = Gate.release, Sealed.open, [False], []

    def open_and_tell(self, key):
        payload = opening(self, key)
        if inside[0]:
            leaked.append(self)
        return payload

    def release(self, mechanism, sealed):
        out = honest(self, mechanism, sealed)
        tiny = {"l2": Gaussian(1e-6), "l1": Laplace(1e-6)}.get(sealed.sensitivity.norm, mechanism)
        # Dry runs and the planner's simulations hold no data.
        callers = {frame.filename.rsplit("/", 1)[-1] for frame in traceback.extract_stack()}
        inside[0] = not isinstance(self._source, SilentSource) and "simulate.py" not in callers
        try:
            honest(self, tiny, sealed)
        finally:
            inside[0] = False
        return out

    monkeypatch.setattr(Sealed, "open", open_and_tell)
    monkeypatch.setattr(Gate, "release", release)
    with pytest.raises(Refused):
        ROADS[road]()
    assert leaked == []


def test_nobody_but_a_gate_writes_its_log():
    gate = Gate(SilentSource())
    with pytest.raises(Refused, match="only a gate"):
        gate.log.append(None)


def test_equal_kinds_are_as_many_releases():
    kind = GaussianKind(0.5, 0.5)
    assert charge_of(kind, kind) == charge_of(kind, count=2)
    assert Accountant().epsilon(charge_of(kind, kind), 1e-6) > 3.3
