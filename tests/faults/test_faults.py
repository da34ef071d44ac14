"""A short version of ``make faults``: the same trials, fewer of them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from privopt import Ledger, Refused

from .faults import (
    BUDGET,
    SPEND,
    flips,
    fresh,
    full_disk,
    heard,
    in_a_process,
    killed_at,
    kills,
    race,
)

# Newer Pythons warn when a process with threads forks; the test runner has threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def test_kills_never_overspend(tmp_path):
    outcome = kills(tmp_path, 120, seed=1)
    assert outcome.violations == []
    assert outcome.counts["burned"] > 0
    assert outcome.counts["voided"] > 0


def test_eight_racing_processes_get_exactly_the_total(tmp_path):
    assert race(tmp_path, processes=8, total=60).violations == []


def test_a_full_disk_loses_nothing(tmp_path):
    outcome = full_disk(tmp_path, 24, seed=1)
    assert outcome.violations == []
    assert outcome.counts["refused in a sentence"] > 0


def test_flipped_bits_are_refused_or_harmless(tmp_path):
    outcome = flips(tmp_path, 60, seed=1)
    assert outcome.violations == []
    assert outcome.counts["refused"] > 0


def test_a_creation_that_was_killed_can_be_completed(tmp_path):
    """At every third line; afterwards the ledger is there with its budget, or can be made."""
    trial, finished = 0, False
    while not finished:
        path = tmp_path / f"new-{trial}.db"

        def work(tell, path=path, line=3 * trial + 1):
            killed_at(line)
            Ledger.create(path, 1.0)

        status, _ = heard(*in_a_process(work))
        finished, trial = status == 0, trial + 1
        begun = False
        with suppress(Refused):
            begun = bool(Ledger(path).datasets)
        if not begun:
            Ledger.create(path, 1.0)
        assert Ledger(path).verify() == 1
        assert Ledger(path).dataset().left == (1.0, 0.0)
    assert trial > 20


@pytest.mark.parametrize(
    ("told", "words"),
    [((b"d", 2), "not charged"), ((b"h", 2), "not committed"), ((b"d", 99), "not charged")],
)
def test_the_trials_would_notice(tmp_path, told, words):
    """A random bit without a charge, an answer without a commit."""
    truth = fresh(tmp_path, "truth", 10)
    Ledger(truth.path).dataset().reserve(SPEND, BUDGET).void()
    truth.told.append(told)
    assert any(words in found for found in truth.violations())
