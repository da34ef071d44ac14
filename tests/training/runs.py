"""A small model, small data and short private runs, for the tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.torch import make_private

from .models import cross_entropy

NOISES = ["independent", "banded", "blt", "honaker", "tree", "sqrt_toeplitz"]
RELATIONS = ["zero_out", "replace_one", "add_remove"]


def net(width=4, out=3, dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, out)).to(dtype)


def data(n=60, width=4, seed=0):
    torch.manual_seed(seed)
    return TensorDataset(torch.randn(n, width).double(), torch.randint(0, 3, (n,)))


def training(model=None, records=None, *, batch_size=10, lr=0.5, optimizer=None, **choices):
    model = net() if model is None else model
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr)
    loader = DataLoader(data() if records is None else records, batch_size=batch_size)
    choices = {"epsilon": 2.0, "delta": 1e-5, "epochs": 3, "random_state": 0} | choices
    return make_private(model, optimizer, loader, **choices)


def run(private, epochs=1):
    for _ in range(epochs):
        for x, y in private.loader:
            private.step(cross_entropy, x, targets=y)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def in_processes(script, tmp_path_factory):
    """Runs a script of this folder once, and reads what its processes have written for a scenario,
    in the order of their ranks."""
    if sys.platform != "linux":
        pytest.skip("the processes are forked and meet on Linux's loopback device")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_TESTRUNUID" in os.environ:  # run once for all workers of the tests
        folder = folder.parent
    with FileLock(folder / f"{script}.lock"):
        if not (folder / script).exists():
            done = subprocess.run(
                [sys.executable, "-m", f"tests.training.{script}", str(folder / script)],
                cwd=Path(__file__).parents[2],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr

    def read(scenario):
        files = sorted((folder / script / scenario).glob("*.pt"))
        return [torch.load(file, weights_only=False) for file in files if file.stem.isdigit()]

    read.folder = folder / script
    return read
