"""A model on made-up inputs of the right shapes: how it treats examples, before any data is seen.

It must not mix examples, neither forward nor backward, nor remember them. No answer depends on
data, and the model is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from privopt.noise.random_numbers import luck, same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.belongings import Belongings, attributes_kept
from privopt.torch.by_example import Part
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.exchange import kept
from privopt.torch.gradients import slopes
from privopt.torch.made_up import called, made_up, skeleton, with_other
from privopt.torch.recording import without_caches
from privopt.torch.rounding import WIDE_MARGIN
from privopt.torch.seen import Seen, differ, kept_modes, length, run, title, unlike
from privopt.torch.units import Layer, edges_of

SIZES = (3, 5)
"""Two batch sizes: what grows from one to the other is a batch dimension, whatever its length."""
SCALES = ((1.0, 4), (0.02, 3), (30.0, 5), (1.0, 16))
"""Sizes of made-up numbers and of batches that are tried further."""
Restore = Callable[[], None]
ROUNDS = 12
"""How often modules around a layer are tried, from the inside out."""
LUCKY = 32
"""Seeds for a model that draws random numbers: a coin of one in ten shows with 97 percent."""


def probe(engine: Engine, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Settle how the engine treats each part of the model; refuse a model that mixes examples.

    What cannot be settled is run example by example, where nothing can be mixed.
    """
    with kept(engine.model) as reached, without_caches(engine.configs):
        _probe(engine, inputs, keywords, reached.restore)


