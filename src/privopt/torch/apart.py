"""Every example by itself: model and loss see one record at a time, so that no code can mix them.

The sum of clipped gradients is the engine's; only what it is made of is found in another way: by
``torch.func.vmap`` over a function of one record, its target and the parameters, or in a loop.
Inside it, layers with a rule hand over their inputs and the gradients of their outputs
(``tapped``), which are of that record alone; other parameters get a gradient for each example.
Whatever a rule makes of them is clipped, so that what one record moves does not rest on the rule;
that it is the gradient is tried on made-up inputs.

Random numbers are drawn for each example. The loss sees nothing but its own row: tensors from
outside are refused, but for parameters and buffers of modules, and so is whatever keeps something
of an example for the next.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from privopt.noise.random_numbers import same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.belongings import attributes_kept
from privopt.torch.by_example import Part, _check_given, own_weights
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.gradients import slopes
from privopt.torch.losses import BY_ITSELF, LossFunction, check_count
from privopt.torch.made_up import made_up, skeleton
from privopt.torch.reachable import COUNTED, Reachable
from privopt.torch.rounding import WIDE_MARGIN
from privopt.torch.structure import same_buffers
from privopt.torch.tapped import Outline, own_parameters, parted, tapped
from privopt.torch.units import plain

OUTSIDE = (
    'examples="apart" computes each loss from one example, and this loss holds a tensor from '
    "outside: hand what belongs to examples to step as targets=..., and keep public constants in "
    'buffers of a module, as nn.CrossEntropyLoss(weight, reduction="none") does.'
)
KEEPS = (
    "the model or the loss keeps something of an example, which the next one would see: return it, "
    "or drop it."
)
NUMBERS = 2**26
"""Coordinates of all gradients that are there at a time, for memory; more where there is more."""
FAILS = (RuntimeError, NotImplementedError, ValueError)
"""What ``vmap`` raises where it has no rule for an operation."""
Function = Callable[[dict[str, Tensor], list[Tensor]], Tensor]


class Apart:
    """``Engine.clipped_sum``, by construction of one example at a time."""

    _together: int | None = None  # how many examples are shown together

    def __init__(self, engine: Engine) -> None:
        self._engine, self._whole = engine, Part("", engine.model)
        self._trained = self._whole.trained()
        self._units = parted(plain(engine.units))
        self._model = Reachable(engine.model)
        self._outlines: dict[Any, Outline | None] = {}  # for each way in which the model is called
        self._one_by_one = False

    def clipped_sum(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
    ) -> Tensor:
        """The sum of the clipped gradients of ``count`` examples, flat."""
        engine = self._engine
        _check_given((*inputs, *targets), keywords)
        check_sight(reached := Reachable(loss, engine.model))
        given = inputs, keywords, targets
        leaves, _ = tree_flatten(given)
        rows = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._look_at_model()
        with self._nothing_left(reached):
            outline = self._outline(given, rows)
            one = _of_one(engine.model, self._own(loss), given, self._together)
            engine.units = [self._whole] if outline is None else self._units
            return self._sum(one, *self._cut(rows, count), outline)

    def _own(self, loss: LossFunction) -> LossFunction:
        """A loss that is refused if it uses a trained parameter itself: it would be no gradient."""
        trained = {id(p) for p in self._trained.values()}

        def run(*given: Any) -> Tensor:
            with _WithoutParameters(trained):
                return loss(*given)

        return run

    def _cut(self, rows: list[Tensor], count: int) -> tuple[list[Tensor], int]:
        """What is shown one by one, and how much of it there is."""
        return rows, count

    def _sum(
        self, one: Function, rows: list[Tensor], count: int, outline: Outline | None
    ) -> Tensor:
        engine = self._engine
        total, device = engine.like(), engine.parameters[0].device
        self._losses: list[Tensor] = []
        room, size = engine.margin(device.type), self._at_a_time(outline, count)
        for start in range(0, count, size):
            few = [row[start : start + size] for row in rows]
            try:
                with own_weights(engine.model):
                    found = self._gradients(one, few, outline)
                with torch.no_grad(), torch.autocast(device.type, enabled=False):
                    sums, _ = engine._sums(iter(found), min(size, count - start), room, None)
            finally:
                engine.forget()
                self._whole.copies.clear()
            total += torch.cat(sums)
        if self._together and len(self._losses):  # of users, the mean over their rows
            engine.losses = torch.cat(self._losses) / rows[-1].sum(dim=1)
        return total

    def _at_a_time(self, outline: Outline | None, count: int) -> int:
        """Examples whose gradients are there at a time."""
        trained = self._trained.values() if outline is None else outline.own.values()
        each = sum(p.numel() for p in trained)
        device, most = self._engine.parameters[0].device, NUMBERS
        if device.type == "cuda":
            most = max(most, torch.cuda.mem_get_info(device)[0] // 16)
        return max(1, min(count, most // each if each else count))

    def _gradients(
        self, one: Function, rows: list[Tensor], outline: Outline | None
    ) -> list[Tensor | None]:
        """What the engine's sums are made of, for its units in turn."""
        if outline is not None and not self._one_by_one:
            try:
                with _vectorised():
                    return tapped(one, outline, self._trained, rows)
            except FAILS:
                self._engine.forget()
                self._engine.units = [self._whole]
                for way in self._outlines:
                    self._outlines[way] = None
        parameters = {name: p.detach() for name, p in self._trained.items()}
        found = self._mapped(one, parameters, rows)
        self._whole.copies.append(parameters)
        return [found[name] for name in self._trained]

    # ------------------------------------------------------------ layers with a rule
    def _outline(self, given: Any, rows: list[Tensor]) -> Outline | None:
        """Which layers are called, and how; None if the model runs on copies of its parameters."""
        engine = self._engine
        if self._one_by_one or not len(rows[0]):
            return None
        way = (
            (engine.structure, engine.structure.modes()),
            tuple([(row.shape[1:], row.dtype) for row in rows]),
            torch.is_autocast_enabled(rows[0].device.type),
        )
        if way not in self._outlines:
            self._outlines[way] = self._tried(given)
        return self._outlines[way]

    def _tried(self, given: Any) -> Outline | None:
        """An outline of the model by which its gradients on made-up inputs come out right."""
        engine, (inputs, keywords, _) = self._engine, given
        made = (*made_up(tree_map(skeleton, (inputs, keywords)), 3), ())
        rows = [x for x in tree_leaves(made) if isinstance(x, Tensor)]
        one = _of_one(engine.model, _waves, made)
        own = own_parameters(self._units, self._trained)
        clip, engine.clip = engine.clip, Clip(1e12)
        device = engine.parameters[0].device
        sums: list[Tensor] = []

        def first() -> Tensor:
            return one(dict(self._trained), [row[0] for row in rows])

        try:
            with attributes_kept(engine.model), same_random_numbers(device):
                outline = Outline.of(self._units, own, first)
            for found in (outline, None):
                engine.units = [self._whole] if found is None else self._units
                with attributes_kept(engine.model), same_random_numbers(device):
                    sums.append(self._sum(one, rows, 3, found))
        except Exception:
            return None  # made-up inputs do not suit this model
        finally:
            engine.clip = clip
            engine.forget()
        close, dust = (5e-2, 1e-3) if engine.margin(device.type) >= WIDE_MARGIN else (1e-2, 1e-5)
        sizes = [p.numel() for p in engine.parameters]
        apart, whole = (
            torch.stack([x.norm() for x in s.split(sizes)]) for s in (sums[0] - sums[1], sums[1])
        )
        right = apart <= close * whole + dust * whole.norm()  # for each parameter by itself
        return outline if bool(right.all()) and not self._one_by_one else None

    # ------------------------------------------------------------ nothing is kept
    def _look_at_model(self) -> None:
        """Another flag, mode or function in the model: it may call its layers in another way."""
        if not self._model.untouched():
            if not self._model.only(COUNTED):
                self._outlines.clear()
            self._model = Reachable(self._engine.model)

    @contextmanager
    def _nothing_left(self, loss: Reachable) -> Iterator[None]:
        """Inside, examples are run; refuses what keeps anything of them."""
        model = self._engine.model
        buffers = self._engine.structure.buffers(True)
        attributes = [(module, dict(vars(module))) for module in model.modules()]
        yield
        same = all(
            before.untouched() or (not self._one_by_one and before.only(COUNTED))
            for before in (loss, self._model)
        )
        if not same or not same_buffers(buffers, self._engine.structure.buffers(False)):
            for module, held in attributes:
                vars(module).clear()
                vars(module).update(held)
            with torch.no_grad():
                for buffer, _, value in buffers:
                    buffer.copy_(value)  # type: ignore[arg-type]
            raise Refused(KEEPS)

    def _mapped(
        self, one: Function, parameters: dict[str, Tensor], rows: list[Tensor]
    ) -> dict[str, Tensor]:
        if not self._one_by_one and not _own_rules(torch.autograd.Function):
            try:
                with _vectorised():
                    slope = torch.func.grad_and_value(one)
                    found, losses = torch.func.vmap(slope, (None, 0), randomness="different")(
                        parameters, rows
                    )
                self._losses.append(losses.detach())
                return found
            except FAILS:
                pass
        self._one_by_one = True
        names = list(parameters)
        columns: list[list[Tensor]] = []
        for i in range(len(rows[0])):
            own = {name: p.detach().requires_grad_() for name, p in parameters.items()}
            with torch.enable_grad():
                value = one(own, [row[i] for row in rows])
            self._losses.append(value.detach().reshape(1))
            if not value.requires_grad:
                raise Refused("the loss has no gradient: it does not depend on the parameters.")
            found = slopes(value, [own[name] for name in names])
            pairs = zip(found, names, strict=True)
            columns.append([torch.zeros_like(own[n]) if g is None else g for g, n in pairs])
        stacked = [torch.stack(column) for column in zip(*columns, strict=True)]
        return dict(zip(names, stacked, strict=True))


