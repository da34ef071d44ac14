"""Fitted models in files that run no code when they are read.

A file is a skops archive (parts in JSON, arrays as NumPy writes them) with one member more,
``privopt.json``: the versions that wrote it and the certificates as text. Reading builds objects of
known families only: ours, listed below, and those of scikit-learn that skops trusts. Certificates
are read by ``Certificate.from_json``, which recomputes their epsilon, so a file cannot claim a
better guarantee than its events support.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import warnings
import zipfile
from importlib import import_module
from importlib.metadata import version
from os import PathLike
from typing import Any

from sklearn.base import BaseEstimator

from privopt.estimators.shapes import Shape
from privopt.facts import Facts
from privopt.geometry import Domain
from privopt.inference import Parts, Sandwich
from privopt.inference.coefficients import Linear
from privopt.losses import Loss
from privopt.oracle import RowMap, ShapeTables
from privopt.planner.simulate import Expectation
from privopt.privacy import Budget, Certificate, Refused
from privopt.privacy.events import Event, Numerics, Sampling
from privopt.privacy.kinds import Kind
from privopt.problem import Problem
from privopt.solvers import Blocks, Plan, Settings, Solver
from privopt.solvers.prediction import Prediction

FORMAT = 1
NOTE = "privopt.json"
FAMILIES = (
    BaseEstimator,
    Solver,
    Settings,
    Loss,
    Domain,
    Kind,
    Plan,
    Facts,
    Budget,
    Problem,
    Certificate,
    Blocks,
    Event,
    Sampling,
    Numerics,
    RowMap,
    Shape,
    ShapeTables,
    Sandwich,
    Parts,
    Linear,
    Expectation,
    Prediction,
)
"""Classes of this library, and their subclasses in it, that a file may hold. All are plain data:
building one opens no file and draws no noise."""


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator, or a pipeline that holds one, to a file.

    The certificate and the plan come along; a ledger is kept as its path. The noise of a stream
    does not: a loaded online model predicts and shows its certificate, and cannot go on.

    Parameters
    ----------
    model : estimator
        An estimator of privopt or a scikit-learn object made of such, like a Pipeline.
    path : str or path
        By custom it ends in ``.skops``. A file that is there is replaced in one step.

    Examples
    --------
    >>> import tempfile, numpy as np, privopt
    >>> x = np.linspace(-1, 1, 2000)[:, None]
    >>> model = privopt.LogisticRegression(epsilon=1.0).fit(x, x.ravel() > 0)
    >>> path = tempfile.mkdtemp() + "/model.skops"
    >>> privopt.save(model, path)
    >>> privopt.load(path).privacy_ == model.privacy_
    True
    """
    import skops.io

    if not isinstance(model, BaseEstimator):
        raise TypeError(
            f"save takes an estimator or a pipeline of estimators, got {type(model).__name__}."
        )
    found = None
    try:
        found = skops.io.dumps(model)
    except Exception as error:
        problem = type(error).__name__
    if found is None:  # raised here, so that no message holds on to what could not be written
        raise TypeError(
            f"{type(model).__name__} holds something that cannot be saved ({problem}): keep "
            "functions, open files and objects of your own out of it."
        )
    strangers = [one for one in skops.io.get_untrusted_types(data=found) if not _ours(one)]
    if strangers:
        raise TypeError(
            f"{strangers[0]} cannot be saved safely: only objects of privopt and scikit-learn can."
        )
    buffer = io.BytesIO(found)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(NOTE, json.dumps(_note(model), indent=2))
    path = os.fspath(path)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as file:
            file.write(buffer.getbuffer())
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.remove(beside)
        raise


def load(path: str | PathLike[str]) -> Any:
    """Read what ``save`` wrote; runs no code of the file, and recomputes every certificate.

    Refuses, with one sentence, a file that is damaged, that ``save`` did not write, that names
    types other than ours and scikit-learn's, or whose certificate its events do not support.

    Parameters
    ----------
    path : str or path
    """
    import skops.io

    name = os.path.basename(os.fspath(path))
    with open(path, "rb") as file:
        data = file.read()
    note = _read_note(data, name)
    if note["format"] != FORMAT:
        raise Refused(
            f"{name} has format {note['format']!r}, which privopt {version('privopt')} does not "
            "know: install the version that wrote it."
        )
    try:
        named = skops.io.get_untrusted_types(data=data)
        strangers = [one for one in named if not _ours(one)]
        model = None if strangers else skops.io.loads(data, trusted=named)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{name} is damaged or was altered ({type(error).__name__}).") from None
    if strangers:
        raise Refused(
            f"{name} names {strangers[0]}, which is neither a type of privopt nor one of "
            "scikit-learn that is safe to read: it is not loaded."
        )
    if note["certificates"] != _note(model)["certificates"]:
        raise Refused(f"{name} was altered: its readable certificates are not the model's.")
    if note["privopt"] != version("privopt"):
        warnings.warn(
            f"{name} was written by privopt {note['privopt']}, and this is {version('privopt')}.",
            UserWarning,
            stacklevel=2,
        )
    return model


def _note(model: Any) -> dict[str, Any]:
    """What a person may want to read without loading: who wrote the file, and its guarantees."""
    return {
        "format": FORMAT,
        "privopt": version("privopt"),
        "scikit-learn": version("scikit-learn"),
        "model": type(model).__name__,
        "certificates": [found.to_dict() for found in _certificates(model)],
    }


def _certificates(model: Any) -> list[Certificate]:
    """Certificates of a model and of the estimators in it, in order."""
    own = getattr(model, "privacy_", None)
    if isinstance(own, Certificate):
        return [own]
    parts = getattr(model, "steps", None) or getattr(model, "transformer_list", None) or []
    inner = [part[1] for part in parts] + [getattr(model, "best_estimator_", None)]
    return [found for part in inner if part is not None for found in _certificates(part)]


def _read_note(data: bytes, name: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            broken = archive.testzip()
            found = json.loads(archive.read(NOTE))
    except KeyError:
        raise Refused(f"{name} was not written by privopt.save.") from None
    except Exception:
        raise Refused(f"{name} is damaged or is not a saved model.") from None
    keys = {"format", "privopt", "certificates"}
    if broken is not None or not isinstance(found, dict) or not keys <= set(found):
        raise Refused(f"{name} is damaged or is not a saved model.")
    return found


def _ours(name: str) -> bool:
    """Whether a full name is a class of this library that a file may hold."""
    module, _, member = name.rpartition(".")
    if not module.startswith("privopt.") or module.startswith("privopt.cli"):
        return False
    try:
        found = getattr(import_module(module), member, None)
    except ImportError:
        return False
    return inspect.isclass(found) and found.__module__ == module and issubclass(found, FAMILIES)
