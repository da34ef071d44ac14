"""Streams with correlated noise, as ``privopt account`` names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privopt.privacy import Sampling
    from privopt.privacy.factorizations import Factorization
    from privopt.privacy.participation import Participation


class Noise(StrEnum):
    """Noise of a stream, by name."""

    auto = "auto"
    independent = "independent"
    tree = "tree"
    honaker = "honaker"
    sqrt_toeplitz = "sqrt_toeplitz"
    banded = "banded"
    blt = "blt"
    honaker_full = "honaker_full"
    dense = "dense"


class Accounting(StrEnum):
    """What a tree is charged for."""

    exact = "exact"
    nodes = "nodes"


class Conversion(StrEnum):
    """From the mu of Gaussian noise to epsilon."""

    exact = "exact"
    renyi = "renyi"
    renyi_grid = "renyi_grid"
    zcdp = "zcdp"


@dataclass(frozen=True)
class Stream:
    """A noise, who takes part when, and how batches are drawn; all public."""

    noise: Noise
    steps: int
    sampling: Sampling
    epochs: int = 1
    times: int | None = None
    min_separation_steps: int | None = None
    restart_every: int | None = None
    completion: bool = False
    accounting: Accounting = Accounting.exact
    groups: int | None = None

    def __post_init__(self) -> None:
        if (self.times is None) != (self.min_separation_steps is None):
            raise ValueError("--times and --min-separation-steps belong together.")
        if not 1 <= self.epochs <= self.steps:
            raise ValueError(f"--epochs must lie between 1 and the {self.steps} steps.")
        if self.times is not None and self.epochs > 1:
            raise ValueError("give either --epochs or --times with --min-separation-steps.")
        tree = self.noise in (Noise.tree, Noise.honaker)
        if not tree and (self.restart_every is not None or self.accounting is Accounting.nodes):
            raise ValueError("--restart-every and --accounting are for --noise tree or honaker.")
        if self.completion and self.restart_every is None:
            raise ValueError("--completion needs --restart-every.")
        if self.sampling.full and self.groups is not None:
            raise ValueError("--groups is for sampled batches: give a --sampling-rate.")
        if not self.sampling.full and (self.epochs > 1 or self.times is not None):
            raise ValueError("sampled batches take turns by --groups, not by --epochs or --times.")

    def participation(self) -> Participation:
        from privopt.privacy.participation import Participation

        if self.times is not None and self.min_separation_steps is not None:
            return Participation.separated(self.times, self.min_separation_steps)
        return Participation.epochs(self.epochs, -(-self.steps // self.epochs))

    def factorization(self) -> Factorization:
        from privopt.privacy.factorizations import Banded, Honaker, Restarts, Tree, named

        if self.noise in (Noise.tree, Noise.honaker):
            if self.restart_every is not None:
                return Restarts(
                    self.steps,
                    self.restart_every,
                    self.completion,
                    self.noise.value,
                    self.accounting.value,
                )
            kind = Tree if self.noise is Noise.tree else Honaker
            return kind(self.steps, self.accounting.value)
        if not self.sampling.full and self.noise in (Noise.banded, Noise.auto):
            return Banded.optimised(self.steps, self.groups or 1)
        return named(self.noise.value, self.steps, self.participation())

    def charged(self, factorization: Factorization) -> tuple[float, int]:
        """How far one record moves the noise's Gaussians, in clip norms, and how many times."""
        from privopt.privacy.spend import check_sampled

        if self.sampling.full:
            return factorization.sensitivity_squared(self.participation()) ** 0.5, 1
        groups = self.groups or 1
        check_sampled(factorization, self.sampling, groups)
        columns = factorization.losses_squared([(0,)])
        return float(columns[0]) ** 0.5, -(-self.steps // groups)

    def rows(self, factorization: Factorization, multiplier: float) -> Iterator[tuple[str, str]]:
        """What there is to say about the noise, for a table."""
        size, _ = self.charged(factorization)
        largest, mean = factorization.errors(multiplier**2)
        yield "noise", factorization.name
        if self.sampling.full:
            yield "squared sensitivity", f"{size**2:.6g}"
        else:
            yield "groups that take turns", f"{self.groups or 1}"
        yield "error of running sums, largest", f"{largest:.4g}"
        yield "error of running sums, rms", f"{mean:.4g}"
        yield "vectors kept", f"{factorization.vectors_kept()}"
