"""Federated learning of a recurrent net: next character of Shakespeare's roles by an LSTM, one role
a person, after the experiment of Kairouz et al. (2021) as far as two cores carry it.

Utility against report goal at epsilon 8 for a role, and at one goal for epsilon 2: trees with
restarts, banded and BLT noise and independent noise under a rule of participation, and DP-FedAvg
with Poisson sampling. Arguments: the budgets to run, if not all; ``plot`` draws what there is.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.federated import SAMPLED, spoken
from benchmarks.measure import RESULTS, Figure, console, report
from privopt.federated import SGD, Server
from privopt.noise import SilentSource

DELTA, SEEDS, ROUNDS = 1e-4, 3, 128
GOALS = (25, 50, 100)
POINTS = {8.0: GOALS, 2.0: GOALS[-1:]}
ROWS = RESULTS / "federated_lstm_rows.json"
HIDDEN, LENGTH, LINES, BATCH = 64, 40, 8, 4
CLIP, LOCAL_RATE = 0.5, 2.0
RATES = ((1.0, 0.9), (0.3, 0.9))
TUNED_AT = 50
NOISES = ("tree", "banded", "blt", "independent", "sampled independent")


# ---------------------------------------------------------------- the net, of many people at once
def shapes() -> list[tuple[int, ...]]:
    """What each character brings, hidden to gates, biases, hidden to characters, biases."""
    size = spoken()[1]
    return [(size, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,), (HIDDEN, size), (size,)]


def first() -> np.ndarray:
    """A public start."""
    draws = np.random.default_rng(1)
    parts = [draws.normal(size=shape) / np.sqrt(HIDDEN) for shape in shapes()]
    parts[2][:], parts[4][:] = 0.0, 0.0
    parts[2][HIDDEN : 2 * HIDDEN] = 1.0  # nothing is forgotten at first
    return np.concatenate([part.ravel() for part in parts])


def weights(models: Tensor) -> list[Tensor]:
    """One net for each row."""
    sizes = [int(np.prod(shape)) for shape in shapes()]
    parts = models.split(sizes, dim=1)
    return [part.view(len(models), *shape) for part, shape in zip(parts, shapes(), strict=True)]


def log_chances(models: Tensor, lines: Tensor) -> Tensor:
    """Of each next character: models x lines x length x alphabet."""
    brings, recurrent, gate_bias, out, bias = weights(models)
    many, few, length = lines.shape
    hidden = models.new_zeros(many, few, HIDDEN)
    cell, states = torch.zeros_like(hidden), []
    whose = torch.arange(many)[:, None]
    for place in range(length):
        pushed = brings[whose, lines[:, :, place]] + gate_bias[:, None]
        enter, forget, new, leave = torch.baddbmm(pushed, hidden, recurrent).chunk(4, dim=2)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        states.append(hidden)
    flat = torch.stack(states, dim=2).view(many, few * length, HIDDEN)
    logits = torch.baddbmm(bias[:, None], flat, out)
    return logits.log_softmax(dim=2).view(many, few, length, -1)


def losses(models: Tensor, lines: Tensor, there: Tensor) -> Tensor:
    """The mean loss of each person's characters."""
    chances = log_chances(models, lines[:, :, :-1])
    picked = chances.gather(3, lines[:, :, 1:, None])[..., 0]
    return -(picked * there).sum((1, 2)) / there.sum((1, 2)).clamp(min=1)


# ---------------------------------------------------------------- people
@cache
def people() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Up to ``LINES`` lines of each role, which characters there are, and both of other roles."""
    texts, _ = spoken()
    lines = np.zeros((len(texts), LINES, LENGTH + 1), dtype=np.int64)
    there = np.zeros((len(texts), LINES, LENGTH), dtype=np.float32)
    for role, codes in enumerate(texts):
        for line in range(LINES):
            said = codes[line * LENGTH : (line + 1) * LENGTH + 1]
            lines[role, line, : len(said)] = said
            there[role, line, : max(0, len(said) - 1)] = 1
    cut = len(texts) // 5
    both = torch.from_numpy(lines), torch.from_numpy(there)
    return both[0][cut:], both[1][cut:], both[0][:cut], both[1][:cut]


def updates(model: np.ndarray, asked: list[int]) -> np.ndarray:
    """One epoch of each person's lines in batches, from the same model."""
    lines, there = (part[asked] for part in people()[:2])
    start = torch.from_numpy(model).float()
    models = start.repeat(len(asked), 1)
    for begin in range(0, LINES, BATCH):
        now = slice(begin, begin + BATCH)
        if not bool(there[:, now].any()):
            continue
        models.requires_grad_()
        (slope,) = torch.autograd.grad(losses(models, lines[:, now], there[:, now]).sum(), models)
        length = slope.norm(dim=1, keepdim=True).clamp(min=1)
        models = models.detach() - LOCAL_RATE * slope / length
    return (models.detach() - start).double().numpy()


