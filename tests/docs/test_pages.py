"""Every example on the pages runs, every link leads somewhere, every example file works."""

from __future__ import annotations

import os
import pkgutil
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from privopt import Budget, Problem, solve
from privopt.audit import hostile_pairs, replay
from privopt.cli import app
from privopt.geometry import L2Ball
from privopt.losses import Huber
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import catalogue, solver_named

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [match["body"] for match in found if match["language"].strip() == language]


def with_blocks(language: str) -> list:
    return [pytest.param(page, id=page.name) for page in PAGES if blocks(page, language)]


def records() -> tuple[np.ndarray, np.ndarray]:
    """The X and y that a page may use without making them: 2000 rows in the unit ball."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, (X @ [3, -2, 1, 0] + rng.logistic(size=len(X)) > 0).astype(int)


# ------------------------------------------------------------ Python
@pytest.mark.parametrize("page", with_blocks("python"))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The blocks of one page, in one namespace, in their order."""
    monkeypatch.chdir(tmp_path)
    X, y = records()
    module = ModuleType("page")  # a dataclass looks its module up
    module.__dict__.update(X=X, y=y)
    monkeypatch.setitem(sys.modules, "page", module)
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), module.__dict__)


@pytest.mark.parametrize("page", with_blocks("python"))
def test_pages_do_not_seed_what_they_call_private(page):
    """A page may show random_state once it says that the result is then not private."""
    for block in blocks(page, "python"):
        if "random_state" in block and "LogisticRegression" in block:
            assert "not clf.privacy_.private" in block


# ------------------------------------------------------------ the command line
def commands(block: str) -> list[tuple[str, list[str]]]:
    """Commands of a console block, each with the lines of output the page shows."""
    found: list[tuple[str, list[str]]] = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            assert found, "output without a command"
            found[-1][1].append(line.strip())
    return found


CONSOLE = [
    pytest.param(page, number, id=f"{page.name}-{number}")
    for page in PAGES
    for number in range(len(blocks(page, "console")))
]


@pytest.mark.parametrize(("page", "number"), CONSOLE)
def test_console_commands_work(page, number, tmp_path, monkeypatch):
    """The commands of a block succeed one after the other and print the lines the page shows."""
    monkeypatch.chdir(tmp_path)
    _write_people(tmp_path)
    for command, shown in commands(blocks(page, "console")[number]):
        program, *arguments = shlex.split(command)
        assert program == "privopt"
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
        assert result.exit_code == 0, result.output
        for line in shown:
            assert line in result.output
        if arguments[0] in ("fit", "predict", "report", "init-bounds"):
            names = [value for name, value in pairwise(arguments) if name in WRITTEN]
            assert names
            assert all((tmp_path / name).exists() for name in names)


WRITTEN = ("--out", "--report", "--card")


def _write_people(folder: Path) -> None:
    """Files that the pages speak of: people to learn from, new ones, and their public facts."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    age, hours = rng.integers(18, 90, 1000), rng.integers(0, 80, 1000)
    job = rng.choice(["clerk", "nurse", "smith"], 1000)
    score = (age - 50) / 20 + (hours - 40) / 10 + (job == "nurse") + rng.logistic(size=1000)
    table = pa.table(
        {"age": age, "hours": hours, "job": job, "income": np.where(score > 0, "high", "low")}
    )
    pyarrow.csv.write_csv(table, folder / "people.csv")
    pyarrow.parquet.write_table(table, folder / "people.parquet")
    pyarrow.csv.write_csv(table.drop_columns(["income"]).slice(0, 50), folder / "new.csv")
    pyarrow.csv.write_csv(table.slice(500), folder / "held.csv")
    numbers = pa.table({"age": age / 100, "hours": hours / 100, "income": (score > 0).astype(int)})
    pyarrow.csv.write_csv(numbers, folder / "scaled.csv")
    (folder / "bounds.toml").write_text(blocks(DOCS / "command-line.md", "toml")[0])


def test_every_command_is_on_its_page():
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert app.registered_commands
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.callback.__name__.replace("_", "-")
        assert f"\n## {name}\n" in text


@pytest.mark.parametrize("page", with_blocks("sh"))
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for block in blocks(page, "sh"):
        assert set(re.findall(r"^make ([a-z]+)", block, re.M)) <= targets


# ------------------------------------------------------------ examples
@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(file, tmp_path):
    """As a user runs them, in an empty folder, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "epsilon=" in done.stdout
    assert "NOT PRIVATE" not in done.stdout


