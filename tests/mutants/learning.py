"""Planted bugs in DP-FTRL, online estimators and their checkpoints, and the checks that notice."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privopt import OnlineLogisticRegression, Refused, durable
from privopt.audit import hostile_pairs, record, replay
from privopt.estimators.online_model import OnlineModel
from privopt.estimators.online_run import OnlineRun, Recipe
from privopt.estimators.participants import Participants
from privopt.mechanisms import correlated
from privopt.mechanisms.checkpoint import Checkpoint
from privopt.noise import narrow_gaussian, source_for
from privopt.oracle import Embedded, mapped, moments
from privopt.oracle.moments import LeastSquaresMoments
from privopt.privacy import Accountant, Log, spend
from privopt.privacy.factorizations import open_ended
from privopt.privacy.participation import Participation
from privopt.solvers.families.leaders import Task

from .checks import law, logged, replayed
from .mutant import Mutant

DELTA = 1e-5
SQUARES = "dp_ftrl_least_squares"


# ---------------------------------------------------------------- checks
def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((6, 2)), rng.integers(3, size=6)


def model(**how: Any) -> OnlineLogisticRegression:
    given = {"n_steps": 8, "noise": "honaker", "classes": [0, 1, 2], "random_state": 0, **how}
    return OnlineLogisticRegression(1.0, DELTA, **given)


def feed(online: OnlineLogisticRegression, steps: int, **how: Any) -> OnlineLogisticRegression:
    for seed in range(steps):
        online.partial_fit(*batch(seed), **how)
    return online


def refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Refused:
        return True
    return False


def certified() -> str | None:
    """What left costs no more than the certificate says, and no more than the budget."""
    try:
        online, tape = record(lambda X, y: feed(model(), 8), batch(0))
    except Refused as refusal:
        return f"refused: {refusal}"
    log = Log()
    for release in tape.releases:
        log.append(release.event)
    spent = Accountant("zero_out").epsilon(spend(log), DELTA)
    if spent > 1 + 1e-9:
        return f"a budget of 1 is spent with {spent:.3g}"
    certificate = online.privacy_.epsilon
    return f"{spent:.3g} left, {certificate:.3g} certified" if spent > certificate + 1e-9 else None


def standardised() -> str | None:
    """Replay of a stream that learns to centre and scale its rows."""
    how = {"bounds": (-1.0, 1.0), "batch_size": 16, "nan_policy": "empty", "n_steps": 4}
    for relation in ("zero_out", "replace_one"):

        def run(X: np.ndarray, y: np.ndarray, relation: str = relation) -> Any:
            online = OnlineLogisticRegression(
                1.0, DELTA, neighbouring=relation, random_state=0, **how
            )
            y = np.where(np.nan_to_num(y) > 0, 1.0, -1.0)
            for start in range(0, len(X), 16):
                online.partial_fit(X[start : start + 16], y[start : start + 16], classes=[-1, 1])
            return online.coef_

        for pair in hostile_pairs(relation, classification=True):
            if found := replay(run, pair):
                return f"{pair.name}: {found[0]}"
    return None


def cut() -> str | None:
    """The noise of batches that are cut covers a record wherever it stands in its batches."""
    rule = Participation.separated(2, 2)
    recipe = feed(model(), 1)._run.recipe
    recipe = replace(recipe, rule=rule, parts=3, noise="sqrt_toeplitz")
    C = recipe.factorization().encode(np.eye(24))
    pairs = [(a, b) for a in range(24) for b in range(a + 1, 24) if b // 3 - a // 3 >= 2]
    worst = max(float(np.sum((C[:, a] + C[:, b]) ** 2)) for a, b in pairs)
    charged = recipe.factorization().sensitivity_squared(recipe.rule_of_parts)
    return f"{worst:.4g} moved, {charged:.4g} charged" if worst > charged * (1 + 1e-9) else None


def both_accounted() -> str | None:
    """A new stream does not forget the old one."""
    online = feed(model(), 4)
    before = online.epsilon_spent()
    if refused(online.start_new_stream):
        return "a new stream exceeds the budget"
    if online.epsilon_spent() < before * (1 - 1e-9):
        return "a new stream forgets what the old one has spent"
    if refused(lambda: feed(online, 4).privacy_):
        return "two streams exceed the budget"
    return None


def once() -> str | None:
    """A named record does not take part twice, in one process or after a restart."""
    with tempfile.TemporaryDirectory() as home:
        how = {"checkpoint": Path(home) / "run"}
        online = feed(model(**how), 1, record_ids=np.arange(6))
        for again in (online, model(**how)):
            if not refused(lambda again=again: again.partial_fit(*batch(1), record_ids=range(6))):
                return "a record took part twice"
    return None


def one_thread_of_noise() -> str | None:
    """Copies do not go on, and neither noise of another run nor an old step's is taken."""
    with tempfile.TemporaryDirectory() as home:
        online = feed(model(checkpoint=Path(home) / "run"), 2)
        twin = copy.deepcopy(online)
        twin.checkpoint = None
        if not refused(lambda: twin.partial_fit(*batch(2))):
            return "a copy went on with the same noise"
        feed(model(checkpoint=Path(home) / "other"), 2)
        stolen = (Path(home) / "other" / "noise-2").read_bytes()
        kept = (Path(home) / "run" / "noise-2").read_bytes()
        (Path(home) / "run" / "noise-2").write_bytes(stolen)
        if not refused(lambda: model(checkpoint=Path(home) / "run").resume()):
            return "noise of another run was taken"
        (Path(home) / "run" / "noise-2").write_bytes(kept)
        first, second = (model(checkpoint=Path(home) / "run").resume() for _ in range(2))
        first.partial_fit(*batch(2))
        if not refused(lambda: second.partial_fit(*batch(3))):
            return "two processes took the same step"
    return None


