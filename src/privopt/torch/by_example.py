"""Parts of a model that no rule knows: run example by example, on copies of their parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from privopt.privacy.budget import Refused


@dataclass
class Part:
    """A part of the model that is run example by example, on copies of its parameters.

    Layers with a rule inside of it are recorded there, and their parameters are ``covered``: they
    are copied only if the part cannot be mapped over examples.
    """

    name: str
    module: nn.Module
    batched: tuple[bool, ...] | None = None  # which tensors among its arguments; None: all
    copies: list[dict[str, Tensor]] = field(default_factory=list)
    one_by_one: bool = False
    covered: set[int] = field(default_factory=set)

    def trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def own(self) -> dict[str, nn.Parameter]:
        """Those that are no layer's."""
        return {name: p for name, p in self.trained().items() if id(p) not in self.covered}

    def parameters(self) -> list[nn.Parameter]:
        return list(self.own().values())

    @property
    def slow(self) -> bool:
        """Whether most of it is copied: not a table or a scale beside layers with rules."""
        numbers = [
            sum(p.numel() for p in many) for many in (self.parameters(), self.trained().values())
        ]
        return self.one_by_one or 2 * numbers[0] > numbers[1]

    def made(self, count: int) -> dict[str, Tensor]:
        """Copies for each example."""
        copied = self.trained() if self.one_by_one else self.own()
        return {
            name: p.detach().expand(count, *p.shape).requires_grad_() for name, p in copied.items()
        }

    def manner(self) -> tuple[Any, ...]:
        return "by example", self.batched, len(self.parameters())


def by_example(
    part: Part,
    forward: Callable[..., Any],
    count: int,
    recorder: Any,
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
            with own_weights(part.module):
                copies, found = _mapped(part, one, [leaves[i] for i in chosen], count, recorder)
        finally:
            inside = False
        columns = iter(found)
        if not recorder.second:
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
    """Recurrent layers keep a second list of their weights, and copies would stay in it; what is
    checkpointed inside would run again where examples are no longer apart."""
    names = ("_flat_weights", "_flat_weight_refs", CHECKPOINTED)
    held = [
        (m, {name: vars(m)[name] for name in names if name in vars(m)}) for m in module.modules()
    ]
    held = [(m, own) for m, own in held if own]
    for m, own in held:
        if CHECKPOINTED in own:
            vars(m)[CHECKPOINTED] = False
    try:
        yield
    finally:
        for m, own in held:
            vars(m).update(own)


CHECKPOINTED = "gradient_checkpointing"
"""How layers of transformers are told to keep no activations."""
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
    rows: list[Tensor],
    count: int,
    recorder: Any,
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Copies, and outputs of all examples."""
    if not part.one_by_one:
        copies, marks = part.made(count), recorder.marks()

        def apart(copies: dict[str, Tensor], rows: list[Tensor]) -> list[Tensor]:
            with recorder.apart(count):  # layers with a rule are recorded here
                return one(copies, rows)

        try:
            # Of the kernels of attention, only this one can be vectorised everywhere.
            with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")
                return copies, torch.func.vmap(apart, randomness="different")(copies, rows)
        except (RuntimeError, NotImplementedError, ValueError):
            recorder.back_to(marks)
            part.one_by_one = True
    copies = part.made(count)
    with recorder.paused():  # layers inside are those of the copies
        outputs = [
            one({name: copy[i] for name, copy in copies.items()}, [row[i] for row in rows])
            for i in range(count)
        ]
    return copies, [torch.stack(column) for column in zip(*outputs, strict=True)]
