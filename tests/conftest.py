"""What all tests share: plans are kept in memory alone, not in the user's folder."""

import os

os.environ["PRIVOPT_CACHE"] = "off"


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=30, help="random training programs of a kind")
