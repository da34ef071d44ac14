"""Calibrating Poisson DP-SGD: CPU seconds, and how close the answer is to the finest grid.

The setting: rate 0.01, 10,000 steps, epsilon 1, delta 1e-6. The answer is compared with
dp-accounting's distributions at a step of 1e-5, which round towards more loss: at our multiplier
they must stay within epsilon, and at one smaller by 0.1 % they must not.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

from dp_accounting.pld import privacy_loss_distribution as pld

from benchmarks.measure import Figure, by_turns, report
from privopt.privacy import Accountant, Sampling
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.spend import Step

ACCOUNTANT = import_module("privopt.privacy.accountant")

RATE, STEPS, EPSILON, DELTA, FINEST = 0.01, 10_000, 1.0, 1e-6, 1e-5


def charge(multiplier: float) -> Any:
    return Counter({Step(Sampling(RATE), (GaussianKind(1 / multiplier, 1 / multiplier),)): STEPS})


def calibrate() -> float:
    for name in ("_epsilon", "_surplus"):
        getattr(ACCOUNTANT, name).cache_clear()
    return Accountant().calibrate(charge, EPSILON, DELTA)


def finest(multiplier: float) -> float:
    one = pld.from_gaussian_mechanism(
        multiplier, value_discretization_interval=FINEST, sampling_prob=RATE
    )
    return float(one.self_compose(STEPS).get_epsilon_for_delta(DELTA))


def main() -> None:
    seconds = by_turns({"ours": calibrate}, 9)["ours"]
    multiplier = calibrate()
    report(
        "accounting_speed",
        "Calibrating Poisson DP-SGD (rate 0.01, 10,000 steps, epsilon 1, delta 1e-6)",
        [
            Figure("CPU seconds", seconds.cpu, 0.15, unit="s"),
            Figure("noise multiplier", multiplier),
            Figure("epsilon at it, finest grid", finest(multiplier), EPSILON),
            Figure("epsilon at 0.1 % less noise", finest(multiplier / 1.001), EPSILON, ">="),
        ],
    )


if __name__ == "__main__":
    main()
