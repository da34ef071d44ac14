"""Pairs instead of products: few cases in which every two choices meet.

Most mistakes show with two choices, a relation and a kind of noise, a problem and a solver. Full
products are run by ``make test-all`` (PRIVOPT_TESTS=all).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

ALL = os.environ.get("PRIVOPT_TESTS") == "all"


def covering(cases: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Cases among ``cases`` in which every two values that meet in one of them meet; all of them
    when everything is asked for. Values are told apart by their text."""
    if ALL:
        return list(cases)
    wanted = [_pairs(case) for case in cases]
    open_pairs = set().union(*wanted)
    chosen = set()
    while open_pairs:
        best = max(range(len(cases)), key=lambda place: len(wanted[place] & open_pairs))
        chosen.add(best)
        open_pairs -= wanted[best]
    return [case for place, case in enumerate(cases) if place in chosen]


def in_turn(cases: Sequence[Any], choices: Sequence[Any]) -> list[Any]:
    """Each case with one of the choices in turn; with each of them when everything is asked for."""
    if ALL:
        return [(case, choice) for case in cases for choice in choices]
    count = max(len(cases), len(choices))
    return [(cases[i % len(cases)], choices[i % len(choices)]) for i in range(count)]


def _pairs(case: tuple[Any, ...]) -> set[Any]:
    texts = [f"{place}:{value!r}" for place, value in enumerate(case)]
    return set(combinations(texts, 2))


UNFIT = ("check_class_weight_classifiers",)
"""Weighs one class a thousandfold: what is left of its few records, noise outweighs. Every other
check, those of accuracy too, is met."""


def each_check(*estimators: Any) -> Any:
    """scikit-learn's checks, each for one of the variants of a class in turn."""
    kinds: dict[type, list[list[tuple[Any, Any]]]] = {}
    for estimator in estimators:
        pairs = estimator_checks_generator(estimator)
        checks = [(one, check) for one, check in pairs if _text(check) not in UNFIT]
        kinds.setdefault(type(estimator), []).append(checks)
    chosen = []
    for variants in kinds.values():
        if ALL:
            chosen += [case for checks in variants for case in checks]
            continue
        places: dict[str, list[tuple[Any, Any]]] = {}
        for checks in variants:
            for one, check in checks:
                places.setdefault(_text(check), []).append((one, check))
        chosen += [found[turn % len(found)] for turn, found in enumerate(places.values())]
    names = [
        f"{type(one).__name__}-{_text(check)}-{turn}" for turn, (one, check) in enumerate(chosen)
    ]
    return pytest.mark.parametrize(("estimator", "check"), chosen, ids=names)


def _text(check: Any) -> str:
    """The check's name and its arguments."""
    if not isinstance(check, partial):
        return check.__name__
    given = ",".join(f"{name}={value}" for name, value in check.keywords.items())
    return f"{check.func.__name__}({given})" if given else check.func.__name__
