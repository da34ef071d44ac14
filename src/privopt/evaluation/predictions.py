"""What a model says of each record, and what is known of how it says so.

The noise of an evaluation pays for one place of each record, so the place of a record must depend
on this record alone. What is known to predict row by row (estimators of this library and of
scikit-learn, and what is made of such) is called on blocks of rows; everything else on one row at
a time, so that it cannot mix rows within a call. That it remembers nothing from call to call is not
enforced: it is tried on made-up rows, and the certificate names it.

A record that the model cannot predict is an empty one. No refusal here depends on a record.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logit
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags

from privopt.estimators.frames import apart, concrete
from privopt.evaluation.modules import Module, is_module
from privopt.ownership import own_type
from privopt.privacy.budget import Refused

BLOCK = 1 << 14
"""Rows that are predicted in one call."""
MADE_UP = 8
MIXING = {"IterativeImputer"}
"""Of scikit-learn, but what a row becomes may depend on how many draws the others took."""
_PLAIN = (bool, int, float, str, bytes, type, slice, range, np.ufunc, type(None))
BY_SCORE = {
    "AdaBoostClassifier",
    "BaggingClassifier",
    "BernoulliNB",
    "ComplementNB",
    "DecisionTreeClassifier",
    "ExtraTreesClassifier",
    "GaussianNB",
    "GaussianProcessClassifier",
    "GradientBoostingClassifier",
    "HistGradientBoostingClassifier",
    "LinearDiscriminantAnalysis",
    "LinearSVC",
    "LogisticRegression",
    "LogisticRegressionCV",
    "MLPClassifier",
    "MultinomialNB",
    "PassiveAggressiveClassifier",
    "Perceptron",
    "QuadraticDiscriminantAnalysis",
    "RandomForestClassifier",
    "RidgeClassifier",
    "SGDClassifier",
}
"""Of scikit-learn, classes whose ``predict`` is the side of zero on which their score lies."""

Ask = Callable[[Any], np.ndarray]
"""From rows to one line of numbers for each; NaN where there is no answer."""


@dataclass(frozen=True)
class Speech:
    """What a model says of a row, in numbers.

    ``scores``: "probabilities", "margins" (a decision function) or "none". ``by_score``: whether
    the class is known to be the side of zero where the score lies. ``apart``: whether it is called
    on one row at a time.
    """

    name: str
    ask: Ask
    scores: str
    by_score: bool
    apart: bool
    assumptions: tuple[str, ...]


# ------------------------------------------------------------ which model
def speech_of(
    model: Any, classes: np.ndarray | None, one_at_a_time: bool | None, positional: bool
) -> Speech:
    """How to ask a model; refuses, before any data is touched, one that cannot be asked.

    ``positional``: whether every other row keeps its place when one changes. Where it does not, the
    last bits of a row's product with the coefficients may depend on who stands before it, so rows
    are predicted apart.
    """
    module = is_module(model)
    if module:
        model = Module(model, classes)
    if not hasattr(model, "predict"):
        raise TypeError(f"{type(model).__name__} has no predict: evaluate a fitted model.")
    known = not module and row_by_row(model)
    apart = (not known or not positional) if one_at_a_time is None else bool(one_at_a_time)
    final, name = _final(model), own_name(model.module if module else model)
    assumptions: list[str] = []
    if not known:
        keeps = "keeps nothing of the records that it is called with"
        alone = "" if apart else ", and predicts each record without looking at those beside it"
        assumptions.append(f"{name}.predict {keeps}{alone}: not proved")
    if not hasattr(final, "privacy_"):
        assumptions.append(f"{name} is public: what it learned, and from whom, is not covered")
    if classes is None:
        return Speech(name, _numbers(model), "none", False, apart, tuple(assumptions))
    scores = "none"
    if _callable(model, "predict_proba"):
        scores = "probabilities"
    elif len(classes) == 2 and _callable(model, "decision_function"):
        scores = "margins"
    by_score = scores != "none" and (module or _decides_by_score(final))
    ask = _labels(model, classes, scores)
    return Speech(name, ask, scores, by_score, apart, tuple(assumptions))


def row_by_row(model: Any) -> bool:
    """Whether a model is known to predict each row by itself: made of parts of this library and of
    scikit-learn alone, with nothing put over a method, and no function of a user's."""
    if not isinstance(model, BaseEstimator) or not _known(model):
        return False
    parts = [part for _, part in model.get_params(deep=True).items()]
    return all(_harmless(part) for part in parts)


