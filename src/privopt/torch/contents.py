"""Whether many containers still hold what they held, in a few passes that the interpreter runs.

A step asks this of everything that a model and its loss can get at. All of it is looked at every
time: where nothing has changed, by comparing what is there with what was there, one long list with
another; where something has, container by container.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, is_
from operator import call as _call
from typing import Any, cast

Held = tuple[Any, ...]


def content(cell: Any) -> Any:
    """What a variable of a closure holds."""
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _slots(held: tuple[Any, list[str]]) -> Held:
    return tuple([getattr(held[0], name, None) for name in held[1]])


READ: dict[str, Callable[[Any], Held]] = {
    "entries": lambda mapping: (*mapping, *mapping.values()),
    "items": tuple,
    "picked": lambda held: held[0](held[1]),  # by an itemgetter, of a dictionary
    "set": lambda held: tuple(sorted(held, key=repr)),
    "cell": lambda cell: (content(cell),),
    "function": attrgetter("__code__", "__defaults__", "__kwdefaults__"),
    "partial": attrgetter("func", "args", "keywords"),
    "named": lambda held: tuple(map(held[0].get, held[1])),  # some names of a dictionary
    "slots": _slots,
    "context": lambda variable: (variable.get(None),),
    "size": lambda held: (len(held),),
    "version": lambda tensor: (tensor._version,),
    "bytes": lambda array: (bytes(array),),
}
"""Ways to read a container, each giving a fixed order of things."""
call = cast(Callable[..., Any], _call)
EMPTY = (dict, OrderedDict, list, deque)
"""Kinds that are false as long as they are empty, and cannot say otherwise."""


class Contents:
    """Containers, and what was in each of them."""

    def __init__(self) -> None:
        self._held: list[tuple[str, Any, Held, int]] = []
        self._quick: _Quick | None = None

    def add(self, how: str, what: Any) -> Held:
        """Remember what a container holds, read in one of the ways above."""
        before = READ[how](what)
        size = len(what[1]) if how == "picked" else len(what) if how in (*SIZED, "size") else 0
        self._held.append((how, what, before, size))
        self._quick = None
        return before

    def untouched(self) -> bool:
        """Whether each thing is still the very same."""
        if self._quick is None:
            self._quick = _Quick(self._held)
        try:
            return self._quick.same()
        except KeyError:
            return False  # something has gone

    def changed(self) -> Iterator[tuple[Held, Held]]:
        """What is in containers now that do not hold the very same things, and what was."""
        for how, what, before, _ in self._held:
            now = READ[how](what)
            same = now == before if how in EQUAL else all(map(is_, now, before))
            if len(now) != len(before) or not same:
                yield now, before


class _Quick:
    """The same containers, sorted by how they are read."""

    def __init__(self, held: list[tuple[str, Any, Held, int]]) -> None:
        by: dict[str, list[tuple[Any, Held, int]]] = {how: [] for how in READ}
        self._empty: list[Any] = []
        for how, what, before, size in held:
            if how in SIZED and not before and type(what) in EMPTY:
                self._empty.append(what)
            else:
                by[how].append((what, before, size))
        entries, items, picked = by["entries"], by["items"], by["picked"]
        self._whole = [what for what, _, _ in (*entries, *items)]
        self._values = [what.values for what, _, _ in entries]
        self._picks = [get for (get, _), _, _ in picked]
        self._picked = [mapping for (_, mapping), _, _ in picked]
        sized = by["size"]
        self._sized = [*self._whole, *self._picked, *(what for what, _, _ in sized)]
        self._sizes = [size for _, _, size in (*entries, *items, *picked, *sized)]
        named = [(held.get, name) for (held, names), _, _ in by["named"] for name in names]
        self._gets, self._names = [get for get, _ in named], [name for _, name in named]
        others = [(how, by[how]) for how in READ if how not in SORTED and by[how]]
        self._others = [(READ[how], [what for what, _, _ in many]) for how, many in others]
        self._tensors = [what for what, _, _ in by["version"]]
        self._versions = [before[0] for _, before, _ in by["version"]]
        self._arrays = [what for what, _, _ in by["bytes"]]
        self._bytes = [before[0] for _, before, _ in by["bytes"]]
        parts = [
            *(before[:size] for _, before, size in entries),
            *(before for _, before, _ in items),
            *(before[size:] for _, before, size in entries),
            *(before for _, before, _ in (*picked, *by["named"])),
            *(before for _, many in others for _, before, _ in many),
        ]
        self._before = [*chain.from_iterable(parts), _END]

    def _now(self) -> Iterator[Any]:
        values, picked = map(call, self._values), map(call, self._picks, self._picked)
        each = [chain.from_iterable(many) for many in (self._whole, values, picked)]
        named = map(call, self._gets, self._names)
        others = [chain.from_iterable(map(read, many)) for read, many in self._others]
        return chain(*each, named, *others, (_END,))

    def same(self) -> bool:
        return (
            not any(self._empty)
            and list(map(len, self._sized)) == self._sizes
            and all(map(is_, self._now(), self._before))
            and list(map(_VERSION, self._tensors)) == self._versions
            and list(map(bytes, self._arrays)) == self._bytes
        )


SIZED = ("entries", "items")
EQUAL = ("size", "version", "bytes")
"""What is a number or a text, and not a thing."""
SORTED = (*SIZED, "picked", "named", *EQUAL)
_VERSION = attrgetter("_version")
_END = object()
"""One list that is longer than the other meets it at another place."""
