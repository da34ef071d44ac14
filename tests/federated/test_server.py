"""The server of a federated training: exact sums, declared noise, and every way to break a rule."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise, product
from threading import Barrier

import numpy as np
import pytest

from privopt import Ledger, Refused
from privopt.federated import SGD, Adam, Server
from privopt.federated.clipping import BIT, Clip, Quantile
from privopt.mechanisms.checkpoint import Checkpoint
from privopt.noise import SeededSource, SilentSource
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu

WIDTH, PEOPLE = 12, range(40)
NOISES = ["independent", "tree", "honaker", "sqrt_toeplitz", "banded", "blt"]


def made(width=WIDTH, **more):
    given = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "rounds": 8,
        "report_goal": 5,
        "clip_norm": 0.5,
        "noise": "banded",
        "random_state": 0,
    }
    if "population" not in more:
        given["min_separation"] = 4
    return Server(np.zeros(width), **{**given, **more})


def update(person, round, size=WIDTH, scale=0.4):
    """What a person would send: some longer than the clip norm, some shorter."""
    return SeededSource(1000 * round + person).noise.normal(size=size) * scale


def play(server, rounds=None, answers=lambda asked: asked, scale=0.4):
    """Rounds of a training; who was asked in each."""
    asked = []
    for _ in range(server.rounds_left if rounds is None else rounds):
        asked.append(server.begin_round(PEOPLE))
        for person in answers(asked[-1]):
            assert server.answer(person, update(person, server.round, scale=scale), server.ticket)
        server.end_round()
    return asked


# ------------------------------------------------------------ exactness
@pytest.mark.parametrize("noise", [*NOISES, "auto"])
def test_without_noise_it_is_federated_averaging(noise):
    server = made(noise=noise, random_state=SilentSource())
    asked, model = play(server), np.zeros(WIDTH)
    for round, people in enumerate(asked):
        cut = [update(p, round) * min(1, 0.5 / np.linalg.norm(update(p, round))) for p in people]
        model += np.sum(cut, axis=0) / 5
    assert np.allclose(server.model, model, atol=1e-6)


@pytest.mark.parametrize("noise", ["independent", "banded", "auto"])
def test_sampling_is_federated_averaging_too(noise):
    server = made(noise=noise, population=40, report_goal=10, random_state=SilentSource())
    asked, model = play(server, scale=0.01), np.zeros(WIDTH)
    for round, people in enumerate(asked):
        model += sum((update(p, round, scale=0.01) for p in people), np.zeros(WIDTH)) / 10
    assert np.allclose(server.model, model, atol=1e-6)
    assert len({len(people) for people in asked}) > 1
    if server.plan.groups > 1:  # everybody in one group's rounds alone
        for person in PEOPLE:
            rounds = {r % server.plan.groups for r, people in enumerate(asked) if person in people}
            assert len(rounds) <= 1


def test_layers_are_clipped_one_by_one():
    server = made(clip_norm=[0.3, 0.4], layers=[4, 8], random_state=SilentSource())
    (person, *_), big = server.begin_round(PEOPLE), np.full(WIDTH, 7.0)
    server.answer(person, big)
    model = server.end_round() * 5
    assert np.linalg.norm(model[:4]) == pytest.approx(0.3, abs=1e-6)
    assert np.linalg.norm(model[4:]) == pytest.approx(0.4, abs=1e-6)
    assert server.clip_norm == pytest.approx(0.5)


@pytest.mark.parametrize("noise", ["independent", "banded", "blt", "tree"])
def test_the_noise_of_a_round_is_the_declared_one(noise):
    """One round of many coordinates; the fresh noise of round 0 has 1/C_00 of the scale."""
    server = Server(
        np.zeros(20_000), epsilon=4.0, delta=1e-5, rounds=8, report_goal=5, clip_norm=0.5,
        noise=noise, min_separation=4, random_state=1,
    )  # fmt: skip
    server.begin_round(PEOPLE)
    model = server.end_round()
    first = server.plan.factorization.encode(np.eye(8))[0, 0]
    assert np.std(model) * first == pytest.approx(server.noise_std, rel=0.03)


@pytest.mark.parametrize("noise", ["independent", "banded", "auto"])
def test_the_noise_of_a_sampled_round_is_the_declared_one(noise):
    server = Server(
        np.zeros(20_000), epsilon=4.0, delta=1e-5, rounds=8, report_goal=4, clip_norm=0.5,
        noise=noise, population=40, random_state=1,
    )  # fmt: skip
    server.begin_round([])
    first = server.plan.factorization.encode(np.eye(8))[0, 0]
    assert np.std(server.end_round()) * first == pytest.approx(server.noise_std, rel=0.03)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("noise", NOISES)
def test_epsilon_is_that_of_the_worst_pattern_and_no_actual_one_is_worse(noise, neighbouring):
    server = made(noise=noise, neighbouring=neighbouring)
    play(server)
    factorization, multiplier = server.plan.factorization, server.plan.multiplier
    actual = factorization.losses_squared(sorted(server.people.patterns))
    worst = math.sqrt(factorization.sensitivity_squared(server.plan.rule)) / multiplier
    certificate = server.certificate()
    assert certificate.epsilon == pytest.approx(gaussian_epsilon(worst, 1e-5), rel=1e-9)
    assert certificate.epsilon <= 4.0 * (1 + 1e-9)
    assert math.sqrt(actual.max()) / multiplier <= worst * (1 + 1e-12)
    assert (certificate.unit, certificate.releases) == ("user", 8)
    if noise == "independent":  # two participations, wherever they are, are the worst
        assert math.sqrt(actual.max()) / multiplier == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize("noise", ["auto", *NOISES])
def test_no_pattern_of_any_rule_is_worse(noise):
    """All small rules: the worst set of rounds by enumeration, from the matrix of the noise."""
    mu = gaussian_mu(4.0, 1e-5)
    for rounds, apart, times in product((1, 3, 6), (1, 2, 5), (None, 1, 2)):
        server = made(rounds=rounds, min_separation=apart, max_participations=times, noise=noise)
        matrix = server.plan.factorization.encode(np.eye(rounds))
        gram, most = np.abs(matrix.T @ matrix), min(rounds, times or rounds)
        worst = max(
            gram[np.ix_(rows, rows)].sum()
            for count in range(1, most + 1)
            for rows in combinations(range(rounds), count)
            if all(b - a >= apart for a, b in pairwise(rows))
        )
        assert server.plan.multiplier * mu >= math.sqrt(worst) * (1 - 1e-9), (rounds, apart, times)


def test_a_prefix_costs_less():
    server = made()
    spent = []
    for _ in range(8):
        play(server, 1)
        spent.append(server.certificate().epsilon)
    assert spent == sorted(spent)
    assert spent[0] < 0.8 * spent[-1]


# ------------------------------------------------------------ what breaks a rule
def test_nobody_is_asked_twice_within_the_separation():
    server = made()
    asked = play(server)
    for round, people in enumerate(asked):
        for later in asked[round + 1 : round + 4]:
            assert not set(people) & set(later)
    assert all(server.plan.rule.allows(pattern) for pattern in server.people.patterns)
    few = made()
    assert len(few.begin_round(range(5))) == 5
    few.end_round()
    with pytest.raises(Refused, match="nobody may be asked"):
        few.begin_round(range(5))
    assert few.begin_round(range(5, 9)) == [5, 6, 7, 8]


def test_late_double_foreign_and_replayed_answers_count_nothing():
    server, ones = made(random_state=SilentSource()), np.full(WIDTH, 0.1)
    asked = server.begin_round(PEOPLE)
    old = server.ticket
    stranger = next(p for p in PEOPLE if p not in asked)
    assert server.answer(asked[0], ones, old)
    assert not server.answer(asked[0], ones, old)  # the same answer again
    assert not server.answer(stranger, ones, old)
    assert np.allclose(server.end_round(), ones / 5, atol=1e-6)
    assert not server.answer(asked[1], ones, old)  # late
    for _ in range(3):
        server.begin_round(PEOPLE)
        server.end_round()
    again = server.begin_round(asked)  # those of the first round are asked again
    assert set(again) <= set(asked)
    assert not server.answer(again[0], ones, old)  # what they sent then does not count now
    assert server.answer(again[0], ones, server.ticket)
    assert np.allclose(server.end_round(), 2 * ones / 5, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200, 1e300])
def test_what_is_not_finite_or_not_clipped_moves_a_round_by_the_clip_norm_at_most(bad):
    server = made(random_state=SilentSource())
    asked = server.begin_round(PEOPLE)
    broken = np.full(WIDTH, 0.01)
    broken[3] = bad
    assert server.answer(asked[0], broken)
    model = server.end_round()
    assert np.isfinite(model).all()
    assert np.linalg.norm(model) <= 0.5 / 5


def test_a_round_with_fewer_answers_is_paid_and_divided_like_any_other():
    full, short = (made(random_state=SilentSource()) for _ in range(2))
    play(full, 1)
    asked = play(short, 1, answers=lambda asked: asked[:1])[0]
    cut = update(asked[0], 0)
    cut *= min(1, 0.5 / np.linalg.norm(cut))
    assert np.allclose(short.model, cut / 5, atol=1e-6)
    assert short.certificate().epsilon == full.certificate().epsilon
    nobody = made(random_state=SilentSource())
    play(nobody, 1, answers=lambda asked: [])
    assert not nobody.model.any()
    assert nobody.certificate().epsilon == full.certificate().epsilon


# ------------------------------------------------------------ restarts
@pytest.mark.parametrize("noise", [*NOISES, "sampled", "sampled banded"])
def test_a_server_goes_on_where_it_was(tmp_path, noise):
    """The noise of later rounds takes off that of earlier ones: it has to survive exactly."""
    how = {"noise": noise}
    if noise.startswith("sampled"):
        how = {"noise": noise[8:] or "independent", "population": 40}
    how |= {"optimizer": SGD(0.5, 0.9)}
    first = made(checkpoint=tmp_path / "run", **how)
    play(first, 5)
    how["optimizer"] = SGD(0.5, 0.9)
    second = made(checkpoint=tmp_path / "run", **how)
    assert (second.round, second.rounds_left) == (5, 3)
    assert np.array_equal(second.model, first.model)
    assert second.people.patterns == first.people.patterns
    assert second.certificate().epsilon == first.certificate().epsilon
    if hasattr(first._mechanism, "factorization"):
        states = [s._run.noise_state(s._mechanism)["noise"] for s in (first, second)]
        assert states[0]["step"] == states[1]["step"] == 5
        for a, b in zip(states[0]["vectors"], states[1]["vectors"], strict=True):
            assert np.array_equal(a, b)
    play(second)
    assert second.certificate().releases == 8
    with pytest.raises(Refused, match="8 rounds of the budget are used"):
        second.begin_round(PEOPLE)


def test_a_restarted_optimizer_remembers(tmp_path):
    for name, optimizer in (("s", lambda: SGD(0.5, 0.9)), ("a", Adam)):
        silent = {"random_state": SilentSource(), "min_separation": 1, "ask": 40}
        whole = made(optimizer=optimizer(), **silent)
        play(whole, 6)
        play(made(optimizer=optimizer(), checkpoint=tmp_path / name, **silent), 3)
        rest = made(optimizer=optimizer(), checkpoint=tmp_path / name, **silent)
        play(rest, 3)
        assert np.allclose(rest.model, whole.model, atol=1e-9)


def test_a_server_that_dies_between_noise_and_commit_draws_fresh_noise(tmp_path, monkeypatch):
    server = made(checkpoint=tmp_path / "run", random_state=None)
    play(server, 2)
    save, seen = Checkpoint.save, []

    def dies(self, model, noise, records):
        seen.append(noise["model"].copy())
        raise KeyboardInterrupt

    asked = server.begin_round(PEOPLE)
    monkeypatch.setattr(Checkpoint, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        server.end_round()
    monkeypatch.setattr(Checkpoint, "save", save)
    with pytest.raises(Refused, match="did not finish"):
        server.begin_round(PEOPLE)
    again = made(checkpoint=tmp_path / "run", random_state=None)
    assert again.round == 2  # the round was never seen
    assert not set(asked) & set(again.begin_round(PEOPLE))  # but they have had their turn
    assert not np.any(again.end_round() == seen[0])
    assert again.certificate().private


def test_whatever_the_optimizer_does_a_round_is_released_once(tmp_path):
    """It is somebody's code, and sees the update once that is written down; whoever goes on lets it
    see the same."""
    seen = []

    def fails(model, update):
        seen.append(update.copy())
        if len(seen) == 3:
            raise ZeroDivisionError
        return model + update

    how = {"checkpoint": tmp_path / "run", "random_state": None, "optimizer": fails}
    server = made(**how)
    play(server, 2)
    server.begin_round(PEOPLE)
    with pytest.raises(ZeroDivisionError):
        server.end_round()
    with pytest.raises(Refused, match="did not finish"):
        server.begin_round(PEOPLE)
    again = made(**how)
    assert again.round == 3
    assert np.array_equal(seen[2], seen[3])
    assert np.allclose(again.model, seen[0] + seen[1] + seen[2])
    assert again.certificate().releases == 3


def test_what_cannot_be_noticed_is_assumed(tmp_path):
    """A folder that somebody brings back, and a process that has none."""
    lasting, passing = made(checkpoint=tmp_path / "run"), made()
    for server, words in ((lasting, "brought back to an earlier round"), (passing, "in memory")):
        assert any(words in line for line in server.certificate().assumptions)
        assert any("ids are authenticated" in line for line in server.certificate().assumptions)


def test_of_two_servers_on_one_checkpoint_one_is_refused(tmp_path):
    first = made(checkpoint=tmp_path / "run")
    play(first, 1)
    first.begin_round(PEOPLE)
    second = made(checkpoint=tmp_path / "run")
    with pytest.raises(Refused, match="another server"):
        first.end_round()
    with pytest.raises(Refused, match="another server"):
        first.begin_round(PEOPLE)
    play(second)
    assert all(second.plan.rule.allows(pattern) for pattern in second.people.patterns)


def test_the_second_of_two_servers_cannot_publish_an_old_round(tmp_path):
    """It read the folder before the first committed, and asked after."""
    first = made(checkpoint=tmp_path / "run")
    play(first, 1)
    first.begin_round(PEOPLE)
    second = made(checkpoint=tmp_path / "run")
    first.people.still_mine = lambda: None  # as if it had looked a moment before
    first.end_round()
    second.begin_round(PEOPLE)
    with pytest.raises(Refused, match="another process"):
        second.end_round()


def test_a_ledger_of_people_that_lost_lines_is_refused(tmp_path):
    play(made(checkpoint=tmp_path / "run"), 3)
    journal = tmp_path / "run" / "people" / "asked"
    whole = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(whole[:-1]))
    with pytest.raises(Refused, match="cut or altered"):
        made(checkpoint=tmp_path / "run")
    journal.unlink()
    with pytest.raises(Refused, match="cut or altered"):
        made(checkpoint=tmp_path / "run")


CHANGES = [
    {"epsilon": 5.0}, {"delta": 1e-6}, {"rounds": 9}, {"report_goal": 6}, {"clip_norm": 0.6},
    {"min_separation": 3}, {"noise": "blt"}, {"neighbouring": "replace_one"}, {"adaptive": 0.5},
    {"optimizer": SGD(0.3)},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_what_was_promised_cannot_change_on_the_way(tmp_path, change):
    play(made(checkpoint=tmp_path / "run"), 1)
    with pytest.raises(Refused, match="cannot change within a training"):
        made(checkpoint=tmp_path / "run", **change)
    assert made(checkpoint=tmp_path / "run").round == 1  # nothing is lost


def test_a_ledger_pays_once_for_all_rounds_and_restarts(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=4.5, delta=1e-4, unit="user")
    paid = {"ledger": ledger, "checkpoint": tmp_path / "run", "random_state": None}
    play(made(**paid), 2)
    left = ledger.dataset().left
    again = made(**paid)
    assert ledger.dataset().left == left
    assert again.certificate().ledger is not None
    with pytest.raises(Refused):
        made(ledger=ledger, random_state=None)
    with pytest.raises(Refused, match="seed"):
        made(ledger=ledger)


# ------------------------------------------------------------ adaptive clipping
def test_an_adaptive_norm_finds_its_quantile():
    people = range(1000)
    server = Server(
        np.zeros(3), epsilon=8.0, delta=1e-5, rounds=40, report_goal=100, clip_norm=0.1,
        noise="blt", min_separation=4, adaptive=0.5, random_state=1,
    )  # fmt: skip
    for _ in range(40):
        for person in server.begin_round(people):
            server.answer(person, np.array([1.0 + person / 1000, 0, 0]))
        server.end_round()
    assert server.clip_norm == pytest.approx(1.5, rel=0.25)
    assert server.certificate().epsilon <= 8.0


def test_an_update_and_its_answer_are_in_the_unit_ball_together():
    clip, quantile = Clip.of(0.5, [WIDTH]), Quantile(0.5)
    for scale in (0.1, 1.0, 50.0):
        for fits in (True, False):
            joined = quantile.joined(clip.unit(update(1, 1) * scale), fits)
            assert np.linalg.norm(joined) <= 1 + 1e-12
            unit, answer = quantile.parted(joined)
            assert answer == pytest.approx(0.5 if fits else -0.5)
            assert np.allclose(unit, clip.unit(update(1, 1) * scale))
    assert abs(quantile.joined(np.zeros(2), True)[-1]) == BIT / 2


def test_clip_norms_that_change_do_not_change_what_a_person_moves(tmp_path):
    server = made(adaptive=0.3, checkpoint=tmp_path / "run")
    play(server, 4)
    assert server.scale != 1.0
    again = made(adaptive=0.3, checkpoint=tmp_path / "run")
    assert again.scale == server.scale
    assert {event.kinds for event in server._run.log} == {server._run.log[0].kinds}


# ------------------------------------------------------------ optimizers
def test_momentum_is_dp_ftrlm():
    """Kairouz et al. (2021): v_t = m v_(t-1) + S_t, model = first + rate v_t."""
    updates = SeededSource(3).noise.normal(size=(9, WIDTH))
    optimizer, model, v, total = SGD(0.3, 0.9), np.ones(WIDTH), 0.0, 0.0
    for one in updates:
        model = optimizer.step(model, one)
        total = total + one
        v = 0.9 * v + total
        assert np.allclose(model, 1 + 0.3 * v)


def test_an_optimizer_of_ones_own():
    server = made(optimizer=lambda model, update: model - update, random_state=SilentSource())
    plain = made(random_state=SilentSource())
    assert play(server, 2) == play(plain, 2)
    assert np.allclose(server.model, -plain.model)
    with pytest.raises(ValueError, match="server_optimizer"):
        made(optimizer=3)
    moved = Adam(0.1, yogi=True).step(np.zeros(2), np.array([1.0, -1.0]))
    assert np.allclose(moved, [0.1, -0.1], rtol=0.02)


# ------------------------------------------------------------ attacks
def test_threads_do_not_get_a_second_answer_in(monkeypatch):
    """Eight at a time: the same person, and others; everybody counts once, and clipped."""
    server = made(random_state=SilentSource(), report_goal=8, width=40_000)
    asked = server.begin_round(PEOPLE)
    sent = {person: update(person, 0, size=server.model.size, scale=1.0) for person in asked}
    ready = Barrier(8)

    def answers(person):
        ready.wait()
        return [server.answer(other, sent[other]) for other in (asked[0], person, asked[0])]

    with ThreadPoolExecutor(8) as pool:
        counted = sum(sum(found) for found in pool.map(answers, asked))
    assert counted == 8
    wanted = sum(u * min(1, 0.5 / np.linalg.norm(u)) for u in sent.values()) / 8
    assert np.allclose(server.end_round(), wanted, atol=1e-6)


def test_a_person_who_is_listed_twice_gets_no_second_coin():
    """Two spellings of one id: sampled twice, a person is in the batch twice as often."""
    server = made(population=40, noise="independent")
    for twice in (["ada", "ben", " ADA"], [7, 8, 7]):
        with pytest.raises(Refused, match="twice in one round"):
            server.begin_round(twice)
    assert server.people.times == 0


def test_sizes_of_sampled_batches_are_secret(tmp_path):
    """They say who was drawn: of a file that anybody may read they are no part."""
    files = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        server = made(population=40, noise="independent", checkpoint=folder, random_state=seed)
        play(server, 3)
        readable = [p for p in folder.rglob("*") if p.is_file() and p.stat().st_mode & 0o044]
        (record,) = readable
        head = json.loads(record.read_bytes().split(b"\n")[1])
        files.append({key: value for key, value in head.items() if key != "nonce"})
        assert server.people.times
    assert files[0] == files[1]


# ------------------------------------------------------------ bad input
BAD = [
    ({"rounds": 0}, "rounds must be a positive integer"),
    ({"report_goal": 2.5}, "report_goal must be a positive integer"),
    ({"clip_norm": -1.0}, "clip_norm must be positive"),
    ({"clip_norm": [1.0, 2.0]}, "model 1 layers"),
    ({"layers": [3, 4]}, "layers are 7 numbers"),
    ({"min_separation": 0}, "min_separation must be a positive integer"),
    ({"min_separation": None}, "give min_separation"),
    ({"population": 40, "min_separation": 3}, "give one"),
    ({"population": 3}, "cannot be sampled"),
    ({"population": 40, "noise": "tree"}, "amplifies"),
    ({"noise": "loud"}, "noise must be auto or one of"),
    ({"delta": 0.0}, "delta > 0"),
    ({"neighbouring": "add_remove"}, "one person more"),
    ({"adaptive": 1.5}, "quantile in"),
    ({"adaptive": 0.5, "secure": True}, "drop secure aggregation"),
    ({"secure": True, "population": 400, "noise": "banded"}, "adds up integers"),
]


@pytest.mark.parametrize(("given", "sentence"), BAD)
def test_bad_input_is_one_sentence(given, sentence):
    with pytest.raises((ValueError, Refused), match=sentence):
        made(**given)


def test_a_model_that_is_none():
    for start in (np.zeros((2, 2)), np.zeros(0), np.array([np.nan])):
        with pytest.raises(ValueError, match="start is the first model"):
            Server(start, epsilon=1, delta=1e-5, rounds=2, report_goal=2, clip_norm=1)


def test_an_answer_of_another_shape_loses_nothing():
    server = made(random_state=SilentSource())
    asked = server.begin_round(PEOPLE)
    for wrong in (np.zeros(WIDTH + 1), np.zeros((WIDTH, 1)), np.full(WIDTH, "a secret")):
        with pytest.raises(ValueError, match="does not count"):
            server.answer(asked[0], wrong)
    assert server.answer(asked[0], np.zeros(WIDTH, dtype=int))  # the turn was not used up
    with pytest.raises(Refused, match="no round is open"):
        made().end_round()
    with pytest.raises(Refused, match="twice in one round"):
        made(report_goal=2).begin_round([1, 1])


# ------------------------------------------------------------ secure aggregation, without a carrier
def test_a_sum_of_counts_is_the_sum_of_updates():
    from privopt.oracle.contributions import counts_within

    server = made(secure=True, noise="blt", random_state=SilentSource())
    asked, most, clip = server.begin_round(PEOPLE), 2**20, 0.5
    counts = [counts_within(update(p, 0), clip, most) for p in asked]
    assert max(float(np.linalg.norm(c)) for c in counts) <= most
    with pytest.raises(Refused, match="one sum"):
        server.answer(asked[0], np.zeros(WIDTH))
    server.answered_sum(np.sum(counts, axis=0), most)
    with pytest.raises(Refused, match="once in a round"):
        server.answered_sum(counts[0], most)
    expected = sum(Clip.of(clip, [WIDTH]).unit(update(p, 0)) for p in asked) * clip / 5
    assert np.allclose(server.end_round(), expected, atol=WIDTH * clip / most)
    assert "clip their updates themselves" in str(server.certificate().assumptions)


# ------------------------------------------------------------ kill -9
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_servers_that_are_killed_show_each_round_once_and_ask_nobody_too_often():
    from tests.federated.kills import trainings

    seen = trainings(15)
    assert seen["killed"] >= 5
    assert seen["rounds"] >= 1


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_server_has_no_twin(twin):
    """Two servers would release one round with two draws of noise, and pay for one."""
    server = made()
    server.begin_round(range(20))
    with pytest.raises(Refused, match="a server is not copied"):
        twin(server)
    server.end_round()


def test_a_sum_of_contributions_is_sealed_once():
    from privopt.oracle.contributions import Contributions
    from privopt.oracle.sensitivity import Sensitivity

    total = Contributions(3, Sensitivity("l2", 1.0, 1.0))
    total.sealed()
    with pytest.raises(Refused, match="released once"):
        total.sealed()