class _WithoutParameters(TorchFunctionMode):
    """Refuses operations on some parameters; their sizes, and their numbers as such, are free."""

    def __init__(self, parameters: set[int]) -> None:
        super().__init__()
        self._parameters = parameters

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if not isinstance(found, Tensor) or func in CONSTANT:
            return found
        if any(id(leaf) in self._parameters for leaf in tree_leaves((args, kwargs))):
            raise Refused(BY_ITSELF)
        return found


CONSTANT = (Tensor.detach, Tensor.data.__get__)  # type: ignore[attr-defined]
"""Of a parameter, these are numbers without a gradient."""


def _of_one(
    model: nn.Module, loss: LossFunction, given: Any, together: int | None = None
) -> Function:
    """The loss of one example, as a function of parameters and of its rows; or of some examples
    together, with a weight for each behind their rows."""
    leaves, spec = tree_flatten(given)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    names = {p: name for name, p in model.named_parameters()}
    # A parameter may have several places, and a module several names: each place once.
    held = [
        (f"{path}.{name}" if path else name, names[p])
        for path, module in model.named_modules()
        for name, p in module._parameters.items()
        if p is not None
    ]

    def one(parameters: dict[str, Tensor], rows: list[Tensor]) -> Tensor:
        own = list(leaves)
        for i, row in zip(places, rows, strict=not together):
            own[i] = row if together else row.unsqueeze(0)
        args, kwargs, goals = tree_unflatten(own, spec)
        given = {place: parameters[name] for place, name in held if name in parameters}
        output = torch.func.functional_call(model, given, args, kwargs, tie_weights=False)
        losses = loss(output, *goals)
        check_count(losses, together or 1, gradient=False)
        return (losses * rows[-1]).sum() if together else losses[0]

    return one


def _waves(output: Any) -> Tensor:
    """A loss of one example that no two of its outputs enter alike."""
    leaves = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.is_floating_point()]
    flat = torch.cat([x.reshape(-1).double() for x in leaves])
    return (flat * torch.arange(len(flat), device=flat.device).mul(0.7).cos()).sum()[None]


@contextmanager
def _vectorised() -> Iterator[None]:
    # Of the kernels of attention, only this one can be vectorised everywhere.
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield


def check_sight(reached: Reachable) -> None:
    """Refuse a loss that gets at tensors which are no parameters or buffers of a module."""
    things = reached.met()
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    own = {id(t) for m in modules for t in (*m._parameters.values(), *m._buffers.values())}
    for thing in things:
        if isinstance(thing, (Tensor, np.ndarray)) and thing.ndim and id(thing) not in own:
            raise Refused(OUTSIDE)


def _own_rules(kind: type) -> bool:
    """Whether somebody has written a rule for ``vmap``, which sees all examples at once."""
    base = torch.autograd.Function
    for below in kind.__subclasses__():
        of_torch = below.__module__.partition(".")[0] == "torch"
        if (not of_torch and below.vmap is not base.vmap) or _own_rules(below):
            return True
    return False
