"""The user's loss: one number for each example, of that example alone, by way of the layers alone.

Looked at when a loss is new. What follows from gradients is exact: with a weight for each loss, the
gradient at a layer has to take each row by the weight of its own example. Weights are powers of
two, so that rounding does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.utils._pytree import tree_leaves, tree_map

from privopt.noise.random_numbers import luck, same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.exchange import apart_by, kept, largest, loss_moves
from privopt.torch.gradients import slopes

LossFunction = Callable[..., Tensor]

MIXED = (
    "the loss of one example depends on others: clipping cannot bound what one of them moves. Use "
    "a loss that is computed example by example."
)
BY_ITSELF = (
    "the loss uses a parameter of the model by itself, which no clip covers: a penalty on weights "
    "is free as the optimizer's weight_decay."
)
CLOSE = 1e-3
HALF_CLOSE = 3e-2
LOST = 32 * 2.0**-24
"""Half precision has nothing between zero and 2^-24."""
TRIES = 9
"""Exchanges of a loss that is looked at; each draws other random numbers."""
DIGIT = 3
"""Bits of an example's number that choose its weight, at a time."""


class Same:
    """An object in a key: equal to itself alone, and kept alive, so that no other gets its name."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def identity(loss: LossFunction) -> Any:
    """What a function computes: a lambda is a new object in every step, and still the same."""
    if isinstance(loss, MethodType):
        return Same(loss.__self__), identity(loss.__func__)
    if not hasattr(loss, "__code__"):
        return Same(loss)
    cells = [cell.cell_contents for cell in loss.__closure__ or ()]
    values = [x if isinstance(x, (int, float, str)) else Same(x) for x in cells]
    return loss.__code__, tuple(values), repr((loss.__defaults__, loss.__kwdefaults__))


def check_count(losses: object, count: int, gradient: bool = True) -> None:
    """One number for each example, with a gradient. How many there are is secret under sampling."""
    if not isinstance(losses, Tensor) or losses.shape != (count,):
        raise Refused(
            'the loss must be one number for each example of the batch: use reduction="none", and '
            "average within an example only."
        )
    if gradient and not losses.requires_grad:
        raise Refused("the loss has no gradient: it does not depend on the model's parameters.")


def check_rows(losses: Tensor, edges: Sequence[Any], half: bool = False) -> None:
    """Refuse a loss in which one example's value moves with what another one's layers gave.

    Examples whose numbers differ have different weights in one of the rounds. In half precision
    weights are one and two: a larger factor would bring back what was too small for a number.
    """
    count, digit = len(losses), 1 if half else DIGIT
    if count < 2 or not edges:
        return

    def gradients(weights: Tensor) -> Iterable[Tensor | None]:
        return slopes(losses, edges, weights, keep=True)

    plain = gradients(torch.ones_like(losses))
    numbers = torch.arange(count, device=losses.device)
    for low in range(0, (count - 1).bit_length(), digit):
        weights = torch.exp2(((numbers >> low) % (1 << digit)).to(losses.dtype))
        for one, other in zip(plain, gradients(weights), strict=True):
            if one is not None and other is not None and _moved(one, other, weights, half):
                raise Refused(MIXED)


def _moved(one: Tensor, other: Tensor, weights: Tensor, half: bool) -> bool:
    """Whether a row has changed by more than its weight. What is not finite is dropped later."""
    if not one.numel():
        return False
    info = torch.finfo(one.dtype)
    least = 8 * info.tiny * info.eps * float(weights.max())  # below it, scaling is not exact
    one, other = (x.reshape(len(weights), -1).double() for x in (one, other))
    expected = one * weights[:, None].double()
    finite = expected.isfinite() & other.isfinite()
    expected, other = (torch.where(finite, x, 0.0) for x in (expected, other))
    largest = torch.linalg.vector_norm(expected, torch.inf, dim=1)
    moved = torch.linalg.vector_norm(other - expected, torch.inf, dim=1)
    if half:  # numbers on the way may have been lost, which has no upper bound here
        least += CLOSE * float(largest.max()) + LOST
    return bool((moved > (HALF_CLOSE if half else CLOSE) * largest + least).any())


def check_half(loss: LossFunction, losses: Tensor, output: Any, targets: tuple[Any, ...]) -> None:
    """Refuse a loss that sees how many examples there are.

    Half of the examples must get the losses they have among all of them. A loss that draws random
    numbers, or that cannot be cut, is not judged.
    """
    count = len(losses)
    given = [x for x in tree_leaves((output, targets)) if isinstance(x, Tensor)]
    if count < 2 or not tree_leaves(targets) or any(not x.dim() or len(x) != count for x in given):
        return

    def part(stop: int) -> Tensor:
        cut = tree_map(lambda x: x[:stop] if isinstance(x, Tensor) else x, (output, targets))
        with kept(loss), same_random_numbers(losses.device):
            start = luck(losses.device)
            found = loss(cut[0], *cut[1])
            lucky.append(luck(losses.device) != start)
        return found

    lucky: list[bool] = []
    half = count // 2
    with torch.no_grad():
        try:
            again, few = part(count), part(half)
        except Exception:
            return
    if any(lucky):
        return
    size = max([1.0, *(largest(x) for x in given if x.is_floating_point())])
    if apart_by(losses.detach(), again, CLOSE, size) > 1 or few.shape != (half,):
        return
    if apart_by(losses.detach()[:half], few, CLOSE, size) > 1:
        raise Refused(MIXED)


def check_exchanged(
    loss: LossFunction, output: Any, targets: tuple[Any, ...], count: int, engine: Any
) -> None:
    """Refuse a loss that sees the batch without a gradient: its classes, its median, its weights.

    With other examples in the place of some, the rest must keep their losses and slopes.
    """
    if loss_moves(loss, output, targets, count, engine, TRIES) > 1:
        raise Refused(MIXED)


def uses_by_itself(losses: Tensor, edges: Sequence[Any], trained: Sequence[nn.Parameter]) -> bool:
    """Whether a trained parameter is reached on a way that no recorded call is on."""
    passed, _ = _history(losses, _nodes(edges))
    ids = {id(parameter) for parameter in trained}
    return any(id(getattr(node, "variable", None)) in ids for node in passed)


def border(losses: Tensor, edges: Sequence[Any], output: Any) -> list[Any]:
    """The places that the losses see first, of the output and of what was recorded: a backward
    pass to them leaves the model out."""
    outputs = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
    ends = _nodes(edges) | {x.grad_fn for x in outputs}
    passed, met = _history(losses, ends)
    copies = {id(getattr(node, "variable", None)) for node in passed}
    seen = [
        edge
        for edge in edges
        if (edge.node in met if isinstance(edge, GradientEdge) else id(edge) in copies)
    ]
    return seen + [x for x in outputs if x.grad_fn in met]


def check_history(losses: Tensor) -> None:
    """Refuse checkpoints that run their layers without a history: these would get no gradient."""
    passed, _ = _history(losses, set())
    if any(node.name() == "CheckpointFunctionBackward" for node in passed):
        raise Refused("checkpoints with use_reentrant=True hide their layers: use False.")


def _nodes(edges: Sequence[Any]) -> set[Any]:
    return {edge.node for edge in edges if isinstance(edge, GradientEdge)}


def _history(losses: Tensor, ends: set[Any]) -> tuple[set[Any], set[Any]]:
    """All nodes before the losses up to some ends, and the ends that were met."""
    waiting, passed, met = [losses.grad_fn], set(), set()
    while waiting:
        node = waiting.pop()
        if node in ends:
            met.add(node)
        elif node is not None and node not in passed:
            passed.add(node)
            waiting += [before for before, _ in node.next_functions]
    return passed, met
