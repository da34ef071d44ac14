"""What all tests share: plans are kept in memory alone, not in the user's folder."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

os.environ["PRIVOPT_CACHE"] = "off"

HERE = Path(__file__).parent
WITHOUT_TORCH = find_spec("torch") is None
NEEDS_TORCH = re.compile(r"^(import torch|from torch|from array_api_compat import torch)", re.M)


def needs_torch(path: Path) -> bool:
    """Whether a file of tests cannot be imported without torch."""
    if path.relative_to(HERE).parts[0] in ("training", "mutants"):
        return True
    return NEEDS_TORCH.search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path):
    if WITHOUT_TORCH and collection_path.match("test_*.py") and needs_torch(collection_path):
        return True
    return None


def pytest_report_header():
    return "torch is not installed: files that need it are left out" if WITHOUT_TORCH else None


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=30, help="random training programs of a kind")
