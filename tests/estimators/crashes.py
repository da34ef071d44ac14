"""Kill a process at the k-th system call of a step, for every k, and look at what is left.

Run as a program: it forks one child for each crash, so that the library is loaded once. Prints one
line of JSON for each crash.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from privopt import OnlineLogisticRegression
from privopt.mechanisms import HOOK
from privopt.mechanisms.gate import Gate
from privopt.noise import SeededSource

CALLS = ("open", "fsync", "link", "replace", "unlink", "mkdir")
STEPS, SIZE = 4, 10


class Numbered(SeededSource):
    """Draw number k is the same whoever asks for it, so that a resumed run can be compared."""

    def __init__(self, first: int = 0) -> None:
        super().__init__(0)
        self.next = first

    @property
    def noise(self) -> np.random.Generator:
        self.next += 1
        return np.random.Generator(np.random.Philox(1000 + self.next))


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((STEPS * SIZE, 2))
    return X, X[:, 0] > 0


def estimator(folder: Path, source: Any) -> OnlineLogisticRegression:
    return OnlineLogisticRegression(
        2.0,
        1e-5,
        n_steps=STEPS,
        noise="honaker",
        bounds=(-3.0, 3.0),
        classes=[False, True],
        batch_size=SIZE,
        checkpoint=folder,
        random_state=source,
    )


def feed(model: OnlineLogisticRegression, first: int, last: int) -> OnlineLogisticRegression:
    X, y = data()
    for batch in range(first, last):
        rows = slice(SIZE * batch, SIZE * batch + SIZE)
        model.partial_fit(X[rows], y[rows], record_ids=np.arange(rows.start, rows.stop))
    return model


def record(path: Path) -> None:
    """Write down the noise of every release before anybody else sees it."""

    def hook(mechanism, payload, sensitivity, event, run):
        result = run()
        with path.open("a") as file:
            file.write(json.dumps((result - payload).tolist()) + "\n")
        return result

    HOOK.set(hook)


class Bomb:
    """Kills this process before the k-th of the watched calls, that is after the one before."""

    def __init__(self, place: int) -> None:
        self.place, self.count = place, 0

    def arm(self) -> None:
        for name in CALLS:
            setattr(os, name, self.watch(getattr(os, name)))
        Gate.release = self.watch(Gate.release)  # type: ignore[method-assign]

    def watch(self, call: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.place:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return watched


def crash(folder: Path, before: int, place: int, source: Any, tape: Path) -> bool:
    """Steps up to ``before``, then die in the next. Whether the child was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            record(tape)
            model = estimator(folder, source)
            feed(model, 0, before)
            Bomb(place).arm()
            feed(model, before, before + 1)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def resumed(folder: Path, source: Any, tape: Path) -> dict[str, Any]:
    """Go on in this process to the last step; what the run says on the way."""
    record(tape)
    model = estimator(folder, source)
    done = 0
    if (folder / "model").exists():
        done = model.resume().steps_
        if isinstance(source, Numbered):
            source.next = done
    elif folder.exists():
        shutil.rmtree(folder)  # nothing was ever committed
    spent = model.epsilon_spent() if done else 0.0
    feed(model, done, STEPS)
    return {
        "done": done,
        "spent": spent,
        "epsilon": model.epsilon_spent(),
        "steps": model.steps_,
        "coef": model.coef_.tolist(),
        "files": sorted(os.listdir(folder)),
    }


def main(home: Path, before: int, kind: str) -> None:
    killed, place = True, 0
    while killed:
        place += 1
        folder = home / f"{kind}-{before}-{place}"
        tapes = home / "first", home / "second"
        for tape in tapes:
            tape.unlink(missing_ok=True)
        sources = [Numbered() if kind == "numbered" else None for _ in tapes]
        killed = crash(folder, before, place, sources[0], tapes[0])
        found = resumed(folder, sources[1], tapes[1])
        noise = [tape.read_text().splitlines() if tape.exists() else [] for tape in tapes]
        print(json.dumps({"killed": killed, "tapes": noise, **found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
