"""``privopt.dataset``: from files to a fixed list of chunks, by what they say of themselves.

Names, types and numbers of rows stand in the footers of Parquet and Arrow files and in the heads of
NumPy's, so a column that one of many files lacks, or that holds text in one of them, is found
before a row is read and before a budget is spent.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privopt.sources.chunks import ArrayChunk, ArrowChunk, Chunk, ParquetChunk, Stamp

CHUNK_BYTES = 1 << 25
"""Numbers of one chunk, unless told otherwise."""
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


@dataclass(frozen=True)
class Dataset:
    """Rows in chunks: which files, which parts of them, which columns. It holds no row.

    ``fit`` and ``solve`` take it in place of X, without a y.
    """

    chunks: tuple[Chunk, ...]
    names: tuple[str, ...]
    target: str
    stamps: tuple[Stamp, ...]
    named: bool = True
    """Whether columns have names of their own."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features, as the files state them."""
        return sum(chunk.rows for chunk in self.chunks), len(self.names)

    @property
    def fingerprint(self) -> str:
        """Of the list of chunks: files with their sizes and times, parts, columns."""
        text = repr((self.chunks, self.names, self.target, self.stamps))
        return hashlib.sha256(text.encode()).hexdigest()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        n, p = self.shape
        return f"Dataset({n} rows, {p} features, {len(self.chunks)} chunks, target={self.target!r})"


def dataset(
    source: Any,
    *,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    chunk_rows: int | None = None,
) -> Dataset:
    """List the chunks of files that may be larger than memory; no row is read.

    Parameters
    ----------
    source : path, glob, folder, list of paths, or pair of .npy files
        Parquet or Arrow files; or (X.npy, y.npy), or their memory maps.
    target : str
        Name of the column to predict; not for a pair of arrays.
    columns : sequence of str, optional
        Features, in their order; all other columns by default.
    chunk_rows : int, optional
        About how many rows are read at a time: whole row groups of a Parquet file, whole batches of
        an Arrow file. By default as many as take 32 MB.

    Returns
    -------
    Dataset
    """
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows must be a positive number, got {chunk_rows!r}.")
    if isinstance(source, tuple):
        return _arrays(source, target, chunk_rows)
    paths = list(_paths(source))
    if target is None:
        raise ValueError('say which column to predict: privopt.dataset(..., target="name").')
    listed = [_listed(path) for path in paths]
    names = _features(listed, target, columns)
    height = chunk_rows or _height(len(names))
    chunks: list[Chunk] = []
    for path, parts, _ in listed:
        make = ParquetChunk if path.suffix.lower() in PARQUET else ArrowChunk
        stamps = (Stamp.of(path),)
        for numbers, rows in _joined(parts, height):
            chunks.append(make(stamps, numbers, rows, names, target))
    return _of(chunks, names, target)


def _of(chunks: list[Chunk], names: tuple[str, ...], target: str, named: bool = True) -> Dataset:
    if not chunks:
        raise ValueError("there are no rows in these files.")
    stamps: dict[Stamp, None] = {}
    for chunk in chunks:
        stamps |= dict.fromkeys(chunk.stamps)
    return Dataset(tuple(chunks), names, target, tuple(stamps), named)


