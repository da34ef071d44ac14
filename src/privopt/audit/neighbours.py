"""Hostile neighbours: pairs of data sets that differ in one record and break careless code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privopt.noise import SeededSource
from privopt.privacy import Neighbouring
from privopt.privacy.budget import replaces


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbouring data sets. ``ids`` name the records, so that sampling can be coupled."""

    name: str
    first: tuple[np.ndarray, np.ndarray]
    second: tuple[np.ndarray, np.ndarray]
    first_ids: tuple[int, ...]
    second_ids: tuple[int, ...]


def hostile_pairs(
    neighbouring: Neighbouring,
    *,
    n: int = 63,
    p: int = 4,
    classification: bool = True,
    seed: int = 0,
) -> list[Pair]:
    """At least twenty pairs under the given relation, from outliers to NaN to size boundaries."""
    if n < 10 or p < 1:
        raise ValueError("hostile pairs need at least ten records and one feature.")
    generator = SeededSource(seed).noise
    X = generator.standard_normal((n, p))
    y = np.sign(generator.standard_normal(n)) if classification else generator.standard_normal(n)
    make = {"zero_out": _zero_out, "replace_one": _replace_one, "add_remove": _add_remove}
    return list(make[neighbouring](X, y, dict(_hostile_records(X, y))))


def _hostile_records(
    X: np.ndarray, y: np.ndarray
) -> Iterator[tuple[str, tuple[np.ndarray, float]]]:
    """Records that a clip, a norm or a sum may fail on."""
    p = X.shape[1]
    ones, first = np.ones(p), np.eye(p)[0]
    yield "outlier", (1e3 * ones, 1.0)
    yield "outlier, other label", (1e3 * ones, -1.0)
    yield "at the bound", (first, 1.0)
    yield "NaN feature", (np.full(p, np.nan), 1.0)
    yield "one NaN feature", (np.where(first > 0, np.nan, 0.5), 1.0)
    yield "infinite feature", (np.where(first > 0, np.inf, 0.5), 1.0)
    yield "minus infinity", (-np.inf * ones, -1.0)
    yield "1e300", (1e300 * ones, 1.0)
    yield "square overflows", (1e160 * ones, -1.0)
    yield "tiny", (1e-300 * ones, 1.0)
    yield "zero row", (0.0 * ones, 1.0)
    yield "zero row, other label", (0.0 * ones, -1.0)
    yield "duplicate row", (X[-1].copy(), float(y[-1]))
    yield "mirrored row", (-X[-1], float(-y[-1]))
    yield "NaN label", (first, np.nan)
    yield "infinite label", (first, np.inf)
    yield "huge label", (ones, 1e300)
    yield "aligned with the data", (10 * np.sum(X * y[:, None], axis=0), 1.0)


EMPTY = (np.nan, np.nan)  # a record that holds NaN is an empty record


def _set(
    X: np.ndarray, y: np.ndarray, i: int, record: tuple[object, object]
) -> tuple[np.ndarray, np.ndarray]:
    X, y = X.copy(), y.copy()
    X[i], y[i] = record
    return X, y


