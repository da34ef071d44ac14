"""Record and replay: a deterministic test of everything between the data and the noise.

Run on a data set and record each release; run on a neighbour with the released values frozen.
Then every call, every public argument, every point at which a question is asked and every output
must be the same, and each sealed value may have moved by no more than its declared sensitivity.
This finds wrong sensitivities, missing clips, data in public parameters and data in side outputs;
it does not see the noise (``audit.law`` does) nor a wrong formula in the accountant (its
closed-form tests do).
"""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from privopt.audit.neighbours import Pair
from privopt.mechanisms import (
    HOOK,
    Drawn,
    ExponentialDensity,
    Mechanism,
    OutputPerturbation,
    same_event,
)
from privopt.mechanisms.density import body_of
from privopt.noise import SeededSource
from privopt.oracle.objective import Objective
from privopt.oracle.sampling import COUPLING, KeyedCoins
from privopt.oracle.sensitivity import Sensitivity, order_of
from privopt.oracle.vector_gradient import VectorObjective
from privopt.oracle.vertex_draw import VertexDraw
from privopt.oracle.view import LISTENER
from privopt.privacy import Event
from privopt.privacy.kinds import BoundedRange, GaussianKind, Pure

SLACK = 1e-9
"""Relative rounding error allowed in a measured movement."""

Run = Callable[[np.ndarray, np.ndarray], Any]
"""From private data to everything that becomes public."""


@dataclass
class Release:
    """One recorded release."""

    mechanism: Mechanism
    payload: Any
    sensitivity: Sensitivity
    event: Event
    result: Any


@dataclass
class Tape:
    """A gate's hook that records, then replays."""

    releases: list[Release] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    position: int = 0
    playing: bool = False
    group: int = 1
    questions: list[tuple[str, bytes]] = field(default_factory=list)
    asked: int = 0
    inside: bool = False
    """Within a release: what whole runs in there ask follows from what they alone have seen."""

    def listen(self, name: str, at: np.ndarray) -> None:
        """A question: what it is and where it is asked must follow from what was released."""
        if self.inside:
            return
        question = name, np.asarray(at, dtype=float).tobytes()
        if not self.playing:
            self.questions.append(question)
            return
        if self.asked >= len(self.questions) or self.questions[self.asked] != question:
            self.findings.append(
                f"{name} is asked at a point that depends on data beyond what was released"
            )
        self.asked += 1

    def __call__(
        self,
        mechanism: Mechanism,
        payload: Any,
        sensitivity: Sensitivity,
        event: Event,
        run: Callable[[], Any],
    ) -> Any:
        if isinstance(payload, VertexDraw):  # follows the run's path: what counts is its value now
            payload = payload.scores()
        if not self.playing:
            kept = payload.copy() if isinstance(payload, np.ndarray) else payload
            self.inside, before = True, self.inside
            try:
                result = run()
            finally:
                self.inside = before
            self.releases.append(Release(mechanism, kept, sensitivity, event, result))
            return result
        if self.position >= len(self.releases):
            self.findings.append("the neighbour's run makes more releases")
            return run()
        recorded = self.releases[self.position]
        self.position += 1
        self._compare(recorded, mechanism, payload, sensitivity, event)
        return recorded.result

    def _compare(
        self,
        old: Release,
        mechanism: Mechanism,
        payload: Any,
        sensitivity: Sensitivity,
        event: Event,
    ) -> None:
        label = f"release {self.position} ({type(mechanism).__name__})"
        if mechanism != old.mechanism or not same_event(event, old.event):
            self.findings.append(f"{label}: its event or its noise depends on data")
        if not _same_reach(sensitivity, old.sensitivity):
            self.findings.append(f"{label}: its declared sensitivity depends on data")
        checks = chain(
            movements(old.payload, payload, old.sensitivity, mechanism),
            _weight_movement(mechanism, event, old.payload, payload, old.sensitivity),
        )
        for what, moved, allowed in checks:
            allowed *= self.group
            if not moved <= allowed * (1 + SLACK):
                self.findings.append(f"{label}: {what} moved {moved:.6g}, declared {allowed:.6g}")


