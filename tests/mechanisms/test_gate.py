"""The gate: event, check, guard, log, open, noise; in this order, and silent about the data."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from privopt.losses import Hinge, Logistic
from privopt.mechanisms import Gate, Gaussian, Laplace, NormGamma, ObjectivePerturbation, same_event
from privopt.mechanisms.maps import Loosen, Scale
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import ClippedGradient, CountRecords, Oracle, RowBounds, RunningSum, Sealed
from privopt.privacy import Refused
from privopt.privacy.events import Event, Log, Sampling
from privopt.privacy.kinds import GaussianKind, Pure

QUERY = ClippedGradient(Logistic(), 0.5)
SECRET = 0.31415926


def oracle(seed=0, n=4):
    return Oracle.over(
        np.full((n, 2), SECRET),
        np.ones(n),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(seed),
    )


def sealed_value():
    return oracle().everything().ask(QUERY)


@pytest.fixture
def opened(monkeypatch):
    """Every opening of a sealed value from now on."""
    openings, original = [], Sealed.open

    def open_and_count(self, key):
        openings.append(self)
        return original(self, key)

    monkeypatch.setattr(Sealed, "open", open_and_count)
    return openings


@dataclass
class Probe:
    """A mechanism that tells when it was called, and may fail in a talkative way."""

    diary: list
    error: type[BaseException] | None = None
    accepts: str = "l2"
    calls: list = field(default_factory=list)

    def kinds(self, sensitivity):
        self.diary.append("kinds")
        return (Pure(1.0),)

    def run(self, payload, sensitivity, source):
        self.diary.append("run")
        self.calls.append((payload, sensitivity, source))
        if self.error is not None:
            try:
                _ = {}[tuple(payload)]
            except KeyError as cause:
                raise self.error(f"payload {payload!r}") from cause
        return "public"


# ------------------------------------------------------------ order
def test_the_order_of_a_release(monkeypatch):
    diary, original = [], Sealed.open
    log_append = Log.append
    monkeypatch.setattr(
        Log, "append", lambda self, event: (diary.append("log"), log_append(self, event))[1]
    )
    monkeypatch.setattr(
        Sealed, "open", lambda self, key: (diary.append("open"), original(self, key))[1]
    )
    gate = Gate(SilentSource(), guard=lambda event: diary.append("guard"))
    assert gate.release(Probe(diary), sealed_value()) == "public"
    assert diary == ["kinds", "guard", "log", "open", "run"]


def test_each_release_is_one_event(opened):
    gate = Gate(SeededSource(0))
    value = sealed_value()
    for count in range(1, 6):
        gate.release(Gaussian(2.0), value)
        assert len(gate.log) == len(opened) == count
    assert gate.log[0] == gate.log[4]


def test_the_event_says_what_was_released():
    blocks = oracle().blocks(2)
    view = blocks[1].poisson(0.25)
    gate = Gate(SeededSource(0))
    gate.release(Gaussian(4.0), view.ask(QUERY))
    event = gate.log[0]
    assert event.mechanism == "Gaussian"
    assert event.kinds == (GaussianKind(0.25, 0.25),)
    assert event.cells == ((1,),)
    assert event.view == view.ask(QUERY).sensitivity.view
    assert event.sampling == Sampling(0.25)
    assert event.running_sum is None


def test_the_mechanism_gets_payload_sensitivity_and_the_gates_source():
    diary, source, value = [], SeededSource(0), sealed_value()
    probe = Probe(diary)
    Gate(source).release(probe, value)
    ((payload, sensitivity, given),) = probe.calls
    np.testing.assert_allclose(payload, np.full(2, -2 * SECRET))
    assert sensitivity is value.sensitivity
    assert given is source


# ------------------------------------------------------------ failures
@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, ZeroDivisionError])
def test_a_failing_mechanism_has_spent_its_budget_and_says_nothing(error):
    gate = Gate(SeededSource(0))
    with pytest.raises(Refused) as caught:
        gate.release(Probe([], error), sealed_value())
    assert str(caught.value) == "Probe failed; details are withheld, budget is spent."
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(gate.log) == 1


def test_a_refusal_inside_a_mechanism_keeps_its_text_but_no_context(monkeypatch):
    def refusing(self, payload, sensitivity, source):
        try:
            raise ValueError(f"{payload}")
        except ValueError:
            raise Refused("a constant text.")  # noqa: B904

    monkeypatch.setattr(Gaussian, "run", refusing)
    gate = Gate(SeededSource(0))
    with pytest.raises(Refused, match=r"^a constant text\.$") as caught:
        gate.release(Gaussian(1.0), sealed_value())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(gate.log) == 1


def test_an_interrupt_leaves_the_event_in_the_log():
    gate = Gate(SeededSource(0))
    with pytest.raises(KeyboardInterrupt):
        gate.release(Probe([], KeyboardInterrupt), sealed_value())
    assert len(gate.log) == 1


# ------------------------------------------------------------ norms
@pytest.mark.parametrize(
    ("mechanism", "sealed"),
    [
        (Laplace(1.0), sealed_value()),
        (Gaussian(1.0), sealed_value().through(Loosen("l2", "linf"))),
        (NormGamma(1.0), sealed_value().through(Loosen("l2", "linf"))),
        (Gaussian(1.0), oracle().everything().function(Logistic())),
        (ObjectivePerturbation("pure", 1.0, 1.0, 1e-6, 1.0), sealed_value()),
    ],
    ids=["Laplace of l2", "Gaussian of linf", "NormGamma of linf", "Gaussian of f", "OP of l2"],
)
def test_a_value_in_the_wrong_norm_is_refused_before_anything_happens(opened, mechanism, sealed):
    gate = Gate(SeededSource(0), guard=lambda event: pytest.fail("guard was asked"))
    with pytest.raises(Refused, match="bounded in"):
        gate.release(mechanism, sealed)
    assert len(gate.log) == 0
    assert opened == []


# ------------------------------------------------------------ guard
def test_a_guard_refuses_before_the_log_and_the_opening(opened):
    seen = []

    def guard(event):
        seen.append(event)
        if len(seen) > 2:
            raise Refused("the ledger is empty.")

    gate = Gate(SeededSource(0), guard=guard)
    value = sealed_value()
    gate.release(Gaussian(1.0), value)
    gate.release(Gaussian(2.0), value)
    for _ in range(2):
        with pytest.raises(Refused, match="ledger"):
            gate.release(Gaussian(1.0), value)
    assert len(gate.log) == len(opened) == 2
    assert list(gate.log) == seen[:2]


# ------------------------------------------------------------ declared
def story(gate, source, *, first=2.0, second=3.0, rate=0.5, cell=1, views=0, mechanism=Gaussian):
    """Three releases whose public details can be changed."""
    data = Oracle.over(
        np.full((4, 2), SECRET),
        np.ones(4),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=source,
    )
    for _ in range(views):
        data.everything()
    gate.release(Gaussian(first), data.everything().ask(QUERY))
    gate.release(mechanism(second), data.poisson(rate).ask(QUERY))
    gate.release(Gaussian(2.0), data.blocks(2)[cell].everything().ask(QUERY))


CHANGES = {
    "multiplier of the first": (dict(first=2.0 + 1e-15), 0),
    "multiplier of the second": (dict(second=2.9), 1),
    "more noise is another event too": (dict(second=3.1), 1),
    "mechanism": (dict(mechanism=NormGamma), 1),
    "sampling rate": (dict(rate=0.4), 1),
    "no sampling": (dict(rate=1.0), 1),
    "cell": (dict(cell=0), 2),
    "number of the view": (dict(views=1), 0),
}


@pytest.fixture
def declared():
    gate = Gate(SilentSource())
    story(gate, SilentSource())
    return gate.log


def test_what_was_declared_passes(declared, opened):
    gate = Gate(SeededSource(1), declared=declared)
    story(gate, SeededSource(2))
    assert len(gate.log) == len(opened) == 3
    assert all(same_event(a, b) for a, b in zip(gate.log, declared, strict=True))


@pytest.mark.parametrize("change", CHANGES)
def test_a_release_that_differs_is_refused_before_the_opening(declared, opened, change):
    changes, done = CHANGES[change]
    gate = Gate(SeededSource(1), declared=declared, guard=lambda event: guarded.append(event))
    guarded = []
    with pytest.raises(Refused, match=f"release {done + 1} differs"):
        story(gate, SeededSource(2), **changes)
    assert len(gate.log) == len(opened) == len(guarded) == done


def test_a_release_too_many_is_refused(declared, opened):
    gate = Gate(SeededSource(1), declared=declared)
    story(gate, SeededSource(2))
    with pytest.raises(Refused, match="release 4 differs"):
        gate.release(Gaussian(2.0), sealed_value())
    assert len(gate.log) == len(opened) == 3
    with pytest.raises(Refused, match="release 1 differs"):
        Gate(SeededSource(1), declared=Log()).release(Gaussian(2.0), sealed_value())


def test_a_running_sum_is_declared_by_its_positions(opened):
    def run(gate, order):
        running_sum = RunningSum()
        blocks = oracle().blocks(3)
        steps = [running_sum.step(0.9, block.everything().ask(QUERY)) for block in blocks]
        for index in order:
            gate.release(Gaussian(1.0), steps[index])

    dry = Gate(SilentSource())
    run(dry, [0, 2])
    run(Gate(SeededSource(0), declared=dry.log), [0, 2])
    opened.clear()
    gate = Gate(SeededSource(0), declared=dry.log)
    with pytest.raises(Refused, match="release 2 differs"):
        run(gate, [0, 1])
    assert len(gate.log) == 1
    assert len(opened) == 3 + 1  # the running sum's own three, and one release


def test_same_event_compares_every_field():
    event = Event("Gaussian", (Pure(1.0),), ((0,),), 3, Sampling(0.5), None)
    assert same_event(event, Event("Gaussian", (Pure(1.0),), ((0,),), 3, Sampling(0.5), None))
    for other in (
        Event("Laplace", (Pure(1.0),), ((0,),), 3, Sampling(0.5), None),
        Event("Gaussian", (Pure(1.1),), ((0,),), 3, Sampling(0.5), None),
        Event("Gaussian", (Pure(1.0), Pure(1.0)), ((0,),), 3, Sampling(0.5), None),
        Event("Gaussian", (GaussianKind(1.0, 1.0),), ((0,),), 3, Sampling(0.5), None),
        Event("Gaussian", (Pure(1.0),), ((1,),), 3, Sampling(0.5), None),
        Event("Gaussian", (Pure(1.0),), ((0,), (1,)), 3, Sampling(0.5), None),
        Event("Gaussian", (Pure(1.0),), ((0,),), 4, Sampling(0.5), None),
        Event("Gaussian", (Pure(1.0),), ((0,),), 3, Sampling(0.6), None),
    ):
        assert not same_event(event, other)
        assert not same_event(other, event)


# ------------------------------------------------------------ hook
def test_a_hook_records_and_answers(declared):
    seen = []

    def hook(mechanism, payload, sensitivity, event, run):
        seen.append((mechanism, payload.copy(), sensitivity, event))
        return run() if len(seen) == 1 else np.array([7.0, 7.0])

    source, twin = SeededSource(3), SeededSource(3)
    gate, value = Gate(source, hook=hook), sealed_value()
    first, second = gate.release(Gaussian(2.0), value), gate.release(Gaussian(2.0), value)
    expected = Gate(twin).release(Gaussian(2.0), value)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, [7.0, 7.0])
    assert len(gate.log) == len(seen) == 2
    assert seen[0][3] is gate.log[0]
    assert seen[0][2] is value.sensitivity
    assert seen[0][0] == Gaussian(2.0)
    np.testing.assert_allclose(seen[0][1], np.full(2, -2 * SECRET))
    np.testing.assert_array_equal(source.noise.random(3), twin.noise.random(3))


def test_a_hook_does_not_get_round_the_checks(declared, opened):
    gate = Gate(
        SeededSource(0), declared=declared, hook=lambda *args: pytest.fail("the hook was called")
    )
    with pytest.raises(Refused, match="release 1 differs"):
        gate.release(Gaussian(9.0), sealed_value())
    assert opened == []


# ------------------------------------------------------------ small things
def test_the_log_cannot_be_replaced():
    gate = Gate(SeededSource(0))
    with pytest.raises(AttributeError):
        gate.log = Log()


def test_a_mechanism_that_refuses_by_its_facts_costs_nothing(opened):
    gate = Gate(SeededSource(0))
    value = oracle().everything().function(Hinge())
    with pytest.raises(Refused, match="smooth"):
        gate.release(ObjectivePerturbation("pure", 1.0, 1.0, 1e-6, 1.0), value)
    assert len(gate.log) == 0
    assert opened == []


def test_a_count_passes_through_the_same_door():
    gate = Gate(SilentSource())
    counted = oracle(n=9).everything().ask(CountRecords())
    assert gate.release(Gaussian(1.0), counted) == [9.0]
    assert gate.release(Gaussian(1.0), counted.through(Scale(2.0))) == [18.0]
