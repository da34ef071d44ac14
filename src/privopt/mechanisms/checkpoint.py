"""A stream on disk: the public model, and apart from it the secret noise, safe against a crash.

A folder holds ``model`` (public: the step, the model, the certificate), ``noise-<step>`` (the
noise buffers after that step) and ``records`` (who has taken part); the last two are secret and
readable by their owner alone. Saving a step writes its noise, adds to the records, and then writes
the model: each file whole under another name, flushed, renamed, and the folder flushed. The model's
renaming is the step's commit. It names the step, and so the noise that belongs to it; only then is
the noise of the step before removed.

A process killed at any moment therefore leaves the last committed step with its own noise. A step
that was not committed released nothing, and is repeated with fresh noise, since the state of the
generator is never written. What cannot be continued truthfully is refused: a file that was cut or
altered, noise of another run, a model and noise of different steps. Loading and saving hold a lock,
and a save begins by looking whether the folder's last step is still its own: of two processes that
go on from one step, the second is refused.

Restoring the whole folder from a backup cannot be noticed here. It must not be done after later
steps were published: they would be released twice, and only once accounted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privopt import durable
from privopt.privacy.budget import Refused

MODEL, NOISE, RECORDS, LOCK = "model", "noise-", "records", "lock"
ELSEWHERE = "another process has gone on with this run: resume() from its last step."
ANEW = "begin a run with a budget of its own in another folder."
AGAIN = "call start_new_stream() to go on with fresh noise, both streams accounted."


@dataclass(frozen=True)
class Saved:
    """What a folder holds: the model, the noise of its step, and who took part until then."""

    model: dict[str, Any]
    noise: dict[str, np.ndarray]
    records: list[list[str]]


class Checkpoint:
    """One run in one folder.

    ``nonce`` names the run in every file; ``step`` is the last one committed by this process.
    """

    def __init__(self, folder: str | os.PathLike[str], nonce: str) -> None:
        self.folder, self.nonce, self.step = Path(folder), nonce, -1

    # ------------------------------------------------------------ writing
    def begin(self, model: dict[str, Any]) -> None:
        """Commit step 0 of a new run, before anything is released."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            if any(path.name != LOCK for path in self.folder.iterdir()):
                raise Refused("the checkpoint's folder is not empty: use another folder.")
            self._commit(0, model, {})

    def save(self, model: dict[str, Any], noise: dict[str, np.ndarray], records: list[str]) -> None:
        """Commit the next step. When this returns, and not before, the model may be published."""
        step = self.step + 1
        with self._alone():
            self._still_mine()
            self._commit(step, model, noise, records)
            (self.folder / f"{NOISE}{step - 1}").unlink(missing_ok=True)

    def renew(self, step: int, nonce: str, model: dict[str, Any]) -> None:
        """Give up the noise, whatever is left of it, and commit a new stream at the same step."""
        with self._alone():
            self._still_mine()
            self.nonce = nonce
            for path in self.folder.glob(f"{NOISE}*"):
                path.unlink(missing_ok=True)
            self._commit(step, model, {})

    def _alone(self) -> AbstractContextManager[None]:
        """No other process loads or saves meanwhile; where the system has no locks, the noise file
        of the next step can still be made by one process only."""
        return durable.alone(self.folder / LOCK)

    def _still_mine(self) -> None:
        model = self.model_of(self.folder)
        if model is None or (model["nonce"], model["step"]) != (self.nonce, self.step):
            raise Refused(ELSEWHERE)

    def _commit(
        self,
        step: int,
        model: dict[str, Any],
        noise: dict[str, np.ndarray],
        records: list[str] | None = None,
    ) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **noise)
        head = {"nonce": self.nonce, "step": step}
        try:  # two processes never take the same step
            durable.write_new(self.folder / f"{NOISE}{step}", _sealed(head, buffer.getvalue()))
        except FileExistsError:
            raise Refused(ELSEWHERE) from None
        if records:
            line = json.dumps({"step": step, "records": records}).encode() + b"\n"
            durable.append(self.folder / RECORDS, line)
        durable.replace(self.folder / MODEL, _sealed({**head, **model}, b""), 0o644)
        self.step = step

    # ------------------------------------------------------------ reading
    @classmethod
    def model_of(cls, folder: str | os.PathLike[str]) -> dict[str, Any] | None:
        """The model of a folder, without its noise; None if there is no run in it."""
        home = Path(folder)
        if not (home / MODEL).exists():
            if home.is_dir() and any(home.glob(f"{NOISE}*")):
                raise Refused("the folder holds noise without its model: use another folder.")
            return None
        model, rest = _opened((home / MODEL).read_bytes(), "the model file", ANEW)
        if rest or not {"nonce", "step"} <= set(model):
            raise Refused(f"the model file is not one of this library: {ANEW}")
        return model

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> tuple[Checkpoint, Saved] | None:
        """The run in a folder, ready to go on; None if there is none."""
        found = cls(folder, "")
        if not found.folder.is_dir():
            return None
        with found._alone():
            model = cls.model_of(folder)
            if model is None:
                return None
            found.nonce, found.step = model["nonce"], int(model["step"])
            saved = Saved(model, found._noise(found.step), found.records(found.step))
            for path in found.folder.iterdir():
                # Left over from a step that was not committed, or from the one before the last.
                stale = path.name.startswith(NOISE) and path.name != f"{NOISE}{found.step}"
                if stale or path.name.endswith(".draft"):
                    path.unlink(missing_ok=True)
        return found, saved

    @classmethod
    def standing(
        cls, folder: str | os.PathLike[str]
    ) -> tuple[Checkpoint, dict[str, Any], int] | None:
        """Where the run in a folder stands: its model and the newest step that left noise."""
        found = cls(folder, "")
        if not found.folder.is_dir():
            return None
        with found._alone():
            model = cls.model_of(folder)
            if model is None:
                return None
            found.nonce, found.step = model["nonce"], int(model["step"])
            return found, model, found.newest_noise()

    def newest_noise(self) -> int:
        """The last step that any noise file names; 0 if there is none."""
        names = (path.name.removeprefix(NOISE) for path in self.folder.glob(f"{NOISE}*"))
        return max((int(name) for name in names if name.isdigit()), default=0)

    def _noise(self, step: int) -> dict[str, np.ndarray]:
        path = self.folder / f"{NOISE}{step}"
        if not path.exists():
            newest = self.newest_noise()
            age = "missing, or older" if newest < step else "newer"
            raise Refused(f"the noise buffers are {age} than the model: {AGAIN}")
        head, rest = _opened(path.read_bytes(), "the noise file", AGAIN)
        if head.get("nonce") != self.nonce:
            raise Refused(f"the noise buffers belong to another run: {AGAIN}")
        if head.get("step") != step:
            raise Refused(f"the noise buffers belong to another step: {AGAIN}")
        with np.load(io.BytesIO(rest), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def records(self, step: int) -> list[list[str]]:
        """Who took part in each of the committed steps. A later line may be torn: it is dropped."""
        found: list[list[str]] = [[] for _ in range(step)]
        path = self.folder / RECORDS
        if not path.exists():
            return found
        lines = path.read_bytes().splitlines(keepends=True)
        kept = []
        for line in lines:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if 1 <= entry["step"] <= step:
                    found[entry["step"] - 1] = entry["records"]
                    kept.append(line)
        if len(kept) < len(lines):
            durable.replace(path, b"".join(kept))
        return found


def _sealed(head: dict[str, Any], rest: bytes) -> bytes:
    """A digest, a line of JSON and bytes: what was cut or altered no longer fits its digest."""
    content = json.dumps(head, allow_nan=False).encode() + b"\n" + rest
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _opened(content: bytes, name: str, advice: str) -> tuple[dict[str, Any], bytes]:
    digest, _, rest = content.partition(b"\n")
    if digest != hashlib.sha256(rest).hexdigest().encode():
        raise Refused(f"{name} is truncated or was altered: {advice}")
    head, _, data = rest.partition(b"\n")
    return json.loads(head), data
