"""Federated learning of people who speak verse: next character given the last one, 1,081 speaking
roles of 37 plays as people, in one process. Privacy is per role.

DP-FTRL with trees that restart (Kairouz et al., 2021), banded and BLT noise against independent
noise (DP-FedAvg without amplification) under a rule of participation, and against DP-FedAvg with
Poisson sampling; for three budgets and several report goals. Then a run with 1,000 people, and what
strategy and noise cost beside training.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, Figure, console, report
from benchmarks.real_data import folder
from privopt.federated import SGD, Server
from privopt.noise import SilentSource

EPSILONS, DELTA, SEEDS, ROUNDS = (2.0, 8.0, 18.0), 1e-4, 3, 64
GOALS = (25, 50, 100)
TUNED_AT = 50
CLIP, LOCAL_STEPS, LOCAL_RATE = 1.0, 1, 30.0
RATES = ((0.3, 0.9), (1.0, 0.9), (3.0, 0.0))
UNDER_A_RULE = ("tree", "honaker", "banded", "blt", "independent")
SAMPLED = ("sampled independent", "sampled banded")


# ---------------------------------------------------------------- people
@dataclass(frozen=True)
class Verse:
    """For each role, how often each character follows each."""

    train: np.ndarray
    test: np.ndarray


@cache
def spoken() -> tuple[list[np.ndarray], int]:
    """What each role says, as numbers of characters; roles in a random order, and the size of the
    alphabet."""
    home = folder()
    if home is None:
        raise FileNotFoundError("set PRIVOPT_DATA to the folder that holds the data sets.")
    path = home / "shakespeare_roles" / "shakespeare_by_role.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = ["\n".join(json.loads(line)["speeches"]) for line in lines]
    letters = sorted(set("".join(texts)))  # an alphabet is public
    place = {letter: i for i, letter in enumerate(letters)}
    order = np.random.default_rng(0).permutation(len(texts))
    return [np.array([place[c] for c in texts[role]]) for role in order], len(letters)


@cache
def verse() -> Verse:
    texts, size = spoken()
    counts = np.zeros((len(texts), size, size), dtype=np.float32)
    for role, codes in enumerate(texts):
        np.add.at(counts[role], (codes[:-1], codes[1:]), 1)
    cut = len(texts) // 5
    return Verse(counts[cut:], counts[:cut].sum(axis=0))


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def update(model: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A step of gradient descent on one role's mean loss."""
    size = len(counts)
    said = counts / max(float(counts.sum()), 1.0)
    each, theta = said.sum(axis=1, keepdims=True), model.reshape(size, size).astype(np.float32)
    for _ in range(LOCAL_STEPS):
        theta = theta - LOCAL_RATE * (each * softmax(theta) - said)
    return theta.ravel() - model


def scores(model: np.ndarray) -> tuple[float, float]:
    """Mean loss and accuracy on the roles that were kept aside."""
    test = verse().test
    chance = softmax(model.reshape(test.shape))
    best = chance.argmax(axis=1)
    loss = -float((test * np.log(np.maximum(chance, 1e-12))).sum() / test.sum())
    return loss, float(test[np.arange(len(test)), best].sum() / test.sum())


