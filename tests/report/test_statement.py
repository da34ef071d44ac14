"""Statements for others parse, and never say less than the certificate."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import privopt
from privopt.cli import app
from privopt.report import findings, hub_section, registry_entry, tracking_tags
from privopt.tables import DeclaredColumns

rng = np.random.default_rng(0)
PEOPLE = pd.DataFrame({"age": rng.integers(18, 90, 400), "job: a": rng.choice(["x", "y"], 400)})
RICH = PEOPLE["age"] > 50


def fitted(delta: float, **more):
    columns = DeclaredColumns(
        {
            "age": {"kind": "numeric", "lower": 0, "upper": 120},
            "job: a": {"kind": "categorical", "categories": ["x", "y"]},
        }
    )
    final = privopt.LogisticRegression(1.0, delta, bounds=(-1, 1), classes=[False, True], **more)
    return make_pipeline(columns, final).fit(PEOPLE, RICH)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_entry_of_the_registry(delta):
    model = fitted(delta)
    certificate = model[-1].privacy_
    entry = yaml.safe_load(registry_entry(findings(model, 'Who is "rich": a test')))
    deployment = entry["deployment"]
    assert entry["url_slug"] == "who-is-rich-a-test"
    assert deployment["product"]["name"] == 'Who is "rich": a test'
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert certificate.epsilon <= parameters["epsilon"] <= 1.0001
    assert parameters.get("delta", 0.0) == delta
    assert deployment["dp_flavor"]["name"] == ("Approximate DP" if delta else "Pure DP")
    assert "job: a categorical x, y" in deployment["dp_flavor"]["data_domain"]
    assert "exact integers" in deployment["implementation"]["mechanisms"]


def test_floating_point_is_said():
    text = registry_entry(findings(fitted(1e-6, discrete_noise=False)))
    assert (
        "add noise in floating point"
        in yaml.safe_load(text)["deployment"]["implementation"]["mechanisms"]
    )


def test_what_was_seeded_is_not_called_private():
    found = findings(fitted(1e-6, random_state=0))
    assert "SEEDED: not private" in hub_section(found)
    assert tracking_tags(found)["privacy.private"] == "false"


def test_tags_are_short_texts():
    tags = tracking_tags(findings(fitted(1e-6)))
    assert all(isinstance(value, str) and value for value in tags.values())
    assert tags["privacy.delta"] == "1e-06"
    assert float(tags["privacy.epsilon"]) <= 1


def test_the_command(tmp_path):
    path = tmp_path / "model.skops"
    privopt.save(fitted(1e-6), path)
    printed = CliRunner().invoke(app, ["statement", str(path), "--for", "tags"])
    assert json.loads(printed.output)["privacy.unit"] == "record"
    out = tmp_path / "entry.yaml"
    done = CliRunner().invoke(app, ["statement", str(path), "--out", str(out)])
    assert done.exit_code == 0
    assert yaml.safe_load(out.read_text(encoding="utf-8"))["status"] == "Draft"
    hub = CliRunner().invoke(app, ["statement", str(path), "--for", "hub", "--title", "t"])
    assert hub.output.startswith("## Differential privacy\n")
