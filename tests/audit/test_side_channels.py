"""What leaves beside the released numbers: pickles, text, errors; and noise in other processes."""

from __future__ import annotations

import io
import json
import logging
import pickle
import struct
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from joblib import Parallel, delayed

from privopt import Budget, LogisticRegression, Problem, Refused, Ridge, solve
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.mechanisms import mask, on_grid
from privopt.noise import SecureSource, rounded

CANARY = (0.7390851332151607, -0.5671432904097838)
RECORDS = 40


def records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (RECORDS, 2))
    X[17] = CANARY
    return X, np.where(X[:, 0] > 0, 1, -1)


# ---------------------------------------------------------------- other processes
def coefficients(models):
    return {model.coef_.tobytes() for model in models}


def in_processes(context, model, X, y):
    workers = 1 if context == "spawn" else 2  # each imports the library anew
    with ProcessPoolExecutor(workers, mp_context=get_context(context)) as pool:
        return [f.result() for f in [pool.submit(model.fit, X, y) for _ in range(4)]]


def by_joblib(backend, model, X, y):
    return Parallel(n_jobs=2, backend=backend)(delayed(model.fit)(X, y) for _ in range(4))


WAYS = {
    "fork": lambda *what: in_processes("fork", *what),
    "spawn": lambda *what: in_processes("spawn", *what),
    "loky": lambda *what: by_joblib("loky", *what),
    "multiprocessing": lambda *what: by_joblib("multiprocessing", *what),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:A worker stopped")
def test_no_two_fits_share_their_noise_in_whatever_process(way):
    """Four fits in workers and one in the parent: five models."""
    X, y = records()
    model = LogisticRegression(1.0, classes=[-1, 1])
    models = [*WAYS[way](model, X, y), model.fit(X, y)]
    assert len(coefficients(models)) == 5
    assert all(one.privacy_.private for one in models)
    if way == "fork":  # the test is able to fail
        seeded = LogisticRegression(1.0, classes=[-1, 1], random_state=0)
        assert len(coefficients(WAYS[way](seeded, X, y))) == 1


SHARED = SecureSource()


def shared_words(_):
    return SHARED.noise.integers(2**64, size=2, dtype=np.uint64).tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_workers_of_one_source_do_not_repeat():
    """The source was in use before the fork, as in a server that loads first and forks then."""
    shared_words(0)
    with get_context("fork").Pool(4) as pool:
        drawn = np.ravel(pool.map(shared_words, range(200), chunksize=5)).tolist()
    drawn += shared_words(0)
    assert len(set(drawn)) == len(drawn) == 402


# ---------------------------------------------------------------- bytes
def traces(value):
    """Forms in which a number could stand in a file: doubles of both orders, text."""
    number = float(value)
    yield from (struct.pack("<d", number), struct.pack(">d", number))
    yield from (repr(number).encode(), number.hex().encode())


def rough_traces(value):
    """The same with fewer digits."""
    yield from (struct.pack("<f", value), struct.pack(">f", value))
    yield f"{value:.6f}".encode()


def found_in(data, values, *forms):
    forms = forms or (traces, rough_traces)
    return [v for v in values for form in forms for trace in form(v) if trace in data]


def everything_public(model):
    """A fitted estimator as it is saved and shown."""
    parts = [pickle.dumps(model, protocol) for protocol in (2, 5)]
    parts += [model.privacy_.to_json().encode(), str(model.privacy_).encode()]
    parts += [repr(model).encode(), repr(model.plan_).encode(), repr(vars(model)).encode()]
    parts += [json.dumps(model.plan_.settings.public()).encode()]
    return b"".join(parts)


@pytest.fixture
def drawn(monkeypatch):
    """Everything the samplers returned while a test ran."""
    kept = []

    def listening(honest):
        def draw(*what):
            noise = honest(*what)
            kept.append(np.array(noise))
            return noise

        return draw

    for module in (mask, on_grid, rounded):
        for name in ("discrete_gaussian", "discrete_laplace", "fine_gaussian"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, listening(getattr(module, name)))
    for module in ("objective_perturbation", "output_perturbation", "on_grid"):
        place = f"privopt.mechanisms.{module}.norm_gamma"
        monkeypatch.setattr(place, listening(rounded.norm_gamma))
    return kept


FITS = {
    "default": (LogisticRegression, {}),
    "bounds": (LogisticRegression, {"bounds": (-1, 1)}),
    "gradients": (LogisticRegression, {"solver": "noisy_gd"}),
    "private norm": (LogisticRegression, {"data_norm": "private"}),
    "regression": (Ridge, {"bounds": (-1, 1)}),
}


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("how", FITS)
def test_no_record_and_no_noise_in_anything_that_is_kept(how, delta, drawn, caplog, capfd):
    X, y = records()
    kind, options = FITS[how]
    with caplog.at_level(logging.DEBUG):
        model = kind(1.0, delta, **options).fit(X, y)
    said = capfd.readouterr()
    data = everything_public(model) + (caplog.text + said.out + said.err).encode()
    assert found_in(data, CANARY) == []
    integers = [noise for noise in drawn if noise.dtype == np.int64]
    assert integers
    for k in np.concatenate([np.ravel(noise) for noise in integers]).tolist():
        if abs(k) > 10**6:  # a dry run's zeros, and what a file holds anyway
            forms = struct.pack("<q", k), struct.pack(">q", k), str(k).encode()
            assert not any(form in data for form in forms)
    hidden = [np.ravel(noise) for noise in drawn if noise.dtype != np.int64]
    values = [v for noise in hidden for v in noise.tolist() if v != 0]
    assert found_in(data, values, traces) == []


def test_the_scan_finds_what_is_there():
    X, _ = records()
    for data in (pickle.dumps(X), repr(X.tolist()).encode(), pickle.dumps(X.astype(np.float32))):
        assert len({round(value, 6) for value in found_in(data, CANARY)}) == 2


def test_progress_tells_steps_and_nothing_else():
    seen = io.StringIO()
    solve(
        Problem(Logistic(), L2Ball(2.0)),
        *records(),
        budget=Budget(1.0, 1e-6),
        solver="noisy_gd",
        n_iter=5,
        tick=lambda *what: print(what, file=seen),
    )
    assert seen.getvalue().splitlines() == [f"({t}, 5)" for t in range(1, 6)]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("place", ["count", "cover"])
def test_an_error_inside_a_release_carries_nothing(place, delta, monkeypatch):
    """Neither in its text nor in what hangs on it."""

    def broken(self, value, *_):
        raise ValueError(f"cannot take {value!r} near {CANARY!r}")

    monkeypatch.setattr(mask.Mask, place, broken)
    with pytest.raises(Refused, match="details are withheld, budget is spent") as caught:
        LogisticRegression(1.0, delta, solver="objective_perturbation").fit(*records())
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    text = "".join(traceback.format_exception(error))
    assert found_in(text.encode(), CANARY) == []
