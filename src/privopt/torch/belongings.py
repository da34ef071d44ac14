"""What a model holds beside its trained parameters, and what leaves with it: frozen parameters,
buffers, plain attributes, what hooks remember. A private step leaves all of it as it was.

A statistic of the examples that is kept anywhere in a model would leave with it, without noise. So
a step is given a model that stays: what is held is noted before it, and put back after it. What a
model was when it was last public, and the noisy gradients since, is then all that it can tell.

Numbers that were written to are noticed by torch's own count of writes, in every step. Writes that
this count does not see (``tensor.data``, some kernels) are noticed by value: in every step for
what is small, and for the rest (and the trained parameters) at steps that nobody can foresee, and
before a certificate is given.
"""

from __future__ import annotations

import collections
import pickle
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privopt.noise.source import fresh_name
from privopt.privacy.budget import Refused
from privopt.torch.contents import Contents

SMALL = 1 << 16
"""Numbers of untrained tensors that are compared in every step, the smallest tensors first."""
LONG = 1 << 12
"""Longer lists are compared at unforeseen steps."""
RARELY = 1 / 32
"""How often a step is looked at closely, beside the first two and the powers of two."""

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
"""What torch itself keeps in a module; parameters, buffers, children and hooks are in it."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
CONTAINERS = (dict, list, set, collections.deque, types.CellType)
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

VERSION = attrgetter("_version")
TRAINED = "a trained parameter"
WRITTEN = (
    "{name} changes when the model runs: what it learns from examples there would leave without "
    "noise. Keep nothing of the examples, freeze it, or make it a trained parameter."
)


class Holder:
    """A container that something may be put into, and what was in it."""

    __slots__ = ("_before", "_content", "_get", "how", "long", "name", "thing", "what")

    def __init__(self, name: str, thing: Any, watched: Sequence[Any] | None = None) -> None:
        self.name, self.thing = name, thing
        self._content = self._all()
        self._get: Callable[[Any], Any] = self._values
        self.how, self.what = _how(thing), thing
        if watched is not None:  # of an object's dictionary, what torch does not keep there itself
            self._get = itemgetter(*watched, "training", "training")
            self.how, self.what = "picked", (self._get, thing)
        self._before = self._get(thing)
        self.long = len(self._before) > LONG

    def _all(self) -> Any:
        thing = self.thing
        return thing.cell_contents if isinstance(thing, types.CellType) else thing.copy()

    @staticmethod
    def _values(thing: Any) -> tuple[Any, ...]:
        if isinstance(thing, types.CellType):
            return (thing.cell_contents,)
        return tuple(thing.values()) if isinstance(thing, dict) else tuple(thing)

    def same(self) -> bool:
        """Whether the same things are in it, under the same names."""
        thing = self.thing
        try:
            now = self._get(thing)
        except (KeyError, ValueError):
            return False  # something has gone
        if not isinstance(thing, types.CellType) and len(thing) != len(self._content):
            return False
        return len(now) == len(self._before) and all(map(is_, now, self._before))

    def put_back(self) -> None:
        thing, content = self.thing, self._content
        if isinstance(thing, types.CellType):
            thing.cell_contents = content
        elif isinstance(thing, list):
            thing[:] = content
        else:
            thing.clear()
            (thing.extend if isinstance(thing, collections.deque) else thing.update)(content)


def _how(thing: Any) -> str:
    """How its contents are read."""
    if isinstance(thing, types.CellType):
        return "cell"
    return "entries" if isinstance(thing, dict) else "set" if isinstance(thing, set) else "items"


class Belongings:
    """Everything a model holds, but for its trained parameters."""

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
        self._model, self._trained = model, list(trained)
        self._steps = 0
        self._walk()
        self._public: Any = None  # the large tensors when they were last public, and their marks
        self._marks: list[int] = []

    def _walk(self) -> None:
        walk = _Walk(self._model, {id(p) for p in self._trained})
        self._holders, self._arrays, self._extra = walk.holders, walk.arrays, walk.extra
        self._often = [holder for holder in walk.holders if not holder.long]
        self._quick = Contents()
        for holder in self._often:
            self._quick.add(holder.how, holder.what)
        tensors = sorted(walk.tensors, key=lambda found: found[1].numel())
        sizes = np.cumsum([tensor.numel() for _, tensor in tensors])
        count = int(np.searchsorted(sizes, SMALL, side="right"))
        self._names = [*(name for name, _ in tensors), *(TRAINED,) * len(self._trained)]
        held = [tensor for _, tensor in tensors]
        self._tensors = [*held, *self._trained]
        self._large, self._groups = held[count:], dict[Any, list[int]]()
        for i, tensor in enumerate(held[:count]):
            self._groups.setdefault((tensor.device, tensor.dtype), []).append(i)

    def _changed(self, look: bool) -> list[Holder]:
        """Containers that hold other things than they did."""
        if not look and self._quick.untouched():
            return []
        return [one for one in (self._holders if look else self._often) if not one.same()]

    def _versions(self) -> list[int]:
        return list(map(VERSION, self._tensors))

    def _standing(self) -> list[tuple[int, int]]:
        return [(id(tensor), tensor._version) for tensor in self._large]

    def _look(self) -> bool:
        """Whether this step is looked at closely: by a coin that no data and no seed turns."""
        n, self._steps = self._steps, self._steps + 1
        return n < 2 or n & (n - 1) == 0 or int(fresh_name()[:4], 16) < RARELY * 0x10000

    @contextmanager
    def kept(self, look: bool | None = None) -> Iterator[None]:
        """Whatever runs inside, the model is afterwards what it was; a write is refused."""
        look = self._look() if look is None else look
        if self._changed(look):
            self._walk()
        before = self._versions()
        if self._public != self._standing():  # written to between steps: by the user, who may
            self._public, self._marks = self._standing(), _marks(self._large)
        values = {
            group: _flat([self._tensors[i] for i in own]) for group, own in self._groups.items()
        }
        arrays = [array.copy() for _, array in self._arrays]
        extra = [_text(module) for _, module in self._extra]
        marks = _marks(self._trained) if look else None
        failed, found = True, list[str]()
        try:
            yield
            failed = False
        finally:
            for holder in self._changed(look):
                holder.put_back()
            changes = zip(self._names, before, self._versions(), strict=True)
            found += [name for name, then, now in changes if then != now]
            for group, own in self._groups.items():
                found += self._put_back(own, values[group])
            for (name, array), value in zip(self._arrays, arrays, strict=True):
                if array.tobytes() != value.tobytes():
                    array[...] = value
                    found.append(name)
            for (name, module), text in zip(self._extra, extra, strict=True):
                if text is not None and _text(module) != text:
                    module.set_extra_state(pickle.loads(text))
                    found.append(f"the extra state of {name}")
            if marks is not None and marks != _marks(self._trained):
                found.append(TRAINED)
            if look:
                found += self._strange()
            self._public = self._standing()
            if found and not failed:
                raise Refused(WRITTEN.format(name=found[0]))

    def _put_back(self, own: list[int], value: Tensor) -> list[str]:
        """Restore small tensors; returns the names of those that were written to."""
        tensors = [self._tensors[i] for i in own]
        sizes = [tensor.numel() for tensor in tensors]
        if sum(sizes) == value.numel() and torch.equal(_flat(tensors), value):
            return []
        found = []
        with torch.no_grad():
            for i, tensor, part in zip(own, tensors, value.split(sizes), strict=True):
                if not torch.equal(_bits(tensor), part):
                    tensor.copy_(part.view(tensor.dtype).view_as(tensor))
                    found.append(self._names[i])
        return found

    def _strange(self) -> list[str]:
        """Large tensors that are not what they were when they were last public."""
        held = self._names[len(self._tensors) - len(self._trained) - len(self._large) :]
        pairs = zip(held, self._marks, _marks(self._large), strict=False)
        return [name for name, then, now in pairs if then != now]

    def check(self) -> None:
        """Refuse what was written to since it was last public, where torch did not see it."""
        found = self._strange() if self._public == self._standing() else []
        if found:
            raise Refused(WRITTEN.format(name=found[0]))

    def check_memory(self, run: Callable[[], Any]) -> None:
        """Refuse a model in which two equal runs on made-up inputs leave different numbers.

        What a run leaves behind and the next one writes over (the last activations, say) is put
        back after a step. What adds up would stand still, and is refused by name instead.
        """
        trained = {id(p) for p in self._trained}
        left: list[dict[str, list[Any]]] = []
        with self.kept(look=True):
            for _ in range(2):
                run()
                left.append(_numbers(self._model, trained))
        one, other = left
        for name, values in other.items():
            if not _alike(one.get(name, []), values):
                raise Refused(WRITTEN.format(name=name))


@contextmanager
def attributes_kept(model: nn.Module) -> Iterator[None]:
    """What a model's modules hold is afterwards what it was; numbers that are written to stay."""
    holders = _Walk(model, set()).holders
    try:
        yield
    finally:
        for holder in holders:
            if not holder.same():
                holder.put_back()


