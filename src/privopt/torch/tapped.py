"""Inputs of layers, and gradients of their outputs, of a function that sees one example.

To the output of each call of a layer with a rule a tap is added, a zero that is each example's own:
the gradient at the tap is that of the output. Under ``torch.func.vmap`` it is of the example's loss
alone, whatever the code does, and so is the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from privopt.torch.by_example import Part
from privopt.torch.units import Call, Layer, Unit

OTHERS = "a layer is called in another way than on made-up inputs."
SPATIAL = (_ConvNd, nn.GroupNorm)
"""Layers whose rules need to know which dimension is the channels'."""
Hear = Callable[[Layer, Tensor, Tensor], Tensor]


@dataclass
class Outline:
    """Calls of layers with a rule, in their order; and the parameters that no rule covers."""

    units: Sequence[Unit]
    own: dict[str, nn.Parameter]
    calls: list[tuple[torch.Size, torch.dtype, torch.device]]

    @classmethod
    def of(
        cls, units: Sequence[Unit], own: dict[str, nn.Parameter], run: Callable[[], Any]
    ) -> Outline:
        """From a run on any example."""
        calls: list[Any] = []

        def hear(layer: Layer, x: Tensor, output: Tensor) -> Tensor:
            calls.append((output.shape, output.dtype, output.device))
            return output

        with _heard(units, hear), torch.no_grad():
            run()
        return cls(units, own, calls)


def parted(units: Sequence[Unit]) -> list[Unit]:
    """Units of which no rule covers a parameter that another one's part has as well: it would count
    twice."""
    units = list(units)
    while True:
        own = {p for unit in units if isinstance(unit, Part) for p in unit.parameters()}
        both = [unit for unit in units if isinstance(unit, Layer) and own & {*unit.parameters()}]
        if not both:
            return units
        units = [Part(unit.name, unit.module) if unit in both else unit for unit in units]


def own_parameters(
    units: Sequence[Unit], trained: dict[str, nn.Parameter]
) -> dict[str, nn.Parameter]:
    """Trained parameters of parts without a rule, by their names in the model, each once."""
    own = {p for unit in units if isinstance(unit, Part) for p in unit.parameters()}
    return {name: p for name, p in trained.items() if p in own}


def tapped(
    one: Callable[[dict[str, Tensor], list[Tensor]], Tensor],
    outline: Outline,
    trained: dict[str, nn.Parameter],
    rows: list[Tensor],
) -> list[Tensor | None]:
    """Gradients of outputs and of other parameters, for each example, in the order of the units;
    the layers' inputs are left with them."""
    count = len(rows[0])
    fixed = {name: p.detach() for name, p in trained.items() if name not in outline.own}
    own = {name: p.detach() for name, p in outline.own.items()}
    taps = [
        torch.zeros((), dtype=dtype, device=device).expand(count, *shape)
        for shape, dtype, device in outline.calls
    ]
    layers: list[Layer] = []

    def value(taps: list[Tensor], own: dict[str, Tensor], rows: list[Tensor]) -> Any:
        inputs: list[Tensor] = []
        layers.clear()

        def hear(layer: Layer, x: Tensor, output: Tensor) -> Tensor:
            i = len(inputs)
            if i >= len(taps) or taps[i].shape != output.shape or taps[i].dtype != output.dtype:
                raise ValueError(OTHERS)
            if len(x) != 1 and isinstance(layer.module, SPATIAL):
                raise ValueError(OTHERS)
            layers.append(layer)
            inputs.append(x)
            return output + taps[i]

        with _heard(outline.units, hear):
            found = one({**fixed, **own}, rows)
        if len(inputs) != len(taps):
            raise ValueError(OTHERS)
        return found, inputs

    slopes = torch.func.grad(value, argnums=(0, 1), has_aux=True)
    (outputs, parts), inputs = torch.func.vmap(slopes, (0, None, 0), randomness="different")(
        taps, own, rows
    )
    gradients: dict[int, list[Tensor | None]] = {id(layer): [] for layer in layers}
    for layer, x, gradient in zip(layers, inputs, outputs, strict=True):
        x, gradient = _without_one(x), _without_one(gradient)
        layer.calls.append(Call(x, x._version, None))  # type: ignore[arg-type]
        gradients[id(layer)].append(gradient)
    found: list[Tensor | None] = []
    left = {p: parts[name] for name, p in outline.own.items()}
    for unit in outline.units:
        if isinstance(unit, Layer):
            found += gradients.get(id(unit), [])
        else:
            own = unit.own()
            unit.copies.append(dict.fromkeys(own))  # type: ignore[arg-type]
            found += [left.pop(p, None) for p in own.values()]  # the whole gradient, once
    return found


def _without_one(x: Tensor) -> Tensor:
    """Without the dimension of a batch of one, if that is what the layer was given."""
    return x.squeeze(1) if x.dim() > 1 and x.shape[1] == 1 else x


@contextmanager
def _heard(units: Sequence[Unit], hear: Hear) -> Iterator[None]:
    """Calls of layers are heard, and their outputs are what is answered."""

    def hook(layer: Layer) -> Callable[..., Tensor]:
        return lambda module, args, kwargs, output: hear(
            layer, args[0] if args else kwargs["input"], output
        )

    layers = [unit for unit in units if isinstance(unit, Layer)]
    hooks = [one.module.register_forward_hook(hook(one), with_kwargs=True) for one in layers]
    try:
        yield
    finally:
        for one in hooks:
            one.remove()
