"""What an online classifier asks next, and the models it makes of the answers. All public.

With declared bounds the first steps of a stream do not ask for gradients: they ask for a histogram
of row norms, then for the first two moments of the columns, from which rows are centred, scaled and
clipped ever after. All questions have their places in one long vector of one movement
(``oracle.Embedded``), so they are steps of one stream like any other: whatever its noise and its
rule of participations, nothing else is charged. The sum of all that stands at the gradient's place
is the sum of the gradients with the noise of a running sum, since before the first of them the data
had no part in it.

Gradients are followed with one step size, which forgets nothing but moves on as fast as the stream;
what is published is the mean of the recent iterates, in which most of the noise averages out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.standardizer import BINS, map_from, norm_bound, norm_edges
from privopt.oracle import (
    ClippedGradient,
    Embedded,
    Moments,
    NormHistogram,
    Oracle,
    Query,
    RowMap,
    Sealed,
)
from privopt.solvers.families.leaders import Leader

QUANTILE, COLUMN, CLIP = 0.9, 1.0, 1.0
"""Of the standardisation: bound of the rows while moments are taken, height of the constant column,
clip in root mean squares of a row."""
FLOOR = 0.05
"""No column counts as narrower, in units of its bounds: the first steps need not show its width."""
SHARP = 0.05
"""Variances are asked for until their noise is below this, in units of the bounds."""
FEWEST = 1000
"""Records whose moments are taken at least: fewer may all be of one morning."""
FIRST = 1 / 20
"""Of a stream of known length; this much at most goes to the standardisation."""
LONGEST = 200
"""Steps that go to it at most if the length is not known."""


@dataclass
class StreamLeader(Leader):
    """Follows gradients over rows as they are, or over rows it has standardised.

    ``rows`` is the public number of records in a step, ``window`` the number of iterates whose mean
    is published; ``norm_steps`` and ``moment_steps`` come first where rows are standardised.
    """

    STATE: ClassVar[tuple[str, ...]] = (
        *Leader.STATE,
        "recent",
        "learned",
        "norm_steps",
        "moment_steps",
        "bound",
        "spread",
    )

    question: ClippedGradient | None = None
    rows: int = 1
    window: int = 1
    standardized: bool = False
    norm_steps: int = 0
    moment_steps: int = 0
    bound: float = 0.0
    spread: float = 0.0
    recent: np.ndarray = field(init=False)
    learned: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recent = np.zeros_like(self.start)
        self.learned = np.zeros(BINS + 2 * self.features if self.standardized else 0)

    @property
    def features(self) -> int:
        return len(self.start) - 1

    @property
    def coordinates(self) -> int:
        return len(self.start) + len(self.learned)

    @property
    def learning_scales(self) -> bool:
        return self.steps < self.norm_steps + self.moment_steps

    # ------------------------------------------------------------ before the first gradient
    def begun(self, noise: Callable[[int], float], steps: int | None) -> Self:
        """Plan the first steps, from the noise of running sums and the length of the stream."""
        most = LONGEST if steps is None else max(2, int(steps * FIRST))
        hidden = 2 * math.sqrt(2 * math.log(BINS))
        first = 1
        while first < most // 2 and self.rows * first < 2 * hidden * noise(first):
            first += 1
        sums, many = math.sqrt(2 * self.features), 1
        while first + many < most and (
            self.rows * many < FEWEST or sums * noise(first + many) > SHARP * self.rows * many
        ):
            many += 1
        self.norm_steps, self.moment_steps = first, many
        return self

    def asked(self) -> Query:
        """The question of the next step."""
        assert self.question is not None
        if not self.standardized:
            return self.question
        place = len(self.start)
        if self.steps < self.norm_steps:
            edges = tuple(norm_edges(self.features).tolist())
            return Embedded(NormHistogram(edges), place, self.coordinates)
        if self.learning_scales:
            return Embedded(self._moments(), place + BINS, self.coordinates)
        return Embedded(self.question, 0, self.coordinates)

    def ask(self, oracle: Oracle, resolution: float | None) -> Sealed:
        """Ask it, where it is to be asked."""
        if self.learning_scales:
            return oracle.everything().ask(self.asked(), resolution=resolution)
        if self.standardized:
            oracle = oracle.mapped(self.row_map)
        return oracle.everything().ask(self.asked(), self.point(), resolution=resolution)

    def take(self, released: np.ndarray, noise: float = 0.0) -> None:
        """Take in a step's answer; ``noise`` is that of a coordinate of the running sums."""
        place, before = len(self.start), self.learning_scales
        if before:
            self.learned = self.learned + released[place:]
        super().take(released[:place])
        if not before:
            done = self.steps - self.norm_steps - self.moment_steps
            self.recent = self.recent + (self.point() - self.recent) / min(done, self.window)
        elif self.steps == self.norm_steps:
            counted = self.rows * self.norm_steps
            edges = norm_edges(self.features)
            self.bound = norm_bound(edges, self.learned[:BINS], QUANTILE, counted, noise)
        elif not self.learning_scales:
            self.spread = noise

    def _moments(self) -> Moments:
        return Moments(self.bound, min(self.bound, self.bound**2))

    @property
    def row_map(self) -> RowMap:
        """From the moments, once they are complete."""
        unit = Embedded(self._moments(), 0, 1).unit
        return map_from(
            self.learned[BINS:] * unit,
            self._moments(),
            self.spread * unit,
            self.rows * self.moment_steps,
            column=COLUMN,
            clip=CLIP,
            floor=FLOOR,
        )

    # ------------------------------------------------------------ models
    def point(self) -> np.ndarray:
        """Where the next gradient is taken."""
        return super().iterate()

    def iterate(self) -> np.ndarray:
        """Coefficients of rows as they are, and of their constant."""
        if not self.standardized:
            return self.recent
        if self.learning_scales:
            return np.zeros_like(self.start)
        row_map: Any = self.row_map
        return row_map.backward(self.recent) / row_map.clip_norm