def movements(
    one: Any, other: Any, sensitivity: Sensitivity, mechanism: Mechanism | None = None
) -> Iterator[tuple[str, float, float]]:
    """Measured and declared movements between two payloads."""
    if isinstance(one, Objective | VectorObjective):
        yield from _function_movements(one, other, sensitivity)
        if isinstance(mechanism, OutputPerturbation):
            algorithm: Any = mechanism.algorithm
            moved = np.linalg.norm(algorithm.value(one) - algorithm.value(other))
            yield "the result", float(moved), mechanism.output_sensitivity(sensitivity)
        return
    if sensitivity.norm == "runs":  # the runs of a search release through gates of their own
        return
    one, other = (np.atleast_1d(in_units(payload, sensitivity)) for payload in (one, other))
    if one.shape != other.shape:
        yield "the shape", math.inf, 0.0
        return
    with np.errstate(all="ignore"):
        difference = np.abs(one - other)
    if sensitivity.norm == "range":
        yield "the range", float(np.ptp(one - other)), _lane_radius(sensitivity)
        return
    if sensitivity.norm == "coordinates":
        radius = np.broadcast_to(sensitivity.radius, difference.shape)
        worst = int(np.argmax(difference - radius))
        yield "a coordinate", float(difference[worst]), float(radius[worst])
        return
    moved = float(np.linalg.norm(difference, order_of(sensitivity.norm)))
    yield "the value", moved, _lane_radius(sensitivity)


def in_units(payload: Any, sensitivity: Sensitivity) -> Any:
    """What an integer payload stands for; any other as it is. An integer sum is never beyond 2^53
    steps in an audit's small data sets, so that its units are exact to the last digit."""
    return payload if sensitivity.grid is None else payload * sensitivity.grid.step


def _lane_radius(sensitivity: Sensitivity) -> float:
    """A running sum moves by at most the largest decayed radius among its cells."""
    if sensitivity.running_sum is None:
        return float(sensitivity.radius)
    path, step = sensitivity.running_sum.path, sensitivity.running_sum.step
    return float(sensitivity.radius) * max(
        radius * math.exp(path.log_decay[step] - path.log_decay[s])
        for s, radius in enumerate(path.radii[: step + 1])
    )


def _function_movements(
    one: Objective | VectorObjective, other: Any, sensitivity: Sensitivity
) -> Iterator[tuple[str, float, float]]:
    facts = sensitivity.facts
    assert facts is not None
    generator = SeededSource(1).noise
    for scale in (0.0, 0.1, 1.0, 10.0, 1e3):
        theta = scale * generator.standard_normal(facts.dimension)
        moved = np.linalg.norm(one.gradient(theta) - other.gradient(theta))
        yield "the gradient", float(moved), float(sensitivity.radius)
        bent = np.linalg.eigvalsh(one.hessian(theta) - other.hessian(theta))
        # One record can only add its own curvature, one direction at a time.
        size = np.abs(bent)
        yield "the curvature", float(size.max()), float(facts.smoothness)
        rank = int(np.sum(size > 1e-9 * max(1.0, facts.smoothness)))
        records = 2 if sensitivity.radius > sensitivity.single else 1
        yield "the rank of the curvature", float(rank), float(records * facts.rank)