def never_again() -> str | None:
    """No number of the noise is drawn twice, not even from a seed after a restart."""
    with tempfile.TemporaryDirectory() as home:
        seen = []
        for steps in (3, 3):
            online = model(checkpoint=Path(home) / "run", noise="independent")
            tape = record(lambda X, y, o=online, s=steps: feed(o, s), batch(0))[1]
            for release in tape.releases:
                grid = release.sensitivity.grid
                assert grid is not None
                noise = np.rint(release.result / grid.step) - release.payload
                seen.append(int(noise[0]))
    return "the same noise twice" if len(set(seen)) < len(seen) else None


def secret() -> str | None:
    """Noise is not in the model's file, and its own file is readable by its owner alone."""
    with tempfile.TemporaryDirectory() as home:
        feed(model(checkpoint=Path(home) / "run"), 2)
        modes = {p.name: p.stat().st_mode & 0o077 for p in (Path(home) / "run").iterdir()}
        return "others may read the noise" if modes["noise-2"] else None


def charged_for_ever() -> str | None:
    """The stated loss of an open-ended stream covers that of each step."""
    noise, steps = open_ended.OpenEnded(), 40
    stated = noise.sensitivity_squared(Participation.single_pass(), steps)
    found = noise.losses_squared([(t,) for t in range(steps)], steps).max()
    return "an open-ended stream states too little" if found > stated * (1 + 1e-9) else None