def _zero_out(X: np.ndarray, y: np.ndarray, hostile: dict) -> Iterator[Pair]:
    ids = tuple(range(len(X)))
    for place, (name, record) in enumerate(hostile.items()):
        i = (0, len(X) // 2, len(X) - 1)[place % 3]
        yield Pair(name, _set(X, y, i, record), _set(X, y, i, EMPTY), ids, ids)
    for i in (0, len(X) - 1):
        yield Pair(f"ordinary record {i}", (X, y), _set(X, y, i, EMPTY), ids, ids)
    lonely = -np.ones_like(y)
    with_it = _set(X, lonely, 5, (X[5], 1.0))
    yield Pair("only member of a class", with_it, _set(X, lonely, 5, EMPTY), ids, ids)
    for i in (0, len(X) // 2, len(X) - 1):
        nothing = np.full_like(X, np.nan), np.full_like(y, np.nan)
        yield Pair(f"alone among empty ones {i}", _set(*nothing, i, (X[i], 1.0)), nothing, ids, ids)
    few = (X[:1], y[:1])
    yield Pair("the only record", few, _set(*few, 0, EMPTY), (0,), (0,))


def _replace_one(X: np.ndarray, y: np.ndarray, hostile: dict) -> Iterator[Pair]:
    ids = tuple(range(len(X)))
    names = list(hostile)
    for place, name in enumerate(names):
        i = (0, len(X) // 2, len(X) - 1)[place % 3]
        other = names[(place + 7) % len(names)]
        first, second = _set(X, y, i, hostile[name]), _set(X, y, i, hostile[other])
        yield Pair(f"{name} for {other}", first, second, ids, ids)
    opposite = ((1e3 * np.eye(X.shape[1])[0], 1.0), (1e3 * np.eye(X.shape[1])[0], -1.0))
    yield Pair("opposite labels", _set(X, y, 3, opposite[0]), _set(X, y, 3, opposite[1]), ids, ids)
    mirrored = (-opposite[0][0], 1.0)
    yield Pair("opposite rows", _set(X, y, 3, opposite[0]), _set(X, y, 3, mirrored), ids, ids)
    for i in (0, len(X) // 2, len(X) - 1):
        nothing = np.full_like(X, np.nan), np.full_like(y, np.nan)
        first, second = (_set(*nothing, i, (sign * X[i], 1.0)) for sign in (1, -1))
        yield Pair(f"opposite among empty ones {i}", first, second, ids, ids)
    lonely = -np.ones_like(y)
    yield Pair("only member of a class", _set(X, lonely, 5, (X[5], 1.0)), (X, lonely), ids, ids)


def _add_remove(X: np.ndarray, y: np.ndarray, hostile: dict) -> Iterator[Pair]:
    ids = tuple(range(len(X)))
    for place, (name, (row, label)) in enumerate(hostile.items()):
        i = (0, len(X) // 2, len(X))[place % 3]
        added = (np.insert(X, i, row, axis=0), np.insert(y, i, label))
        yield Pair(f"{name} added", added, (X, y), (*ids[:i], len(X), *ids[i:]), ids)
    for size in (1, 2, 3, 8, 9, 10, 16, 32, 50, 63):
        # Sizes at which a rounded function of n jumps.
        if size <= len(X):
            yield Pair(
                f"{size - 1} to {size} records",
                (X[:size], y[:size]),
                (X[: size - 1], y[: size - 1]),
                ids[:size],
                ids[: size - 1],
            )
    lonely = -np.ones_like(y)
    lonely[5] = 1.0
    yield Pair(
        "only member of a class",
        (X, lonely),
        (np.delete(X, 5, axis=0), np.delete(lonely, 5)),
        ids,
        (*ids[:5], *ids[6:]),
    )


def user_pairs(
    neighbouring: Neighbouring,
    *,
    users: int = 12,
    rows: int = 5,
    p: int = 3,
    classification: bool = True,
    seed: int = 0,
) -> list[Pair]:
    """Pairs that differ in all rows of one user. The last column of X says who owns a row."""
    generator = SeededSource(seed).noise
    n = users * rows
    X = np.column_stack([0.3 * generator.standard_normal((n, p)), np.arange(n) % users])
    y = np.sign(generator.standard_normal(n)) if classification else generator.standard_normal(n)
    mine, ids = X[:, -1] == 3.0, tuple(range(n))
    hostile = dict(_hostile_records(X[:, :-1], y))
    whole = [name for name, (row, label) in hostile.items() if np.isfinite([*row, label]).all()]
    found = []
    for name, other in zip(whole, [*whole[3:], *whole[:3]], strict=True):
        first = _owned(X, y, mine, hostile[name])
        if neighbouring == "add_remove":
            left = tuple(np.flatnonzero(~mine).tolist())
            found.append(Pair(f"{name} added", first, (X[~mine], y[~mine]), ids, left))
        else:
            record = hostile[other]
            if neighbouring == "zero_out":
                record, other = (np.full(p, np.nan), y[0]), "nothing"
            found.append(Pair(f"{name} for {other}", first, _owned(X, y, mine, record), ids, ids))
    return found


def _owned(
    X: np.ndarray, y: np.ndarray, mine: np.ndarray, record: tuple[object, object]
) -> tuple[np.ndarray, np.ndarray]:
    """One record in all rows of a user, who keeps them."""
    X, y = X.copy(), y.copy()
    X[mine, :-1], y[mine] = record
    return X, y


def searched_pairs(
    relation: Neighbouring, n: int, p: int, classification: bool, bound: float
) -> list[Pair]:
    """The hostile pairs, and those at which mechanisms reach their guarantee: a record at the
    clip, at the centre, with the label turned, far below or above all others, empty."""
    pairs = hostile_pairs(relation, n=n, p=p, classification=classification)
    kept = [pair for pair in pairs if "label" in pair.name or "bound" in pair.name]
    kept += [pair for pair in pairs if pair not in kept][:: max(1, len(pairs) // 6)]
    row, far = bound * np.ones(p) / np.sqrt(p), 1.0 if classification else 1e3
    records = {
        "at the clip": (row, far),
        "at the clip, label turned": (row, -far),
        "at the clip, row turned": (-row, far),
        "at the centre": (np.zeros(p), 0.0 if not classification else 1.0),
        "empty": (np.full(p, np.nan), np.nan),
    }
    X = np.tile(row, (n, 1)) * np.where(np.arange(n) % 3, 1.0, -1.0)[:, None]
    values = np.linspace(-0.9, 0.9, n)
    crowds = {
        "one label": np.ones(n),
        "both labels": np.where(np.arange(n) % 2, 1.0, -1.0),
    }
    if not classification:
        crowds |= {"spread": values, "in the middle": np.zeros(n), "below": np.full(n, -0.9)}
    ids = tuple(range(n))
    for crowd, y in crowds.items():
        for one, record in records.items():
            others = [other for other in records if other != one]
            for other in others if replaces(relation) else others[-1:]:
                first = _set(X, y, 0, record)
                if relation == "add_remove":
                    if one == "empty":
                        continue
                    kept.append(Pair(f"{one} added, {crowd}", first, (X[1:], y[1:]), ids, ids[1:]))
                else:
                    second = EMPTY if relation == "zero_out" else records[other]
                    name = f"{one} for {other}, {crowd}"
                    kept.append(Pair(name, first, _set(X, y, 0, second), ids, ids))
    return kept
