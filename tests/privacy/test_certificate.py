"""Certificates: complete, recomputable, never too small, and refused when they do not add up."""

import json
import math
import re

import jsonschema
import numpy as np
import pytest

from privopt.privacy import (
    Accountant,
    Budget,
    Certificate,
    Event,
    Log,
    Refused,
    Sampling,
    certificate_schema,
    charge_of,
    spend,
)
from privopt.privacy.certificate import RUN, round_up
from privopt.privacy.events import RunningSumPath, RunningSumPosition
from privopt.privacy.kinds import BoundedRange, Concentrated, GaussianKind, ObjectiveGaussian, Pure
from privopt.privacy.profiles import gaussian_epsilon


def log_of(*events):
    log = Log()
    for event in events:
        log.append(event)
    return log


def certify(log, epsilon=50.0, delta=1e-5, relation="zero_out", **more):
    more = {"solver": "a_solver", "private": True, "planned": spend(log), **more}
    budget = Budget(epsilon, delta, relation, "person")
    return Certificate.of_run(RUN, log, more.pop("planned"), budget, **more)


def released(*kinds, **more):
    return Event("mechanism", kinds, **more)


def running_sum():
    path = RunningSumPath([0.0, math.log(0.5)], [(0,), (1,)], [1.0, 2.0])
    return [
        Event("running sum", (kind,), cells=(), running_sum=RunningSumPosition(path, 1))
        for kind in (GaussianKind(0.2, 0.2), BoundedRange(0.1))
    ]


