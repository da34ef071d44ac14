"""Files that survive a crash, and that nobody else on the machine can read.

A file is written whole under another name, flushed, renamed, and its folder flushed: whoever reads
sees the old content or the new one. Windows has no file locks of this kind, no folders that can be
flushed and another idea of line ends; what differs is told apart here and nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:  # everywhere else
    msvcrt = None

SECRET = 0o600
BINARY = getattr(os, "O_BINARY", 0)
FOLDERS = os.name == "posix"
"""Whether a folder can be opened and flushed."""
WAIT = 0.01
"""Seconds between two attempts at a lock, where the system has no queue for them."""

Content = bytes | Callable[[BinaryIO], object]
"""What a file holds, or what writes it."""


def replace(path: str | os.PathLike[str], content: Content, mode: int = SECRET) -> None:
    """Write a file; a crash leaves the one that was there."""
    os.replace(_draft(Path(path), content, mode), path)
    flush(Path(path).parent)


def write_new(path: str | os.PathLike[str], content: Content, mode: int = SECRET) -> None:
    """Write a file that must not exist: FileExistsError for all but one of several processes."""
    draft = _draft(Path(path), content, mode)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
    flush(Path(path).parent)


def append(path: str | os.PathLike[str], content: bytes, mode: int = SECRET) -> None:
    """Add to the end of a file."""
    new = not os.path.exists(path)
    _fill(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | BINARY, mode), content)
    if new:
        flush(Path(path).parent)


def overwrite(path: str | os.PathLike[str], content: bytes, mode: int = 0o666) -> None:
    """Write over the first bytes of a file, in place, without waiting for the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | BINARY, mode)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def flush(path: str | os.PathLike[str]) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    folder = os.path.isdir(path)
    if folder and not FOLDERS:
        return
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR | BINARY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone(path: str | os.PathLike[str]) -> Iterator[None]:
    """No other process is inside meanwhile; the system drops the lock of a dead one. Where it has
    no locks at all, nobody is kept out: callers must stay right without."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, SECRET)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        elif msvcrt is not None:
            _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[union-attr]
            return
        time.sleep(WAIT)


def _draft(path: Path, content: Content, mode: int) -> Path:
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()  # of a process that died and had our number
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY
    try:
        _fill(os.open(draft, flags, mode), content)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return draft


def _fill(descriptor: int, content: Content) -> None:
    with os.fdopen(descriptor, "wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
