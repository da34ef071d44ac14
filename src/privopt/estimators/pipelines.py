"""What stands around a private fit: transformers that learn from the data, wrappers that fit again.

An estimator sees the columns it is given, not where they came from. A scaler that was fitted to the
data puts every record's mark on every column, and no certificate of the last step speaks of that.
So the steps of the pipelines that a fit runs in are looked at, found on the call stack. This is an
aid, not a proof: what was transformed before the pipeline, or in another process, is not seen.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from privopt.estimators.wrappers import wrapped_by
from privopt.privacy import PrivacyWarning

SEARCH = "privopt.estimators.search_run"
DATA_FREE = {
    "FrozenEstimator",
    "FunctionTransformer",
    "GaussianRandomProjection",
    "PolynomialCountSketch",
    "PolynomialFeatures",
    "SparseRandomProjection",
}
"""Transformers of scikit-learn whose ``fit`` reads the shape of the data and nothing else."""


def check_pipeline(pipeline: Any) -> list[str]:
    """Names of the steps that learn from the data without noise, before the last one.

    The certificate of a private estimator does not cover them. Steps that learn nothing are:
    ``BoundedScaler``, ``SplineFeatures``, encoders with declared ``categories``,
    ``FunctionTransformer``, ``PolynomialFeatures``, random projections, hashing, and everything
    that scikit-learn calls stateless. ``ColumnTransformer``, ``FeatureUnion`` and inner pipelines
    are looked into.

    Parameters
    ----------
    pipeline : Pipeline

    Examples
    --------
    >>> import privopt
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> privopt.check_pipeline(make_pipeline(StandardScaler(), privopt.LogisticRegression()))
    ['StandardScaler']
    """
    if not isinstance(pipeline, Pipeline):
        raise TypeError(f"check_pipeline takes a Pipeline, got {type(pipeline).__name__}.")
    inner = pipeline.steps[-1][1]
    found = [name for _, step in pipeline.steps[:-1] for name in _learning(step)]
    return found + (check_pipeline(inner) if isinstance(inner, Pipeline) else [])


def learned_before() -> tuple[str, ...]:
    """What a certificate must assume of the calls that a fit runs in; warns of it."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == SEARCH:
            return ()  # the search has looked for itself, and how many fits it runs is secret
        frames.append(frame)
        frame = frame.f_back
    names: list[str] = []
    for frame in frames:
        if frame.f_globals.get("__name__") == "sklearn.pipeline":
            owner = frame.f_locals.get("self")
            if isinstance(owner, Pipeline):
                names += [n for _, step in owner.steps[:-1] for n in _learning(step)]
    names, around = list(dict.fromkeys(names)), wrapped_by(frames)
    if names:
        warnings.warn(
            f"{' and '.join(names)} before this model learns from the data without noise, which no "
            "certificate covers: use declared bounds and categories instead.",
            PrivacyWarning,
            stacklevel=4,
        )
    if around:
        warnings.warn(
            f"{' and '.join(around)} may fit this model several times and score it without noise, "
            "but a certificate covers one fit: search by PrivateSearchCV, and give the model a "
            "ledger, which adds up all fits.",
            PrivacyWarning,
            stacklevel=4,
        )
    return tuple(
        f"what {name} learned from the data, without noise, is taken to be public" for name in names
    ) + tuple(
        f"this fit is the only thing that {name} computed from the data: other fits and scores "
        "are not covered"
        for name in around
    )


def _learning(step: Any) -> list[str]:
    """Names of the parts of a step that learn from the data."""
    if step is None or isinstance(step, str):  # "passthrough", "drop"
        return []
    if isinstance(step, Pipeline):
        return [name for _, inner in step.steps for name in _learning(inner)]
    if isinstance(step, FeatureUnion):
        return [name for _, inner in step.transformer_list for name in _learning(inner)]
    if isinstance(step, ColumnTransformer):
        parts = [inner for _, inner, _ in step.transformers] + [step.remainder]
        return [name for inner in parts for name in _learning(inner)]
    return [] if _learns_nothing(step) else [type(step).__name__]


def _learns_nothing(step: Any) -> bool:
    kind = type(step)
    if kind.__module__.startswith("privopt."):
        return True
    if kind.__module__.startswith("sklearn."):
        if kind.__name__ in DATA_FREE:
            return True
        if kind.__name__ in ("OneHotEncoder", "OrdinalEncoder"):
            rare = (step.min_frequency, step.max_categories)
            return not isinstance(step.categories, str) and rare == (None, None)
    return isinstance(step, BaseEstimator) and not get_tags(step).requires_fit