# ------------------------------------------------------------ the solver of the tutorial
@pytest.fixture
def tutorial_solver(tmp_path, monkeypatch):
    """The tutorial's file, imported as if it lay in the solvers' folder."""
    import importlib.util

    name = "privopt.solvers.dual_averaging"
    file = tmp_path / "dual_averaging.py"
    file.write_text(blocks(DOCS / "how-to-add-a-solver.md", "python")[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(catalogue(), "dual_averaging", module.SOLVER)
    return module.SOLVER


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_the_tutorials_solver_withstands_replay(tutorial_solver, relation):
    """What the page promises of its file: hostile neighbours, under every relation."""
    assert solver_named("dual_averaging") is tutorial_solver
    problem, budget = Problem(Huber(0.5), L2Ball(3.0)), Budget(1.0, 1e-5, relation)

    def run(X, y):
        found = solve(
            problem,
            X,
            y,
            budget=budget,
            solver="dual_averaging",
            n_public=60,
            random_state=0,
            n_iter=5,
        )
        return found.theta, found.certificate.to_json()

    pairs = hostile_pairs(relation, classification=False)
    run(*pairs[0].first)  # it works; two runs that fail alike would leave replay nothing to find
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}


def test_the_tutorials_solver_appears_in_the_plan(tutorial_solver):
    from privopt import plan

    ranking = plan(Problem(Huber(0.5), L2Ball(3.0)), n=1000, p=3, budget=Budget(1.0, 1e-5))
    assert "dual_averaging" in str(ranking)
    pure = plan(Problem(Huber(0.5), L2Ball(3.0)), n=1000, p=3, budget=Budget(1.0))
    assert "delta > 0" in pure.refused["dual_averaging"]


# ------------------------------------------------------------ links and words
def anchors(page: Path) -> set[str]:
    """Headings as MyST and GitHub name them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#{1,3} (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        where = (page.parent / name) if name else page
        assert where.exists(), target
        if anchor:
            assert anchor in anchors(where), target


def test_index_leads_to_every_page():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = [block["body"] for block in FENCE.finditer(text) if "toctree" in block["language"]]
    contents = " ".join(trees).split()
    pages = [path.relative_to(DOCS).with_suffix("") for path in DOCS.glob("**/*.md")]
    for page in pages:
        if page.parts[0] not in ("index", "generated", "_build"):
            assert contents.count(page.as_posix()) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_lines_are_short(page):
    """120 characters, except in tables."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= 120 or line.startswith("|"), f"{page.name}:{number}"


def test_every_public_name_is_on_the_api_page():
    import privopt

    listed = (DOCS / "api.md").read_text(encoding="utf-8").split()
    for name in privopt.__all__:
        if not name.startswith("__"):
            assert f"privopt.{name}" in listed


API = re.findall(r"^   (privopt[\w.]*)$", (DOCS / "api.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", API)
def test_every_name_of_the_api_page_is_there(name):
    missing = ""
    try:
        pkgutil.resolve_name(name)
    except ImportError as problem:  # what needs another package says how to get it
        missing = str(problem)
    assert not missing or re.search(r"needs .*: pip install", missing)


def test_the_page_of_theory_names_what_there_is():
    """Solvers, tests and benchmarks of its tables are files of the project."""
    text = (DOCS / "theory.md").read_text(encoding="utf-8")
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    for name in set(re.findall(r"`([^`]+)`", text)):
        if name.endswith(".py"):
            inside = (ROOT / name, ROOT / "src" / "privopt" / name)
            inside += (ROOT / "src" / "privopt" / "solvers" / name,)
            assert name in tests or any(path.exists() for path in inside), name
    named = set(re.findall(r"`([a-z_]+)`", text)) - {"noise", "audit", "mechanisms", "momentum"}
    assert named & set(catalogue()) >= {
        "exponential_sampling",
        "greedy_coordinate",
        "localization",
        "objective_perturbation",
    }
    known = {*catalogue(), "zero_out", "replace_one", "l1"}
    assert {name for name in named if "_" in name} <= known
