"""What a fit leaves behind: attributes, from what was released and what is public."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from privopt.estimators.bounds import ColumnBounds
from privopt.estimators.confidence import reported
from privopt.estimators.shapes import published
from privopt.estimators.targets import Targets
from privopt.privacy import Certificate
from privopt.solvers import Plan
from privopt.solvers.solver import Answer


def publish(
    model: Any,
    answer: Answer,
    certificate: Certificate,
    plan: Plan,
    targets: Targets,
    aside: Any,
    features: int,
    width: int,
) -> Any:
    """Set attributes: from what was released, and what is public."""
    problem = plan.facts.problem
    theta = np.stack(answer.thetas)
    aside.plan_, aside.n_features_in_, aside._width = plan, features, width
    coef, intercept = aside._coefficients(theta)
    shapes = None
    if answer.tables is not None:
        names, declared = getattr(aside, "feature_names_in_", None), aside._declared(features)
        bins = theta[:, features:-1] * model._unit_of_scores()
        shapes = published(bins, problem.shaped, cast(ColumnBounds, declared), names)
    for name, value in targets.attributes.items():
        setattr(model, name, value)
    model.privacy_, model.plan_, model.n_features_in_ = certificate, plan, features
    if hasattr(aside, "feature_names_in_"):
        model.feature_names_in_ = aside.feature_names_in_
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_  # of an earlier fit
    model._row_map, model._clipped, model.data_norm_ = answer.row_map, answer.clipped, None
    if hasattr(model, "features"):
        model.shapes_, model._tables, model._lipschitz = shapes, answer.tables, answer.lipschitz
    if answer.row_map is None and answer.data_norm != math.inf:
        model.data_norm_ = answer.data_norm or problem.row_norm
    model._keep(coef, intercept)
    model._inference = reported(aside, answer.inference, *theta.shape)
    return model
