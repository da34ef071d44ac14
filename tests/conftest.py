"""What all tests share: simulations are kept for one session, not in the user's folder."""

import os
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

KEPT = None
if "PYTEST_XDIST_WORKER" not in os.environ:  # processes of one session make each of them once
    KEPT = os.environ["PRIVOPT_CACHE"] = tempfile.mkdtemp(prefix="privopt-tests-")


def pytest_unconfigure():
    if KEPT:
        shutil.rmtree(KEPT, ignore_errors=True)


@pytest.fixture(autouse=True)
def plans_follow_the_code(request):
    """A test that changes the code sees no plan of before, and leaves none behind."""
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    from privopt.planner.choose import _named, _ranked

    for kept in (_named, _ranked):
        kept.cache_clear()
    yield
    for kept in (_named, _ranked):
        kept.cache_clear()


HERE = Path(__file__).parent
WITHOUT_TORCH = find_spec("torch") is None
NEEDS_TORCH = re.compile(r"^(import torch|from torch|from array_api_compat import torch)", re.M)


def needs_torch(path: Path) -> bool:
    """Whether a file of tests cannot be imported without torch."""
    if path.relative_to(HERE).parts[0] in ("training", "mutants"):
        return True
    return NEEDS_TORCH.search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path, config):
    slow = collection_path.parent == HERE and collection_path.name in SLOW_ROOMS
    if slow and config.getoption("--quick"):
        return True
    if WITHOUT_TORCH and collection_path.match("test_*.py") and needs_torch(collection_path):
        return True
    return None


def pytest_report_header():
    return "torch is not installed: files that need it are left out" if WITHOUT_TORCH else None


SLOW_ROOMS = ("benchmarks", "docs", "engines", "faults", "mutants", "project", "training")
"""Folders that a quick run leaves out: whole processes, pages, planted bugs, torch."""


def pytest_collection_modifyitems(config, items):
    """A quick run: the first case of each test, without what is slow or statistical."""
    if not config.getoption("--quick"):
        return
    kept, left, seen = [], [], set()
    for item in items:
        room = item.path.relative_to(HERE).parts[0]
        slow = any(item.get_closest_marker(mark) for mark in ("slow", "statistical"))
        test = item.nodeid.partition("[")[0]
        out = slow or room in SLOW_ROOMS or test in seen
        seen.add(test)
        (left if out else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="one case of each test that is fast")
    parser.addoption("--programs", type=int, default=30, help="random training programs of a kind")
