"""Files that survive: whole or not at all, secret, and on systems without POSIX's calls."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest

from privopt import durable


@pytest.fixture(params=["posix", "windows"])
def system(request, monkeypatch):
    """Windows: no fcntl, no folders that can be opened; a stand-in for its lock."""
    if request.param == "windows":
        taken = threading.Lock()

        def locking(descriptor, mode, count):
            assert (mode, count) == (1, 1)
            if not taken.acquire(blocking=False):
                raise OSError("taken")
            released.append(descriptor)

        released: list[int] = []

        def close(descriptor):
            os.close(descriptor)
            if descriptor in released:
                released.remove(descriptor)
                taken.release()

        monkeypatch.setattr(durable, "os", SimpleNamespace(**{**vars(os), "close": close}))
        monkeypatch.setattr(durable, "fcntl", None)
        monkeypatch.setattr(durable, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=1))
        monkeypatch.setattr(durable, "FOLDERS", False)
    return request.param


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_files_are_secret_and_whole(tmp_path, system):
    path = str(tmp_path / "noise")
    durable.write_new(path, b"a\n")
    assert mode(path) == 0o600
    with pytest.raises(FileExistsError):
        durable.write_new(path, b"b\n")
    durable.append(path, b"c\r\n")
    with open(path, "rb") as file:
        assert file.read() == b"a\nc\r\n"
    durable.replace(path, lambda file: file.write(b"d"))
    with open(path, "rb") as file:
        assert file.read() == b"d"
    assert os.listdir(tmp_path) == ["noise"]


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path, system):
    path = str(tmp_path / "model")
    durable.replace(path, b"old")

    def fails(file):
        file.write(b"half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        durable.replace(path, fails)
    with open(path, "rb") as file:
        assert file.read() == b"old"
    assert os.listdir(tmp_path) == ["model"]


def test_one_at_a_time(tmp_path, system):
    lock, inside = str(tmp_path / "lock"), []

    def work():
        for _ in range(20):
            with durable.alone(lock):
                inside.append("in")
                assert inside.count("in") - inside.count("out") == 1
                inside.append("out")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(inside) == 160


def test_without_any_posix_call():
    """What Windows lacks is not touched by importing the library, paying a ledger and a stream."""
    code = """
        import os, sys, tempfile
        for name in ("pwrite", "pread", "fork", "getuid", "fchmod", "umask"):
            delattr(os, name)
        sys.modules["fcntl"] = None
        sys.modules["resource"] = None
        import numpy as np
        import privopt
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (300, 2))
        y = (X[:, 0] > 0).astype(int)
        with tempfile.TemporaryDirectory() as folder:
            ledger = privopt.Ledger.create(
                os.path.join(folder, "budget.db"), 3.0, 1e-5, dataset="people"
            )
            more = dict(ledger=ledger, dataset="people")
            privopt.LogisticRegression(1.0, 1e-6, classes=[0, 1], **more).fit(X, y)
            stream = privopt.OnlineLogisticRegression(
                1.0, 1e-6, n_steps=3, checkpoint=os.path.join(folder, "run")
            )
            stream.partial_fit(X[:100], y[:100], classes=[0, 1])
            stream.partial_fit(X[100:200], y[100:200])
            assert stream.privacy_.verify()
            privopt.save(stream, os.path.join(folder, "model.skops"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
