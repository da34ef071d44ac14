"""Engines to which something happens, and tasks that fail; what they may say afterwards."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.engines import Engine

from . import people


def sent_whole(cloudpickle):
    """What is defined here is sent with each task: workers cannot import tests."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Twice:
    """A task that is run twice, of which one result counts: what a retry or a spare copy does."""

    task: Any

    def __call__(self, *values):
        self.task(*values)
        return self.task(*values)


@dataclass(frozen=True)
class Boom:
    """What a careless task does: the exception quotes a row."""

    def __call__(self, rows):
        raise ValueError(f"cannot take {rows._X[:3].tolist()}")


class Faulty(Engine):
    """An engine whose tasks all run twice, and one of whose workers is killed on the way."""

    def __init__(self, engine, victims=None, after=2):
        self.engine, self.victims, self.left = engine, victims, after

    def keep(self, task, *handles):
        return self.engine.keep(Twice(task), *handles)

    def add(self, task, *handles):
        self.left -= 1
        if self.victims is not None and self.left == 0:
            os.kill(self.victims()[0], signal.SIGKILL)
        return self.engine.add(Twice(task), *handles)


def check_all(engine, folder, names=people.FITS, chunk_rows=300):
    """Every fit gives what this process finds, bit for bit, and names whom it trusts."""
    for name in names:
        target, fit = people.FITS[name]
        theta, certificate = fit(people.listed(folder, target, chunk_rows), engine)
        np.testing.assert_array_equal(theta, people.here(folder, name), err_msg=name)
        assert certificate.assumptions[-len(engine.trusted) :] == engine.assumptions


def planted(folder):
    """The same files, with values that nothing but a row holds."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path).to_pandas()
        table[people.FEATURES] = np.array(people.CANARIES)
        table["sign"] = np.where(np.arange(len(table)) % 2, 4321, 1)  # a label nobody declared
        table.to_parquet(path, row_group_size=100, index=False)
    return folder


def failures(engine, folder):
    """What an engine says when tasks fail on planted rows."""
    from privopt import LogisticRegression
    from privopt.oracle import RowBounds
    from privopt.oracle.chunked import ChunkedRows

    said = []
    data = people.listed(folder, "sign", 300)
    rows = ChunkedRows.read(engine, data, RowBounds(20.0), True)
    for attempt in (
        lambda: rows.add(Boom()),
        lambda: LogisticRegression(1.0, data_norm=20.0, classes=[-1, 1]).fit(data, engine=engine),
    ):
        try:
            attempt()
        except Exception as error:
            said.append(repr(error) + repr(error.__cause__) + repr(error.__context__))
    assert len(said) == 2
    return said


def holds_a_canary(text):
    """Whether a text shows a planted value, however it is written."""
    texts = [repr(value) for value in people.CANARIES] + ["4321"]
    return any(one in text for one in texts)


def in_files(folder):
    """The planted values in whatever files lie there, as text or as the bytes of doubles."""
    wanted = [repr(value).encode() for value in people.CANARIES]
    found = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file() and any(one in path.read_bytes() for one in wanted):
                found.append(path.name)
    return found
