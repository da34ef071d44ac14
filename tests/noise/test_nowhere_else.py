"""Only privopt.noise draws random numbers: read from the syntax trees of all other files."""

import ast
import re
from pathlib import Path

import pytest

import privopt

ROOT = Path(privopt.__file__).parent
ELSEWHERE = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT / "noise")

MODULES = re.compile(
    r"(random|secrets|uuid|randomgen|numpy\.random|jax\.random|torch\.random)(\.|$)"
)
NAMES = re.compile(
    r"(^|\.)(urandom|getrandom|check_random_state|default_rng|RandomState|SystemRandom|rvs)$"
    r"|^(np|numpy|xp|cp|cupy|jax|scipy|jnp)\.random(\.|$)"
    r"|^(random|secrets|uuid)\."
    r"|^torch\.(rand\w*|normal|bernoulli|multinomial|poisson|manual_seed|seed|Generator)$"
    r"|^torch\.(random|distributions)(\.|$)"
    r"|\.(normal_|uniform_|bernoulli_|exponential_|log_normal_|cauchy_|geometric_|random_)$"
)


def dotted(node):
    """a.b.c as text; a call or a subscript at the root leaves an empty first part."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def draws(text):
    """Everything in a file that makes or fetches random bits by itself, as (line, name)."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [(alias.name, MODULES.match(alias.name)) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            full = [f"{module}.{alias.name}" for alias in node.names]
            names = [(n, not node.level and (MODULES.match(n) or NAMES.search(n))) for n in full]
        elif isinstance(node, ast.Attribute):
            names = [(dotted(node), NAMES.search(dotted(node)))]
        else:
            continue
        found |= {(node.lineno, name) for name, forbidden in names if forbidden}
    return sorted(found)


def test_there_are_files_to_look_at():
    folders = {path.relative_to(ROOT).parts[0] for path in ELSEWHERE}
    assert {"privacy", "oracle", "mechanisms", "solvers", "planner", "estimators"} <= folders
    assert "noise" not in folders


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_other_file_draws_random_numbers(path):
    assert draws(path.read_text(encoding="utf-8")) == []


def test_the_noise_package_itself_is_recognised():
    assert draws((ROOT / "noise" / "source.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "import secrets as s",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "from random import gauss",
        "from randomgen import AESCounter",
        "from torch import randn",
        "from sklearn.utils import check_random_state",
        "from os import urandom",
        "def f():\n    import random",
        "x = np.random.normal(size=3)",
        "x = np.random.default_rng()",
        "x = numpy.random.rand(3)",
        "x = torch.randn(3)",
        "x = torch.rand_like(y)",
        "x = torch.normal(0, 1, (3,))",
        "x.normal_()",
        "f(x).grad.uniform_(0, 1)",
        "key = os.urandom(16)",
        "x = stats.norm.rvs(3)",
        "rng = sklearn.utils.check_random_state(0)",
    ],
)
def test_the_reader_notices(line):
    assert draws(line)


@pytest.mark.parametrize(
    "line",
    [
        "from privopt.noise import gaussian, source_for",
        "x = source.noise.standard_normal(3)",
        "coins = source.coins.random(n) < rate",
        "def fit(random_state=None): self.random_state = random_state",
        "x = torch.linalg.norm(y)",
        "from .random import x",
    ],
)
def test_the_reader_lets_pass(line):
    assert draws(line) == []
