"""What a user declares about a table: a TOML file of public facts, checked key by key.

Nothing here has seen a row. A complaint names columns and keys, which are public.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNKNOWN = "?"
"""What the template writes where a person has to decide."""

FILE_TYPES = {"numeric": "number", "categorical": "text"}
"""How a column of a CSV file is read, by its declared kind."""

Value = str | int | float | bool


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if not near:
        folded = {other.strip().casefold(): other for other in known}
        near = [folded[key] for key in [name.strip().casefold()] if key in folded]
    return f": did you mean {near[0]!r}?" if near else ""


def toml_key(name: str) -> str:
    """A column's name as TOML writes it in the head of a table."""
    plain = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if plain else json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True)
class Column:
    """One feature: a number within bounds, one of some categories, or nothing the model sees."""

    kind: str
    lower: float | None = None
    upper: float | None = None
    missing: float | None = None
    """What a missing number counts as; the middle of the bounds if not given."""
    categories: tuple[Value, ...] = ()

    @property
    def width(self) -> int:
        """Columns of the model's matrix."""
        return {"numeric": 1, "categorical": len(self.categories), "ignored": 0}[self.kind]

    @property
    def fill(self) -> float:
        """What stands for a missing number: not a number if nothing is declared."""
        if self.missing is not None:
            return self.missing
        if self.lower is None or self.upper is None:
            return math.nan
        return (self.lower + self.upper) / 2


@dataclass(frozen=True)
class Target:
    """What is predicted: classes that are listed, or a number within bounds."""

    column: str
    kind: str
    classes: tuple[Value, ...] = ()
    lower: float | None = None
    upper: float | None = None
    undeclared: str = "refuse"
    """``"empty"``: a record whose target is missing or not listed contributes nothing."""


@dataclass(frozen=True)
class Schema:
    """Target and columns, as declared."""

    target: Target
    columns: dict[str, Column]

    @classmethod
    def from_file(cls, path: Path) -> Schema:
        """Read and check a file; the complaints are one sentence each."""
        if not path.is_file():
            raise ValueError(
                f"there is no file {path}: `privopt init-bounds` writes one for you to fill in."
            )
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{path.name} is not a text file in UTF-8.") from None
        return cls.from_toml(text, path.name)

    @classmethod
    def from_toml(cls, text: str, name: str = "bounds.toml") -> Schema:
        problem = None
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            problem = f"{name} is not valid TOML: {error}"
        if problem is not None:
            raise ValueError(problem.rstrip(".") + ".")
        reader = _Reader(name)
        reader.keys(data, "", ("target", "columns"))
        target = reader.target(reader.table(data, "target"))
        columns = {
            column: reader.column(column, table)
            for column, table in reader.table(data, "columns").items()
        }
        if target.column in columns:
            raise ValueError(f"{name} lists the target {target.column!r} among the columns too.")
        if not any(column.width for column in columns.values()):
            raise ValueError(f"{name} declares no column that the model could use.")
        return cls(target, columns)

    @property
    def used(self) -> dict[str, Column]:
        """Columns the model sees, in their order."""
        return {name: column for name, column in self.columns.items() if column.kind != "ignored"}

    @property
    def width(self) -> int:
        """Columns of the model's matrix: one per number, one per category."""
        return sum(column.width for column in self.columns.values())

    @property
    def file_types(self) -> dict[str, str]:
        """The columns to read, and how those of a CSV file are. A target is text: a label as it is
        written, or a number that is asked for record by record."""
        found = {name: FILE_TYPES[column.kind] for name, column in self.used.items()}
        return found | {self.target.column: "text"}

    def check_names(self, present: Iterable[str], file: str, bounds: str) -> None:
        """Every declared column is in the file, and every column of the file is declared."""
        present = list(present)
        check_target(self.target.column, present, file)
        for name in self.used:
            if name not in present:
                raise ValueError(
                    f"{bounds} declares the column {name!r}, which {file} does not have"
                    f"{did_you_mean(name, present) or '.'}"
                )
        for name in present:
            if name != self.target.column and name not in self.columns:
                raise ValueError(
                    f"bounds are missing for column {name!r}: add a table "
                    f"[columns.{toml_key(name)}] to "
                    f'{bounds}, with kind = "ignored" if the model must not see it.'
                )