def _weight_movement(
    mechanism: Mechanism, event: Event, one: Any, other: Any, sensitivity: Sensitivity
) -> Iterator[tuple[str, float, float]]:
    """A draw rests on what a record does to the logarithms of the weights. With their range within
    eta all ratios of chances are within exp(eta); for a Gaussian one they move by no more than mu
    times the square root of the ridge's share, in any direction."""
    if not isinstance(mechanism, Drawn) or _is_a_point(mechanism, sensitivity):
        return
    kind = event.kinds[0]
    marks = [mechanism.landmarks(payload, sensitivity) for payload in (one, other)]
    points = np.unique(np.concatenate(marks), axis=0)
    first, second = (mechanism.log_weights(part, sensitivity, points) for part in (one, other))
    both = np.isfinite(first) & np.isfinite(second)
    moved = (first - second)[both]
    # Sums of losses are counted in steps of 2^-29 of one record's range.
    slack = 1 + 1e-6
    if isinstance(kind, (BoundedRange, Pure)):
        allowed = kind.eta if isinstance(kind, BoundedRange) else kind.epsilon
        yield "the range of the log weights", float(np.ptp(moved)), allowed * slack
    elif isinstance(kind, GaussianKind) and isinstance(mechanism, ExponentialDensity):
        targets = [mechanism.target(part, sensitivity, kind.mu) for part in (one, other)]
        turned = np.linalg.norm(targets[0].slopes(points) - targets[1].slopes(points), axis=1)
        ridge = targets[0].inverse_temperature * mechanism.regularisation
        yield "the slope of the weights", float(turned.max()), kind.mu * math.sqrt(ridge) * slack


def _is_a_point(mechanism: Any, sensitivity: Sensitivity) -> bool:
    domain, facts = getattr(mechanism, "domain", None), sensitivity.facts
    if domain is None or facts is None:
        return False
    return body_of(domain, facts.dimension).dimension == 0


def _same_reach(one: Sensitivity, other: Sensitivity) -> bool:
    return (
        one.norm == other.norm
        and np.array_equal(one.radius, other.radius)
        and np.array_equal(one.single, other.single)
        and one.facts == other.facts
        and one.grid == other.grid
    )


def replay(run: Run, pair: Pair, *, group: int = 1) -> list[str]:
    """Findings of one pair; an empty list means that nothing but released values reached out.

    ``group`` is how many records' worth a pair of users may move: see ``user_pairs``.

    ``run`` must draw its noise through privopt and return everything it makes public: numbers,
    arrays, or any object that pickles. What it prints and warns is compared too.
    """
    tape = Tape(group=group)
    first = _observe(run, pair.first, pair.first_ids, tape)
    tape.playing = True
    second = _observe(run, pair.second, pair.second_ids, tape)
    findings = list(dict.fromkeys(tape.findings))
    if tape.position < len(tape.releases):
        findings.append("the neighbour's run makes fewer releases")
    if first["error"] is not None and first["error"] == second["error"]:
        findings.append(f"both runs fail, so nothing was audited: {first['error']}")
    for what in ("output", "printed text", "warnings", "error"):
        if first[what] != second[what]:
            findings.append(f"the {what} depends on data beyond the released values")
    return findings


def record(run: Run, data: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Tape]:
    """One run with its releases, for tests that look at the noise."""
    tape = Tape()
    token = HOOK.set(tape)
    try:
        return run(*data), tape
    finally:
        HOOK.reset(token)


def _observe(
    run: Run, data: tuple[np.ndarray, np.ndarray], ids: tuple[int, ...], tape: Tape
) -> dict[str, Any]:
    hook, coupling = HOOK.set(tape), COUPLING.set(KeyedCoins(ids))
    listener = LISTENER.set(tape.listen)
    printed, result, error = io.StringIO(), None, None
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            try:
                result = run(data[0].copy(), data[1].copy())
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
    finally:
        HOOK.reset(hook)
        COUPLING.reset(coupling)
        LISTENER.reset(listener)
    return {
        "output": _frozen(result),
        "printed text": printed.getvalue(),
        "warnings": [str(w.message) for w in caught],
        "error": error,
    }


def _frozen(result: Any) -> bytes:
    """Bytes that are equal exactly when two outputs are."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.fast = True  # no memo: shared and equal objects pickle alike
    pickler.dump(result)
    return buffer.getvalue()