def _height(features: int) -> int:
    return max(1, CHUNK_BYTES // (8 * (features + 1)))


def _paths(source: Any) -> Iterator[Path]:
    """The files of a folder, of a glob, or of a list, in the order of their names."""
    if isinstance(source, list):
        for one in source:
            yield from _paths(one)
        return
    if not isinstance(source, str | Path):
        raise TypeError(
            f"a data set is made of files: {type(source).__name__} is not a path; write it as "
            "Parquet first."
        )
    path, known = Path(source), (*PARQUET, *ARROW)
    if path.is_dir():
        found = sorted(one for one in path.rglob("*") if one.suffix.lower() in known)
        if not found:
            raise ValueError(f"the folder {path} holds no Parquet and no Arrow file.")
        yield from found
    elif path.exists():
        if path.suffix.lower() not in known:
            raise ValueError(
                f"{path.name} must end in .parquet or .arrow: other files are written as one of "
                "these first."
            )
        yield path
    else:
        found = sorted(Path(name) for name in glob.glob(str(source), recursive=True))
        if not found:
            raise ValueError(f"there is no file {source}.")
        yield from found


Listed = tuple[Path, list[int], Any]
"""A file, the rows of each of its parts, its schema."""


def _listed(path: Path) -> Listed:
    """What a file says of itself."""
    import pyarrow as pa

    read: Callable[[Path], tuple[list[int], Any]]
    read = _footer if path.suffix.lower() in PARQUET else _batches
    found = None
    try:
        found = read(path)
    except (pa.ArrowException, OSError):
        found = None
    if found is None:  # raised here, because the library's own text may quote the file
        raise ValueError(f"{path.name} could not be read as a table.")
    return path, *found


def _footer(path: Path) -> tuple[list[int], Any]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        return groups, file.schema_arrow


def _batches(path: Path) -> tuple[list[int], Any]:
    import pyarrow as pa
    import pyarrow.ipc

    with pa.memory_map(str(path)) as mapped, pyarrow.ipc.open_file(mapped) as file:
        rows = [file.get_batch(k).num_rows for k in range(file.num_record_batches)]
        return rows, file.schema


def _features(listed: list[Listed], target: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The features, after all files have been found to hold them, as numbers."""
    import pyarrow as pa

    first = listed[0][2].names
    names = tuple(name for name in first if name != target) if columns is None else tuple(columns)
    if target in names:
        raise ValueError(f"the target {target!r} is among the features.")
    if not names:
        raise ValueError("there is no feature to learn from.")
    for path, _, schema in listed:
        for name in (*names, target):
            if schema.names.count(name) != 1:
                few = "no" if name not in schema.names else "more than one"
                raise ValueError(f"{path.name} has {few} column {name!r}.")
        for name in names:
            kind = schema.field(name).type
            numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
            if not any(one(kind) for one in (*numeric, pa.types.is_decimal)):
                raise ValueError(f"column {name!r} of {path.name} holds {kind}, not numbers.")
        if schema.field(target).type != listed[0][2].field(target).type:
            raise ValueError(
                f"the target {target!r} holds {schema.field(target).type} in {path.name} and "
                f"{listed[0][2].field(target).type} in {listed[0][0].name}."
            )
    return names


def _joined(parts: list[int], height: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Neighbouring parts, as many as stay below a number of rows, but one at least."""
    numbers: list[int] = []
    rows = 0
    for number, count in enumerate(parts):
        if not count:
            continue
        if numbers and rows + count > height:
            yield tuple(numbers), rows
            numbers, rows = [], 0
        numbers.append(number)
        rows += count
    if numbers:
        yield tuple(numbers), rows


def _arrays(source: tuple[Any, ...], target: str | None, chunk_rows: int | None) -> Dataset:
    if target is not None or len(source) != 2:
        raise ValueError("arrays come as a pair (X, y) of .npy files, without a target.")
    paths = [Path(getattr(one, "filename", one)) for one in source]
    for path in paths:
        if not path.is_file() or path.suffix != ".npy":
            raise ValueError(f"{path} is no file of NumPy's, which ends in .npy.")
    X, y = (np.load(path, mmap_mode="r") for path in paths)
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or X.dtype.kind not in "biuf":
        raise ValueError("X must be a matrix of numbers with one label in y for each row.")
    stamps = Stamp.of(paths[0]), Stamp.of(paths[1])
    height = chunk_rows or _height(X.shape[1])
    chunks: list[Chunk] = [
        ArrayChunk(stamps, first, min(height, len(X) - first)) for first in range(0, len(X), height)
    ]
    return _of(chunks, tuple(f"x{j}" for j in range(X.shape[1])), "y", named=False)
