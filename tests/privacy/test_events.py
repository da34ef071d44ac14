"""Events are public, frozen and only ever appended; kinds say what they are in plain data."""

import dataclasses
import math

import pytest

from privopt.privacy import FULL, ROOT, Event, Log, Refused, Sampling
from privopt.privacy.allocated import AllocatedGaussian
from privopt.privacy.kinds import (
    KINDS,
    BoundedRange,
    Concentrated,
    FixedSizeGaussian,
    GaussianKind,
    ObjectiveGaussian,
    Pure,
    SampledGaussian,
    kind_from_dict,
)
from privopt.privacy.sampled_groups import SampledGroupGaussian
from privopt.privacy.tuning import Tuned

EXAMPLES = [
    GaussianKind(0.5, 0.25),
    Pure(0.3),
    BoundedRange(0.2),
    Concentrated(0.01),
    ObjectiveGaussian(0.4, 0.1, True, 2),
    SampledGaussian(0.1, 0.7),
    FixedSizeGaussian(0.1, 0.7),
    SampledGroupGaussian(0.1, 0.7, 3),
    AllocatedGaussian(10, 4, 0.7),
    Tuned("poisson", 3.0, 0.0, (((Pure(0.1), 2),), ((GaussianKind(0.5, 0.25), 1),))),
]


def test_a_log_only_grows():
    log = Log()
    events = [Event("a", (Pure(0.1),)), Event("b", (Pure(0.2),))]
    for event in events:
        log.append(event)
    assert list(log) == events
    assert len(log) == 2
    assert log[1] is events[1]
    assert not [name for name in ("pop", "clear", "remove", "extend", "sort") if hasattr(log, name)]
    with pytest.raises(TypeError):
        log[0] = events[1]
    with pytest.raises(TypeError):
        del log[0]


def test_reading_a_log_while_it_grows_sees_what_was_there():
    log = Log()
    log.append(Event("a", (Pure(0.1),)))
    for event in log:
        log.append(event)
    assert len(log) == 2


def test_an_event_touches_everybody_unless_it_says_otherwise():
    event = Event("a", (Pure(0.1),))
    assert event.cells == (ROOT,)
    assert event.sampling == FULL == Sampling(1.0)
    assert event.sampling.full
    assert not Sampling(0.999).full


@pytest.mark.parametrize("value", [Event("a", (Pure(0.1),)), Sampling(0.5), *EXAMPLES], ids=repr)
def test_what_was_logged_cannot_be_changed(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, 1e-9)


def test_every_kind_has_an_example_here():
    assert {kind.name for kind in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.name)
def test_kinds_survive_plain_data(kind):
    data = kind.to_dict()
    assert data["kind"] == kind.name
    assert kind_from_dict(data) == kind
    assert hash(kind_from_dict(data)) == hash(kind)
    assert data["kind"] == kind.name  # reading does not eat its input


@pytest.mark.parametrize("data", [{"kind": "quantum", "mu": 1.0}, {"mu": 1.0}])
def test_an_unknown_kind_is_refused_by_name(data):
    with pytest.raises(Refused, match=f"unknown event kind {data.get('kind')!r}"):
        kind_from_dict(data)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize(
    "make",
    [
        lambda v: GaussianKind(v, 1.0),
        lambda v: GaussianKind(1.0, v),
        Pure,
        BoundedRange,
        Concentrated,
        lambda v: ObjectiveGaussian(v, 0.1, True),
    ],
    ids=["mu", "single", "pure", "bounded_range", "concentrated", "objective_gaussian"],
)
def test_a_loss_is_positive_and_finite(make, bad):
    with pytest.raises(ValueError, match=r"must be positive and finite, got"):
        make(bad)
