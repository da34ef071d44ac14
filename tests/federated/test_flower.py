"""The Flower strategy: ordinary clients, Flower's messages, Flower's simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)

import privopt
from privopt import Refused
from privopt.federated import FTRL, SGD, clipping_mod
from privopt.federated.flower import CLIP
from privopt.noise import SilentSource
from tests.federated.flower_apps import client, first, points


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages are made inside a run: here, in no run of Flower's."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")


class LocalGrid:
    """Messages to client apps in this process; ``spoil`` sees the replies before the server."""

    def __init__(self, app, nodes, spoil=lambda replies: replies):
        self.app, self.nodes, self.spoil = app, nodes, spoil
        self.asked = []
        self.sent = []

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages:
            self.asked.append([m.metadata.dst_node_id for m in messages])
            self.sent.append(messages)
        return self.spoil([self._answer(m) for m in messages])

    def _answer(self, message):
        node = message.metadata.dst_node_id
        context = Context(0, node, {"partition-id": node}, RecordDict(), {})
        return self.app(message, context)


def strategy(**more):
    given = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "rounds": 6,
        "report_goal": 5,
        "clip_norm": 0.5,
        "min_separation": 3,
        "noise": "banded",
        "random_state": SilentSource(),
    }
    return FTRL(**{**given, **more})


def flat(arrays):
    return np.concatenate([a.numpy().ravel() for a in arrays.values()])


def averaged(asked, clip=0.5, goal=5):
    """Federated averaging, written down again."""
    model = np.zeros(6)
    for nodes in asked:
        model = model.astype(np.float32)[:4].tolist() + model[4:].tolist()
        model = np.array(model)
        steps = [0.5 * (points(n).mean(axis=0) - model) for n in nodes]
        model = model + sum(s * min(1, clip / np.linalg.norm(s)) for s in steps) / goal
    return model


@pytest.mark.parametrize("mods", [None, [clipping_mod]])
def test_ordinary_clients_work_unchanged_and_metrics_stay(mods):
    grid, found = LocalGrid(client(mods), range(20)), strategy()
    result = found.start(grid, first())
    assert np.allclose(flat(result.arrays), averaged(grid.asked), atol=1e-6)
    assert [a.numpy().dtype for a in result.arrays.values()] == [np.float32, np.float64]
    assert result.train_metrics_clientapp == result.evaluate_metrics_clientapp == {}
    certificate = found.certificate()
    assert (certificate.unit, certificate.releases) == ("user", 6)
    assert certificate.epsilon == pytest.approx(4.0)
    for nodes, later in zip(grid.asked, grid.asked[1:], strict=False):
        assert not set(nodes) & set(later)


def test_the_mod_clips_before_anything_leaves():
    seen = []

    def look(replies):
        seen.extend(replies)
        return replies

    grid = LocalGrid(client([clipping_mod]), range(20), look)
    strategy(clip_norm=[0.1, 0.2]).start(grid, first(), num_rounds=1)
    for reply in seen:
        assert list(reply.content.metric_records) == []
        sent = [a.numpy() for a in reply.content["arrays"].values()]  # from a model of zeros
        assert np.linalg.norm(sent[0]) == pytest.approx(0.1, rel=1e-5)
        assert np.linalg.norm(sent[1]) == pytest.approx(0.2, rel=1e-5)


def test_replies_that_are_double_foreign_old_broken_or_missing():
    old = []

    def spoil(replies):
        if not replies:
            return replies
        one, two, three, four, five = replies
        wrong = Message(RecordDict({"arrays": ArrayRecord([np.zeros(3)])}), reply_to=_ask(two))
        broken = ArrayRecord({"a": Array(np.full((2, 2), np.nan)), "b": Array(np.zeros(2))})
        nan = Message(RecordDict({"arrays": broken}), reply_to=_ask(three))
        lost = Message(Error(1, "lost"), reply_to=_ask(four))
        stranger = Message(one.content, reply_to=_ask(one, node=99))
        late, old[:] = list(old), [five]
        return [one, one, wrong, nan, lost, stranger, *late]

    def _ask(reply, node=None):
        ask = Message(
            RecordDict(),
            int(reply.metadata.src_node_id if node is None else node),
            MessageType.TRAIN,
            group_id=reply.metadata.group_id,
        )
        return ask

    grid, found = LocalGrid(client(), range(5), spoil), strategy(min_separation=1, rounds=2)
    found.start(grid, first())
    counted = [[nodes[0]] for nodes in grid.asked]  # the first of five alone, in each round
    assert np.allclose(flat(found.arrays), averaged(counted), atol=1e-6)


@pytest.mark.parametrize("noise", ["tree", "honaker", "banded", "blt", "sqrt_toeplitz"])
def test_every_noise_and_momentum(noise):
    """DP-FTRLM: without noise, the sums of all updates with momentum."""
    grid = LocalGrid(client(), range(20))
    found = strategy(noise=noise, server_optimizer=SGD(1.0, 0.5), rounds=4)
    found.start(grid, first())
    model, velocity = np.zeros(6), np.zeros(6)
    for nodes in grid.asked:
        model = np.array([*model.astype(np.float32)[:4].tolist(), *model[4:].tolist()])
        steps = [0.5 * (points(n).mean(axis=0) - model) for n in nodes]
        mean = sum(s * min(1, 0.5 / np.linalg.norm(s)) for s in steps) / 5
        velocity = 0.5 * velocity + mean
        model = model + velocity
    assert np.allclose(flat(found.arrays), model, atol=1e-6)
    assert noise in found.certificate().settings["noise"] or noise in ("tree", "honaker")


def test_weights_and_metrics_of_clients_are_not_read():
    """Negative ones, huge ones, and none: the same model."""
    models = []
    for weight in (-100.0, 1e9, float("nan"), None):

        def spoil(replies, weight=weight):
            found = []
            for reply in replies:
                record = {} if weight is None else {"num-examples": weight}
                content = RecordDict(
                    {"arrays": reply.content["arrays"], "metrics": MetricRecord(record)}
                )
                ask = Message(
                    RecordDict(), int(reply.metadata.src_node_id), MessageType.TRAIN,
                    group_id=reply.metadata.group_id,
                )  # fmt: skip
                found.append(Message(content, reply_to=ask))
            return found

        found = strategy(min_separation=1, rounds=2)
        found.start(LocalGrid(client(), range(5), spoil), first())
        models.append(flat(found.arrays))
    assert all(np.array_equal(model, models[0]) for model in models)


def test_an_answer_that_cannot_be_read_costs_its_sender_the_turn_and_nobody_else():
    """Bytes that are no array, another type, nothing at all: the round goes on."""

    def spoil(replies):
        if not replies:
            return replies
        found = [replies[0]]
        good = Array(np.zeros(2))
        shape = "<f4", (2, 2), "numpy.ndarray"
        ones = [
            Array(*shape, b"no"),
            Array(*shape, b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'shape': (9999999, 9999999), }"),
            Array("<f4", (2, 2), "torch", b""),
        ]
        junk = [RecordDict({"arrays": ArrayRecord({"a": one, "b": good})}) for one in ones]
        junk.append(RecordDict())
        for reply, content in zip(replies[1:], junk, strict=True):
            node, ticket = int(reply.metadata.src_node_id), reply.metadata.group_id
            ask = Message(RecordDict(), node, MessageType.TRAIN, group_id=ticket)
            found.append(Message(content, reply_to=ask))
        return found

    grid, found = LocalGrid(client(), range(5), spoil), strategy(min_separation=1, rounds=2)
    found.start(grid, first())
    assert np.allclose(flat(found.arrays), averaged([[n[0]] for n in grid.asked]), atol=1e-6)


def test_secure_rounds_have_a_largest_size():
    with pytest.raises(ValueError, match="min_separation in place of population"):
        privopt.federated.SecureFTRL(epsilon=1.0, delta=1e-5, population=400)


def test_it_goes_on_after_a_restart(tmp_path):
    how = {"checkpoint": tmp_path / "run", "random_state": None}
    grid, before = LocalGrid(client(), range(20)), strategy(**how, server_optimizer=SGD(1.0, 0.5))
    before.start(grid, first(), num_rounds=4)
    after = strategy(**how, server_optimizer=SGD(1.0, 0.5))
    after.prepare(first())
    assert np.array_equal(flat(after.arrays), flat(before.arrays))
    assert after.server.rounds_left == 2
    after.start(grid, first())
    assert after.certificate().releases == 6
    assert after.certificate().private
    rule = after.server.plan.rule
    for node in range(20):
        assert rule.allows(tuple(r for r, nodes in enumerate(grid.asked) if node in nodes))
    with pytest.raises(Refused, match="pays for 0 more rounds"):
        after.start(grid, first())


def test_what_the_client_is_told_and_what_it_is_not():
    grid = LocalGrid(client(), range(20))
    strategy(adaptive=0.5).start(
        grid, first(), train_config=ConfigRecord({"lr": 0.1}), num_rounds=2
    )
    for round, messages in enumerate(grid.sent, 1):
        config = messages[0].content["config"]
        assert (config["lr"], config["server-round"]) == (0.1, round)
        assert len(config[CLIP]) == 1
    assert "server-round" not in ConfigRecord({"lr": 0.1})


def test_sampling_is_dp_fedavg():
    grid = LocalGrid(client(), range(40))
    found = strategy(min_separation=None, population=40, report_goal=10, noise="independent")
    found.start(grid, first())
    assert found.certificate().solver == "federated_averaging"
    assert "secret" in str(found.certificate().assumptions)


def test_bad_input_is_one_sentence():
    grid = LocalGrid(client(), range(20))
    with pytest.raises(Refused, match="pays for 6 more rounds"):
        strategy().start(grid, first(), num_rounds=7)
    with pytest.raises(ValueError, match="floating-point"):
        strategy().prepare(ArrayRecord({"a": Array(np.zeros(2, np.int64))}))
    with pytest.raises(Refused, match="no model yet"):
        strategy().certificate()
    with pytest.raises(TypeError, match="unexpected keyword"):
        strategy(colour="red").prepare(first())
    assert privopt.federated.FTRL is FTRL
    assert not hasattr(privopt.federated, "FedAvg")


def test_evaluation_at_the_server_is_the_users_own():
    grid, seen = LocalGrid(client(), range(20)), []

    def evaluate(round, arrays):
        seen.append(round)
        return MetricRecord({"size": float(np.abs(flat(arrays)).sum())})

    strategy().start(grid, first(), num_rounds=2, evaluate_fn=evaluate)
    assert seen == [0, 1, 2]


def in_simulation(name):
    """What a simulation in a process of its own prints last."""
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-m", "tests.federated.flower_apps", name]
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_flowers_simulation_of_a_hundred_clients_and_thirty_rounds():
    found = in_simulation("hundred")
    certificate = privopt.Certificate.from_json(json.dumps(found["certificate"]))
    assert (certificate.releases, certificate.private) == (30, True)
    assert certificate.epsilon == pytest.approx(4.0)
    assert (found["times"], found["kept"]) == (300, True)


# ------------------------------------------------------------ secure aggregation
def test_integers_pass_flowers_quantizer_unchanged():
    from flwr.common.secure_aggregation.quantization import dequantize, quantize

    from privopt.federated.secure import MODULUS, counted_update, steps_for

    for people in (2, 3, 100, 1000):
        most = steps_for(people)
        assert people * 2 * most <= MODULUS
        config = {CLIP + "-0": 0.5, "privopt-steps": most}
        long = [np.array([[-30.0, 0.2]]), np.array([0.1])]
        for trained in (long, [long[0] * 1e-3, long[1] * 1e-3]):
            counts = counted_update([np.zeros((1, 2)), np.zeros(1)], trained, config)
            flat = np.concatenate([c.ravel() for c in counts])
            assert np.linalg.norm(flat) <= most
            sent = quantize(counts, float(most), 2 * most)
            back = dequantize(sent, float(most), 2 * most)
            assert all(np.array_equal(a, b) for a, b in zip(back, counts, strict=True))
    with pytest.raises(ValueError, match="no room"):
        steps_for(1 << 24)


def test_secure_aggregation_runs_in_flowers_simulation():
    """Without noise, beside the same rounds in the open: the sums are exact in integers."""
    found = in_simulation("secure")
    assert found["asked"] == [5, 5, 5]
    assert np.allclose(found["model"], found["expected"], atol=1e-6)
    assert found["epsilon"] == pytest.approx(4.0)
    assert "clip their updates themselves" in str(found["assumptions"])