def _known(part: Any) -> bool:
    kind = type(part)
    if any(callable(value) for key, value in vars(part).items() if hasattr(kind, key)):
        return False
    return own_type(kind) or (_of_scikit_learn(kind) and kind.__name__ not in MIXING)


def _harmless(part: Any) -> bool:
    """Whether a parameter is plain data or a known part; a function of a user's may do anything."""
    if isinstance(part, BaseEstimator):
        return _known(part)
    if isinstance(part, (list, tuple, set, frozenset)):
        return all(_harmless(one) for one in part)
    if isinstance(part, dict):
        return all(_harmless(one) for one in part.values())
    kind = type(part)
    of_numpy = kind.__module__.partition(".")[0] == "numpy" and not callable(part)
    return isinstance(part, _PLAIN) or of_numpy or own_type(kind) or _of_scikit_learn(kind)


def _of_scikit_learn(kind: type) -> bool:
    """Whether scikit-learn defines exactly this class."""
    if kind.__module__.partition(".")[0] != "sklearn":
        return False
    return getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def _final(model: Any) -> Any:
    while True:
        if isinstance(model, Pipeline):
            model = model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            return model


def own_name(model: Any) -> str:
    """The class of what predicts, at the end of a pipeline or of a search."""
    return type(_final(model)).__name__


def _decides_by_score(final: Any) -> bool:
    kind = type(final)
    if own_type(kind):
        return True
    return _of_scikit_learn(kind) and kind.__name__ in BY_SCORE


def _callable(model: Any, name: str) -> bool:
    return callable(getattr(model, name, None))


# ------------------------------------------------------------ how it is asked
def _numbers(model: Any) -> Ask:
    def ask(rows: Any) -> np.ndarray:
        return np.asarray(model.predict(rows), dtype=float).reshape(height(rows), 1)

    return ask


def _labels(model: Any, classes: np.ndarray, scores: str) -> Ask:
    """The number of the class, then the score of the second class in log-odds, or, of more than
    two classes, all probabilities."""

    def ask(rows: Any) -> np.ndarray:
        count = height(rows)
        said = codes(np.asarray(model.predict(rows)).reshape(count), classes).astype(float)
        parts = [np.where(said < 0, np.nan, said)]
        if scores == "margins":
            parts.append(np.asarray(model.decision_function(rows), float).reshape(count))
        elif scores == "probabilities":
            found = np.asarray(model.predict_proba(rows), dtype=float)
            if found.shape != (count, len(classes)):
                raise Refused("predict_proba gives one probability for each class.")
            with np.errstate(all="ignore"):
                columns = [logit(found[:, 1])] if len(classes) == 2 else list(found.T)
            parts += columns
        return np.column_stack(parts)

    return ask


def codes(values: Any, classes: np.ndarray) -> np.ndarray:
    """The number of each label among the classes; -1 for others and for missing ones."""
    places = {label: k for k, label in enumerate(classes.tolist())}
    found = np.full(len(values), -1)
    for i, value in enumerate(np.asarray(values).tolist()):
        try:
            found[i] = places.get(value, -1)
        except TypeError:  # a cell that holds a list
            continue
    return found


# ------------------------------------------------------------ asking
def answers(speech: Speech, model: Any, X: Any, width: int) -> np.ndarray:
    """One line for each row; of a row that cannot be predicted, NaN."""
    n = height(X)
    found = np.full((n, width), np.nan)
    X, usable = _usable(model, X)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a warning that one record causes would tell of it
        for start, stop in _blocks(n, 1 if speech.apart else BLOCK):
            rows = rows_of(X, slice(start, stop))
            part = _asked(speech.ask, rows, stop - start, width)
            found[start:stop] = _without_failures(speech.ask, rows, width) if part is None else part
    found[~usable] = np.nan
    return found


def _asked(ask: Ask, rows: Any, count: int, width: int) -> np.ndarray | None:
    try:
        found = ask(rows)
    except Exception:  # of one record's making, perhaps
        return None
    return found if found.shape == (count, width) else None


