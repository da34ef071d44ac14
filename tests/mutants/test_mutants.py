"""The quick mutants die, and their checks find nothing wrong with the honest code."""

from __future__ import annotations

import pytest

from .bugs import ALL
from .modes import KNOWN, MODES, mode_of
from .mutant import forget
from .page import PAGE, page_text

QUICK = [mutant for mutant in ALL if mutant.quick]
CHECKS = {mutant.check: mutant for mutant in QUICK}


def test_the_list():
    """No name twice, and at least as many as the page of audits says."""
    names = [mutant.name for mutant in ALL]
    assert len(set(names)) == len(names) >= 300


def test_every_failure_mode_has_a_mutant_or_says_what_stands_in_its_way():
    assert len(MODES) == len(KNOWN) >= 46
    planted = {mode_of(mutant).key for mutant in ALL}
    assert {mode.key for mode in MODES if not mode.instead} <= planted


def test_the_page_is_up_to_date():
    """After a change of the list: ``python -m tests.mutants --page``."""
    assert PAGE.read_text(encoding="utf-8") == page_text()


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
@pytest.mark.filterwarnings("ignore")
def test_a_planted_bug_is_killed(mutant):
    assert mutant.try_it() is not None


@pytest.mark.parametrize("mutant", CHECKS.values(), ids=lambda mutant: mutant.name)
@pytest.mark.filterwarnings("ignore")
def test_the_check_passes_on_the_honest_code(mutant):
    forget()
    assert mutant.check() is None
