"""Planted bugs in the training of torch models, and the checks that kill them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.noise import SeededSource
from privopt.privacy import allocated
from privopt.torch import make_private, rounding
from privopt.torch import noise as noise_module
from privopt.torch.batches import Allocated, FixedOrder, PoissonBatches
from privopt.torch.clip import Clip
from privopt.torch.compiled import CompiledSum
from privopt.torch.convolutions import Convolved
from privopt.torch.engine import Engine
from privopt.torch.noise import TensorNoise
from privopt.torch.oracle import ClippedSums
from privopt.torch.pieces import Dense, Outer
from privopt.torch.private import PrivateTraining

from .mutant import Check, Mutant


# ---------------------------------------------------------------- checks
def trained(
    X: np.ndarray, y: np.ndarray, relation: Any, noise: str, seed: int = 0
) -> tuple[Any, ...]:
    """A short run, and everything it makes public."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(X.shape[1], 3), nn.Tanh(), nn.Linear(3, 1)).double()
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 0.5),
        DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), batch_size=16),
        epsilon=2.0,
        delta=1e-5,
        epochs=2,
        clip_norm=0.5,
        noise=noise,
        neighbouring=relation,
        n_public=64 if relation == "add_remove" else None,
        microbatch=7,
        random_state=seed,
    )
    for _ in range(2):
        for x, t in private.loader:
            private.step(lambda out, t: F.softplus(-out[:, 0] * t), x, targets=t)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return weights, private.certificate().to_json(), private.steps_done


def replayed(relation: Any, noise: str = "independent") -> Check:
    def check() -> str | None:
        for pair in hostile_pairs(relation)[:24]:
            if len(pair.first[0]) < 16:
                continue
            findings = replay(lambda X, y: trained(X, y, relation, noise), pair)
            if findings:
                return f"{pair.name}: {findings[0]}"
        return None

    return check


def law(noise: str) -> Check:
    def check() -> str | None:
        data = hostile_pairs("zero_out")[0].second
        tapes = []
        for seed in range(3):  # runs that shared a seed would share their noise
            result, tape = record(
                lambda X, y, seed=seed: trained(X, y, "zero_out", noise, seed), data
            )
            if result[2] != len(tape.releases):
                return "steps and draws of noise differ"
            tapes.append(tape)
        p_value = noise_p_value(tapes)
        return f"law of the noise: p = {p_value:.1g}" if p_value < 1e-6 else None

    return check


def sampled_at_the_rate() -> str | None:
    schedule = PoissonBatches(40, 40, 6, 2, SeededSource(3))
    hits = np.zeros(40)
    for step in range(8000):
        hits[schedule.draw(step)] += 1
    rate = schedule.sampling.rate / 2  # every other step is the group's
    score = np.sum((hits - 8000 * rate) ** 2) / (8000 * rate * (1 - 2 * rate))
    return None if 1e-7 < stats.chi2.sf(score, 40) < 1 - 1e-7 else "inclusion rates are off"


def keeps_its_place() -> str | None:
    schedule = FixedOrder(30, 10, SeededSource(0))
    epochs = [[set(schedule.draw(3 * e + b)) for b in range(3)] for e in range(3)]
    return None if epochs[0] == epochs[1] == epochs[2] else "a record changes its batch"


def once_an_epoch() -> str | None:
    schedule = Allocated(40, 40, 10, SeededSource(0))
    for epoch in range(3):
        members = np.concatenate([schedule.draw(4 * epoch + turn) for turn in range(4)])
        if not np.array_equal(np.sort(members), np.arange(40)):
            return "a record is in several batches of an epoch"
    return None


def above_the_truth() -> str | None:
    """The profile of two batches, from sums over a grid of both outputs."""
    mu, x = 1.0, np.linspace(-8, 9, 700)
    density, ratio = stats.norm.pdf(x), np.exp(mu * x - mu**2 / 2)
    both = np.outer(density, density) * (x[1] - x[0]) ** 2
    exact = (both * np.maximum((ratio[:, None] + ratio) / 2 - math.exp(0.5), 0)).sum()
    found = allocated.allocated_distribution(2, 2, mu, 1e-3)._pmf_remove
    return None if found.get_delta_for_epsilon(0.5) >= exact - 1e-9 else "delta is below the truth"


