"""The command line: what it prints, what it writes, and errors in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import privopt
from privopt import Certificate
from privopt.cli import app
from privopt.solvers import catalogue

COMMANDS = (
    "demo", "plan", "init-bounds", "fit", "predict", "report", "statement", "account", "audit",
    "ledger",
)  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def text_of(result):
    """Everything printed, with line breaks of tables and of long paths taken out."""
    return " ".join(result.output.split())


def complains(result, words):
    """Exit code 2, one sentence on the error channel, no traceback."""
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    sentence = " ".join(result.stderr.split())
    assert sentence.startswith("error: ")
    assert words in sentence
    assert sentence.endswith(".")
    assert ". " not in sentence
    assert "Traceback" not in result.output


# ---------------------------------------------------------------- help
@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_no_command_shows_the_commands():
    result = run()
    for command in COMMANDS:
        assert command in result.output


def test_unknown_command():
    result = run("train")
    assert result.exit_code == 2
    assert "train" in result.output
    assert "Traceback" not in result.output


# ---------------------------------------------------------------- plan
def test_plan():
    result = run("plan", "--n", 10_000, "--p", 20, "--delta", 1e-6, "--radius", 5)
    assert result.exit_code == 0
    for word in ("logistic", "n=10000", "p=20", "epsilon=1", "delta=1e-06", "<= 0."):
        assert word in text_of(result)
    assert "objective_perturbation" in result.output
    assert "noisy_gd" in result.output


def test_plan_tells_who_refused_and_what_delta_buys():
    result = run("plan", "--n", 1000, "--p", 200, "--loss", "hinge")
    assert result.exit_code == 0
    assert "frank_wolfe needs the vertices of a polytope" in text_of(result)
    assert "With delta=1e-06 instead of 0" in text_of(result)


def test_plan_for_what_an_attacker_may_achieve():
    result = run("plan", "--n", 1000, "--p", 5, "--attack-tpr", 0.05, "--delta", 1e-6)
    assert result.exit_code == 0
    assert "epsilon = 1.6094: an attacker who is wrong about 1 %" in text_of(result)
    assert "epsilon=1.6094" in text_of(result)
    complains(run("plan", "--n", 9, "--p", 5, "--attack-tpr", 0.001), "false alarms < right")


def test_plan_for_several_models_costs_more():
    one, three = (
        run("plan", "--n", 1000, "--p", 3, "--models", models).output for models in (1, 3)
    )
    assert one != three


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", 0], "epsilon must be a positive finite number"),
        (["--delta", 1], "delta must lie in [0, 1)"),
        (["--n", 0], "n must be a positive number of records"),
        (["--p", 0], "at least one feature or an intercept"),
        (["--data-norm", -1], "data_norm must be positive and finite"),
        (["--radius", 0], "L2Ball needs a positive finite radius"),
        (["--models", 0], "repeats must be at least 1"),
        (["--loss", "squared"], "no solver applies"),
    ],
)
def test_plan_errors(arguments, words):
    complains(run("plan", "--n", 100, "--p", 3, *arguments), words)


def test_plan_for_a_file(tmp_path, monkeypatch):
    """Only names, types and the number of rows count: other values give the same words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("age,job,y\n" + "20,x,no\n" * 900)
    (tmp_path / "b.csv").write_text("age,job,y\n" + "7,z,yes\n90,w,q\n" * 450)
    options = ("--target", "y", "--delta", 1e-6)
    first, second = (run("plan", name, *options) for name in ("a.csv", "b.csv"))
    assert first.exit_code == 0, first.output
    assert first.output == second.output
    for words in ("n=900", "Presumed 2 columns", "no value was used", "What another epsilon"):
        assert words in text_of(first)
    assert "standardized_objective" in first.output
    hidden = run("plan", "a.csv", *options, "--neighbouring", "add_remove")
    complains(hidden, "give a public --n")
    assert run("plan", "a.csv", *options, "--n", 500).exit_code == 0
    complains(run("plan", "a.csv"), "say which column to predict")
    complains(run("plan", "a.csv", "--target", "z"), "a.csv has no column 'z'")
    complains(run("plan", "--n", 5), "give a file, or --n and --p")


@pytest.mark.parametrize(
    "arguments", [["--loss", "cubic"], ["--neighbouring", "bounded"], ["--n", "many"]]
)
def test_plan_values_that_do_not_exist(arguments):
    result = run("plan", "--n", 100, "--p", 3, *arguments)
    assert result.exit_code == 2
    assert "Invalid value" in result.output
    assert "Traceback" not in result.output


