"""Weights of records, in units of the largest one, which is public.

A record of weight w adds w times its loss. Divided by the largest weight, no record adds more than
one record does without weights, so the guarantee and the noise are the same as ever; what is lost
is how much the others count. A weight is part of its record. It is moved to the bound where it is
larger, as entries and targets are: a refusal would tell of one record.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from privopt.estimators.frames import column
from privopt.estimators.targets import Targets


def case_weights(
    sample_weight: Any, model: Any, targets: Targets, rows: int
) -> tuple[np.ndarray | None, float]:
    """Weights between 0 and 1 of the records, or None, and the public number they are divided by,
    as the ``max_weight`` and ``class_weight`` of a model say."""
    max_weight = getattr(model, "max_weight", None)
    class_weight = getattr(model, "class_weight", None)
    if max_weight is not None and not (
        isinstance(max_weight, numbers.Real) and 0 < float(max_weight) < math.inf
    ):
        raise ValueError(f"max_weight must be positive and finite, got {max_weight!r}.")
    if sample_weight is None and class_weight is None:
        return None, 1.0
    found, largest = np.ones(rows), 1.0
    if sample_weight is not None:
        if max_weight is None:
            raise ValueError(
                "sample_weight needs max_weight, the public largest weight: how far a record can "
                "move the model must not be read from the data."
            )
        found, largest = _given(sample_weight, float(max_weight), rows), float(max_weight)
    if class_weight is not None:
        each = _of_classes(class_weight, targets.attributes["classes_"])
        assert targets.classes is not None
        found, largest = found * each[targets.classes.astype(int)], largest * float(each.max())
    return np.minimum(found / largest, 1.0), largest


def _given(sample_weight: Any, largest: float, rows: int) -> np.ndarray:
    found = None
    with suppress(TypeError, ValueError):
        found = np.asarray(column(sample_weight), dtype=float)
    if found is None:  # raised here, so that no message holds on to a weight
        raise ValueError("sample_weight must hold one number for each row.")
    if found.shape != (rows,):
        raise ValueError(f"sample_weight must hold one number for each of the {rows} rows.")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError("sample_weight must hold finite numbers that are not negative.")
    return np.minimum(found, largest)


def _of_classes(class_weight: Any, classes: Any) -> np.ndarray:
    """The public weight of each class."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise ValueError(
            'class_weight="balanced" would read from the data how often each class occurs, and '
            "nothing pays for that: give a mapping of public weights, {label: weight}."
        )
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be a mapping {{label: weight}}, got {type(class_weight).__name__}."
        )
    names = list(np.asarray(classes).tolist())
    unknown = [label for label in class_weight if label not in names]
    if unknown:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is not one of the classes.")
    each = np.array([class_weight.get(name, 1.0) for name in names], dtype=float)
    if not (np.isfinite(each) & (each >= 0)).all() or not each.any():
        raise ValueError(
            "class_weight must hold finite numbers that are not negative, and one above zero."
        )
    return each
