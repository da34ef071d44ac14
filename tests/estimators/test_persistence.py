"""Saved models come back as they were, and a file can neither run code nor claim a guarantee."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import privopt
from privopt import Ledger, LogisticRegression, Refused
from tests.estimators.every import CASES, TWO, X, fitted


@pytest.mark.parametrize("name", CASES)
def test_every_estimator_comes_back(name, tmp_path):
    model = fitted(name)
    privopt.save(model, tmp_path / "model.skops")
    back = privopt.load(tmp_path / "model.skops")
    assert type(back) is type(model)
    assert back.get_params() == model.get_params()
    assert back.privacy_ == model.privacy_
    assert back.privacy_.verify()
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_array_equal(back.coef_, model.coef_)
    if hasattr(model, "plan_"):
        assert back.plan_.name == model.plan_.name
        assert back.plan_.settings == model.plan_.settings
        assert back.plan_.facts == model.plan_.facts
        assert back.plan_.budget == model.plan_.budget


def test_a_model_with_secure_noise_stays_private(tmp_path):
    model = LogisticRegression(epsilon=1.0).fit(X, TWO)
    privopt.save(model, tmp_path / "model.skops")
    assert privopt.load(tmp_path / "model.skops").privacy_.private


@pytest.mark.slow
def test_pipelines_and_names_come_back(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=np.where(X[:, 2] > 0, "x", "y"))
    columns = ColumnTransformer(
        [
            ("same", "passthrough", ["a", "b", "c"]),
            ("town", OneHotEncoder(categories=[["x", "y"]], handle_unknown="ignore"), ["town"]),
        ]
    )
    pipe = make_pipeline(columns, LogisticRegression(random_state=0, bounds=(-1, 1))).fit(
        frame, TWO
    )
    privopt.save(pipe, tmp_path / "pipe.skops")
    back = privopt.load(tmp_path / "pipe.skops")
    np.testing.assert_array_equal(back.predict_proba(frame), pipe.predict_proba(frame))
    assert back[-1].privacy_ == pipe[-1].privacy_
    assert back.feature_names_in_.tolist() == frame.columns.tolist()
    union = make_pipeline(FeatureUnion([("log", FunctionTransformer(np.abs))]), fitted("Ridge"))
    privopt.save(union, tmp_path / "union.skops")
    assert privopt.load(tmp_path / "union.skops")[-1].privacy_ == union[-1].privacy_


def test_the_certificate_can_be_read_without_loading(tmp_path):
    model = fitted("Lasso")
    privopt.save(model, tmp_path / "model.skops")
    with zipfile.ZipFile(tmp_path / "model.skops") as archive:
        note = json.loads(archive.read("privopt.json"))
    assert note["privopt"] == privopt.__version__
    assert note["model"] == "Lasso"
    (certificate,) = note["certificates"]
    assert privopt.Certificate.from_json(json.dumps(certificate)) == model.privacy_


def test_a_ledger_and_a_folder_travel_as_paths(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", epsilon=3.0)
    model = LogisticRegression(epsilon=1.0, ledger=ledger).fit(X, TWO)
    privopt.save(model, tmp_path / "model.skops")
    back = privopt.load(tmp_path / "model.skops")
    assert Path(back.ledger) == ledger.path
    assert back.privacy_.ledger == model.privacy_.ledger
    back.fit(X, TWO)  # a second fit of the copy is charged like one of the original
    assert ledger.dataset().left[0] == pytest.approx(1.0, rel=1e-6)
    assert Path(pickle.loads(pickle.dumps(model)).ledger) == ledger.path


def test_a_loaded_stream_predicts_and_cannot_go_on(tmp_path):
    model = fitted("OnlineLogisticRegression", checkpoint=tmp_path / "run")
    privopt.save(model, tmp_path / "model.skops")
    back = privopt.load(tmp_path / "model.skops")
    assert back.epsilon_spent() == model.epsilon_spent()
    back.set_params(checkpoint=None)
    with pytest.raises(Refused, match="has no noise to go on"):
        back.partial_fit(X, TWO)


# ------------------------------------------------------------ files that must not be believed
def altered(path, member, change):
    """The archive with one member rewritten."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[member] = change(parts[member])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.skops"
    privopt.save(fitted("LogisticRegression"), path)
    return path


