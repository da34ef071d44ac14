"""The quick mutants die, and their checks find nothing wrong with the honest code."""

from __future__ import annotations

import os

import pytest

from .bugs import ALL
from .equivalent import EQUIVALENT
from .modes import KNOWN, MODES, mode_of
from .mutant import forget
from .page import PAGE, page_text
from .sites import SOURCE, drawn, plant, sites

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


# ---------------------------------------------------------------- random mutants
def test_sites_are_many_have_names_of_their_own_and_are_drawn_alike():
    found = sites()
    assert len(found) > 5000
    assert len({site.name for site in found}) == len(found)
    assert drawn(50, 3) == drawn(50, 3) != drawn(50, 4)


def test_a_planted_site_changes_what_runs():
    """In a process of its own: a function, a method and a constant of a module."""
    named = {site.name: site for site in sites()}
    wanted = (
        "privacy/conversions.py:gaussian_conversion: alpha * rho -> alpha / rho",
        "mechanisms/density/draws.py:DEEPEST: 128.0 -> 256.0",
    )
    for name in wanted:
        site = named[name]
        child = os.fork()
        if child == 0:
            os._exit(0 if plant(site) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, name
    assert (SOURCE / "privacy").is_dir()


def test_known_equivalents_are_sites_with_a_reason():
    named = {site.name for site in sites()}
    for name, reason in EQUIVALENT.items():
        assert name in named, name
        assert len(reason) > 10
