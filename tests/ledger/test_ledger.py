"""The ledger's rules: who pays, what comes back, what is refused, what is noticed."""

from __future__ import annotations

import ast
import copy
import json
import os
import pickle
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

import privopt.ledger as room
from privopt import Budget, Certificate, Ledger, Refused
from privopt.ledger.chain import Chain, Entry
from privopt.ledger.store import forget, store_at
from privopt.privacy import Spend, charge_of
from privopt.privacy.kinds import GaussianKind, ObjectiveGaussian, Pure
from privopt.privacy.profiles import gaussian_epsilon

# Newer Pythons warn when a process with threads forks; the test runner has threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def pure(epsilon):
    return Spend({(): charge_of(Pure(epsilon))}), Budget(epsilon)


def certificate(epsilon, mark=None, **changes):
    spend, _ = pure(epsilon)
    fields = {
        "epsilon": epsilon,
        "delta": 0.0,
        "neighbouring": "zero_out",
        "unit": "record",
        "private": True,
        "solver": "test",
        "charges": tuple(spend.frontier()),
        "releases": 1,
        "cells": 1,
        "ledger": mark,
    }
    return Certificate(**{**fields, **changes})


def take(budget, epsilon=0.25, **options):
    return budget.reserve(*pure(epsilon), **options)


def release(budget, epsilon=0.25, **options):
    paid = take(budget, epsilon, touched=True, **options)
    paid.commit(certificate(epsilon, paid.mark))
    return paid


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def budget(path):
    return Ledger.create(path, 1.0, dataset="survey").dataset()


# ---------------------------------------------------------------- paying
def test_a_reservation_counts_at_once(budget):
    take(budget)
    assert budget.left == (0.75, 0.0)
    assert budget.spent == (0.25, 0.0)
    assert budget.counts == {"open": 1, "committed": 0, "burned": 0, "voided": 0}


def test_exactly_the_total_is_granted(budget):
    for _ in range(4):
        release(budget)
    with pytest.raises(Refused, match=r"is short: this fit needs epsilon=0\.25 .* and epsilon=0 "):
        take(budget)
    assert budget.counts["committed"] == 4


def test_ten_tenths_are_one(budget):
    for _ in range(10):
        release(budget, 0.1)
    with pytest.raises(Refused, match="is short"):
        take(budget, 1e-6)


def test_only_what_was_not_touched_comes_back(budget):
    take(budget).void()
    assert budget.left == (1.0, 0.0)
    paid = take(budget)
    paid.touch()
    for never in (paid.void, paid.touch):
        with pytest.raises(Refused, match="touched cannot be"):
            never()
    assert budget.left == (0.75, 0.0)
    paid.burn()
    assert budget.left == (0.75, 0.0)
    at_once = take(budget, touched=True)
    with pytest.raises(Refused, match="touched cannot be voided"):
        at_once.void()


def test_no_commit_without_a_touch_and_none_twice(budget):
    paid = take(budget)
    with pytest.raises(Refused, match="reserved cannot be"):
        paid.commit(certificate(0.25))
    paid.touch()
    paid.commit(certificate(0.25))
    for late in (paid.void, paid.burn, lambda: paid.commit(certificate(0.25))):
        with pytest.raises(Refused, match="settled already"):
            late()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Budget(0.25, 0.0, "replace_one"), "kept under zero_out: a guarantee under replace_one"),
        (Budget(0.25, unit="household"), "kept per record: a guarantee per household"),
    ],
)
def test_another_relation_or_unit_is_refused(budget, other, words):
    with pytest.raises(Refused, match=words):
        budget.reserve(pure(0.25)[0], other)
    assert budget.left == (1.0, 0.0)


