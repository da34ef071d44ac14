"""A short version of ``make faults``: the same trials, fewer of them."""

from __future__ import annotations

import pytest

from .faults import Truth, flips, fresh, full_disk, kills, race

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


@pytest.mark.parametrize(
    ("told", "words"),
    [((b"d", 2), "not charged"), ((b"h", 2), "not committed"), ((b"d", 99), "not charged")],
)
def test_the_trials_would_notice(tmp_path, told, words):
    """A random bit without a charge, an answer without a commit."""
    truth: Truth = fresh(tmp_path, "truth", 10)
    from privopt import Ledger

    from .faults import BUDGET, SPEND

    Ledger(truth.path).dataset().reserve(SPEND, BUDGET).void()
    truth.told.append(told)
    assert any(words in found for found in truth.violations())