# ---------------------------------------------------------------- account
@pytest.mark.parametrize(("epsilon", "multiplier"), [(0.1, "36.30"), (1, "4.224"), (4, "1.194")])
def test_account_finds_the_noise(epsilon, multiplier):
    """Known values, to three digits or better."""
    result = run("account", "--epsilon", epsilon)
    assert result.exit_code == 0
    found = float(text_of(result).split("noise multiplier")[1].split()[1])
    assert found == pytest.approx(float(multiplier), rel=5e-4)


@pytest.mark.parametrize(
    ("arguments", "epsilon"),
    [
        ([], 4.887),
        (["--neighbouring", "replace_one"], 10.997),
        (["--neighbouring", "add_remove"], 4.887),
        (["--steps", 1000, "--sampling-rate", 0.01, "--delta", 1e-5], 1.828),
    ],
)
def test_account_finds_epsilon(arguments, epsilon):
    result = run("account", "--noise-multiplier", 1, *arguments)
    assert result.exit_code == 0
    found = float(text_of(result).split("epsilon")[1].split()[1])
    assert found == pytest.approx(epsilon, rel=0.01 if "--sampling-rate" in arguments else 5e-4)


def test_account_questions_of_one_batch():
    """Two questions on a batch are one event of the square root of two less noise."""
    common = ["--sampling-rate", 0.05, "--steps", 200, "--delta", 1e-5]
    two = run("account", "--noise-multiplier", 1.2, "--questions", 2, *common)
    found = float(text_of(two).split("epsilon")[1].split()[1])
    assert 6.6 <= found <= 6.8
    assert "questions per batch" in text_of(two)


def epsilon_of(*arguments):
    result = run("account", *arguments)
    assert result.exit_code == 0, result.output
    return float(text_of(result).split("epsilon")[1].split()[1])


COMPLETED = ["--noise", "honaker", "--restart-every", 2000, "--completion"]
FEDERATED = ["--noise-multiplier", 7, "--steps", 2000, "--delta", 1e-10]
CIFAR = ["--noise-multiplier", 46.3, "--steps", 10_000, "--epochs", 100, "--delta", 1e-5]


@pytest.mark.parametrize(
    ("arguments", "epsilon"),
    [
        ([*CIFAR, "--noise", "honaker", "--accounting", "nodes"], 13.79308),
        (
            [*CIFAR, "--noise", "honaker", "--restart-every", 2000, "--accounting", "nodes"],
            4.355049,
        ),
        ([*CIFAR, *COMPLETED], 6.27),
        (
            [*CIFAR, *COMPLETED, "--accounting", "nodes", "--conversion", "renyi_grid"],
            6.922239,
        ),
        (
            [*FEDERATED, "--noise", "tree", "--times", 6, "--min-separation-steps", 314],
            8.526093,
        ),
        (["--noise-multiplier", 1.13, "--steps", 1600, "--noise", "honaker"], 16.07),
        (
            ["--noise-multiplier", 5, "--steps", 1024, "--noise", "honaker_full", "--delta", 1e-5],
            2.738,
        ),
        (["--noise-multiplier", 1, "--steps", 20, "--noise", "dense"], 4.887),
        (["--noise-multiplier", 1, "--steps", 5, "--epochs", 5, "--noise", "independent"], 12.59),
    ],
)
def test_account_of_streams(arguments, epsilon):
    """Published values of DP-FTRL; the exact ones charge what is released."""
    assert epsilon_of(*arguments) == pytest.approx(epsilon, rel=1e-3)


def test_account_of_banded_noise_on_batches():
    """8 groups that take turns, 2000 steps of 500 out of 50000 records."""
    result = run(
        "account", "--epsilon", 2, "--delta", 1e-5, "--steps", 2000, "--noise", "banded",
        "--groups", 8, "--sampling-rate", 0.08,
    )  # fmt: skip
    found = text_of(result)
    assert float(found.split("noise multiplier")[1].split()[1]) == pytest.approx(2.709, rel=2e-3)
    assert float(found.split("rms")[1].split()[1]) == pytest.approx(31.4, rel=5e-3)
    plain = epsilon_of("--noise-multiplier", 1.15, "--sampling-rate", 0.01, "--steps", 2000)
    stream = epsilon_of(
        "--noise-multiplier", 1.15, "--sampling-rate", 0.01, "--steps", 2000, "--noise", "banded"
    )
    assert plain == stream


def test_account_chooses_noise_and_says_why():
    found = text_of(run("account", "--epsilon", 2, "--steps", 200, "--noise", "auto"))
    assert "blt" in found
    assert "sqrt_toeplitz" in found
    assert "rms error" in found


