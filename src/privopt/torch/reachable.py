"""What code can get at: everything that can change what a function or a model computes.

A check holds for what was checked. This notices that it is no longer there: another flag in a
closure, a default, an argument of a partial function, an attribute, a mode, a global variable that
the code names, another hook. Numbers in tensors are left out, but for those of a single number: a
batch is new in every step, and a flag may be a tensor.
"""

from __future__ import annotations

import argparse
import array
import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from enum import Enum
from functools import partial
from operator import is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from privopt.torch.contents import Contents, Held, content

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
OTHERS = ("torch", "numpy", "scipy", "privopt", "transformers", "accelerate", "lightning")
LIBRARIES = {*sys.stdlib_module_names, *OTHERS, "torchvision", "peft", "pandas", "sklearn"} - {
    "__main__"
}
"""Packages whose code does not change while a model trains: their names stand for them."""
OPAQUE = (Optimizer, DataLoader, Dataset, type(torch.default_generator))
"""Not a part of what a loss computes, though a trainer's object holds them."""
HOLDERS = (SimpleNamespace, argparse.Namespace, threading.local)
"""Of the standard library, and yet what is in them is the user's."""
ARRAYS = (np.ndarray, bytearray, array.array)
FEW = 1 << 10
"""Bytes of an array that may hold flags; longer ones hold data."""
COUNTED = (int, float)
MANY = 20_000
"""Things to look at in one object; a longer walk stops there."""


