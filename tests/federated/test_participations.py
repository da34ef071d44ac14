"""The ledger of participations: the rule holds whatever happens, and ids do not lie about."""

from __future__ import annotations

import os
import stat
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt import Participation, Refused
from privopt.federated.participations import JOURNAL, KEY, Participations

RULE = Participation.separated(2, 5)


@pytest.fixture(params=["memory", "disk"])
def people(request, tmp_path):
    return Participations(RULE, tmp_path / "people" if request.param == "disk" else None)


# ------------------------------------------------------------ the rule
def test_whoever_was_asked_too_lately_or_too_often_is_refused(people):
    people.ask([1, 2], 0)
    assert people.may([1, 2, 3], 4) == [False, False, True]
    with pytest.raises(Refused, match="more often, or sooner"):
        people.ask([3, 1], 4)
    people.ask([1], 5)
    assert people.may([1, 2, 3], 100) == [False, True, True]
    with pytest.raises(Refused, match="more often, or sooner"):
        people.ask([1], 100)
    assert people.patterns == {(0, 5), (0,)}


def test_a_refused_question_enters_nobody(people):
    people.ask([1], 0)
    with pytest.raises(Refused):
        people.ask([2, 1], 1)
    with pytest.raises(Refused, match="twice in one round"):
        people.ask([3, 3], 1)
    with pytest.raises(ValueError, match="missing"):
        people.ask([4, None], 1)
    assert people.may([2, 3, 4], 1) == [True, True, True]


def test_rounds_do_not_go_backwards(people):
    people.ask([1], 7)
    assert people.may([1], 7) == people.may([1], 0) == [False]


def test_one_person_has_one_name(people):
    people.ask([7], 0)
    with pytest.raises(Refused):
        people.ask([np.uint64(7)], 1)
    assert people.may(["007"], 1) == people.may([" 7"], 1) == [False]
    big = 2**63 + 11  # a float would not tell it from its neighbour
    people.ask([big], 1)
    assert people.may([big + 1], 2) == [True]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=40),
)
def test_what_may_be_asked_is_what_the_rule_allows(times, apart, questions):
    """Against the patterns themselves, for questions in any order of rounds."""
    rule = Participation.separated(times, apart)
    people, rounds, round = Participations(rule), {}, 0
    for person, later in questions:
        round += later
        allowed = rule.allows((*rounds.get(person, ()), round))
        assert people.may([person], round) == [allowed]
        if allowed:
            people.ask([person], round)
            rounds.setdefault(person, []).append(round)
    assert people.patterns == {tuple(pattern) for pattern in rounds.values()}


# ------------------------------------------------------------ answers
def test_late_double_and_foreign_answers_count_nothing(people):
    people.ask([1, 2], 0)
    assert not people.answered(3)
    assert people.answered(1)
    assert not people.answered(1)
    people.close()
    assert not people.answered(2)
    people.ask([4], 1)
    assert not people.answered(2)
    assert people.answered(4)


def test_whoever_does_not_answer_has_had_that_turn(people):
    people.ask([1], 0)
    people.close()
    assert people.may([1], 1) == [False]


# ------------------------------------------------------------ on disk
def test_a_server_that_is_started_again_remembers(tmp_path):
    first = Participations(RULE, tmp_path / "p")
    first.ask([1, 2], 0)
    first.ask([3], 1)
    again = Participations(RULE, tmp_path / "p")
    assert again.patterns == first.patterns
    assert again.may([1, 2, 3, 4], 4) == [False, False, False, True]
    assert not again.answered(3)  # asked by another process: its answers are late here


def test_of_two_servers_on_one_ledger_the_first_is_refused(tmp_path):
    first = Participations(RULE, tmp_path / "p")
    first.ask([1], 0)
    second = Participations(RULE, tmp_path / "p")
    for attempt in (lambda: first.ask([2], 1), first.still_mine):
        with pytest.raises(Refused, match="another server"):
            attempt()
    second.ask([2], 1)
    second.still_mine()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_there_are_pseudonyms_and_only_their_owner_reads_them(tmp_path):
    people = Participations(RULE, tmp_path / "p")
    people.ask(["somebody@example.org"], 0)
    for name in (JOURNAL, KEY):
        path = tmp_path / "p" / name
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert b"somebody" not in path.read_bytes()
    other = Participations(RULE, tmp_path / "q")
    other.ask(["somebody@example.org"], 0)
    found = [(tmp_path / x / JOURNAL).read_text().split('"asked": ["')[1][:32] for x in "pq"]
    assert found[0] != found[1]  # another key, another pseudonym


@pytest.mark.parametrize(
    "other", [Participation.separated(3, 5), Participation.separated(2, 4), Participation()]
)
def test_the_rule_of_a_ledger_cannot_change(tmp_path, other):
    Participations(RULE, tmp_path).ask([1], 0)
    with pytest.raises(Refused, match="cannot change"):
        Participations(other, tmp_path)
    assert Participations(RULE, tmp_path).may([1], 1) == [False]


def test_a_torn_last_line_is_a_question_that_never_left(tmp_path):
    people = Participations(RULE, tmp_path)
    people.ask([1], 0)
    before = (tmp_path / JOURNAL).read_bytes()
    people.ask([2], 1)
    whole = (tmp_path / JOURNAL).read_bytes()
    for end in range(len(before), len(whole), 7):
        (tmp_path / JOURNAL).write_bytes(whole[:end])
        assert Participations(RULE, tmp_path).may([1, 2], 2) == [False, True]


def test_every_other_damage_is_refused(tmp_path):
    people = Participations(RULE, tmp_path)
    for round in range(3):
        people.ask([round], round)
    whole = (tmp_path / JOURNAL).read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = [
        b"".join(lines[:1] + lines[2:]),
        b"".join(lines[:1] + lines[2:3] + lines[1:2] + lines[3:]),
        whole.replace(b'"round": 1', b'"round": 2'),
        b"".join([*lines[:2], lines[2][:-5], *lines[3:]]),
    ]
    for content in damaged:
        (tmp_path / JOURNAL).write_bytes(content)
        with pytest.raises(Refused, match="cut or altered"):
            Participations(RULE, tmp_path)
    (tmp_path / JOURNAL).write_bytes(whole)
    (tmp_path / KEY).unlink()
    with pytest.raises(Refused, match="cut or altered"):
        Participations(RULE, tmp_path)


def test_a_ledger_that_shrinks_under_a_server_is_refused(tmp_path):
    people = Participations(RULE, tmp_path)
    people.ask([1], 0)
    (tmp_path / JOURNAL).write_bytes(b"")
    with pytest.raises(Refused, match="cut or altered"):
        people.ask([2], 1)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_nobody_is_asked_too_often_by_servers_that_are_killed():
    from tests.federated.kills import main

    seen = main(40)
    assert seen["killed"] >= 20
