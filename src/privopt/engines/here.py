"""This process, one chunk in memory at a time: what is kept lies in a file of its own.

The file has no name from the start, so that nothing is left behind by whatever end the process
comes to, and nobody else can open it. It is mapped into memory, which the system takes back
whenever it needs it: a data set may be larger than memory.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from privopt.engines.engine import Engine, Failure, Growing, Task, attempt, opened

PAGE = 1 << 12

Rebuild = Callable[[list[Any]], Any]


class Here(Engine):
    """Chunks of this process.

    Parameters
    ----------
    folder : str, optional
        Where the file of what is kept lies; the system's folder for temporary files by default.
        It takes about as much room as the numbers of the data set.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    def keep(self, task: Task, *handles: Sequence[Any]) -> list[Any]:
        shells: list[tuple[Rebuild, list[Any]]] = []
        with tempfile.TemporaryFile(dir=self.folder) as file:
            for values in zip(*handles, strict=True):
                found = attempt(task, *values)
                if isinstance(found, Failure):
                    opened(found)
                rebuild, arrays = apart(found)
                shells.append((rebuild, [_stored(array, file) for array in arrays]))
                del found, arrays
            size = file.tell()
            file.flush()
            place = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        return [rebuild([_mapped(one, place) for one in stored]) for rebuild, stored in shells]

    def add(self, task: Task, *handles: Sequence[Any]) -> Any:
        sums = Growing()
        for values in zip(*handles, strict=True):
            sums.append(opened(attempt(task, *values)))
        return sums.total()


def apart(found: Any) -> tuple[Rebuild, list[Any]]:
    """How to make something of its arrays, and the arrays: rows know themselves how."""
    own = getattr(found, "apart", None)
    if own is not None:
        return own()
    if isinstance(found, tuple):
        pieces = [apart(one) for one in found]

        def rebuilt(arrays: list[Any]) -> tuple[Any, ...]:
            made, at = [], 0
            for rebuild, some in pieces:
                made.append(rebuild(arrays[at : at + len(some)]))
                at += len(some)
            return tuple(made)

        flat = [array for _, some in pieces for array in some]
        pieces = [(rebuild, [None] * len(some)) for rebuild, some in pieces]
        return rebuilt, flat
    if isinstance(found, np.ndarray):
        return lambda arrays: arrays[0], [found]
    return lambda arrays: found, []


def _stored(array: Any, file: Any) -> Any:
    """Where an array lies in the file; the array itself if it lies in some file already."""
    if array is None or _on_disk(array) or not array.size:
        return array
    file.seek(-(-file.tell() // PAGE) * PAGE)
    start = file.tell()
    file.write(np.ascontiguousarray(array).data.cast("B"))
    return start, array.shape, array.dtype


def _mapped(stored: Any, place: Any) -> Any:
    if not isinstance(stored, tuple):
        return stored
    start, shape, kind = stored
    return np.frombuffer(place, kind, int(np.prod(shape)), start).reshape(shape)


def _on_disk(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return isinstance(array, mmap.mmap)
