"""The reproduction on images: how its constant is chosen, and one run on made-up data."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from benchmarks import reproduce
from benchmarks.reproduce import DELTA, MOMENTUM, Job, Run, best_shift, read, spread, table, train
from privopt.privacy import Budget
from privopt.torch.plan import choose_plan


def run(method, epsilon, shift, score, seed=100):
    return Run(Job("mnist", method, epsilon, 1000, shift, seed), 0.1, score, score, 1.0, epsilon)


def test_the_constant_is_the_best_over_all_runs():
    """Error rates count by their logarithms: 2 to 1 percent is as much as 20 to 10."""
    runs = [run("BLT", 1.2, 0.04, 98.0), run("DP-SGD", 1.2, 0.04, 90.0)]
    runs += [run("BLT", 1.2, 0.08, 99.0), run("DP-SGD", 1.2, 0.08, 82.0)]
    assert best_shift(runs) == 0.08
    runs += [run("BLT", 7.0, 0.04, 99.0), run("BLT", 7.0, 0.08, 98.0)]
    assert best_shift(runs) == 0.04


def test_tuning_is_not_scored(tmp_path):
    runs = [
        run("BLT", 3.0, 0.08, score, seed) for seed, score in ((0, 96.0), (1, 98.0), (100, 10.0))
    ]
    mean, std, _ = spread(runs, "mnist", "BLT", 3.0, 1000)
    assert (mean, std) == pytest.approx((97.0, np.sqrt(2)))
    assert "97.00 +- 1.41" in "\n".join(table(runs, 1000))
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([asdict(one) for one in runs]))
    assert list(read(file).values()) == runs


def test_one_run(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 600)
    images = rng.integers(0, 60, (600, 28, 28)).astype(np.uint8)
    images[np.arange(600), labels] = 250
    (tmp_path / "mnist").mkdir()
    np.savez(
        tmp_path / "mnist" / "mnist.npz",
        x_train=images[:500],
        y_train=labels[:500],
        x_test=images[500:],
        y_test=labels[500:],
    )
    monkeypatch.setenv("PRIVOPT_DATA", str(tmp_path))
    monkeypatch.setattr(reproduce, "EPOCHS", 4)
    threads = torch.get_num_threads()
    try:
        found = train(Job("mnist", "BLT", 50.0, 50, 0.05, 0), "cpu", 0)
    finally:
        torch.set_num_threads(threads)
        reproduce.load.cache_clear()
    plan = choose_plan(Budget(50.0, DELTA), 500, 50, 4, "blt", "fixed")
    assert found.rate == pytest.approx(0.05 * (1 - MOMENTUM) * 50 / plan.error)
    assert 0 < found.spent <= 50.0
    assert found.scored == found.averaged