def check_target(target: str, present: Iterable[str], file: str) -> None:
    """The target is a column of the file."""
    present = list(present)
    if target not in present:
        hint = did_you_mean(target, present) or f"; it has {', '.join(present)}."
        raise ValueError(f"{file} has no column {target!r}{hint}")


class _Reader:
    """Complaints about one file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def table(self, data: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = data.get(key)
        if not isinstance(found, dict):
            raise ValueError(f"{self.name} needs a table [{key}].")
        return found

    def keys(self, table: Mapping[str, Any], where: str, known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known) or f"; known are {', '.join(known)}."
                place = f" in [{where}]" if where else ""
                raise ValueError(f"{self.name} has an unknown key {key!r}{place}{hint}")

    def column(self, column: str, table: Any) -> Column:
        where = f"columns.{column}"
        if not isinstance(table, dict):
            raise ValueError(f"{self.name} needs a table [{where}] with a kind.")
        kind = self.kind(table, where, ("numeric", "categorical", "ignored"))
        if kind == "ignored":
            return Column(kind)
        if kind == "categorical":
            self.keys(table, where, ("kind", "categories"))
            return Column(kind, categories=self.values(table, where, "categories", 1))
        self.keys(table, where, ("kind", "lower", "upper", "missing"))
        lower, upper = self.bounds(table, where)
        missing = self.number(table, where, "missing") if "missing" in table else None
        return Column(kind, lower, upper, missing)

    def target(self, table: dict[str, Any]) -> Target:
        column = table.get("column")
        if not isinstance(column, str):
            raise ValueError(f'{self.name} needs column = "..." in [target].')
        kind = self.kind(table, "target", ("classes", "number"))
        undeclared = table.get("undeclared", "refuse")
        if undeclared not in ("refuse", "empty"):
            raise ValueError(
                f'{self.name}: undeclared in [target] must be "refuse" or "empty", '
                f"not {undeclared!r}."
            )
        if kind == "number":
            self.keys(table, "target", ("column", "kind", "lower", "upper", "undeclared"))
            lower, upper = self.bounds(table, "target")
            return Target(column, kind, lower=lower, upper=upper, undeclared=undeclared)
        self.keys(table, "target", ("column", "kind", "classes", "undeclared"))
        classes = self.values(table, "target", "classes", 2)
        return Target(column, kind, classes, undeclared=undeclared)

    def kind(self, table: dict[str, Any], where: str, known: tuple[str, ...]) -> str:
        kind = table.get("kind")
        if kind not in known:
            if kind == UNKNOWN:
                raise ValueError(
                    f"fill in kind in [{where}] of {self.name}: {', '.join(known)}, from what the "
                    "column means."
                )
            found = "it is not there" if kind is None else f"not {kind!r}"
            raise ValueError(
                f"{self.name}: kind in [{where}] must be one of {', '.join(known)}; {found}."
            )
        return kind

    def bounds(self, table: dict[str, Any], where: str) -> tuple[float, float]:
        lower, upper = (self.number(table, where, key) for key in ("lower", "upper"))
        if not lower < upper:
            raise ValueError(f"{self.name}: lower must be below upper in [{where}].")
        return lower, upper

    def number(self, table: dict[str, Any], where: str, key: str) -> float:
        value = table.get(key, UNKNOWN)
        if value == UNKNOWN:
            raise ValueError(
                f"bounds are missing: fill in {key} in [{where}] of {self.name}, from what the "
                "column means and not from what the data shows."
            )
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise ValueError(f"{self.name}: {key} in [{where}] must be a finite number.")
        return float(value)

    def values(self, table: dict[str, Any], where: str, key: str, least: int) -> tuple[Value, ...]:
        found = table.get(key, [UNKNOWN])
        if found == UNKNOWN or (isinstance(found, list) and UNKNOWN in found):
            raise ValueError(
                f"fill in {key} in [{where}] of {self.name}: every value that can occur, "
                "also one that the data does not show."
            )
        if not isinstance(found, list) or not all(isinstance(v, Value) for v in found):
            raise ValueError(f"{self.name}: {key} in [{where}] must be a list of values.")
        if len({_kind_of(value) for value in found}) > 1:
            raise ValueError(
                f"{self.name}: {key} in [{where}] must be all text, all numbers or all true/false."
            )
        if len(set(found)) < len(found) or len(found) < least:
            raise ValueError(
                f"{self.name}: {key} in [{where}] must be at least {least} different value(s)."
            )
        return tuple(found)


def _kind_of(value: Value) -> str:
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
