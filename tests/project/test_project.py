"""The project itself: versions, typing, lazy imports, one-way imports, documented solvers."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import privopt
from privopt.solvers import catalogue

ROOT = Path(__file__).parents[2]
SOURCE = Path(privopt.__file__).parent


def modules_after(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after a statement."""
    show = "print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    code = f"{statement}\nimport json, sys\n{show}"
    # typer below 0.21, which flwr asks for, imports two names that click 8.5 calls old.
    old = "'click.utils.get_text_stream' is deprecated and will be removed in Click 9.0."
    silent = [f"-Wignore:{old.replace('text', kind)}" for kind in ("text", "binary")]
    done = subprocess.run(
        [sys.executable, "-Werror", *silent, "-c", code], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_privopt_is_light():
    """What only some need is loaded when it is needed; scikit-learn's own imports are its own."""
    loaded = modules_after("import privopt")
    base = modules_after("import sklearn.linear_model")
    assert "privopt" in loaded
    for heavy in ("numba", "torch", "dp_accounting", "matplotlib", "polars", "randomgen"):
        assert heavy not in loaded
    extra = loaded - base
    for heavy in ("pandas", "pyarrow", "typer", "rich"):
        assert heavy not in extra


def test_a_private_fit_needs_no_extra():
    loaded = modules_after(
        "import numpy as np, privopt\n"
        "X = np.eye(4); y = np.array([0, 1, 0, 1])\n"
        "assert privopt.LogisticRegression(1.0, 1e-6).fit(X, y).privacy_.private"
    )
    for heavy in ("torch", "matplotlib", "polars"):
        assert heavy not in loaded
    assert "randomgen" in loaded


def test_the_command_line_starts_light():
    """``privopt --help`` must not wait for the numerics of a fit."""
    loaded = modules_after("import privopt.cli")
    heavies = ("numba", "torch", "dp_accounting", "matplotlib", "polars")
    for heavy in (*heavies, "numpy", "scipy", "sklearn", "pyarrow", "plotly", "skops"):
        assert heavy not in loaded


def test_version_is_the_installed_one():
    assert privopt.__version__ == version("privopt")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert privopt.__version__ == declared


def test_the_package_is_typed():
    assert files("privopt").joinpath("py.typed").is_file()


def test_public_names_exist_and_are_documented():
    assert sorted(privopt.__all__) == privopt.__all__
    for name in privopt.__all__:
        assert hasattr(privopt, name)
        if not name.startswith("__"):
            assert getattr(privopt, name).__doc__


def test_imports_go_one_way():
    """The contracts of pyproject.toml hold."""
    pytest.importorskip("importlinter", reason="import-linter comes with the extra lint")
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"),
            *("--no-cache", "--no-logo"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout
    assert "2 kept" in done.stdout


SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
LAYERS = [
    set(re.findall(r"\w+", level)) for level in SETTINGS["importlinter"]["contracts"][0]["layers"]
]
HEIGHT = {room: -level for level, rooms in enumerate(LAYERS) for room in rooms}


def imports_of(path: Path) -> set[str]:
    """Every privopt room that a file imports anywhere, also inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} uses a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("privopt.")}
    return rooms


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_a_room_imports_only_rooms_below_it(path):
    """The same rule read from the text, so that it is checked where import-linter is not."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if parts in (("__init__",), ("__main__",)):
        return
    room = parts[0]
    assert room in HEIGHT, f"{room} has no place in the layers"
    for other in imports_of(path) - {room}:
        if other in HEIGHT:
            assert HEIGHT[other] < HEIGHT[room], f"{room} must not import {other}"
        else:  # a name of the package itself
            assert room == "cli", f"{room} must not import the package's front door ({other})"


def test_only_noise_draws_random_numbers():
    """No other file names a generator, a seed or the operating system's bits."""
    words = (
        "default_rng",
        "RandomState",
        "randomgen",
        "urandom",
        "import random",
        "import secrets",
    )
    guilty = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("noise", "audit")
        and any(word in path.read_text() for word in words)
    ]
    assert guilty == []


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_a_solver_explains_itself(name):
    """Algorithm and bound stand at the head of the file, and the summary fits a table."""
    module = import_module(f"privopt.solvers.{name}")
    text = module.__doc__ or ""
    assert len(text.splitlines()[0]) <= 100
    for part in ("Algorithm", "Bound"):
        assert part in text
    solver = catalogue()[name]
    assert solver.summary
    assert solver.summary == solver.summary.strip().rstrip(".")
    assert len(solver.summary) <= 80
    assert "\n" not in solver.summary


def test_files_stay_small():
    """Aim at 200 lines; a file above 400 needs to be cut."""
    long = {
        str(path.relative_to(SOURCE)): count
        for path in SOURCE.rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert long == {}
    assert not [p for p in SOURCE.rglob("*.py") if p.stem in ("utils", "common", "helpers")]


def test_whoever_repeats_the_version_agrees():
    for name, pattern in {
        "CITATION.cff": r"^version: (\S+)$",
        "packaging/conda/recipe.yaml": r'^  version: "(\S+)"$',
    }.items():
        found = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M)
        assert found == [privopt.__version__], name


def test_the_recipe_names_the_dependencies_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    for dependency in project["dependencies"]:
        name, _, bound = dependency.partition(">=")
        assert f"- {name} >={bound}\n" in recipe
