"""What a container holds is compared in bulk: no kind of change gets by, wherever it is made."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from contextvars import ContextVar
from functools import partial
from operator import itemgetter

import numpy as np
import pytest
import torch

from privopt.torch.contents import Contents


def function(first, second=2, *, third=3):
    return first


class Helper:
    mix = False


class Slotted:
    __slots__ = ("one", "two")

    def __init__(self):
        self.one, self.two = 1, 2


def _cell():
    return types.CellType("before")


def _changed_function(**own):
    def change(held):
        for name, value in own.items():
            setattr(held, name, value)

    return change


def _copy():
    return types.FunctionType(function.__code__, {}, "copy", (2,), None)


FLAG = object()
# name: how it is read, what is made, what changes in it
KINDS = {
    "a value": ("entries", lambda: {"a": 1, "b": 2}, lambda d: d.update(a=3)),
    "a new entry": ("entries", lambda: {"a": 1}, lambda d: d.update(c=1)),
    "an entry less": ("entries", lambda: {"a": 1, "b": 2}, lambda d: d.pop("b")),
    "another name": ("entries", lambda: {"soft": FLAG}, lambda d: d.update(hard=d.pop("soft"))),
    "the first entry": ("entries", dict, lambda d: d.update(a=1)),
    "an order": ("entries", lambda: OrderedDict(a=1, b=2), lambda d: d.move_to_end("a")),
    "an equal thing": ("entries", lambda: {"a": [1]}, lambda d: d.update(a=[1])),
    "an item": ("items", lambda: [1, 2], lambda x: x.__setitem__(1, 3)),
    "a first item": ("items", list, lambda x: x.append(1)),
    "an item of a queue": ("items", lambda: deque([1, 2]), lambda x: x.rotate()),
    "a member": ("set", lambda: {1}, lambda x: x.add(2)),
    "a variable": ("cell", _cell, lambda c: setattr(c, "cell_contents", "after")),
    "an empty variable": ("cell", types.CellType, lambda c: setattr(c, "cell_contents", 1)),
    "code": ("function", _copy, _changed_function(__code__=(lambda first, second: 0).__code__)),
    "defaults": ("function", _copy, _changed_function(__defaults__=(5,))),
    "defaults by name": ("function", _copy, _changed_function(__kwdefaults__={"third": 5})),
    "a partial's arguments": (
        "partial",
        lambda: partial(function, 1),
        lambda p: p.__setstate__((function, (2,), {}, {})),
    ),
    "a slot": ("slots", lambda: (Slotted(), ["one", "two"]), lambda s: setattr(s[0], "two", 5)),
    "a global": ("named", lambda: ({"a": 1}, ("a", "b")), lambda n: n[0].update(a=2)),
    "a new global": ("named", lambda: ({"a": 1}, ("a", "b")), lambda n: n[0].update(b=2)),
    "an attribute": ("picked", lambda: (itemgetter("a", "b"), {"a": 1, "b": 2}), None),
    "a context": ("context", lambda: ContextVar("mode", default=1), lambda c: c.set(2)),
    "a new attribute": ("size", lambda: vars(Helper()), lambda d: d.update(mix=True)),
    "an array": ("bytes", lambda: np.zeros(2), lambda a: a.fill(1)),
    "numbers": ("version", lambda: torch.zeros(3), lambda t: t.add_(1)),
}


def _held(name):
    how, make, change = KINDS[name]
    held = make()
    return how, held, change or (lambda picked: picked[1].update(b=3))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_a_change_of_any_kind_is_noticed_among_all_others(name, first):
    """Also if nothing was asked between, so that the first question comes after the change."""
    contents = Contents()
    for other in KINDS:
        if other != name:
            contents.add(*_held(other)[:2])
    how, held, change = _held(name)
    contents.add(how, held)
    if first:
        assert contents.untouched()
        assert list(contents.changed()) == []
    change(held)
    assert not contents.untouched()
    if name != "an attribute":
        assert len(list(contents.changed())) == 1


def test_what_moves_from_one_container_to_the_next_is_noticed():
    one, other, contents = [1, 2], [3], Contents()
    contents.add("items", one)
    contents.add("items", other)
    assert contents.untouched()
    other.insert(0, one.pop())
    assert not contents.untouched()


def test_what_is_gone_is_noticed():
    held, contents = {"a": 1, "b": 2}, Contents()
    contents.add("picked", (itemgetter("a", "b"), held))
    assert contents.untouched()
    held["c"] = held.pop("a")
    assert not contents.untouched()