class _Walk:
    """All holders and numbers that can be reached from a model's modules."""

    def __init__(self, model: nn.Module, trained: set[int]) -> None:
        self.holders: list[Holder] = []
        self.tensors: list[tuple[str, Tensor]] = []
        self.arrays: list[tuple[str, np.ndarray]] = []
        self.numbers: list[tuple[str, float]] = []
        self.extra: list[tuple[str, nn.Module]] = []
        self._trained, self._known, self._kept_alive = trained, set[int](), list[Any]()
        waiting: list[tuple[str, Any]] = [("the model", model)]
        while waiting:
            name, value = waiting.pop()
            waiting += self._inside(name, value)

    def _inside(self, name: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, PLAIN):
            if isinstance(value, (float, complex)):
                self.numbers.append((name, value))  # type: ignore[arg-type]
            return []
        if id(value) in self._known:
            return []
        self._known.add(id(value))
        self._kept_alive.append(value)  # so that no other object is given its name
        if isinstance(value, Tensor):
            if id(value) not in self._trained and _readable(value):
                self.tensors.append((name, value))
            return [(name, vars(value))] if getattr(value, "__dict__", None) else []
        if isinstance(value, np.ndarray):
            if value.dtype != object:
                self.arrays.append((name, value))
            return []
        if isinstance(value, nn.Module):
            return self._module(name, value)
        if isinstance(value, tuple):
            return [(name, one) for one in value]
        if isinstance(value, types.CellType):
            return self._held(name, value) if _full(value) else []
        if isinstance(value, types.FunctionType):
            return [(name, cell) for cell in value.__closure__ or ()]
        if isinstance(value, types.MethodType):
            return [(name, value.__self__), (name, value.__func__)]
        if isinstance(value, partial):
            return [(name, value.func), (name, value.args), (name, value.keywords)]
        if isinstance(value, CONTAINERS):
            return self._held(name, value)
        fields = getattr(value, "__dict__", None)
        if isinstance(fields, dict) and all(map(_data, fields.values())):
            return self._held(name, fields)
        return []

    def _held(self, name: str, thing: Any) -> list[tuple[str, Any]]:
        holder = Holder(name, thing)
        self.holders.append(holder)
        return [(name, one) for one in holder._values(thing)]

    def _module(self, name: str, module: nn.Module) -> list[tuple[str, Any]]:
        fields = vars(module)
        own = [key for key in fields if key not in INTERNAL]
        self.holders.append(Holder(f"the attributes of {name}", fields, own))
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            self.extra.append((name, module))
        found = [(_at(name, key), fields[key]) for key in own]
        for group in ("_parameters", "_buffers", "_modules"):
            if fields[group]:
                self.holders.append(Holder(f"the {group[1:]} of {name}", fields[group]))
                found += [(_at(name, key), one) for key, one in fields[group].items()]
        for key in INTERNAL:
            if "hooks" in key and fields.get(key):
                found += [(f"what a hook of {name} holds", one) for one in fields[key].values()]
        return found


