"""Sites of random mutants: one operator, comparison, constant or call of the code that the
guarantee rests on, changed in memory.

A site is named by its file, function, expression and change, not by its line, so that its name
outlives edits elsewhere.
"""

from __future__ import annotations

import ast
import copy
import gc
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import privopt

from .mutant import forget

SOURCE = Path(privopt.__file__).parent
ROOMS = ("privacy", "mechanisms", "oracle", "noise", "numerics")

SWAPS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
OPPOSITE = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "ceil": "floor"}
SILENT = {"__repr__", "__str__", "_repr_html_", "__reduce__", "__getstate__", "_name"}
"""Functions that compute nothing a guarantee rests on."""


@dataclass(frozen=True)
class Site:
    """One change: where it is, and the function (or the constant of the module) that holds it."""

    file: str
    function: str
    first: int
    lines: tuple[int, ...]
    name: str
    path: tuple[tuple[str, int | None], ...]
    """The way from the module's tree to the node."""
    change: int

    def __str__(self) -> str:
        return self.name


# ---------------------------------------------------------------- finding
def sites() -> list[Site]:
    """Every site of the four rooms, in a fixed order, no name twice."""
    found, seen = [], Counter[str]()
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            for site in _of_file(path):
                seen[site.name] += 1
                again = seen[site.name]
                name = site.name if again == 1 else f"{site.name} ({again})"
                found.append(Site(**{**vars(site), "name": name}))
    return found


def drawn(count: int, seed: int) -> list[Site]:
    """So many sites at random; the same for the same code and seed."""
    known = sites()
    return random.Random(seed).sample(known, min(count, len(known)))


def _of_file(path: Path) -> Iterator[Site]:
    tree, file = _tree(path), str(path.relative_to(SOURCE))
    for statement, outer, way in _scopes(tree, "", ()):
        constant = isinstance(statement, (ast.Assign, ast.AnnAssign))
        lines = _readers(tree, statement) if constant else ()
        for node, inner in _nodes(statement, way):
            for change, text in enumerate(_changes(node)):
                here = lines or tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                first = min([statement.lineno, *(d.lineno for d in _decorators(statement))])
                yield Site(file, outer, first, here, f"{file}:{outer}: {text}", inner, change)


def _decorators(statement: ast.AST) -> list[ast.expr]:
    return getattr(statement, "decorator_list", [])


def _scopes(
    node: ast.AST, outer: str, way: tuple[tuple[str, int | None], ...]
) -> Iterator[tuple[Any, str, tuple[tuple[str, int | None], ...]]]:
    """Functions of modules and classes, and constants of modules."""
    for index, statement in enumerate(getattr(node, "body", [])):
        here = (*way, ("body", index))
        if isinstance(statement, ast.ClassDef):
            yield from _scopes(statement, f"{outer}{statement.name}.", here)
        elif isinstance(statement, ast.FunctionDef) and statement.name not in SILENT:
            yield statement, outer + statement.name, here
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and not outer:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name) and _number(statement.value):
                yield statement, target.id, here


def _number(value: ast.expr | None) -> bool:
    """Whether an expression is made of numbers alone."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return value is not None and all(
        isinstance(part, allowed) and not isinstance(getattr(part, "value", 0), str)
        for part in ast.walk(value)
    )


def _readers(tree: ast.Module, statement: Any) -> tuple[int, ...]:
    """Lines that read a constant."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    lines = {n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == target.id}
    return tuple(sorted(lines - {statement.lineno})) or (statement.lineno,)


def _nodes(
    node: ast.AST, way: tuple[tuple[str, int | None], ...]
) -> Iterator[tuple[Any, tuple[tuple[str, int | None], ...]]]:
    """The nodes below that may be changed: no types, no texts, no refusals' words."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)):
        return
    yield node, way
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(value, list):
            for index, part in enumerate(value):
                if isinstance(part, ast.AST):
                    yield from _nodes(part, (*way, (name, index)))
        elif isinstance(value, ast.AST):
            yield from _nodes(value, (*way, (name, None)))


def _changes(node: ast.AST) -> Iterator[str]:
    """What can be done to a node, in words; ``_changed`` does it."""
    for new in _variants(node):
        before = ast.unparse(node)
        after = ast.unparse(new) if new is not None else "nothing"
        yield f"{_short(before)} -> {_short(after)}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def _variants(node: ast.AST) -> list[ast.AST | None]:
    """The changed nodes; None takes a statement away."""
    found: list[ast.AST | None] = []
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in SWAPS.get(type(operator), ()):
                new = copy.deepcopy(node)
                new.ops[index] = other()
                found.append(new)
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)):
        if not any(isinstance(getattr(p, "value", None), str) for p in ast.iter_child_nodes(node)):
            for other in SWAPS.get(type(node.op), ()):
                new = copy.deepcopy(node)
                new.op = other()
                found.append(new)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        found.append(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value = node.value
        new = not value if isinstance(value, bool) else value + 1 if value < 2 else value * 2
        found.append(ast.copy_location(ast.Constant(new), node))
    elif isinstance(node, ast.Call):
        named = node.func
        name = getattr(named, "id", getattr(named, "attr", ""))
        if name in OPPOSITE:
            new = copy.deepcopy(node)
            setattr(new.func, "id" if isinstance(named, ast.Name) else "attr", OPPOSITE[name])
            found.append(new)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        found.append(None)
    return found


# ---------------------------------------------------------------- planting
@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _changed(site: Site) -> ast.Module:
    """The module's tree with the change in it."""
    tree = copy.deepcopy(_tree(SOURCE / site.file))
    owner: Any = tree
    for name, index in site.path[:-1]:
        owner = getattr(owner, name) if index is None else getattr(owner, name)[index]
    name, index = site.path[-1]
    node = getattr(owner, name) if index is None else getattr(owner, name)[index]
    new = _variants(node)[site.change]
    new = ast.copy_location(ast.Pass() if new is None else new, node)
    if index is None:
        setattr(owner, name, new)
    else:
        getattr(owner, name)[index] = new
    return ast.fix_missing_locations(tree)


def plant(site: Site) -> bool:
    """Change this process; whether anything that is alive was changed. There is no way back: a
    mutant lives in a process of its own."""
    path, tree = str(SOURCE / site.file), _changed(site)
    import_module(_module(site))
    forget()
    codes = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes(compile(tree, path, "exec"))
    }
    planted = False
    for function in _alive(path):
        key = (function.__code__.co_qualname, function.__code__.co_firstlineno)
        new = codes.get(key)
        if new is not None and new != function.__code__:
            function.__code__ = new
            planted = True
    return planted or _constant(site, tree)


def _module(site: Site) -> str:
    name = "privopt." + site.file.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def _constant(site: Site, tree: ast.Module) -> bool:
    """A constant of a module, wherever it was imported."""
    module = sys.modules[_module(site)]
    statement: Any = tree.body[site.path[0][1] or 0]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return False
    old = vars(module)[site.function]
    new = eval(compile(ast.Expression(statement.value), site.file, "eval"))
    for name, other in list(sys.modules.items()):
        if name.startswith("privopt") and vars(other).get(site.function) is old:
            setattr(other, site.function, new)
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes(part)


def _alive(path: str) -> list[FunctionType]:
    return [
        one
        for one in gc.get_objects()
        if type(one) is FunctionType and one.__code__.co_filename == path
    ]