def test_a_better_epsilon_than_the_events_support_is_refused(saved):
    stated = fitted("LogisticRegression").privacy_.epsilon
    better = lambda data: data.replace(repr(stated).encode(), b"0.5")  # noqa: E731
    altered(saved, "schema.json", better)
    with pytest.raises(Refused, match="its own events do not support"):
        privopt.load(saved)


def test_a_better_epsilon_for_readers_is_refused(saved):
    stated = fitted("LogisticRegression").privacy_.epsilon
    altered(saved, "privopt.json", lambda data: data.replace(repr(stated).encode(), b"0.5"))
    with pytest.raises(Refused, match="readable certificates are not the model's"):
        privopt.load(saved)


@pytest.mark.parametrize(
    ("module", "name", "loader"),
    [
        ("os", "system", "FunctionNode"),
        ("subprocess", "Popen", "ConstructorFromReduceNode"),
        ("privopt.cli", "app", "FunctionNode"),
        ("privopt.ledger.ledger", "Ledger", "ConstructorFromReduceNode"),
        ("privopt.noise", "source_for", "FunctionNode"),
        ("privopt.nowhere", "Thing", "ObjectNode"),
    ],
)
def test_a_file_that_names_other_types_is_not_loaded(saved, module, name, loader):
    def evil(data):
        schema = json.loads(data)
        schema["content"]["content"]["ledger"] = {
            "__class__": name,
            "__module__": module,
            "__loader__": loader,
            "content": {
                "__class__": "tuple",
                "__module__": "builtins",
                "__loader__": "TupleNode",
                "content": [],
            },
        }
        return json.dumps(schema).encode()

    altered(saved, "schema.json", evil)
    with pytest.raises(Refused, match=f"names {module}.{name}, which is neither"):
        privopt.load(saved)


def test_damaged_and_foreign_files_get_one_sentence(saved, tmp_path):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Refused, match=r"^model\.skops is damaged or is not a saved model\.$"):
        privopt.load(saved)
    middle = len(whole) // 3
    saved.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(Refused, match=r"^model\.skops is damaged"):
        privopt.load(saved)
    saved.write_bytes(pickle.dumps(fitted("Ridge")))
    with pytest.raises(Refused, match="is damaged or is not a saved model"):
        privopt.load(saved)
    skops.io.dump(fitted("Ridge"), saved)
    with pytest.raises(Refused, match=r"^model\.skops was not written by privopt\.save\.$"):
        privopt.load(saved)
    with pytest.raises(FileNotFoundError):
        privopt.load(tmp_path / "nothing.skops")


def test_other_versions(saved, monkeypatch):
    altered(saved, "privopt.json", lambda data: data.replace(b'"format": 1', b'"format": 9'))
    with pytest.raises(Refused, match="has format 9, which privopt"):
        privopt.load(saved)
    altered(saved, "privopt.json", lambda data: data.replace(b'"format": 9', b'"format": 1'))
    now = json.dumps(privopt.__version__).encode()
    altered(saved, "privopt.json", lambda data: data.replace(now, b'"0.0.1"', 1))
    with pytest.warns(UserWarning, match=r"was written by privopt 0\.0\.1"):
        privopt.load(saved)


class Mine(BaseEstimator):
    """Somebody's own transformer."""


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    path = tmp_path / "model.skops"
    with pytest.raises(TypeError, match="Mine cannot be saved safely"):
        privopt.save(make_pipeline(Mine(), fitted("Ridge")), path)
    with pytest.raises(TypeError, match="cannot be saved"):
        privopt.save(make_pipeline(FunctionTransformer(lambda X: X), fitted("Ridge")), path)
    with pytest.raises(TypeError, match="takes an estimator or a pipeline"):
        privopt.save({"model": 1}, path)
    assert list(tmp_path.iterdir()) == []
