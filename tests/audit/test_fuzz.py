"""Half a covering of the fuzz table; ``python -m tests.audit.fuzz 20`` makes twenty whole ones."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.mechanisms import HOOK, Gate, Gaussian
from privopt.noise import SeededSource
from privopt.oracle import Sensitivity
from privopt.oracle.sealed import KEY, Sealed

from . import fuzz


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_half_a_covering_finds_nothing():
    found = list(fuzz.sweep(0, most=240))
    assert len(found) > 200
    assert {trial.entry for trial, _ in found} == set(fuzz.ENTRIES)
    assert {trial.cell for trial, _ in found} == set(fuzz.CELLS)
    assert {str(trial): text for trial, text in found if text} == {}


@pytest.mark.parametrize(
    ("cell", "what"),
    [("1e308", "the value moved"), ("canary", "quotes"), ("inf", "not finite")],
)
def test_the_table_is_not_blind(monkeypatch, cell, what):
    """An entry that does not clip, one that quotes what it saw, one that lets infinity out."""

    def leaky(X, y, bound):
        value = float(X[0, 0])
        if value == fuzz.CANARY:
            raise ValueError(f"what is {value}?")
        gate = Gate(SeededSource(0), hook=HOOK.get())
        sealed = Sealed(KEY, np.array([value]), Sensitivity("l2", 1.0, 1.0))
        return [gate.release(Gaussian(1.0), sealed)]

    monkeypatch.setitem(fuzz.ENTRIES, "solve", leaky)
    trial = fuzz.Trial("solve", "float64", "C", "numpy", cell)
    assert any(what in text for text in fuzz.findings(trial))
