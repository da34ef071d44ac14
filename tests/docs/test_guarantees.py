"""One page for each mechanism and each solver, with everything a reader may ask for."""

from __future__ import annotations

import importlib.util
import sys
from inspect import cleandoc
from pathlib import Path

import pytest

from privopt.solvers import catalogue

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def room():
    spec = importlib.util.spec_from_file_location("guarantee_pages", DOCS / "guarantee_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["guarantee_pages"] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["guarantee_pages"]


def test_every_mechanism_and_solver_has_a_page_with_all_fields(room):
    pages = room.pages(cleandoc)
    assert set(pages) == {*room.mechanisms(), *catalogue()}
    assert {"Gaussian", "Laplace", "ObjectivePerturbation", "RankQuantile"} <= set(pages)
    for name, page in pages.items():
        for title in room.FIELDS:
            body = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0].strip()
            assert len(body) > 5, f"{name}: {title}"


def test_what_the_pages_are_read_from(room):
    pages = room.pages(cleandoc)
    assert "exactly (1/multiplier)-GDP" in pages["Gaussian"]
    assert "Dong, Roth and Su (2022)" in pages["Gaussian"]
    assert "`zero_out`, `replace_one`, `add_remove`" in pages["noisy_gd"]
    assert "add_remove" not in pages["bolt_on_sgd"].split("## Relations")[1].split("##")[0]
    assert "nobody learns which records a batch held" in pages["noisy_sgd"]
    assert "on a sampled batch" in pages["noisy_sgd"]
    for name in ("Gaussian", "Laplace", "ObjectivePerturbation", "noisy_gd"):
        assert "Lower bound over certified epsilon" in pages[name]
        assert "noise" in pages[name].split("## Planted bugs")[1]
    assert room.ratios()["Laplace"]
    assert len(room.planted()) >= 300


def test_a_sentence_beside_an_audit_names_a_test_that_exists(room):
    """Without a ratio and without such a test a page says that there was no audit."""
    for name, sentences in room.STANDS_FOR_A_RATIO.items():
        for _, test in sentences:
            file, function = test.split("::")
            text = (DOCS.parent / file).read_text(encoding="utf-8")
            assert f"\ndef {function}(" in text, test
            assert f"`{test}`" in room.pages(cleandoc)[name]
    assert room._elsewhere("something new") == "Not audited."


def test_every_audit_ratio_is_of_something_that_is_audited(room):
    """The tables of the audit page speak of what the audit can be asked for today."""
    from privopt.audit.mechanisms import CASES
    from privopt.audit.table import ESTIMATORS

    known = {*catalogue(), *ESTIMATORS, *CASES}
    for name in room.ratios():
        assert name in known or any(one.startswith(name) for one in known), name