def _without_failures(ask: Ask, rows: Any, width: int) -> np.ndarray:
    """A block in which another row stands in for each that fails by itself: what the model says of
    the rest is computed in the same places as if it had not failed, to the last bit."""
    count, nothing = height(rows), np.nan
    alone = [_asked(ask, rows_of(rows, slice(i, i + 1)), 1, width) for i in range(count)]
    well = np.array([one is not None for one in alone])
    if count == 1 or not well.any():
        return np.full((count, width), nothing)
    stand_in = int(np.argmax(well))
    found = _asked(ask, rows_of(rows, np.where(well, np.arange(count), stand_in)), count, width)
    if found is None:
        found = np.concatenate([np.full((1, width), nothing) if a is None else a for a in alone])
    return np.where(well[:, None], found, nothing)


def _usable(model: Any, X: Any) -> tuple[Any, np.ndarray]:
    """Rows in whose place a model that takes no missing numbers gets zeros, in the same place."""
    usable = np.ones(height(X), dtype=bool)
    if _takes_missing(model):
        return X, usable
    if sp.issparse(X):
        X = sp.csr_array(X)
        usable[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~np.isfinite(X.data)]] = False
        if usable.all():
            return X, usable
        X = X.copy()
        X.data[~np.isfinite(X.data)] = 0.0
        return X, usable
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return X, usable
    usable = np.asarray(np.isfinite(X).all(axis=1))
    return (X if usable.all() else np.where(usable[:, None], X, 0.0)), usable


def _takes_missing(model: Any) -> bool:
    while isinstance(model, Pipeline):
        model = model.steps[0][1]
    return isinstance(model, BaseEstimator) and bool(get_tags(model).input_tags.allow_nan)


def rows_of(X: Any, which: slice | np.ndarray) -> Any:
    """Some rows of a matrix, a frame or a table; a model may write into them."""
    if type(X).__module__.partition(".")[0] == "pyarrow":
        if isinstance(which, slice):
            return X.slice(which.start, which.stop - which.start)
        return X.take(which)
    if isinstance(X, np.ndarray):
        return X[which].copy()
    if hasattr(X, "detach"):
        return X[which].clone()
    return _safe_indexing(X, which)


def table_of(X: Any) -> Any:
    """Rows and columns; a list's cells stay what they are, whatever the others are."""
    X = concrete(X)
    if isinstance(X, (list, tuple)):
        rows = [list(row) if isinstance(row, (list, tuple, np.ndarray)) else row for row in X]
        if not rows or any(not isinstance(r, list) or len(r) != len(rows[0]) for r in rows):
            raise ValueError("X must be a table of rows and columns.")
        return np.array([apart(row) for row in rows]).reshape(len(rows), len(rows[0]))
    if not hasattr(X, "shape") or (len(X.shape) != 2 and not hasattr(X, "detach")):
        raise ValueError("X must be a table of rows and columns.")
    return X


def height(X: Any) -> int:
    """Number of rows."""
    return int(X.num_rows if hasattr(X, "num_rows") else X.shape[0])


def _blocks(n: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(n, start + size)) for start in range(0, n, size))


# ------------------------------------------------------------ made-up rows
def check_apart(speech: Speech, X: Any) -> None:
    """Refuse a model whose answer for a made-up row depends on the rows beside or before it."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub":
        return
    grid = np.arange(MADE_UP * X.shape[1], dtype=float).reshape(MADE_UP, -1)
    rows = np.sin(1 + grid).astype(X.dtype)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            first = [speech.ask(rows[i : i + 1].copy()) for i in range(MADE_UP)]
            whole, back = speech.ask(rows.copy()), speech.ask(rows[::-1].copy())
            again = [speech.ask(rows[i : i + 1].copy()) for i in reversed(range(MADE_UP))]
        except Exception:
            return  # rows that it does not take say nothing about it
    alone = np.concatenate(first)
    beside = [np.concatenate(again)[::-1]] + ([] if speech.apart else [whole, back[::-1]])
    if not all(np.allclose(alone, other, equal_nan=True) for other in beside):
        raise Refused(
            f"{speech.name} gives a record another prediction when other records stand beside it "
            "or were asked before: what one person does to the result would have no bound. "
            "Evaluate a model that predicts each record by itself."
        )