def test_gaussian_fits_are_composed_and_not_added(path):
    budget = Ledger.create(path, 3.0, 1e-6, composition="gaussian").dataset()
    mu, count = 0.1, 0
    spend = Spend({(): charge_of(GaussianKind(mu, mu))})
    each = Budget(gaussian_epsilon(mu, 1e-7) * 1.001, 1e-7)
    while gaussian_epsilon(mu * (count + 1) ** 0.5, 1e-6) <= 3.0:
        budget.reserve(spend, each, touched=True)
        count += 1
        assert budget.spent[0] == pytest.approx(gaussian_epsilon(mu * count**0.5, 1e-6))
    assert count > 30, "adding epsilons would allow seven"
    with pytest.raises(Refused, match="is short"):
        budget.reserve(spend, each)
    assert budget.gaussian
    objective = Spend({(): charge_of(ObjectiveGaussian(0.01, 0.01, True))})
    with pytest.raises(Refused, match='composition="basic"'):
        budget.reserve(objective, Budget(0.1, 1e-7))


def test_a_fit_that_was_made_elsewhere_can_be_charged(budget):
    budget.burn(certificate(0.5))
    assert budget.left == (0.5, 0.0)
    with pytest.raises(Refused, match="is short"):
        budget.burn(certificate(0.75))
    assert budget.counts["burned"] == 1


# ---------------------------------------------------------------- keys
def test_a_retry_is_not_charged_and_returns_what_was_stored(budget):
    paid = take(budget, key="monday", touched=True)
    with pytest.raises(Refused, match="is being made"):
        take(budget, key="monday")
    stored = certificate(0.25, paid.mark)
    paid.commit(stored, result=[1.5])
    again = take(budget, key="monday")
    assert room.stored(again.answer) == (stored, [1.5])
    assert again.mark == paid.mark
    assert budget.left == (0.75, 0.0)
    with pytest.raises(Refused, match="another release"):
        take(budget, 0.5, key="monday")
    with pytest.raises(Refused, match="another release"):
        take(budget, key="monday", what="other")


def test_a_key_of_a_lost_release_stays_used(budget):
    take(budget, key="a", touched=True).burn()
    with pytest.raises(Refused, match="was lost"):
        take(budget, key="a")
    take(budget, key="b").void()
    take(budget, key="b")


# ---------------------------------------------------------------- names and files
def test_several_budgets_in_one_file(path, budget):
    ledger = Ledger.create(path, 2.0, 1e-5, neighbouring="add_remove", dataset="trial")
    assert ledger.datasets == ("survey", "trial")
    release(ledger.dataset("survey"))
    assert ledger.dataset("trial").left == (2.0, 1e-5)
    for name, words in ((None, "holds 2 data sets"), ("census", "no budget for 'census'")):
        with pytest.raises(Refused, match=words):
            ledger.dataset(name)
    with pytest.raises(Refused, match="never grows"):
        Ledger.create(path, 5.0, dataset="trial")


def test_the_file_is_as_promised(path, budget):
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        (table,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'entries'"
        ).fetchone()
        assert table.endswith("STRICT")
        for change in ("UPDATE entries SET body = '{}'", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="entries are never"):
                connection.execute(change)
    connection.close()
    assert store_at(path)._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_no_clock_in_the_room():
    for file in Path(room.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text())
        imported = {
            name.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in node.names
        }
        assert not imported & {"time", "datetime"}
        assert "CURRENT_TIMESTAMP" not in file.read_text()


def test_it_travels_without_its_connection(path, budget):
    ledger = Ledger(path)
    for other in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        assert other == ledger
        assert hash(other) == hash(ledger)
        assert vars(other) == {"path": path}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must"),
        ({"neighbouring": "swap"}, "neighbouring must"),
        ({"composition": "sum"}, "composition must"),
        ({"composition": "gaussian"}, "needs delta > 0"),
        ({"dataset": ""}, "needs a name"),
    ],
)
def test_bad_budgets_make_no_file(path, options, words):
    with pytest.raises(ValueError, match=words):
        Ledger.create(path, **{"epsilon": 1.0, **options})
    assert list(path.parent.iterdir()) == []