class Reachable:
    """A walk from one object; ``mark`` is what was found, and ``same`` whether it still holds."""

    def __init__(self, root: Any, *beyond: Any) -> None:
        self.root = root
        self._contents = Contents()
        self._found: list[Any] = []
        self._met: dict[int, tuple[int, Any]] = {}  # also keeps what was met alive
        self._names: set[str] = set()
        self._partly: list[tuple[Any, dict[str, Any], set[str]]] = []
        self._others: list[dict[str, Any]] = []  # of objects of libraries
        self._globals: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._saved: list[tuple[Any, Any]] = []  # what holds variables, and what was in it
        for thing in beyond:  # looked at elsewhere
            self._met[id(thing)] = -1, thing
        self._walk([root])
        self._walk_named()
        self.mark = hash(tuple(self._found))

    def same(self) -> bool:
        """Whether all that was found is still what it was."""
        held = self._contents
        return held.untouched() or all(_unchanged(now, before) for now, before in held.changed())

    def untouched(self) -> bool:
        """The same, with no other tensor in the place of one."""
        held = self._contents
        return held.untouched() or all(
            len(now) == len(before) and all(map(_equal, now, before))
            for now, before in held.changed()
        )

    def only(self, kinds: tuple[type, ...]) -> bool:
        """Whether nothing has changed but values of some kinds, such as a count of calls."""
        return all(
            len(now) == len(before)
            and all(
                _equal(one, other) or type(one) is type(other) in kinds
                for one, other in zip(now, before, strict=True)
            )
            for now, before in self._contents.changed()
        )

    def met(self) -> list[Any]:
        """Everything that was looked at."""
        return [thing for number, thing in self._met.values() if number >= 0]

    def restore(self) -> None:
        """Put variables back: what was tried has left nothing. Numbers in tensors stay."""
        for holder, before in self._saved:
            if isinstance(holder, CellType):
                if content(holder) is not before:
                    holder.cell_contents = before
            elif isinstance(holder, dict):
                if len(holder) != len(before) or not all(
                    name in holder and holder[name] is value for name, value in before.items()
                ):
                    holder.clear()
                    holder.update(before)
            elif len(holder) != len(before) or not all(map(is_, holder, before)):
                holder.clear()
                holder.extend(before)
        for known, before in self._globals:
            known.update(before)

    # ------------------------------------------------------------ the walk
    def _walk(self, things: Iterable[Any]) -> None:
        waiting = deque(things)
        while waiting and len(self._met) < MANY:
            waiting.extend(self._visit(waiting.popleft()))

    def _walk_named(self) -> None:
        """Of other objects, the attributes that the code names; which may name further ones."""
        while True:
            fresh = []
            for _, held, seen in self._partly:
                new = [name for name in held if name in self._names and name not in seen]
                seen.update(new)
                fresh += [held[name] for name in sorted(new)]
            if not fresh:
                break
            self._walk(fresh)
        for _, held, seen in self._partly:
            names = tuple(sorted(seen))
            self._found.append(names)
            self._hold("named", (held, names))
            self._hold("size", held)  # a new attribute may be one that the code names
        for held in self._others:
            names = tuple([name for name in held if name in self._names and _plain(held[name])])
            self._found.append((names, repr([held[name] for name in names])))
            self._hold("named", (held, names))
            self._hold("size", held)

    def _hold(self, how: str, what: Any) -> Held:
        return self._contents.add(how, what)

    def _visit(self, value: Any) -> Iterable[Any]:
        if _plain(value):
            self._found.append((type(value).__name__, repr(value)))
            return ()
        if id(value) in self._met:
            self._found.append(self._met[id(value)][0])
            return ()
        self._met[id(value)] = len(self._met), value
        self._found.append(type(value).__qualname__)
        if isinstance(value, Tensor):
            self._found.append(_kind(value))
            if not isinstance(value, nn.Parameter) and not value.is_inference():
                self._hold("version", value)
            return ()
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return value.__func__, value.__self__
        if isinstance(value, partial):
            return (*self._hold("partial", value), vars(value))
        if isinstance(value, (staticmethod, classmethod)):
            return (value.__func__,)
        if isinstance(value, property):
            return value.fget, value.fset
        if isinstance(value, dict):
            self._found.append(tuple(key if isinstance(key, str) else repr(key) for key in value))
            self._saved.append((value, dict(value)))
            return self._hold("entries", value)[len(value) :]
        if isinstance(value, tuple):
            self._found.append(len(value))
            return value
        if isinstance(value, (list, deque)):
            self._found.append(len(value))
            self._saved.append((value, list(value)))
            return self._hold("items", value)
        if isinstance(value, (set, frozenset)):
            self._found.append(tuple(sorted(map(repr, value))))
            return self._hold("set", value)
        return self._object(value)

    def _code(self, code: CodeType) -> Iterable[Any]:
        self._found.append(code)
        self._names.update(code.co_names)
        self._names.update(x for x in code.co_consts if isinstance(x, str) and x.isidentifier())
        return [x for x in code.co_consts if isinstance(x, CodeType)]

    def _function(self, function: FunctionType) -> Iterable[Any]:
        if _of_library(function):
            self._found.append(f"{function.__module__}.{function.__qualname__}")
            return ()
        known, names = function.__globals__, tuple(sorted(_named(function.__code__)))
        self._names.update(names)
        cells = function.__closure__ or ()
        self._saved += [(cell, content(cell)) for cell in cells]
        self._globals.append((known, {name: known[name] for name in names if name in known}))
        return (
            *self._hold("function", function),
            *[self._hold("cell", cell)[0] for cell in cells],
            *self._hold("named", (known, names)),
            *((function.__dict__,) if function.__dict__ else ()),
        )

    def _object(self, value: Any) -> Iterable[Any]:
        if isinstance(value, (ModuleType, BuiltinFunctionType)):
            if not _of_library(value):
                self._partly.append((value, getattr(value, "__dict__", {}), set()))
            return ()
        if isinstance(value, type):
            if not _of_library(value):
                held: Any = vars(value)
                self._partly.append((value, held, set()))
                self._names.update(("forward", "__call__", "__getattr__"))
                return value.__mro__[1:]
            self._found.append(value.__qualname__)
            return ()
        if isinstance(value, nn.Module):
            held = vars(value)
            own = [x for name, x in held.items() if name != "_parameters"]
            self._saved.append((held, dict(held)))
            self._hold("entries", held)
            self._hold("entries", value._parameters)
            return (type(value), *own)
        if isinstance(value, ARRAYS):
            if getattr(value, "nbytes", len(value)) <= FEW and not _objects(value):
                self._found += self._hold("bytes", value)
            return ()
        if isinstance(value, ContextVar):
            return self._hold("context", value)
        if isinstance(value, OPAQUE):
            return ()
        if _of_library(type(value)) and not isinstance(value, HOLDERS):
            if hasattr(value, "__dict__"):  # such as the configuration of a model
                self._others.append(vars(value))
            return ()
        if hasattr(value, "__dict__"):
            self._saved.append((vars(value), dict(vars(value))))
            self._partly.append((value, vars(value), set()))
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        if slots:
            self._names.update(slots)
            return (type(value), *self._hold("slots", (value, slots)))
        return (type(value),)


def _plain(value: Any) -> bool:
    return isinstance(value, (*PLAIN, Enum))


def _objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.hasobject


def _unchanged(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(map(alike, now, before))


def alike(one: Any, other: Any) -> bool:
    """The same thing, or an equal number, or a tensor in the place of another one."""
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return type(one) is type(other) and _kind(one) == _kind(other)
    return _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    plain = type(one) is type(other) and isinstance(one, (*PLAIN, Enum))
    return one is other or (plain and (one == other or repr(one) == repr(other)))


def _kind(value: Tensor) -> Any:
    """What of a tensor is no data; and its number, if it is a single one."""
    about = str(value.dtype), value.dim(), value.device.type, value.requires_grad
    few = value.numel() <= 1 and not isinstance(value, nn.Parameter)
    if not few or value.device.type != "cpu" or value.numel() == 0:
        return about
    try:
        return *about, repr(value.detach().reshape(-1)[0].item())
    except RuntimeError:  # of an example that torch.func.vmap has let go
        return *about, id(value)


def _named(code: CodeType) -> set[str]:
    """Global names that code and functions inside it use."""
    inner = [x for x in code.co_consts if isinstance(x, CodeType)]
    return set(code.co_names).union(*map(_named, inner))


def _of_library(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return (name or "builtins").partition(".")[0] in LIBRARIES