def _readable(value: Tensor) -> bool:
    plain = type(value) in (Tensor, nn.Parameter, nn.Buffer) and value.layout is torch.strided
    return plain and not value.is_meta and not value.is_inference()


def _at(name: str, key: str) -> str:
    """The name of a module's member, as a user writes it."""
    return "'" + f"{name.strip(chr(39))}.{key}".removeprefix("the model.") + "'"


def _full(cell: types.CellType) -> bool:
    return bool(cell != types.CellType())  # an empty cell raises when it is read


def _data(value: Any) -> bool:
    """Numbers, texts, tensors and lists of them: what an object may be read and put back by."""
    if isinstance(value, (*PLAIN, Tensor, np.ndarray, np.generic)):
        return True
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, collections.deque)):
        return False
    return len(value) <= LONG and all(map(_data, value))


def _numbers(model: nn.Module, trained: set[int]) -> dict[str, Any]:
    """Copies of all numbers a model holds, by name; whole numbers outside of tensors are counts."""
    walk = _Walk(model, trained)
    found: dict[str, list[Any]] = {}
    for name, tensor in walk.tensors:
        found.setdefault(name, []).append(tensor.detach().clone())
    for name, value in (*walk.arrays, *walk.numbers):
        found.setdefault(name, []).append(np.array(value))
    return found


def _alike(one: list[Any], other: list[Any]) -> bool:
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = (torch.as_tensor(x).detach() for x in (a, b)) if a.dtype != object else (a, b)
        wide = torch.complex128 if a.is_complex() else torch.float64
        if not torch.allclose(a.to(wide), b.to(wide), 1e-4, 1e-6, equal_nan=True):
            return False
    return True


def _bits(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.contiguous().view(-1)
    return flat.view(INTEGERS.get(flat.element_size(), torch.int8))


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([_bits(tensor) for tensor in tensors])


def _marks(tensors: list[Any]) -> list[int]:
    """A number for each tensor, which another value of any one of its entries changes."""
    sums = [_bits(tensor).sum(dtype=torch.int64) for tensor in tensors]
    places = {one.device for one in sums}
    if len(places) > 1:
        return [int(one) for one in sums]
    return torch.stack(sums).tolist() if sums else []


def _text(module: nn.Module) -> bytes | None:
    try:
        return pickle.dumps(module.get_extra_state())
    except Exception:
        return None
