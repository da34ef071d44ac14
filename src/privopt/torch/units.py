"""What a model is cut into: layers whose gradients follow from inputs and output gradients, and
parts that run example by example around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from privopt.torch.by_example import Part
from privopt.torch.experts import holds_experts
from privopt.torch.layers import embedding, rule_for
from privopt.torch.pieces import Piece, Rule
from privopt.torch.recognised import linear


@dataclass
class Call:
    """What one call of a layer leaves behind for the backward pass."""

    input: Tensor
    version: int
    output: GradientEdge
    apart: bool = False  # recorded where examples run apart: each has a dimension of its own
    rule: Any = None  # of this call, if a layer has several


@dataclass
class Layer:
    """A layer with a rule."""

    name: str
    module: nn.Module
    rule: Rule | None
    shared: bool = False  # its input is one row for all examples, such as positions
    inside: bool = False  # its forward hands the weight to a function that has the rule
    experts: bool = False
    calls: list[Call] = field(default_factory=list)

    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.module.parameters(recurse=False) if p.requires_grad]

    def manner(self) -> tuple[Any, ...]:
        return self.rule, self.shared, self.inside

    def pieces(
        self, call: Call, x: Tensor, g: Tensor, count: int
    ) -> list[tuple[Tensor | None, Piece]]:
        """What a call gives to its parameters, with a row for each of ``count`` examples."""
        if call.apart and self.rule is not None and x.dim() > _dimensions(self.module):
            x, g = x.flatten(0, 1), g.flatten(0, 1)  # an example apart is a batch of its rows
        if call.rule is not None:
            found = call.rule(x, g)
        else:
            assert self.rule is not None
            found = self.rule(self.module, x, g)
        if len(x) == count:
            return found
        return [(parameter, piece.folded(len(x) // count)) for parameter, piece in found]


def _dimensions(module: Any) -> float:
    """How many dimensions a layer takes at most that reads them from the front."""
    if isinstance(module, (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)):
        return math.inf
    return len(module.kernel_size) + 2 if hasattr(module, "kernel_size") else 3


Unit = Layer | Part
HOLDERS = (nn.ParameterDict, nn.ParameterList)
"""Modules that are not called: what they hold is the parameters of the module around them."""


def units_of(model: nn.Module) -> list[Unit]:
    """Layers with a rule, and the highest modules with other parameters of their own."""
    units = list(_units("", model, set(), False))
    settle_covered(units)
    return units


def _units(name: str, module: nn.Module, known: set[nn.Module], apart: bool) -> Iterator[Unit]:
    if module in known:
        return  # used in two places: one unit with several calls
    known.add(module)
    holders = (module, *(child for child in module.children() if isinstance(child, HOLDERS)))
    own = [p for m in holders for p in m.parameters(recurse=False) if p.requires_grad]
    layer = _layer(name, module) if own else None
    if layer is not None:
        yield layer
        return
    if own and not apart:
        yield Part(name, module)
    if isinstance(module, nn.MultiheadAttention):
        return  # uses its child's weights itself
    for child_name, child in module.named_children():
        if isinstance(child, HOLDERS):
            continue
        full = f"{name}.{child_name}" if name else child_name
        yield from _units(full, child, known, apart or bool(own))


def _layer(name: str, module: nn.Module) -> Layer | None:
    rule = rule_for(module)
    if rule is not None:
        return Layer(name, module, rule)
    if holds_experts(module):
        return Layer(name, module, None, experts=True)
    own = dict(module.named_parameters(recurse=False))
    if own.keys() != {"weight"} or own["weight"].dim() != 2 or list(module.children()):
        return None
    return Layer(
        name, module, embedding if isinstance(module, nn.Embedding) else linear, inside=True
    )


def settle_covered(units: Iterable[Unit]) -> None:
    """Tell parts which of their parameters are those of layers inside, and need no copies."""
    units = list(units)
    layers = [unit for unit in units if isinstance(unit, Layer)]
    for unit in units:
        if isinstance(unit, Part):
            inner = set(unit.module.modules())
            covered = [p for one in layers if one.module in inner for p in one.parameters()]
            unit.covered = set(map(id, covered))


def plain(units: Iterable[Unit]) -> list[Unit]:
    """Layers of one function each; the others are parts."""
    found: list[Unit] = [
        Part(unit.name, unit.module)
        if isinstance(unit, Layer) and (unit.inside or unit.experts)
        else unit
        for unit in units
    ]
    settle_covered(found)
    return found


def lifted(units: list[Unit], model: nn.Module, names: Iterable[str]) -> list[Unit]:
    """Units with the modules around some of them run example by example: there every call of a
    layer says by itself which of its dimensions are examples."""
    found = list(units)
    for name in names:
        around = _around(model, name)
        module = model.get_submodule(around)
        below = set(module.modules())
        if any(isinstance(u, Part) and module in set(u.module.modules()) for u in found):
            continue
        found = [u for u in found if not (isinstance(u, Part) and u.module in below)]
        found.insert(0, Part(around, module))
    settle_covered(found)
    return found


def _around(model: nn.Module, name: str) -> str:
    """The next module around one that is called itself."""
    while name:
        name = name.rpartition(".")[0]
        if not isinstance(model.get_submodule(name), (nn.ModuleList, nn.ModuleDict)):
            break
    return name


def without_rules(units: list[Unit], model: nn.Module, parameters: set[int]) -> list[Unit]:
    """Units in which these parameters are copied, since something besides their layer uses them."""
    bare = [
        u
        for u in units
        if isinstance(u, Layer) and any(id(p) in parameters for p in u.parameters())
    ]
    found = [u for u in units if not any(u is other for other in bare)]
    homes = [u for u in found if isinstance(u, Part)]
    away = any(id(p) in parameters for home in homes for p in home.parameters())
    if away:  # a part's parameters are used outside of it
        found = [Part("", model), *(u for u in found if isinstance(u, Layer))]
    for unit in bare:
        if not any(unit.module in set(home.module.modules()) for home in homes):
            found = [Part("", model), *(u for u in found if isinstance(u, Layer))]
            break
    settle_covered(found)
    return found


def edges_of(unit: Unit) -> Iterator[Any]:
    if isinstance(unit, Layer):
        for call in unit.calls:
            yield call.output
    else:
        for copies in unit.copies:
            yield from copies.values()


def joined(groups: list[set[nn.Parameter]]) -> list[set[nn.Parameter]]:
    """Layers as clipping groups; layers that share a parameter are one group."""
    found: list[set[nn.Parameter]] = []
    for group in groups:
        touching = [other for other in found if other & group]
        found = [other for other in found if not other & group]
        found.append(group.union(*touching))
    return found