def cancellation() -> str | None:
    torch.manual_seed(1)
    a = 1e6 * torch.randn(50, 1, 1, 40).expand(50, 1, 2, 40).contiguous()
    g = torch.randn(50, 1, 2, 30)
    g[:, :, 1] = -g[:, :, 0] * (1 + 1e-6 * torch.randn(50, 1, 1))
    factors = Clip(1.0).factors(Outer(g, a).squared_norms(), 1, rounding.MARGIN[torch.float32])
    moved = factors.double() * Outer(g.double(), a.double()).dense().norm(dim=1)
    return None if moved.max() <= 1 else "a norm lost in rounding passes the clip"


def lost_squares() -> str | None:
    torch.manual_seed(0)
    a, g = 1e-23 * torch.randn(20, 1, 1, 40), 1e18 * torch.randn(20, 1, 1, 30)
    factors = Clip(1e-5).factors(Outer(g, a).squared_norms(), 1, rounding.MARGIN[torch.float32])
    moved = factors.double() * Outer(g.double(), a.double()).dense().norm(dim=1)
    return None if moved.max() <= 1e-5 else "squares below all numbers pass the clip"


def compiled() -> str | None:
    """Filled batches, one with a record that is not finite, against plain sums of the others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1])
    poisoned = x.clone()
    poisoned[2] = torch.nan
    engine = Engine(model, Clip(0.5))
    filled = CompiledSum(engine, 8, "eager")
    for rows, kept in ((x, torch.arange(5)), (poisoned, torch.tensor([0, 1, 3, 4]))):
        expected = engine.clipped_sum(_losses, (x[kept],), {}, (y[kept],), len(kept))
        found = filled.clipped_sum(_losses, (rows,), {}, (y,), 5)
        if not torch.allclose(found, expected):
            return "a filled batch has another sum"
    return None


def _losses(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, reduction="none")


def without_patches() -> str | None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3).double()
    x = torch.randn(4, 2, 5, 5, dtype=torch.float64)
    piece = Convolved(layer, x, torch.randn_like(layer(x)))
    short = piece.squared_norms() < piece.dense().square().sum(1)
    return "norms without patches are too small" if bool(short.any()) else None


# ---------------------------------------------------------------- bugs
def training() -> Iterator[Mutant]:
    def mutant(name: str, check: Check, by: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"torch: {name}", patches, check, by)

    draw = noise_module.gaussian_like
    for noise in ("independent", "banded", "blt"):
        half = (noise_module, "gaussian_like", lambda s, std, like: draw(s, std / 2, like))
        yield mutant(f"half the {noise} noise", law(noise), "law", half)
    yield mutant("buffers are not kept", law("blt"), "law", (TensorNoise, "next", _forgetful))
    for relation in ("zero_out", "replace_one", "add_remove"):
        dropped = (Clip, "factors", _unclipped)
        yield mutant(f"no clip, {relation}", replayed(relation), "replay", dropped)
    yield mutant(
        "the divisor is the drawn batch size",
        replayed("add_remove"),
        "replay",
        (PrivateTraining, "_release", _by_drawn_size),
    )
    yield mutant(
        "a replaced record moves the sum by one clip norm",
        replayed("replace_one"),
        "replay",
        (ClippedSums, "sensitivity", _one_norm),
    )
    yield mutant(
        "each piece is clipped by itself",
        replayed("replace_one"),
        "replay",
        (Engine, "_sums", _piece_by_piece),
    )
    yield mutant(
        "records that are not finite stay", replayed("zero_out"), "replay", *_keep_infinite()
    )
    yield mutant(
        "batches with a missing value take no step", replayed("zero_out"), "replay", _skip_some()
    )
    yield mutant(
        "coins of twice the rate", sampled_at_the_rate, "rate", (PoissonBatches, "draw", _twice)
    )
    yield mutant(
        "a new order in every epoch", keeps_its_place, "order", (FixedOrder, "draw", _reshuffled)
    )
    yield mutant(
        "allocated records are dealt anew for each batch",
        once_an_epoch,
        "places",
        (Allocated, "draw", _dealt_again),
    )
    yield mutant(
        "sums of ratios lose their spread",
        above_the_truth,
        "profile",
        (allocated, "_added", _narrower),
    )
    yield mutant(
        "norms are not rounded up",
        cancellation,
        "rounding",
        (rounding, "SLACK", dict.fromkeys(rounding.SLACK, 0.0)),
    )

    yield mutant(
        "squares below all numbers count as nothing",
        lost_squares,
        "rounding",
        (rounding, "DUST", dict.fromkeys(rounding.DUST, 0.0)),
    )
    yield mutant(
        "examples that fill a batch count",
        compiled,
        "compiled",
        (CompiledSum, "_mask", _filling_counts),
    )
    yield mutant(
        "a graph that does not see what is not finite",
        compiled,
        "compiled",
        (CompiledSum, "_traced", _loss_is_not_seen),
    )
    yield mutant(
        "products of places for one place of the kernel",
        without_patches,
        "norms",
        (Convolved, "_windows", _one_window),
    )


def _forgetful(self: TensorNoise, draw: Any) -> Any:
    self._inner.step += 1
    return draw()


def _unclipped(self: Clip, squared: torch.Tensor, layers: int, margin: float) -> torch.Tensor:
    return torch.isfinite(squared).to(squared.dtype)


def _dealt_again(self: Allocated, step: int) -> np.ndarray:
    turn = step % self.steps_per_epoch
    return np.flatnonzero(self._sampler.allocate(self.count, self.steps_per_epoch, step) == turn)


ADDED = allocated._added


def _narrower(*arguments: Any) -> Any:
    honest = ADDED(*arguments)
    values = 2 + 0.9 * (honest.values - 2)
    return allocated.Ratios(values, honest.masses, honest.infinite)


RELEASE, SENSITIVITY = PrivateTraining._release, ClippedSums.sensitivity


def _by_drawn_size(self: PrivateTraining, total: torch.Tensor) -> None:
    drawn = max(self.loader.waiting or 0, 1)
    public, self._schedule.expected_batch_size = self._schedule.expected_batch_size, drawn
    try:
        RELEASE(self, total)
    finally:
        self._schedule.expected_batch_size = public


def _one_norm(self: ClippedSums, step: int) -> Any:
    sensitivity = SENSITIVITY(self, step)
    return replace(sensitivity, radius=sensitivity.single)


def _piece_by_piece(
    self: Engine, gradients: Any, count: int, margin: float, keep: Any, weights: Any = None
) -> tuple[list[torch.Tensor], None]:
    sums = {p: torch.zeros(p.numel(), dtype=self.dtype) for p in self.parameters}
    for unit in self.units:
        for parameter, piece in self._pieces(unit, gradients, count):
            factors = self.clip.factors(piece.squared_norms(), 1, margin)
            rows = torch.nan_to_num(piece.dense(), 0.0, 0.0, 0.0)
            sums[parameter] += Dense(rows).weighted_sum(factors)
    parts = torch.cat(list(sums.values()))
    return list(sums.values()) if weights is None else [parts] * len(weights), None


def _filling_counts(self: CompiledSum, count: int, device: torch.device) -> torch.Tensor:
    return torch.ones(self.size, dtype=torch.bool)


TRACED = CompiledSum._traced


def _loss_is_not_seen(self: CompiledSum, *arguments: Any) -> Any:
    honest = TRACED(self, *arguments)
    return lambda *rows: (honest(*rows)[0], torch.tensor(False))


def _one_window(self: Convolved, places: torch.Size) -> Iterator[Any]:
    yield next(WINDOWS(self, places))


WINDOWS = Convolved._windows


def _keep_infinite() -> tuple[tuple[Any, str, Any], ...]:
    return ((Dense, "without", lambda self, dropped: self),)


def _skip_some() -> tuple[Any, str, Any]:
    honest = PrivateTraining.step

    def step(self: PrivateTraining, *arguments: Any, **keywords: Any) -> None:
        x = arguments[1]
        if bool(torch.isfinite(x).all()):
            honest(self, *arguments, **keywords)
        else:
            self.loader.stepped()

    return PrivateTraining, "step", step


def _twice(self: PoissonBatches, step: int) -> np.ndarray:
    chosen = self._sampler.choose(self._count, min(1.0, 2 * self.sampling.rate), step + 1)
    return chosen[self._dealt[chosen] == step % self.groups]


def _reshuffled(self: FixedOrder, step: int) -> np.ndarray:
    order = np.random.default_rng(step // self.steps_per_epoch).permutation(self._count)
    part, parts = step % self.steps_per_epoch, self.steps_per_epoch
    return order[self._count * part // parts : self._count * (part + 1) // parts]
