"""What a step is given, compared with what the loader gave and with the steps before."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from privopt.privacy.budget import Refused
from privopt.torch.engine import Engine
from privopt.torch.exchange import of_batch

SHAPES = (
    "shapes are public, and a batch has others than the first one had: bring every record into one "
    "shape that is known before, such as a fixed length, and not that of the longest of a batch."
)
LOADERS = (
    'examples="apart" takes the tensors of private.loader as they are, on any device and in any '
    "shape: compute what you make of them in the data set, in collate_fn or in the model."
)
CHANGED = "the loop computes tensors from a batch before step, each row from its own record alone"


class Given:
    """Shapes of the steps so far, and whether all rows were the loader's."""

    def __init__(self, engine: Engine, apart: bool) -> None:
        self._engine, self._apart = engine, apart
        self._shapes: dict[Any, Any] = {}  # of steps that were taken, for each way to call step
        self._now: tuple[Any, Any] | None = None
        self.changed = False  # whether step was given other rows than the loader's

    def check(self, spec: Any, rows: list[Tensor], loaded: tuple[tuple[Tensor, int], ...]) -> None:
        """Refuse other shapes than the first step had, and, apart, rows that are not the loader's;
        ``loaded`` are its tensors with the versions they had."""
        self._check_shapes(spec, rows)
        self._compare(rows, loaded)

    def taken(self) -> None:
        """The step has its sum: from here on its shapes are those of all."""
        if self._now is not None:
            self._shapes.update([self._now])

    def _check_shapes(self, spec: Any, rows: list[Tensor]) -> None:
        way, shapes = (str(spec), len(rows)), [tuple(row.shape[1:]) for row in rows]
        if self._shapes.get(way, shapes) != shapes:
            raise Refused(SHAPES)
        self._now = way, shapes

    def _compare(self, rows: list[Tensor], loaded: tuple[tuple[Tensor, int], ...]) -> None:
        self._engine.given = tuple([x for x, version in loaded if x._version == version])
        known = {id(x) for x in self._engine.given}
        others = [x for x in rows if id(x) not in known]
        if others and (self._apart or not self.changed):
            self.changed = not all(of_batch(x, self._engine.given) for x in others)
            if self.changed and self._apart:
                raise Refused(LOADERS)