def test_account_of_batches_of_fixed_size():
    common = ["--noise-multiplier", 1, "--steps", 100, "--sampling-rate", 0.1]
    relation = ["--neighbouring", "replace_one"]
    assert epsilon_of(*common, "--fixed-size", *relation) > epsilon_of(*common, *relation)
    everything = ["--noise-multiplier", 5, *relation]
    assert epsilon_of(*everything, "--fixed-size") == epsilon_of(*everything)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either --noise-multiplier or --epsilon"),
        (["--epsilon", 1, "--noise-multiplier", 1], "give either --noise-multiplier or --epsilon"),
        (["--epsilon", 0], "--epsilon must be positive"),
        (["--noise-multiplier", -1], "--noise-multiplier must be positive"),
        (["--epsilon", 1, "--delta", 0], "Gaussian noise needs delta in (0, 1), got 0"),
        (["--epsilon", 1, "--steps", 0], "--steps and --questions must be at least 1"),
        (["--epsilon", 1, "--sampling-rate", 0], "rate"),
        (["--epsilon", 1, "--sampling-rate", 1.5], "rate"),
        (["--epsilon", 1, "--sampling-rate", 0.5, "--fixed-size"], "replace_one"),
        (["--epsilon", 1, "--epochs", 2], "a stream needs a --noise"),
        (["--epsilon", 1, "--noise", "tree", "--questions", 2], "leave --questions out"),
        (["--epsilon", 1, "--noise", "tree", "--epochs", 2], "--epochs must lie between"),
        (["--epsilon", 1, "--noise", "tree", "--times", 2], "belong together"),
        (["--epsilon", 1, "--noise", "blt", "--accounting", "nodes"], "--noise tree or honaker"),
        (["--epsilon", 1, "--noise", "tree", "--completion"], "--completion needs"),
        (["--epsilon", 1, "--noise", "banded", "--groups", 2], "give a --sampling-rate"),
        (["--epsilon", 1, "--noise", "tree", "--sampling-rate", 0.1], "banded noise"),
        (["--epsilon", 1, "--noise", "tree", "--neighbouring", "add_remove"], "keep their steps"),
        (["--epsilon", 1, "--conversion", "zcdp"], "--conversion is for a stream"),
    ],
)
def test_account_errors(arguments, words):
    complains(run("account", *arguments), words)


# ---------------------------------------------------------------- progress
def test_a_bar_around_an_estimator_hears_of_its_steps():
    """Steps of the run are counted, and nothing else is told; afterwards nobody listens."""
    import numpy as np

    from privopt import LogisticRegression
    from privopt.solvers import PROGRESS

    heard = []
    token = PROGRESS.set(lambda done, total: heard.append((done, total)))
    model = LogisticRegression(1.0, 1e-6, solver="noisy_gd", random_state=0)
    try:
        model.fit(np.eye(50), np.arange(50) % 2)
    finally:
        PROGRESS.reset(token)
    steps = model.plan_.settings.n_iter
    assert heard[-1] == (steps, steps)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    before = len(heard)
    model.fit(np.eye(50), np.arange(50) % 2)
    assert len(heard) == before


# ---------------------------------------------------------------- demo
def test_demo(tmp_path, monkeypatch):
    """Three splits instead of twenty; everything else is what a user gets."""
    monkeypatch.setattr(sys.modules["privopt.cli.demo"], "SPLITS", 3)
    out = tmp_path / "demo"
    result = run("demo", "--out", out)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["accuracy.png", "certificate.json"]
    picture = (out / "accuracy.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    certificate = Certificate.from_json((out / "certificate.json").read_text())
    assert certificate.private
    assert certificate.epsilon <= 1 + 1e-9
    assert certificate.assumptions == ()
    assert certificate.solver in catalogue()
    text = text_of(result)
    for word in ("569 patients", "test accuracy", "non-private", "always benign", "epsilon=1"):
        assert word in text
    rows = {}
    for line in result.output.splitlines():
        cells = [cell.strip() for cell in line.split("│") if cell.strip()]
        if len(cells) >= 2 and cells[1].startswith("0."):
            rows[cells[0]] = float(cells[1])
    assert rows["8"] > rows["0.1"]
    assert rows["non-private"] > 0.9
    assert rows["8"] > rows["always benign"] + 0.1


def test_demo_without_matplotlib_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["privopt.cli.demo"], "SPLITS", 1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "pip install 'privopt[plot]'" in text_of(result)
    assert (tmp_path / "certificate.json").exists()
    assert not (tmp_path / "accuracy.png").exists()
    assert f"plot: {tmp_path}" not in text_of(result)


def test_the_module_is_the_command():
    found = subprocess.run(
        [sys.executable, "-m", "privopt", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().endswith(privopt.__version__)