def _probe(
    engine: Engine, inputs: tuple[Any, ...], keywords: dict[str, Any], restore: Restore
) -> None:
    shapes = tree_map(skeleton, (inputs, keywords))
    first = made_up(shapes, SIZES[0])
    try:
        with attributes_kept(engine.model):  # what the first run leaves behind, the second sees
            small, again = run(engine, first), run(engine, first)
        if differ(small, again, unlike):
            raise Refused(
                "the model gives another output for the same made-up inputs: it remembers what it "
                "has seen, or draws random numbers that torch does not know of."
            )
        restore()  # from here on each try begins as the first one did
        for _ in range(ROUNDS):
            settled = _settle(engine, small, run(engine, made_up(shapes, SIZES[1])))
            if settled is None and _rehearsed(engine, shapes):
                settled = _unmapped(engine)
            if not settled:
                break
            settled()
            restore()
            small = run(engine, first)
        if settled is None and _rehearsed(engine, shapes):
            _check_forward(engine, first, small, restore)
            _check_further(engine, shapes, small.lucky, restore)
            _check_left_out(engine, shapes, small.lucky, restore)
        else:
            engine.run_example_by_example()
        for seed in range(LUCKY // 2):
            if not _check_backward(engine, first, seed, restore):
                break  # without luck, all tries are alike
    except Refused:
        raise
    except Exception:
        engine.run_example_by_example()  # made-up inputs do not suit this model


def check_memory(
    belongings: Belongings, model: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Refuse a model that adds up what it has seen, anywhere it can be reached."""
    made = made_up(tree_map(skeleton, (inputs, keywords)), SIZES[0])

    def run() -> None:
        device = next(model.parameters()).device
        with same_random_numbers(device), torch.no_grad():
            called(model, made)

    try:
        belongings.check_memory(run)
    except Refused:
        raise
    except Exception:
        return  # made-up inputs do not suit this model


def _check_forward(engine: Engine, made: Any, small: Seen, restore: Restore) -> None:
    """Refuse a model in which a row sees another one."""
    size = SIZES[0]
    for row in range(size):
        others = [i for i in range(size) if i != row]

        restore()
        _check_same(small, run(engine, tree_map(with_other(row), made)), size, others)


def _check_same(one: Seen, other: Seen, size: int, rows: list[int]) -> None:
    """Refuse other values in these rows."""

    def depends(a: Tensor, b: Tensor) -> bool:
        return length(a) == size and a.shape == b.shape and unlike(a[rows], b[rows])

    name = differ(one, other, depends)
    if name:
        raise Refused(
            f"{name} sees other examples than its own: a layer before it mixes the "
            "examples of a batch, and clipping cannot bound what one of them moves."
        )


def _check_further(engine: Engine, shapes: Any, lucky: bool, restore: Restore) -> None:
    """The same with numbers and batches of other sizes, and with other luck."""
    for seed in range(LUCKY if lucky else len(SCALES)):
        scale, size = SCALES[seed % len(SCALES)]
        row = seed % size
        others = [i for i in range(size) if i != row]
        made = made_up(shapes, size, scale, seed + 1)
        try:
            restore()
            seen = run(engine, made, seed + 1)
            restore()
            other = run(engine, tree_map(with_other(row, seed), made), seed + 1)
        except Refused:
            raise
        except Exception:
            continue  # such numbers do not suit this model
        _check_same(seen, other, size, others)


def _check_left_out(engine: Engine, shapes: Any, lucky: bool, restore: Restore) -> None:
    """Refuse a model in which rows see how many others there are. Without luck: two batches of
    different sizes draw different numbers."""
    if lucky:
        return
    size, few = SCALES[-1][1], SIZES[1]
    made = made_up(shapes, size)
    cut = tree_map(lambda x: x[:few] if isinstance(x, Tensor) else x, made)
    try:
        restore()
        whole = run(engine, made)
        restore()
        part = run(engine, cut)
    except Refused:
        raise
    except Exception:
        return

    def depends(a: Tensor, b: Tensor) -> bool:
        both = length(a) == size and length(b) == few and a.shape[1:] == b.shape[1:]
        return both and unlike(a[:few], b, 10)

    name = differ(whole, part, depends)
    if name:
        raise Refused(
            f"{name} sees how many examples there are: a layer before it mixes the examples of a "
            "batch, and clipping cannot bound what one of them moves."
        )


def _check_backward(engine: Engine, made: Any, seed: int, restore: Restore) -> bool:
    """Refuse a model in which the gradient of one example moves with the loss of another, by a
    hook or a function with a backward pass of its own. Says whether random numbers were drawn."""
    size, device = SIZES[0], engine.parameters[0].device
    lucky: list[bool] = []
    restore()

    def turn(weights: Tensor) -> tuple[Tensor | None, ...]:
        with same_random_numbers(device, seed):  # hooks may draw some, too
            start = luck(device)
            found = slopes(losses, edges, weights, keep=True)
            lucky.append(luck(device) != start)
            return found

    with kept_modes(engine.model):
        try:
            with (
                same_random_numbers(device, seed),
                torch.enable_grad(),
                engine.recorder.recorded(engine.units, size),
            ):
                start = luck(device)
                losses = _waves(called(engine.model, made), size)
                lucky.append(luck(device) != start)
            names = [unit.name for unit in engine.units for _ in edges_of(unit)]
            edges: list[Any] = [edge for unit in engine.units for edge in edges_of(unit)]
            weights = torch.ones_like(losses).expand(size + 1, size).clone()
            weights[1:] += 2 * torch.eye(size).to(weights)  # another loss for each in turn
            with engine.recorder.again(engine.units, size):
                plain, *turns = [turn(row) for row in weights]
        finally:
            engine.forget()
    for row, found in enumerate(turns):
        others = [i for i in range(size) if i != row]
        for name, a, b in zip(names, plain, found, strict=True):
            if (
                a is not None
                and b is not None
                and unlike(a.reshape(size, -1)[others], b.reshape(size, -1)[others])
            ):
                raise Refused(
                    f"the gradient at {title(name)} depends on the losses of other examples: a "
                    "layer after it mixes them on the way back, and clipping cannot bound what "
                    "one of them moves."
                )
    return any(lucky)


def _rehearsed(engine: Engine, shapes: Any) -> bool:
    """Whether the engine finds the gradient that autograd finds, on made-up inputs."""
    size, model = SIZES[0], engine.model
    args, kwargs = made = made_up(shapes, size)
    device = engine.parameters[0].device
    clip, engine.clip = engine.clip, Clip(1e12)

    def loss(output: Any) -> Tensor:
        return _waves(output, size)

    engine.known.add(engine.mark(loss))
    with kept_modes(model):
        if any(isinstance(unit, Part) for unit in engine.units):
            model.eval()  # dropout draws in another order there, and two runs must agree
        try:
            with attributes_kept(model), same_random_numbers(device):
                found = engine.clipped_sum(loss, args, kwargs, (), size)
            with attributes_kept(model), same_random_numbers(device), torch.enable_grad():
                total = loss(called(model, made)).sum()
                whole = slopes(total, engine.parameters)
        except Exception:
            return False
        finally:
            engine.clip = clip
    parts = [
        (torch.zeros_like(p) if g is None else g).flatten().to(found)
        for p, g in zip(engine.parameters, whole, strict=True)
    ]
    expected = torch.cat(parts)
    # Rounding is small, and a call that was missed is not.
    tolerance = 5e-2 if engine.margin(device.type) >= WIDE_MARGIN else 1e-2
    return bool((found - expected).norm() <= tolerance * expected.norm())


def _waves(output: Any, size: int) -> Tensor:
    """A loss for each example that no two outputs enter alike."""
    leaves = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
    flat = torch.cat([x.reshape(size, -1).double() for x in leaves], 1)
    waves = torch.arange(flat.numel(), device=flat.device).mul(0.7).cos()
    return (flat * waves.view_as(flat)).sum(1)


def _settle(engine: Engine, small: Seen, large: Seen) -> Callable[[], None] | None:
    """None if every call can be told apart into examples; else what to try next."""
    stray = small.stray | large.stray
    if stray:
        return partial(engine.copy, stray)
    whole = engine.run_example_by_example
    if len(small.units) != len(large.units):
        return whole
    patterns: dict[int, set[tuple[bool, ...]]] = {}
    unsettled: dict[str, None] = {}
    for unit, one, other in zip(small.units, small.values, large.values, strict=False):
        sizes = [(length(a), length(b)) for a, b in zip(one, other, strict=True)]
        if isinstance(unit, Layer):
            if sizes == [(1, 1)]:
                unit.shared = True
            here = (1, 1) if unit.shared else SIZES
            if any(size != here for size in sizes) or not sizes:
                unsettled[unit.name] = None
            continue
        if any(size != SIZES and size[0] != size[1] for size in sizes):
            unsettled[unit.name] = None
        pattern = tuple(size == SIZES for size in sizes)
        patterns.setdefault(id(unit), set()).add(pattern)
        unit.batched = pattern
        if len(patterns[id(unit)]) > 1 or not any(pattern):
            unsettled[unit.name] = None
    if not unsettled:
        return None
    return whole if "" in unsettled else partial(engine.lift, list(unsettled))


def _unmapped(engine: Engine) -> Callable[[], None] | None:
    """Try the modules around parts that cannot be mapped over examples."""
    parts = [unit for unit in engine.units if isinstance(unit, Part)]
    names = [part.name for part in parts if part.name and _costly(part)]
    return partial(engine.lift, names) if names else None


def _costly(part: Part) -> bool:
    """Whether a part runs one by one although layers in it have rules."""
    return part.one_by_one and len(part.trained()) > len(part.parameters())