def scores(model: np.ndarray) -> tuple[float, float]:
    """Mean loss and accuracy on the roles that were kept aside."""
    _, _, lines, there = people()
    with torch.no_grad():
        flat, mask = lines.view(1, -1, LENGTH + 1), there.view(-1, LENGTH)
        chances = log_chances(torch.from_numpy(model).float()[None], flat[:, :, :-1])[0]
        goal = flat[0, :, 1:]
        lost = -(chances.gather(2, goal[..., None])[..., 0] * mask).sum() / mask.sum()
        hit = ((chances.argmax(dim=2) == goal) * mask).sum() / mask.sum()
    return float(lost), float(hit)


# ---------------------------------------------------------------- one training
def trained(
    noise: str, epsilon: float | None, goal: int, rate: tuple[float, float], seed: int
) -> tuple[float, float]:
    """Loss and accuracy of the mean of the last quarter's models; without epsilon, without noise.

    Five in a hundred of those who are asked do not answer.
    """
    count = len(people()[0])
    how: dict[str, Any] = {"min_separation": count // (goal + 1), "noise": noise}
    if noise in SAMPLED:
        how = {"population": count, "noise": noise.split()[1]}
    server = Server(
        first(),
        epsilon=epsilon or 8.0,
        delta=DELTA,
        rounds=ROUNDS,
        report_goal=goal,
        clip_norm=CLIP,
        optimizer=SGD(*rate),
        random_state=seed if epsilon else SilentSource(),
        **how,
    )
    lost, late = np.random.default_rng(seed), np.zeros(server.model.size)
    for round in range(ROUNDS):
        asked = [p for p in server.begin_round(range(count)) if lost.random() >= 0.05]
        if asked:
            for person, update in zip(asked, updates(server.model, asked), strict=True):
                server.answer(person, update)
        server.end_round()
        if round >= 3 * ROUNDS // 4:
            late += server.model
    return scores(late / (ROUNDS // 4))


def utility(epsilon: float | None, noise: str, goals: tuple[int, ...]) -> list[dict[str, Any]]:
    """One line of points; the rate of the server is chosen for it on another seed, and that choice
    is not paid for."""
    tried = [trained(noise, epsilon, TUNED_AT, rate, 1000)[0] for rate in RATES]
    rate, rows = RATES[int(np.argmin(np.nan_to_num(tried, nan=np.inf)))], []
    for goal in goals:
        seeds = range(SEEDS if epsilon else 1)
        runs = np.array([trained(noise, epsilon, goal, rate, seed) for seed in seeds])
        (loss, hits), (loss_spread, hits_spread) = runs.mean(axis=0), runs.std(axis=0)
        rows.append(
            {
                "epsilon": epsilon, "noise": noise if epsilon else "none", "goal": goal,
                "rate": rate, "loss": loss, "loss_spread": loss_spread,
                "accuracy": hits, "accuracy_spread": hits_spread,
            }
        )  # fmt: skip
        console.print(
            f"epsilon {epsilon} {noise:20s} goal {goal:4d}: loss {loss:.3f} +- {loss_spread:.3f}, "
            f"accuracy {hits:.4f} +- {hits_spread:.4f} at {rate}"
        )
        sys.stdout.flush()
    return rows


def plot(rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(9, 3.8), layout="constrained")
    for axes, what in zip(picture.subplots(1, 2), ("accuracy", "loss"), strict=True):
        for noise in (*NOISES, "none"):
            mine = [row for row in rows if row["noise"] == noise and row["epsilon"] in (8.0, None)]
            style = {"none": "k:", **dict.fromkeys(SAMPLED, "--")}.get(noise, "-")
            label = "without noise" if noise == "none" else noise
            axes.errorbar(
                [row["goal"] for row in mine],
                [row[what] for row in mine],
                [row[f"{what}_spread"] for row in mine],
                label=label,
                fmt=style,
                marker="o",
                markersize=3,
            )
        axes.set(xlabel="report goal", ylabel=f"{what} on other roles", xscale="log")
        axes.set_xticks(GOALS, [str(goal) for goal in GOALS])
        axes.minorticks_off()
    picture.axes[0].set_title("LSTM, epsilon 8 for a role")
    picture.axes[1].legend(fontsize="small")
    picture.savefig(RESULTS / "federated_lstm.png", dpi=120)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = json.loads(ROWS.read_text()) if ROWS.exists() else []
    if "plot" in arguments:
        plot(rows)
        return
    start, wanted = time.perf_counter(), [float(one) for one in arguments] or list(POINTS)
    for epsilon in (*wanted, *([None] if 8.0 in wanted else [])):
        rows = [row for row in rows if row["epsilon"] != epsilon]
        for noise in NOISES if epsilon else ("independent",):
            rows += utility(epsilon, noise, POINTS[epsilon or 8.0])
            ROWS.write_text(json.dumps(rows, indent=1))
    plot(rows)
    at = {(row["epsilon"], row["noise"], row["goal"]): row["loss"] for row in rows}
    figures = [
        Figure(
            f"epsilon {epsilon:g}, goal {goal}: banded or BLT over trees (loss)",
            min(at[epsilon, "banded", goal], at[epsilon, "blt", goal]) / at[epsilon, "tree", goal],
            1.0, "<=",
        )
        for epsilon in wanted
        for goal in POINTS[epsilon]
    ]  # fmt: skip
    figures.append(Figure("all trainings", time.perf_counter() - start, unit="s"))
    report("federated_lstm", "A federated LSTM, privacy per person", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
