"""A chunk: which rows of which file, and how they become a matrix and labels where they are read.

Nothing that a library says while it reads is passed on: it may quote a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from privopt.engines.engine import Changed


@dataclass(frozen=True)
class Stamp:
    """A file as it was when it was listed."""

    path: str
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        found = path.stat()
        return cls(str(path.resolve()), found.st_size, found.st_mtime_ns)


def check(stamps: tuple[Stamp, ...]) -> None:
    """Refuse files that are others by now."""
    try:
        same = all(Stamp.of(Path(stamp.path)) == stamp for stamp in stamps)
    except OSError:
        same = False
    if not same:
        raise Changed


class Chunk(Protocol):
    """Some rows."""

    @property
    def rows(self) -> int: ...
    @property
    def stamps(self) -> tuple[Stamp, ...]: ...
    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Features in double precision, row by row, and labels."""
        ...


@dataclass(frozen=True)
class ParquetChunk:
    """Some row groups of a Parquet file."""

    stamps: tuple[Stamp, ...]
    groups: tuple[int, ...]
    rows: int
    features: tuple[str, ...]
    target: str

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        import pyarrow.parquet

        check(self.stamps)
        with pyarrow.parquet.ParquetFile(self.stamps[0].path) as file:
            columns = [*self.features, self.target]
            table = file.read_row_groups(list(self.groups), columns, use_threads=False)
        return as_arrays(table, self.features, self.target)


@dataclass(frozen=True)
class ArrowChunk:
    """Some record batches of an Arrow file."""

    stamps: tuple[Stamp, ...]
    batches: tuple[int, ...]
    rows: int
    features: tuple[str, ...]
    target: str

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        import pyarrow as pa
        import pyarrow.ipc

        check(self.stamps)
        with pa.memory_map(self.stamps[0].path) as mapped, pyarrow.ipc.open_file(mapped) as file:
            table = pa.Table.from_batches([file.get_batch(k) for k in self.batches])
            return as_arrays(table, self.features, self.target)


@dataclass(frozen=True)
class ArrayChunk:
    """Some rows of two arrays in NumPy's own files, mapped into memory where they are read."""

    stamps: tuple[Stamp, ...]
    first: int
    rows: int

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        check(self.stamps)
        X, y = (np.load(stamp.path, mmap_mode="r")[self._part] for stamp in self.stamps)
        return as_doubles(X), np.asarray(y)

    @property
    def _part(self) -> slice:
        return slice(self.first, self.first + self.rows)


def as_doubles(X: np.ndarray) -> np.ndarray:
    """A matrix in double precision with its rows in one piece: what is added up has the same bits
    whatever it was stored as."""
    return np.ascontiguousarray(X, dtype=np.float64)


def as_arrays(table: Any, features: tuple[str, ...], target: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of an Arrow table; what is missing is NaN."""
    import pyarrow as pa

    X = np.empty((table.num_rows, len(features)))
    for j, name in enumerate(features):
        start = 0
        for part in table.column(name).chunks:
            X[start : start + len(part), j] = part.cast(pa.float64(), safe=False).to_numpy(
                zero_copy_only=False
            )
            start += len(part)
    return X, table.column(target).to_numpy()