# ---------------------------------------------------------------- one training
def trained(
    noise: str, epsilon: float | None, goal: int, rate: tuple[float, float], seed: int
) -> tuple[float, float, Server]:
    """Loss and accuracy of the mean of the last quarter's models; without epsilon, without noise.

    Five in a hundred of those who are asked do not answer.
    """
    people = verse().train
    how: dict[str, Any] = {"min_separation": len(people) // (goal + 1), "noise": noise}
    if noise.startswith("sampled"):
        how = {"population": len(people), "noise": noise.split()[1]}
    server = Server(
        np.zeros(people[0].size),
        epsilon=epsilon or 8.0,
        delta=DELTA,
        rounds=ROUNDS,
        report_goal=goal,
        clip_norm=CLIP,
        optimizer=SGD(*rate),
        random_state=seed if epsilon else SilentSource(),
        **how,
    )
    lost, late = np.random.default_rng(seed), np.zeros(people[0].size)
    for round in range(ROUNDS):
        for person in server.begin_round(range(len(people))):
            if lost.random() >= 0.05:
                server.answer(person, update(server.model, people[person]))
        server.end_round()
        if round >= 3 * ROUNDS // 4:
            late += server.model
    return *scores(late / (ROUNDS // 4)), server


def tuned(noise: str, epsilon: float | None) -> tuple[float, float]:
    """The best rate and momentum of the server on another seed, at one report goal; what choosing
    costs is not paid here, for none of the noises."""
    found = [trained(noise, epsilon, TUNED_AT, rate, 1000)[0] for rate in RATES]
    return RATES[int(np.argmin(np.nan_to_num(found, nan=np.inf)))]


def utility(console: Any) -> list[dict[str, Any]]:
    rows = []
    for epsilon in (*EPSILONS, None):
        for noise in (*UNDER_A_RULE, *SAMPLED) if epsilon else ("independent",):
            rate = tuned(noise, epsilon)
            for goal in GOALS:
                runs = [
                    trained(noise, epsilon, goal, rate, s) for s in range(SEEDS if epsilon else 1)
                ]
                losses, hits = ([run[i] for run in runs] for i in (0, 1))
                server = runs[0][2]
                rows.append(
                    {
                        "epsilon": epsilon, "noise": noise, "goal": goal, "rate": rate,
                        "loss": float(np.mean(losses)), "loss_spread": float(np.std(losses)),
                        "accuracy": float(np.mean(hits)), "accuracy_spread": float(np.std(hits)),
                        "factorization": server.plan.factorization.name,
                        "multiplier": server.plan.multiplier,
                        "times": server.plan.rule.times,
                    }
                )  # fmt: skip
                console.print(
                    f"epsilon {epsilon} {noise:20s} goal {goal:4d}: loss {np.mean(losses):.3f} "
                    f"+- {np.std(losses):.3f}, accuracy {np.mean(hits):.4f} at {rate}"
                )
                sys.stdout.flush()
    return rows


# ------------------------------------------------------------ what it costs
def thousand_people() -> Figure:
    """A thousand people, a hundred a round, for thirty rounds; each answers at random."""
    server = Server(
        np.zeros(10_000), epsilon=8.0, delta=1e-5, rounds=30, report_goal=100, clip_norm=1.0,
        min_separation=10,
    )  # fmt: skip
    draws, start = np.random.default_rng(0), time.perf_counter()
    for _ in range(30):
        for person in server.begin_round(range(1000)):
            server.answer(person, draws.normal(size=10_000))
        server.end_round()
    certificate = server.certificate()
    assert certificate.epsilon <= 8.0 * (1 + 1e-9)
    assert server.people.times == 3000
    return Figure(
        "1,000 people, 30 rounds of 100, 1e4 parameters", time.perf_counter() - start, unit="s"
    )


def overhead(clients: int = 100) -> list[Figure]:
    """CPU time of all that the server does in a round, over that of its clients, by turns in one
    process: for a layer of a million numbers and one pass over 256 examples, and for the
    convolutional net of federated benchmarks (1,206,590 numbers) and one pass over 200 images."""
    return [
        *(round_of(noise, *layer(), clients, 0.05) for noise in ("banded", "blt")),
        *(round_of(noise, *net(), clients, 0.05) for noise in ("banded", "blt")),
    ]


Local = Callable[[np.ndarray, int], np.ndarray]


def round_of(
    noise: str, what: str, parameters: int, local: Local, clients: int, limit: float
) -> Figure:
    server = Server(
        np.zeros(parameters), epsilon=8.0, delta=1e-6, rounds=100, report_goal=clients,
        clip_norm=1.0, min_separation=10, noise=noise,
    )  # fmt: skip
    server.begin_round(range(1000))
    server.end_round()
    training, start = 0.0, time.process_time()
    for place, person in enumerate(server.begin_round(range(1000))):
        before = time.process_time()
        sent = local(server.model, place)
        training += time.process_time() - before
        server.answer(person, sent)
    server.end_round()
    privacy = time.process_time() - start - training
    said = f"{noise}, {what}: server over {clients} clients (CPU; clients {training:.1f} s)"
    return Figure(said, privacy / training, limit, "<=")


def layer() -> tuple[str, int, Local]:
    """A layer of softmax outputs: batches of 16, one pass."""
    examples = np.random.default_rng(0).normal(size=(4, 256, 1000)).astype(np.float32)

    def local(model: np.ndarray, place: int) -> np.ndarray:
        theta = model.reshape(1000, 1000).T.astype(np.float32)
        first, mine = theta.copy(), examples[place % 4]
        for start in range(0, len(mine), 16):
            rows = mine[start : start + 16]
            residuals = softmax(rows @ theta)
            residuals[:, 0] -= 1
            theta = theta - 0.1 * rows.T @ residuals / len(rows)
        return (theta - first).T.ravel()

    return "a layer of 1e6", 1_000_000, local


def net() -> tuple[str, int, Local]:
    """Two convolutions and two layers, 62 classes of images: batches of 20, one pass."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 62),
    )  # fmt: skip
    parameters = list(model.parameters())
    images, labels = torch.randn(200, 1, 28, 28), torch.randint(62, (200,))
    start = torch.nn.utils.parameters_to_vector(parameters).detach().clone()

    def local(now: np.ndarray, place: int) -> np.ndarray:
        before = start + torch.from_numpy(now).float()
        torch.nn.utils.vector_to_parameters(before.clone(), parameters)
        optimizer = torch.optim.SGD(parameters, 0.1)
        for few in range(0, 200, 20):
            optimizer.zero_grad()
            out = model(images[few : few + 20])
            nn.functional.cross_entropy(out, labels[few : few + 20]).backward()
            optimizer.step()
        after = torch.nn.utils.parameters_to_vector(parameters).detach()
        return (after - before).numpy()

    return "a convolutional net", len(start), local


def plot(rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(12, 3.8), layout="constrained")
    plain = [row for row in rows if row["epsilon"] is None]
    for axes, epsilon in zip(picture.subplots(1, 3, sharey=True), EPSILONS, strict=True):
        for noise in (*UNDER_A_RULE, *SAMPLED):
            mine = [row for row in rows if (row["epsilon"], row["noise"]) == (epsilon, noise)]
            style = "--" if noise in SAMPLED else "-"
            axes.errorbar(
                [row["goal"] for row in mine],
                [row["loss"] for row in mine],
                [row["loss_spread"] for row in mine],
                label=noise,
                linestyle=style,
                marker="o",
                markersize=3,
            )
        axes.plot(GOALS, [row["loss"] for row in plain], "k:", label="without noise")
        axes.set(title=f"epsilon {epsilon:g} for a role", xlabel="report goal", xscale="log")
        axes.set_xticks(GOALS, [str(goal) for goal in GOALS])
        axes.minorticks_off()
    picture.axes[0].set_ylabel("loss on other roles")
    picture.axes[-1].legend(fontsize="small")
    RESULTS.mkdir(exist_ok=True)
    picture.savefig(RESULTS / "federated.png", dpi=120)


def main(arguments: list[str]) -> None:
    figures = [thousand_people(), *overhead()]
    if folder() is None:
        console.print("Real people skipped: set PRIVOPT_DATA to the folder that holds the data.")
    elif "quick" not in arguments:
        rows = utility(console)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "federated_rows.json").write_text(json.dumps(rows, indent=1))
        plot(rows)
        for epsilon in EPSILONS:
            at = {
                (row["noise"], row["goal"]): row["loss"]
                for row in rows
                if row["epsilon"] == epsilon
            }
            for goal in GOALS:
                best = min(at["banded", goal], at["blt", goal])
                figures.append(
                    Figure(
                        f"epsilon {epsilon:g}, goal {goal}: banded or BLT over trees (loss)",
                        best / at["tree", goal], 1.0, "<=",
                    )
                )  # fmt: skip
    report("federated", f"Federated learning per person, delta={DELTA:g}", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