# ---------------------------------------------------------------- bugs
def _half(source: Any, shape: Any, top: int) -> np.ndarray:
    return narrow_gaussian(source, shape, top // 2)


def _one_pass(task: Task, factorization: Any, blocks: int) -> float:
    square = factorization.sensitivity_squared(Participation.single_pass())
    return math.sqrt(square * task.facts.repeats) / task._mu()


def _unclipped(query: LeastSquaresMoments, rows: Any, at: np.ndarray, step: float) -> np.ndarray:
    found = _COUNT(LeastSquaresMoments(query.bounds, 1e3), rows, at, step)
    found[-rows.dimension :] *= 1000
    return found


_COUNT, _MULTIPLIER = LeastSquaresMoments.count, Recipe.multiplier


def _one_model(recipe: Recipe, factorization: Any, spent: Any = ()) -> float:
    return _MULTIPLIER(recipe, factorization, spent) / math.sqrt(recipe.models)


def _whole_batches_apart(recipe: Recipe) -> Participation:
    return Participation.separated(
        recipe.rule.times, recipe.rule.min_separation_steps * recipe.parts
    )


def learning() -> Iterator[Mutant]:
    for solver in ("dp_ftrl", SQUARES):
        half = ((correlated, "narrow_gaussian", _half),)
        yield Mutant(f"{solver}: half the correlated noise", half, law(solver, DELTA), "law")
    yield Mutant(
        "dp_ftrl: several passes charged as one",
        ((Task, "multiplier", _one_pass),),
        logged("dp_ftrl", DELTA),
        "log",
    )
    yield Mutant(
        f"{SQUARES}: labels are not clipped",
        ((LeastSquaresMoments, "count", _unclipped),),
        replayed(SQUARES, "zero_out", DELTA),
        "replay",
    )
    yield Mutant(
        f"{SQUARES}: replacing a record moves as far as emptying it",
        ((LeastSquaresMoments, "diameter", LeastSquaresMoments.radius),),
        replayed(SQUARES, "replace_one", DELTA),
        "replay",
    )
    yield Mutant(
        f"{SQUARES}: off-diagonal products count twice",
        ((moments, "svec", lambda m: (m + (1 - np.eye(len(m))) * m)[np.triu_indices(len(m))]),),
        replayed(SQUARES, "zero_out", DELTA),
        "replay",
    )
    yield Mutant(
        "open-ended stream: every tree has the noise of the first",
        ((open_ended, "_scale", lambda tree: 1.0),),
        charged_for_ever,
        "charge",
    )
    yield Mutant(
        "online: several models share the noise of one",
        ((Recipe, "multiplier", _one_model),),
        certified,
        "certificate",
    )
    yield Mutant(
        "online: moments count as one vector of norm 1",
        ((Embedded, "unit", property(lambda question: 1.0)),),
        standardised,
        "replay",
    )
    yield Mutant(
        "online: gradients of mapped rows are not shortened",
        ((mapped, "shorten", lambda lengths, bound, dimension: 4.0 + 0 * lengths),),
        standardised,
        "replay",
    )
    yield Mutant(
        "online: batches that are cut stay as far apart as their parts",
        ((Recipe, "rule_of_parts", property(_whole_batches_apart)),),
        cut,
        "charge",
    )
    yield Mutant(
        "online: a given-up stream is not accounted",
        ((OnlineRun, "_past", lambda run: iter(())),),
        both_accounted,
        "certificate",
    )
    yield Mutant(
        "online: a new stream has the whole budget again",
        ((Recipe, "multiplier", lambda r, f, spent=(): _MULTIPLIER(r, f)),),
        both_accounted,
        "certificate",
    )
    yield Mutant(
        "online: participations are not counted",
        ((Participants, "enter", lambda self, step, records: None),),
        once,
        "participants",
    )
    yield Mutant(
        "online: a seed begins anew after a restart",
        ((OnlineModel, "_source", lambda self, steps, streams: source_for(self.random_state)),),
        never_again,
        "fresh",
    )
    for name, patches in {
        "noise of any run is taken": ((Checkpoint, "_noise", _any_noise),),
        "a step may be taken twice": (
            (durable, "write_new", durable.replace),
            (Checkpoint, "_still_mine", lambda self: None),
        ),
    }.items():
        yield Mutant(f"checkpoint: {name}", patches, one_thread_of_noise, "checkpoint")
    yield Mutant(
        "checkpoint: everybody reads the noise",
        ((durable, "_draft", lambda path, content, mode: _DRAFT(path, content, 0o644)),),
        secret,
        "checkpoint",
    )


_DRAFT = durable._draft


def _any_noise(checkpoint: Checkpoint, step: int) -> dict[str, np.ndarray]:
    import io

    content = (checkpoint.folder / f"noise-{step}").read_bytes()
    with np.load(io.BytesIO(content.split(b"\n", 2)[2]), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
