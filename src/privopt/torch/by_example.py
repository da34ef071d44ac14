"""Parts of a model that no rule knows: run example by example, on copies of their parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from privopt.privacy.budget import Refused


@dataclass
class Part:
    """A part of the model that is run example by example, on copies of its parameters."""

    name: str
    module: nn.Module
    batched: tuple[bool, ...] | None = None  # which tensors among its arguments; None: all
    copies: list[dict[str, Tensor]] = field(default_factory=list)
    one_by_one: bool = False

    def trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def parameters(self) -> list[nn.Parameter]:
        return list(self.trained().values())

    def manner(self) -> tuple[Any, ...]:
        return "by example", self.batched


def by_example(
    part: Part,
    forward: Callable[..., Any],
    count: int,
    unrecorded: Callable[[], AbstractContextManager[None]],
) -> Callable[..., Any]:
    """The forward of a part of the model, with own copies of the parameters for each example."""
    inside = False

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return forward(*args, **kwargs)
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        batched = part.batched or (True,) * len(places)
        chosen = [i for i, taken in zip(places, batched, strict=True) if taken]
        for i in chosen:
            if leaves[i].dim() == 0 or len(leaves[i]) != count:
                raise Refused(
                    f"{part.name or 'the model'!r} is given a tensor that does not hold one row "
                    "for each example."
                )
        if not part.name:
            _check_given(args, kwargs)
        copies = {
            name: p.detach().expand(count, *p.shape).requires_grad_()
            for name, p in part.trained().items()
        }

        def one(parameters: dict[str, Tensor], rows: list[Tensor]) -> Any:
            own = list(leaves)
            for i, row in zip(chosen, rows, strict=True):
                own[i] = row.unsqueeze(0)
            args, kwargs = tree_unflatten(own, spec)
            found = torch.func.functional_call(part.module, parameters, args, kwargs)
            results[:], spec_out = tree_flatten(found)
            shape[:] = [spec_out]
            return [x.squeeze(0) for x in results if isinstance(x, Tensor)]

        results: list[Any] = []
        shape: list[Any] = []
        inside = True
        try:
            with unrecorded(), own_weights(part.module):  # layers inside belong to this part
                columns = iter(_mapped(part, one, copies, [leaves[i] for i in chosen], count))
        finally:
            inside = False
        part.copies.append(copies)
        if not any(isinstance(x, Tensor) for x in results):
            raise Refused(
                "the model runs example by example, and its output holds no tensor that torch "
                "finds: return tensors, or tuples, lists and dictionaries of them."
            )
        # An object of another kind would be that of the last example.
        found = [next(columns) if isinstance(x, Tensor) else _plain(x) for x in results]
        return tree_unflatten(found, shape[0])

    return run


@contextmanager
def own_weights(module: nn.Module) -> Iterator[None]:
    """Recurrent layers keep a second list of their weights, and copies would stay in it."""
    names = ("_flat_weights", "_flat_weight_refs")
    inner = [m for m in module.modules() if isinstance(m, nn.RNNBase)]
    before = [{name: vars(m)[name] for name in names if name in vars(m)} for m in inner]
    try:
        yield
    finally:
        for m, held in zip(inner, before, strict=True):
            vars(m).update(held)


PLAIN = (bool, int, float, str, torch.dtype, torch.device, type(None))


def _check_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse what cannot be cut into examples: each would see the whole batch."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, PLAIN):
            continue  # a setting
        if any(not isinstance(x, Tensor) and x is not None for x in tree_leaves(value)):
            raise Refused(
                "the model runs example by example, so everything that holds examples must be a "
                f"tensor with one row for each; it is given a {type(value).__name__}."
            )
    if not any(isinstance(x, Tensor) for x in tree_leaves((args, kwargs))):
        raise Refused("the model is given no tensor with one row for each example.")


def _plain(value: Any) -> Any:
    return value if isinstance(value, PLAIN) else None


def _mapped(
    part: Part,
    one: Callable[[dict[str, Tensor], list[Tensor]], list[Tensor]],
    copies: dict[str, Tensor],
    rows: list[Tensor],
    count: int,
) -> list[Tensor]:
    if not part.one_by_one:
        try:
            # Of the kernels of attention, only this one can be vectorised everywhere.
            with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")
                return torch.func.vmap(one, randomness="different")(copies, rows)
        except (RuntimeError, NotImplementedError, ValueError):
            part.one_by_one = True
    outputs = [
        one({name: copy[i] for name, copy in copies.items()}, [row[i] for row in rows])
        for i in range(count)
    ]
    return [torch.stack(column) for column in zip(*outputs, strict=True)]
