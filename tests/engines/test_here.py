"""Chunks of this process: the same answers as in memory, and refusals that cost nothing."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privopt
from privopt import (
    Budget,
    Ledger,
    LinearRegression,
    LogisticRegression,
    Problem,
    Refused,
    Ridge,
    solve,
)
from privopt import engines as rooms
from privopt.engines import Engine, Here
from privopt.engines.engine import FAILED, Changed, Failure, Growing, along_tree, attempt, total
from privopt.losses import Logistic
from privopt.noise.keyed import chosen
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.chunked import ChunkedRows
from privopt.oracle.objective import Objective

from . import faults, people


@pytest.fixture
def folder(tmp_path):
    return people.write(tmp_path / "people")


# ------------------------------------------------------------ the same answers
IN_MEMORY = {
    "default": (LogisticRegression, "sign", {"bounds": (0, 10), "classes": [-1, 1]}),
    "row bound": (LogisticRegression, "sign", {"data_norm": 20.0, "classes": [-1, 1]}),
    "private bound": (LogisticRegression, "sign", {"data_norm": "private", "classes": [-1, 1]}),
    "pure": (LogisticRegression, "sign", {"bounds": (0, 10), "classes": [-1, 1], "delta": 0.0}),
    "shapes": (
        LogisticRegression,
        "sign",
        {"bounds": (0, 10), "classes": [-1, 1], "features": "splines"},
    ),
    "softmax": (LogisticRegression, "class", {"bounds": (0, 10), "classes": [0, 1, 2]}),
    "one against the rest": (
        LogisticRegression,
        "class",
        {"bounds": (0, 10), "classes": [0, 1, 2], "delta": 0.0},
    ),
    "least squares": (LinearRegression, "number", {"bounds": (0, 10), "target_bounds": (-9, 9)}),
    "ridge": (Ridge, "number", {"bounds": (0, 10), "target_bounds": (-9, 9), "alpha": 2.0}),
    "shifted bounds": (LogisticRegression, "sign", {"bounds": (2, 7), "classes": [-1, 1]}),
    "integers": (
        LogisticRegression,
        "sign",
        {"data_norm": 20.0, "classes": [-1, 1], "solver": "noisy_gd"},
    ),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_fit_does_not_depend_on_chunks(folder, name):
    make, target, how = IN_MEMORY[name]
    how = {"epsilon": 2.0, "delta": 1e-6, "random_state": 3} | how
    X, _ = people.arrays()
    y = np.concatenate(
        [pq.read_table(path).column(target).to_numpy() for path in sorted(folder.iterdir())]
    )
    whole = make(**how).fit(X, y)
    for chunk_rows in (100, 250, None):
        model = make(**how).fit(people.listed(folder, target, chunk_rows))
        np.testing.assert_allclose(model.coef_, whole.coef_, rtol=0, atol=1e-10)
        np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=0, atol=1e-10)
        assert model.privacy_.charges == whole.privacy_.charges
        assert model.privacy_.releases == whole.privacy_.releases
        assert model.n_features_in_ == people.P
        assert list(model.feature_names_in_) == people.FEATURES
    frame = pd.DataFrame(X[:50], columns=people.FEATURES)
    np.testing.assert_allclose(model.predict(frame), whole.predict(X[:50]), atol=1e-9)
    if name in ("integers", "softmax"):
        np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("name", people.FITS)
def test_solvers_do_not_depend_on_chunks_nor_on_tasks_that_are_run_twice(folder, name):
    target, fit = people.FITS[name]
    expected = people.here(folder, name)
    for chunk_rows, engine in ((100, Here()), (250, faults.Faulty(Here()))):
        found, certificate = fit(people.listed(folder, target, chunk_rows), engine)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
        if name.startswith("noisy"):
            np.testing.assert_array_equal(found, expected)
        assert not any("trusted" in line for line in certificate.assumptions)


def test_sources_of_every_kind_are_one_data_set(folder, tmp_path):
    X, scores = people.arrays()
    y = np.where(scores > 0, 1, -1)
    table = pa.table({name: X[:, j] for j, name in enumerate(people.FEATURES)} | {"sign": y})
    with pa.ipc.new_file(tmp_path / "people.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=128)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    pair = tmp_path / "X.npy", tmp_path / "y.npy"
    model = LogisticRegression(2.0, 1e-6, bounds=(0, 10), classes=[-1, 1], random_state=3)
    expected = model.fit(people.listed(folder, "sign")).coef_
    for data in (
        privopt.dataset(str(folder / "*.parquet"), target="sign", columns=people.FEATURES),
        privopt.dataset(sorted(folder.glob("*.parquet")), target="sign", columns=people.FEATURES),
        privopt.dataset(tmp_path / "people.arrow", target="sign", chunk_rows=300),
        privopt.dataset(pair, chunk_rows=333),
        privopt.dataset(tuple(np.load(path, mmap_mode="r") for path in pair)),
    ):
        assert data.shape == (people.N, people.P)
        np.testing.assert_allclose(model.fit(data).coef_, expected, rtol=0, atol=1e-10)


def test_missing_values_are_refused_or_empty(folder):
    path = folder / "part1.parquet"
    table = pq.read_table(path)
    broken = table.column("a1").to_numpy().copy()
    broken[7] = np.nan
    kept = table.set_column(1, "a1", pa.array(broken))
    pq.write_table(kept, path, row_group_size=100)
    how = {"epsilon": 2.0, "delta": 1e-6, "bounds": (0, 10), "classes": [-1, 1], "random_state": 3}
    with pytest.raises(ValueError, match="contains NaN or infinity") as caught:
        LogisticRegression(**how).fit(people.listed(folder, "sign"))
    assert caught.value.__cause__ is None
    X = people.arrays()[0].copy()
    X[people.N // 3 + 7, 1] = np.nan
    y = np.where(people.arrays()[1] > 0, 1, -1)
    whole = LogisticRegression(**how, nan_policy="empty").fit(X, y)
    model = LogisticRegression(**how, nan_policy="empty").fit(people.listed(folder, "sign", 100))
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=0, atol=1e-10)


# ------------------------------------------------------------ memory
def test_memory_holds_a_chunk_and_not_the_data(tmp_path):
    rng = np.random.default_rng(0)
    n, p = 60_000, 20
    np.save(tmp_path / "X.npy", rng.uniform(-2, 2, (n, p)))
    np.save(tmp_path / "y.npy", rng.integers(0, 2, n))
    data = privopt.dataset((tmp_path / "X.npy", tmp_path / "y.npy"), chunk_rows=4000)
    model = LogisticRegression(1.0, 1e-6, bounds=(-2, 2), classes=[0, 1])
    model.fit(data)
    tracemalloc.start()
    model.fit(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * n * p * 8


def test_what_is_kept_has_no_name_on_disk(folder, tmp_path):
    place = tmp_path / "kept"
    place.mkdir()
    seen = []

    class Watching(Here):
        def add(self, task, *handles):
            seen.extend(place.iterdir())
            return super().add(task, *handles)

    model = LogisticRegression(2.0, 1e-6, bounds=(0, 10), classes=[-1, 1])
    model.fit(people.listed(folder, "sign"), engine=Watching(str(place)))
    assert not seen
    assert not list(place.iterdir())


# ------------------------------------------------------------ refusals
def other(folder, number, **columns):
    path = folder / f"part{number}.parquet"
    table = pq.read_table(path)
    for name, values in columns.items():
        if values is None:
            table = table.drop_columns([name])
        else:
            table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, path)


REFUSED = {
    "no file": (lambda d: privopt.dataset(d / "no.parquet", target="sign"), "no file"),
    "no table": (lambda d: _empty(d), "holds no Parquet"),
    "no target": (lambda d: privopt.dataset(d), "which column to predict"),
    "wrong target": (lambda d: privopt.dataset(d, target="sings"), "no column 'sings'"),
    "other format": (lambda d: _text(d), "must end in"),
    "not a table": (lambda d: _garbage(d), "could not be read as a table"),
    "missing column": (lambda d: _other(d, a2=None), "part2.parquet has no column 'a2'"),
    "text": (lambda d: _other(d, a2=["x"] * 400), "part2.parquet holds string, not numbers"),
    "other labels": (lambda d: _other(d, sign=["x"] * 400), "the target 'sign' holds string in"),
    "a frame": (lambda d: privopt.dataset({"a": [1]}, target="a"), "is not a path"),
    "no rows": (lambda d: privopt.dataset(d, target="sign", chunk_rows=0), "positive number"),
    "an array that is none": (lambda d: privopt.dataset((d / "a", d / "b")), "no file of NumPy's"),
}


def _other(folder, **columns):
    other(folder, 2, **columns)
    return people.listed(folder, "sign")


def _empty(folder):
    (folder / "nothing").mkdir()
    return privopt.dataset(folder / "nothing", target="sign")


def _text(folder):
    (folder / "a.txt").write_text("a,b\n1,2\n")
    return privopt.dataset(folder / "a.txt", target="sign")


def _garbage(folder):
    (folder / "part3.parquet").write_bytes(b"1234.5625 is no table")
    return privopt.dataset(folder, target="sign")


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_sentence_before_a_row_is_read(folder, name):
    attempt_it, sentence = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        attempt_it(folder)
    assert "\n" not in str(caught.value)
    assert "1234" not in str(caught.value)
    assert caught.value.__cause__ is None


def budget(path):
    return Ledger.create(path, 5.0, 1e-5, dataset="people")


@pytest.mark.parametrize("fault", ["changed", "label", "missing"])
def test_what_is_wrong_in_a_chunk_is_found_before_the_budget_is_spent(folder, tmp_path, fault):
    data = people.listed(folder, "sign", 100)
    if fault == "changed":
        os.utime(folder / "part2.parquet", (1, 1))
    else:
        if fault == "label":
            other(folder, 2, sign=np.full(400, 4321))
        if fault == "missing":
            other(folder, 2, a1=pa.array([None] * 400, pa.float64()))
        data = people.listed(folder, "sign", 100)
    ledger = budget(tmp_path / "ledger.db")
    model = LogisticRegression(
        2.0, 1e-6, bounds=(0, 10), classes=[-1, 1], ledger=ledger, dataset="people"
    )
    sentence = {"changed": "is not what it was", "label": "not declared", "missing": "NaN"}[fault]
    with pytest.raises((ValueError, Refused), match=sentence) as caught:
        model.fit(data)
    assert "4321" not in str(caught.value)
    assert ledger.dataset("people").spent == (0, 0)
    assert not hasattr(model, "coef_")


def test_other_solvers_refuse_and_name_one_that_does_not(folder):
    from privopt.solvers import catalogue

    data = people.listed(folder, "sign")
    for name, solver in catalogue().items():
        if solver.chunks or name == "dp_ftrl_least_squares":
            continue
        with pytest.raises((ValueError, Refused)) as caught:
            solve(people.NORM, data, budget=Budget(1.0, 1e-6), solver=name)
        assert str(caught.value).count("\n") == 0


def test_arguments_that_do_not_belong_together_are_refused(folder):
    data, X = people.listed(folder, "sign"), np.ones((3, 2))
    model = LogisticRegression(data_norm=1.0, classes=[-1, 1])
    for attempt_it in (
        lambda: model.fit(data, np.ones(people.N)),
        lambda: model.fit(X, np.array([1, -1, 1]), engine=Here()),
        lambda: model.fit(data, user_ids=np.ones(people.N)),
        lambda: model.fit(data, engine="ray"),
        lambda: LogisticRegression(data_norm=1.0).fit(data),
        lambda: solve(people.NORM, data, np.ones(3), budget=Budget(1.0)),
        lambda: solve(people.NORM, X, X[:, 0], budget=Budget(1.0), engine=Here()),
        lambda: rooms.named("flink"),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            attempt_it()
        assert "\n" not in str(caught.value)


# ------------------------------------------------------------ what the bits rest on
def test_failures_say_nothing_of_rows(folder, capfd):
    said = faults.failures(Here(), faults.planted(folder))
    shown = capfd.readouterr()
    assert not faults.holds_a_canary("".join(said) + shown.out + shown.err)
    assert FAILED in said[0]


def test_a_task_never_raises_and_keeps_what_failed_first():
    found = attempt(lambda x: 1 / x, 0)
    assert isinstance(found, Failure)
    assert pickle.loads(pickle.dumps(found)).sentence == FAILED
    assert attempt(lambda x: x, found) is found
    assert total(1, found, 2) is found

    def changed(_):
        raise Changed("part7 with 1234.5")

    assert "1234" not in attempt(changed, 0).sentence


@pytest.mark.parametrize("count", [*range(1, 20), 63, 64, 65, 100])
def test_sums_go_along_one_tree_however_they_are_grouped(count):
    parts = [np.array([x]) for x in np.random.default_rng(count).normal(size=count)]
    expected = along_tree(list(parts))
    growing = Growing()
    for part in parts:
        growing.append(part)
    assert growing.total() == expected
    level = list(parts)
    while len(level) > 1:
        level = [total(*level[i : i + 8]) for i in range(0, len(level), 8)]
    assert level[0] == expected


def test_coins_belong_to_records_and_not_to_chunks():
    key, rate = b"k" * 16, 0.3
    whole = chosen(key, 5, rate, 0, 10_000)
    assert abs(len(whole) - 3000) < 6 * np.sqrt(2100)
    parts = [
        first + chosen(key, 5, rate, first, count)
        for first, count in ((0, 17), (17, 4000), (4017, 5983))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for other_key, view in ((key, 6), (b"l" * 16, 5)):
        both = np.intersect1d(whole, chosen(other_key, view, rate, 0, 10_000))
        assert abs(len(both) - 900) < 6 * np.sqrt(820)
    assert len(chosen(key, 5, 1.0, 0, 10)) == 10
    assert len(chosen(key, 5, 0.0, 0, 10)) == 0


def test_a_bound_on_the_error_covers_the_error(folder):
    data = people.listed(folder, "sign", 100)
    rows = ChunkedRows.read(Here(), data, RowBounds(20.0, 1.0), True)
    X, scores = people.arrays()
    whole = Oracle.over(
        X, np.where(scores > 0, 1, -1), neighbouring="zero_out", bounds=RowBounds(20.0, 1.0),
        source=privopt.noise.source_for(0),
    )  # fmt: skip
    exact = Objective(whole._rows, Logistic())
    chunked = rows.objective(Logistic(), Objective)
    theta = np.array([0.1, -0.2, 0.05, 0.3, 1.0])
    nothing = np.zeros(5)
    for quick in (True, False):
        a, b = exact.enclosed(theta, nothing, quick), chunked.enclosed(theta, nothing, quick)
        assert np.linalg.norm(a.value - b.value) <= a.error + b.error
        assert b.error <= 20 * a.error
    np.testing.assert_allclose(chunked.hessian(theta), exact.hessian(theta), rtol=1e-12)
    np.testing.assert_allclose(chunked.value(theta), exact.value(theta), rtol=1e-12)
    curved, vector = chunked.curvatures(theta), np.arange(5.0)
    np.testing.assert_allclose(
        chunked.hessian_product(curved, vector), exact.hessian(theta) @ vector, rtol=1e-12
    )
    rough = chunked.rough_hessian(theta, 0.5)
    assert np.linalg.norm(rough - exact.hessian(theta)) < 0.3 * np.linalg.norm(rough)


def test_rows_in_chunks_are_not_pickled_nor_put_in_order(folder):
    rows = ChunkedRows.read(Here(), people.listed(folder, "sign"), RowBounds(20.0), True)
    with pytest.raises(Refused):
        pickle.dumps(rows)
    oracle = Oracle.over_chunks(rows, neighbouring="zero_out", source=privopt.noise.source_for(0))
    for attempt_it in (oracle.shuffled, lambda: oracle.blocks(2)):
        with pytest.raises(Refused, match="noisy_sgd"):
            attempt_it()


# ------------------------------------------------------------ engines are found by listing
def test_one_file_is_one_engine():
    assert rooms.names() == ["dask", "here", "ray", "spark"]
    assert rooms.Here is Here
    assert {"Dask", "Here", "Ray", "Spark"} <= set(dir(rooms))
    with pytest.raises(AttributeError):
        rooms.Flink  # noqa: B018
    for path in Path(rooms.__path__[0]).glob("*.py"):
        if path.stem not in ("__init__", "engine"):
            assert issubclass(rooms.named(path.stem), Engine)


def test_a_fingerprint_is_that_of_the_list(folder):
    one, same = (people.listed(folder, "sign", 100) for _ in range(2))
    assert one == same
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != people.listed(folder, "sign", 200).fingerprint
    assert one.fingerprint != replace(one, target="class").fingerprint
    os.utime(folder / "part0.parquet", (1, 1))
    assert one.fingerprint != people.listed(folder, "sign", 100).fingerprint
    assert repr(one) == f"Dataset({people.N} rows, 4 features, 12 chunks, target='sign')"


def test_a_problem_of_vectors_is_solved_in_chunks(folder):
    from privopt.geometry import L2Ball
    from privopt.losses import EuclideanDistance

    X, _ = people.arrays()
    problem = Problem(EuclideanDistance(), L2Ball(20.0), data_norm=20.0)
    how = {"budget": Budget(2.0), "solver": "objective_perturbation", "random_state": 3}
    try:
        whole = solve(problem, X, np.ones(len(X)), **how)
    except (ValueError, Refused) as refusal:
        pytest.fail(str(refusal))
    found = solve(problem, people.listed(folder, "sign", 100), **how)
    np.testing.assert_allclose(found.theta, whole.theta, rtol=0, atol=1e-9)
