"""Some records of a batch are exchanged for others, or left out: what the rest gives must stay.

The check of the fast path's assumption that examples do not meet. What is compared are clipped
gradients, in units of the clip norm: signed sums over the records that stay, signs by secret coins,
so that the squared difference is on average the sum of the squared movements of all of them; and
their plain sum. Both runs draw the same random numbers and see batches of one size, so that they
round alike; a batch with records left out does neither, and is compared more widely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from privopt.noise import Generator
from privopt.noise.random_numbers import luck, same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.contents import content
from privopt.torch.gradients import slopes
from privopt.torch.reachable import Reachable
from privopt.torch.rounding import WIDE_MARGIN
from privopt.torch.structure import same_values

MEETS = (
    "records of a batch meet: with other records in the place of some, the clipped gradients of "
    "the rest are others. Nothing was released. Compute every example from its own record alone, "
    'or take examples="apart".'
)
KINDS, LEFT = ("another", "scaled", "empty"), "left"
FAR = -8.0
ROOM = {torch.float64: 1e-6, torch.float32: 2e-3}
HALF_ROOM = 3e-2
WIDE = 5.0
"""How much more is left to the rounding of batches of different sizes."""
TOGETHER = 0.05
"""Clip norms by which the sum of all records that stay may move, for rounding."""

Change = Callable[[Tensor], Tensor]


class Exchange:
    """Which rows of a batch stay, and what is put in the place of the others."""

    def __init__(self, count: int, coins: Generator, kind: str, device: Any) -> None:
        order = coins.permutation(count)
        leaving = order[: max(1, count // 2)]
        source = np.arange(count)
        others = order[len(leaving) :]  # twice in the batch then, so that no mean stays
        source[leaving] = others[coins.integers(len(others), size=len(leaving))]
        self.count, self.kind = count, kind
        self.staying = torch.from_numpy(np.sort(order[len(leaving) :])).to(device)
        self._source = torch.from_numpy(source).to(device)
        self._leaving = torch.from_numpy(leaving.copy()).to(device)
        self._put: dict[int, tuple[Tensor, Tensor]] = {}

    def holds(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dim() > 0 and len(x) == self.count

    def put(self, x: Any) -> Any:
        """Rows of a tensor exchanged; whole numbers for those of other records."""
        if not self.holds(x):
            return x
        if id(x) in self._put:  # one tensor in two places stays one
            return self._put[id(x)][1]
        at, place = self._source.to(x.device), self._leaving.to(x.device)
        found = x.detach()[at]
        if x.is_floating_point() and self.kind != "another":
            found[place] *= FAR if self.kind == "scaled" else 0.0
        self._put[id(x)] = x, found.requires_grad_(x.requires_grad and x.is_leaf)
        return found

    def begin(self, kind: str) -> None:
        """From here on other rows are put in."""
        self.kind = kind
        self._put.clear()

    def left(self, x: Any) -> Any:
        """Only the rows that stay."""
        return x.detach()[self.staying.to(x.device)] if self.holds(x) else x


def check_batch(
    engine: Any,
    loss: Callable[..., Tensor],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    targets: tuple[Any, ...],
    count: int,
    tries: int = 1,
) -> Tensor:
    """The clipped sum of a batch, or a refusal if its records meet; nothing of it has left yet.

    The tries come first, with the random numbers that the sum itself draws after them.
    """
    coins, device = engine.coins, engine.parameters[0].device
    exchange = Exchange(count, coins, "another", device)
    signs = torch.from_numpy(coins.choice([-1.0, 1.0], size=len(exchange.staying)))
    given = inputs, keywords, targets

    def rows(places: Tensor, size: int) -> Tensor:
        weights = torch.ones(3, size, dtype=engine.dtype, device=device)  # the last one: all
        weights[:2] = 0.0
        weights[0, places], weights[1, places] = signs.to(weights), 1.0
        return weights

    def run(change: Callable[[Any], Any], places: Tensor, size: int) -> Tensor | None:
        own = of_rows(loss, change, exchange, engine.given)
        with kept(engine.model, loss), same_random_numbers(device, None):
            start = luck(device)
            found = engine.weighed(own, *tree_map(change, given), size, rows(places, size)[:2])
            return found if size == count or luck(device) == start else None

    half = engine.margin(device.type) >= WIDE_MARGIN
    most = (HALF_ROOM if half else ROOM[engine.dtype]) * math.sqrt(len(exchange.staying))
    found: list[tuple[Tensor, float]] = []
    for way in coins.permutation([*KINDS, LEFT])[:tries]:
        other, room = None, 1.0
        if way == LEFT:  # batches of different sizes draw different random numbers
            room = WIDE
            other = _tried(lambda: run(exchange.left, _first(exchange), len(exchange.staying)))
        else:
            exchange.begin(str(way))
            other = _tried(lambda: run(exchange.put, exchange.staying, count))
        if other is None:  # no model of such rows
            room = 1.0
            exchange.begin("another")
            other = _tried(lambda: run(exchange.put, exchange.staying, count))
        if other is not None:
            found.append((other, room))
    *base, total = engine.weighed(loss, *given, count, rows(exchange.staying, count), look=True)
    for other, room in found:
        moved = (other - torch.stack(base)).double().norm(dim=1) / engine.clip.norm
        if float(moved[0]) > room * most or float(moved[1]) > room * most + TOGETHER:
            raise Refused(MEETS)
    return total


def _first(exchange: Exchange) -> Tensor:
    return torch.arange(len(exchange.staying), device=exchange.staying.device)


def _tried(run: Callable[[], Tensor | None]) -> Tensor | None:
    try:
        return run()
    except Refused:
        raise
    except Exception:
        return None  # the rows put in do not suit this model


# ------------------------------------------------------------ a loss that is tried
def of_rows(loss: Any, change: Any, exchange: Exchange, given: tuple[Tensor, ...]) -> Any:
    """A loss with rows exchanged in tensors of the batch that it holds."""
    if change is None or not _holds(loss, exchange, given):
        return loss

    def put(value: Any) -> Any:
        if isinstance(value, Tensor) and _holds(value, exchange, given):
            return change(value)
        return of_rows(value, change, exchange, given)

    if isinstance(loss, partial):
        keywords = {name: put(value) for name, value in loss.keywords.items()}
        return partial(put(loss.func), *map(put, loss.args), **keywords)
    cells = tuple([_cell(cell, put) for cell in loss.__closure__ or ()])
    defaults = loss.__defaults__ and tuple(map(put, loss.__defaults__))
    made = FunctionType(loss.__code__, loss.__globals__, loss.__name__, defaults, cells or None)
    if loss.__kwdefaults__:
        made.__kwdefaults__ = {name: put(x) for name, x in loss.__kwdefaults__.items()}
    made.__dict__.update(loss.__dict__)
    return made


def _holds(value: Any, exchange: Exchange, given: tuple[Tensor, ...], depth: int = 0) -> bool:
    """Whether a function has tensors of the batch in it."""
    if isinstance(value, Tensor):
        return exchange.holds(value) and of_batch(value, given)
    inner: list[Any] = []
    if isinstance(value, partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, FunctionType):
        inner = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        inner += [content(cell) for cell in value.__closure__ or ()]
    return depth < 5 and any(_holds(x, exchange, given, depth + 1) for x in inner)


def _cell(cell: CellType, put: Callable[[Any], Any]) -> CellType:
    try:
        return CellType(put(cell.cell_contents))
    except ValueError:
        return CellType()  # not filled yet


def of_batch(value: Tensor, given: tuple[Tensor, ...]) -> bool:
    """Whether a tensor is one that the loader gave, perhaps moved or reshaped."""
    return any(same_rows(value, one) for one in given)


def same_rows(value: Tensor, one: Tensor) -> bool:
    """Row by row the same numbers, in another shape, type or place."""
    if value is one:
        return True
    if not value.dim() or not one.dim() or len(value) != len(one):
        return False
    if value.numel() != one.numel():
        return False
    flat = one.detach().reshape(-1).to(device=value.device, dtype=value.dtype)
    return same_values(value.detach().reshape(-1), flat)


# ------------------------------------------------------------ a model that is tried
@contextmanager
def kept(*things: Any) -> Iterator[Reachable]:
    """What models and losses can get at, put back afterwards, buffers with their numbers."""
    reached = Reachable(things)
    modules = [thing for thing in reached.met() if isinstance(thing, nn.Module)]
    held = [b for module in modules for b in module._buffers.values() if b is not None]
    before = [(buffer, buffer.clone()) for buffer in held]
    try:
        yield reached
    finally:
        reached.restore()
        with torch.no_grad():
            for buffer, value in before:
                if not same_values(buffer, value):
                    buffer.copy_(value)


# ------------------------------------------------------------ the loss alone
def loss_moves(
    loss: Any, output: Any, targets: tuple[Any, ...], count: int, engine: Any, tries: int
) -> float:
    """By how much losses, and their gradients at the output, move with the rows of others; as a
    share of the largest, and in units of what rounding may do: above one is more."""
    given = [x for x in tree_leaves((output, targets)) if isinstance(x, Tensor)]
    if count < 2 or any(not x.dim() or len(x) != count for x in given):
        return 0.0
    coins, device = engine.coins, engine.parameters[0].device
    leaves = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
    half = engine.margin(device.type) >= WIDE_MARGIN or any(x.element_size() < 4 for x in leaves)
    close = HALF_ROOM if half else 1e-3
    size = max([1.0, *(largest(x) for x in leaves)])
    worst = 0.0
    for turn in range(tries):
        exchange = Exchange(count, coins, KINDS[turn % len(KINDS)], device)
        seed = int(coins.integers(2**31))

        def run(change: Any, exchange: Exchange = exchange, seed: int = seed) -> list[Tensor]:
            own = of_rows(loss, change, exchange, engine.given)
            out, goals = tree_map(lambda x: _leaf(x, change), (output, targets))
            ends = [x for x in tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad]
            with kept(loss), same_random_numbers(device, seed), torch.enable_grad():
                losses = own(out, *goals)
                turned = slopes(losses.sum(), ends)
            found = [losses.detach(), *[g for g in turned if g is not None]]
            return [x[exchange.staying] for x in found]

        try:
            one, again, other = run(None), run(None), run(exchange.put)
        except Refused:
            raise
        except Exception:
            continue  # the rows put in do not suit this loss
        pairs = zip(one, other, strict=False)
        worst = max(worst, *(apart_by(a, b, close, size) for a, b in pairs))
        if any(apart_by(a, b, close, size) > 1 for a, b in zip(one, again, strict=True)):
            raise Refused(
                "the loss gives other numbers for the same outputs: it remembers what it has seen, "
                "or draws random numbers that torch does not know of."
            )
    return worst


def largest(x: Tensor) -> float:
    """Of the finite numbers, by their size."""
    finite = x.detach()[x.detach().isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _leaf(x: Any, change: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    found = x.detach() if change is None else change(x).detach()
    return found.requires_grad_(x.requires_grad)


def apart_by(a: Tensor, b: Tensor, close: float, size: float) -> float:
    """How far numbers are from what they were, above one if by more than rounding: a share of the
    largest of them, and what is lost in numbers of the size of the outputs."""
    if a.shape != b.shape:
        return math.inf
    lost = 64 * size * torch.finfo(a.dtype).eps if a.is_floating_point() else 0.0
    a, b = a.double(), b.double()
    right = a.isfinite()
    if not bool(right.any()):
        return 0.0
    a, b = torch.where(right, a, 0.0), torch.where(right, b, 0.0)
    if not bool(b.isfinite().all()):
        return math.inf
    return float((a - b).abs().max() / (close * a.abs().max() + lost + 1e-300))
