"""A nearly noiseless release behind each honest one: refused on every road before it is opened."""

import sys

import pytest

from privopt.mechanisms import Gate, Gaussian, Laplace, ReportNoisyMax
from privopt.noise import SilentSource
from privopt.oracle import Sealed
from privopt.privacy import Accountant, Refused, charge_of
from privopt.privacy.kinds import GaussianKind
from tests.mechanisms.roads import ROADS, travelled

TINY = {"l2": Gaussian(1e-6), "l1": Laplace(1e-6), "range": ReportNoisyMax(1e-6)}
BEHIND = [(road, None) for road in ROADS]
BEHIND += [("PrivateSearchCV", "_released"), ("PrivateSearchCV", "_score")]
"""Roads, and the function behind whose releases alone another one is planted."""


@pytest.mark.parametrize(("road", "where"), BEHIND)
def test_a_planted_release_is_refused_before_it_is_opened(monkeypatch, road, where):
    honest, opening, inside = Gate.release, Sealed.open, [False]
    planted, leaked = [], []

    def open_and_tell(self, key):
        payload = opening(self, key)
        if inside[0]:
            leaked.append(self)
        return payload

    def release(self, mechanism, sealed):
        out = honest(self, mechanism, sealed)
        # Rehearsals and simulations, which have no secure noise, hold no data.
        if not self._source.private or where not in (None, sys._getframe(1).f_code.co_name):
            return out
        tiny = TINY.get(sealed.sensitivity.norm, mechanism)
        inside[0] = True
        planted.append(tiny)
        try:
            honest(self, tiny, sealed)
        finally:
            inside[0] = False
        return out

    monkeypatch.setattr(Sealed, "open", open_and_tell)
    monkeypatch.setattr(Gate, "release", release)
    with pytest.raises(Refused):
        travelled(road)
    assert planted
    assert leaked == []


def test_nobody_but_a_gate_writes_its_log():
    gate = Gate(SilentSource())
    with pytest.raises(Refused, match="only a gate"):
        gate.log.append(None)


def test_equal_kinds_are_as_many_releases():
    kind = GaussianKind(0.5, 0.5)
    assert charge_of(kind, kind) == charge_of(kind, count=2)
    assert Accountant().epsilon(charge_of(kind, kind), 1e-6) > 3.3