def test_files_that_are_no_ledger(path):
    with pytest.raises(Refused, match="there is no ledger"):
        Ledger(path)
    path.write_text("income,age\n")
    Path(f"{path}-head").write_text(f"0 {'0' * 64}\n")
    with pytest.raises(Refused, match="damaged"):
        Ledger(path)
    with pytest.raises(Refused, match="damaged"):
        Ledger.create(path, 1.0)


# ---------------------------------------------------------------- tampering
def tamper(path, *statements):
    """As somebody with SQLite would do it; the library's processes are not running."""
    forget(path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_stay")
    connection.execute("DROP TRIGGER entries_remain")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = replace(body, '0000', '0001') WHERE number = 2",
        "UPDATE entries SET action = 'void' WHERE number = 3",
        "UPDATE entries SET dataset = 'other' WHERE number = 2",
        "UPDATE entries SET release = '' WHERE number = 3",
        "UPDATE entries SET hash = upper(hash) WHERE number = 2",
        "UPDATE entries SET number = 9 WHERE number = 5",
        "UPDATE entries SET body = '[1]' WHERE number = 4",
        "DELETE FROM entries WHERE number = 3",
        "DELETE FROM entries WHERE number >= 4",
        "DELETE FROM entries WHERE number = 5",
        "DELETE FROM entries",
    ],
)
def test_a_changed_entry_is_noticed(path, budget, statement):
    release(budget)
    release(budget)
    tamper(path)
    assert Ledger(path).verify() == 5
    forget(path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    # The last entry is a commit, which changes no amount: the head need not know it.
    if statement.endswith("number = 5") and statement.startswith("DELETE"):
        assert Ledger(path).dataset().left == (0.5, 0.0)
        return
    with pytest.raises(Refused, match="cannot be trusted"):
        Ledger(path)


def test_text_that_became_bytes_is_noticed():
    """As a flipped bit in SQLite's own description of a row leaves it."""
    chain = Chain()
    for broken in (b"{}", None):
        with pytest.raises(Refused, match="entry 1 is missing or was altered"):
            chain.follow(Entry(1, "survey", "", "create", broken, "0" * 64))


def test_an_entry_that_gives_back_what_was_touched_is_refused(path, budget):
    """Even with a right hash: the rules are checked, not only the chain."""
    paid = take(budget, touched=True)
    store = store_at(path)
    with pytest.raises(Refused, match="makes no sense"), store.writing():
        store.append("survey", paid.name, "void", {})
    body = json.loads(store.entry(2).body)
    body["left"]["epsilon"] += 1
    with pytest.raises(Refused, match="makes no sense"), store.writing():
        store.append("survey", "f" * 32, "reserve", body)
    assert budget.left == (0.75, 0.0)


def test_verify_computes_every_cost_again(path, budget):
    """An entry that follows the rules of the chain, at a price its mechanism does not have."""
    take(budget, touched=True)
    store = store_at(path)
    body = json.loads(store.entry(2).body)
    body["cost"]["epsilon"] -= 10**11
    body["left"]["epsilon"] -= body["cost"]["epsilon"]
    with store.writing():
        store.append("survey", "f" * 32, "reserve", body)
    with pytest.raises(Refused, match="entry 3 costs less than its mechanisms do"):
        Ledger(path).verify()


def test_what_a_process_has_seen_is_not_forgotten_by_verifying(path, budget):
    forget(path)
    content = {file: file.read_bytes() for file in files(path)}
    release(budget)
    assert Ledger(path).verify() == 3
    store_at(path)._disconnect()
    for file, text in content.items():
        if not file.name.endswith("-lock"):
            file.unlink()
            file.write_bytes(text)
    with pytest.raises(Refused, match="older than what this process has seen"):
        Ledger(path).verify()


def files(path):
    return [file for file in path.parent.iterdir() if file.is_file()]


def test_a_restored_old_copy_is_noticed(path, budget):
    old = path.parent / "backup"
    forget(path)
    old.mkdir()
    shutil.copy(path, old)
    paid = release(budget)
    forget(path)
    Path(f"{path}-wal").unlink(missing_ok=True)
    shutil.copy(old / path.name, path)
    with pytest.raises(Refused, match="ends at entry 1, and its head says"):
        Ledger(path)
    # A copy of the whole folder takes the head along; only a certificate knows better.
    Ledger.accept(path)
    with pytest.raises(Refused, match="older copy"):
        Ledger(path).verify(certificate(0.25, paid.mark))
    with pytest.raises(Refused, match="not charged to any ledger"):
        Ledger(path).verify(certificate(0.25))


def test_an_old_copy_is_noticed_by_a_process_that_is_running(path, budget):
    forget(path)
    content = {file: file.read_bytes() for file in files(path)}
    Ledger(path)
    release(budget)
    store_at(path)._disconnect()
    for file in files(path):
        if file in content and not file.name.endswith("-lock"):
            file.unlink()
            file.write_bytes(content[file])
    with pytest.raises(Refused, match="older than what this process has seen"):
        take(budget)


def test_a_lost_head_is_refused_until_a_person_accepts(path, budget):
    release(budget)
    Path(f"{path}-head").unlink()
    with pytest.raises(Refused, match=r"ledger\.db-head, is missing"):
        take(budget)
    Path(f"{path}-head").write_text("garbage\n")
    with pytest.raises(Refused, match="head cannot be read"):
        Ledger(path)
    assert Ledger.accept(path).dataset().left == (0.75, 0.0)
    take(budget)


def test_a_deleted_ledger_is_not_begun_anew(path, budget):
    forget(path)
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    with pytest.raises(Refused, match="there is no ledger"):
        Ledger(path)
    with pytest.raises(Refused, match="is still there"):
        Ledger.create(path, 1.0, dataset="survey")


def test_verify_names_the_entry_of_a_certificate(path, budget):
    paid = release(budget)
    release(budget)
    assert Ledger(path).verify(certificate(0.25, paid.mark)) == 5
    wrong = {**paid.mark, "hash": "0" * 64}
    with pytest.raises(Refused, match="does not hold the entry"):
        Ledger(path).verify(certificate(0.25, wrong))


# ---------------------------------------------------------------- processes and threads
def child(work):
    """Run in a fork that ends without saying goodbye."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


@pytest.mark.parametrize(
    ("touched", "state", "left"), [(True, "burned", 0.5), (False, "voided", 0.75)]
)
def test_what_a_dead_process_left_is_settled(budget, touched, state, left):
    assert child(lambda: take(budget, touched=touched)) == 0
    assert budget.left == (0.75, 0.0)
    take(budget)
    assert budget.counts[state] == 1
    assert budget.left == (left, 0.0)


def test_what_a_living_process_holds_stays(budget):
    """Neither a child nor a thread of ours mistakes an open reservation for a lost one."""
    paid = take(budget, touched=True)
    assert child(lambda: take(budget).void()) == 0
    thread = threading.Thread(target=lambda: take(budget).void())
    thread.start()
    thread.join()
    assert budget.counts == {"open": 1, "committed": 0, "burned": 0, "voided": 2}

    def settle():
        with pytest.raises(Refused, match="belongs to the process"):
            paid.burn()

    assert child(settle) == 0
    paid.commit(certificate(0.25, paid.mark))


def test_open_reservations_can_be_burned_by_hand(budget):
    paid = take(budget, touched=True)
    assert budget.burn_open() == 1
    with pytest.raises(Refused, match="settled already"):
        paid.commit(certificate(0.25, paid.mark))
    assert budget.left == (0.75, 0.0)


def test_threads_share_one_budget(path):
    budget = Ledger.create(path, 5.0).dataset()
    granted = []

    def work():
        try:
            while True:
                granted.append(release(budget))
        except Refused:
            pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 20
    assert Ledger(path).verify() == 41


def test_a_fork_may_use_the_ledger_of_its_parent(budget):
    for _ in range(2):
        release(budget)
        assert child(lambda: release(budget)) == 0
    assert budget.left == (0.0, 0.0)
    assert budget.counts["committed"] == 4
