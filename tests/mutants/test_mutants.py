"""The quick mutants die, and their checks find nothing wrong with the honest code."""

from __future__ import annotations

import pytest

from .bugs import ALL
from .mutant import forget

QUICK = [mutant for mutant in ALL if mutant.quick]
CHECKS = {mutant.check: mutant for mutant in QUICK}


def test_the_list():
    """No name twice, and at least as many as the page of audits says."""
    names = [mutant.name for mutant in ALL]
    assert len(set(names)) == len(names) >= 150


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
@pytest.mark.filterwarnings("ignore")
def test_a_planted_bug_is_killed(mutant):
    assert mutant.try_it() is not None


@pytest.mark.parametrize("mutant", CHECKS.values(), ids=lambda mutant: mutant.name)
@pytest.mark.filterwarnings("ignore")
def test_the_check_passes_on_the_honest_code(mutant):
    forget()
    assert mutant.check() is None