LOGS = {
    "nothing": log_of(),
    "pure": log_of(released(Pure(0.5)), released(Pure(0.5)), released(BoundedRange(0.25))),
    "gaussian": log_of(
        released(GaussianKind(0.3, 0.15)), released(GaussianKind(0.2, 0.2), cells=((0,),))
    ),
    "concentrated": log_of(released(Concentrated(0.01))),
    "objective": log_of(released(ObjectiveGaussian(0.4, 0.1, False), GaussianKind(0.1, 0.1))),
    "batches": log_of(
        *(
            released(GaussianKind(0.3, 0.3), view=view // 2, sampling=Sampling(0.3))
            for view in range(6)
        )
    ),
    "running sum": log_of(*running_sum()),
    "incomparable cells": log_of(
        released(GaussianKind(0.3, 0.3), cells=((0, 1),)), released(Pure(0.2), cells=((2,),))
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_json_goes_out_and_comes_back(name):
    certificate = certify(
        LOGS[name], assumptions=("classes are public",), settings={"n_iter": 3, "clip_norm": 0.1}
    )
    text = certificate.to_json()
    assert Certificate.from_json(text) == certificate
    assert Certificate.from_json(text).to_json() == text
    assert json.loads(certificate.to_json(indent=None)) == json.loads(text)


@pytest.mark.parametrize("name", LOGS)
def test_json_follows_the_published_schema(name):
    schema = certificate_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(certify(LOGS[name]).to_json()), schema)


def altered(change, name="gaussian"):
    data = json.loads(certify(LOGS[name]).to_json())
    change(data)
    return data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(version=2),
        lambda data: data.pop("charges"),
        lambda data: data.update(extra=1),
        lambda data: data["guarantee"].update(epsilon=-1),
        lambda data: data["guarantee"].update(delta=1),
        lambda data: data["guarantee"].update(neighbouring="swap"),
        lambda data: data["guarantee"].update(private="yes"),
        lambda data: data["guarantee"].pop("unit"),
        lambda data: data["charges"][0]["steps"][0].update(count=0),
        lambda data: data["charges"][0]["steps"][0].update(rate=0),
        lambda data: data["charges"][0]["steps"][0]["kinds"][0].update(kind="quantum"),
        lambda data: data["charges"][0]["steps"][0]["kinds"][0].pop("single"),
        lambda data: data["charges"][0]["steps"][0]["kinds"].clear(),
    ],
)
def test_the_schema_turns_away_what_is_not_a_certificate(change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(altered(change), certificate_schema())


# ------------------------------------------------------------------------------ what it says
def test_it_states_the_budgets_terms_and_what_was_really_spent(exact):
    certificate = certify(LOGS["gaussian"], relation="replace_one")
    assert (certificate.delta, certificate.neighbouring, certificate.unit) == (
        1e-5,
        "replace_one",
        "person",
    )
    assert certificate.releases == 2
    assert certificate.cells == 1
    assert re.fullmatch(r"privopt \d.*", certificate.library)
    mu = math.sqrt(0.3**2 + 0.2**2)
    assert exact.gaussian_delta(certificate.epsilon, mu) <= 1e-5
    assert exact.gaussian_delta(certificate.epsilon * (1 - 1e-6), mu) > 1e-5


def test_every_cell_that_matters_is_listed_and_the_worst_one_counts():
    certificate = certify(LOGS["incomparable cells"])
    assert [cell for cell, _ in certificate.charges] == [(0, 1), (2,)]
    assert certificate.cells == 2
    each = [
        Accountant().epsilon(charge_of(kind), 1e-5) for kind in (GaussianKind(0.3, 0.3), Pure(0.2))
    ]
    assert certificate.epsilon == max(each)


def test_epsilon_at_another_delta(exact):
    certificate = certify(LOGS["gaussian"])
    for delta in (1e-10, 1e-3):
        found = certificate.epsilon_at(delta)
        assert exact.gaussian_delta(found, math.sqrt(0.13)) <= delta
        assert exact.gaussian_delta(found * (1 - 1e-6), math.sqrt(0.13)) > delta
    assert certificate.epsilon_at(1e-5) == certificate.epsilon
    assert certificate.epsilon_at(0.0) == math.inf
    assert certify(LOGS["pure"], delta=0.0).epsilon_at(0.0) == 1.25
    assert certify(LOGS["pure"], delta=0.0).epsilon_at(0.3) < 1.25
    # a delta at which another cell is the worst
    mixed = certify(LOGS["incomparable cells"])
    assert mixed.epsilon_at(0.1) <= 0.2 < mixed.epsilon_at(1e-9)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_epsilon_at_asks_for_a_probability(delta):
    with pytest.raises(ValueError, match=r"delta must lie in \[0, 1\)"):
        certify(LOGS["pure"]).epsilon_at(delta)


def test_a_seeded_run_is_marked_everywhere():
    honest, seeded = (certify(LOGS["pure"], private=private) for private in (True, False))
    assert "NOT PRIVATE" in str(seeded)
    assert "NOT PRIVATE" not in str(honest)
    assert json.loads(seeded.to_json())["guarantee"]["private"] is False
    assert Certificate.from_json(seeded.to_json()).private is False
    assert Certificate.from_json(honest.to_json()).private is True


def test_the_text_names_what_matters():
    text = str(certify(LOGS["pure"], delta=0.0, assumptions=("classes are public",)))
    assert text.startswith("epsilon=1.25 (pure), zero_out, per person, by a_solver in 3 release(s)")
    assert "assumes: classes are public" in text
    assert "delta=1e-05" in str(certify(LOGS["gaussian"]))


def test_a_printed_epsilon_is_never_too_small():
    rng = np.random.default_rng(8)
    for epsilon in 10 ** rng.uniform(-9, 9, 3000):
        shown = float(round_up(float(epsilon)))
        assert epsilon <= shown <= epsilon * 1.0011
    assert round_up(1.0) == "1"
    assert round_up(0.9999) == "0.9999"
    assert round_up(0.99991) == "1"
    assert round_up(1.0001) == "1.001"
    assert round_up(0.1 + 0.2) == "0.3"
    assert round_up(0.0) == "0"
    assert round_up(math.inf) == "inf"


# ------------------------------------------------------------------------------ refusals
def test_no_certificate_above_the_budget():
    certify(LOGS["pure"], epsilon=1.25, delta=0.0)
    with pytest.raises(Refused, match="a_solver spent more than its budget"):
        certify(LOGS["pure"], epsilon=1.2499, delta=0.0)
    with pytest.raises(Refused, match="spent more than its budget"):
        certify(LOGS["gaussian"], delta=0.0)


def test_no_certificate_beyond_the_plan():
    plan = spend(LOGS["gaussian"])
    assert certify(LOGS["gaussian"], planned=plan).epsilon > 0
    more = log_of(*LOGS["gaussian"], released(GaussianKind(0.01, 0.01)))
    with pytest.raises(Refused, match="a_solver released more than it had planned"):
        certify(more, planned=plan)
    with pytest.raises(Refused, match="released more than it had planned"):
        certify(LOGS["pure"], planned=plan)


def test_a_certificate_that_was_made_smaller_is_refused():
    for change in (
        lambda data: data["guarantee"].update(epsilon=data["guarantee"]["epsilon"] * 0.999),
        lambda data: data["guarantee"].update(delta=1e-6),
        lambda data: data["charges"][0]["steps"][0].update(count=2),
        lambda data: data["charges"][0]["steps"][0]["kinds"][0].update(mu=0.31),
    ):
        with pytest.raises(Refused, match="its own events do not support"):
            Certificate.from_json(json.dumps(altered(change)))
    assert certify(LOGS["gaussian"]).verify()


def test_unknown_kinds_and_versions_are_refused_by_name():
    def rename(data):
        data["charges"][0]["steps"][0]["kinds"][0]["kind"] = "quantum"

    with pytest.raises(Refused, match="unknown event kind 'quantum'"):
        Certificate.from_json(json.dumps(altered(rename)))
    with pytest.raises(Refused, match="certificate version 99 is not known"):
        Certificate.from_json(json.dumps(altered(lambda data: data.update(version=99))))


def test_json_has_no_numbers_that_json_does_not_have():
    with pytest.raises(ValueError, match="JSON compliant"):
        certify(LOGS["pure"], settings={"bad": math.nan}).to_json()


def test_mu_stands_in_a_certificate_that_is_exactly_gaussian():
    certificate = certify(LOGS["gaussian"])
    mu = math.hypot(0.3, 0.2)  # a record of cell (0,) pays for both
    assert certificate.exact_mu == certificate.mu == pytest.approx(mu)
    data = json.loads(certificate.to_json())
    assert data["guarantee"]["mu"] == pytest.approx(mu)
    assert "exactly Gaussian, mu=0.3606" in str(certificate)
    data["guarantee"]["mu"] *= 0.99
    with pytest.raises(Refused, match="its own events do not support"):
        Certificate.from_json(json.dumps(data))
    del data["guarantee"]["mu"]  # as older ones are
    assert Certificate.from_json(json.dumps(data)) == certificate
    for name in ("pure", "concentrated", "objective", "batches", "nothing"):
        other = certify(LOGS[name])
        assert not other.exact_mu
        assert "mu" not in json.loads(other.to_json())["guarantee"]


def test_mu_of_another_curve_is_above_it_everywhere():
    certificate = certify(LOGS["objective"])
    for delta in (1e-8, 1e-5, 1e-2):
        assert gaussian_epsilon(certificate.mu, delta) >= certificate.epsilon_at(delta) * (1 - 1e-6)
    assert 0.4 < certificate.mu < 1.0
