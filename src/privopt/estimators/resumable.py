"""Streams that outlive a process: resume from a checkpoint, or go on with fresh noise."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from typing import Any, Self, cast

from sklearn.base import clone

from privopt.estimators.linear_model import LinearModel
from privopt.estimators.online_run import OnlineRun, Spent
from privopt.ledger import account_for
from privopt.mechanisms.checkpoint import Checkpoint
from privopt.noise import fresh_name
from privopt.privacy import Refused

APART = ("checkpoint", "random_state", "ledger", "dataset")
"""Parameters that say where and how, not what: they may change between two processes."""
NOISE = ("epsilon", "delta", "n_steps", "noise", "max_participations", "min_separation_steps")
"""Parameters that a new stream may change; all others belong to the model or to its guarantee."""

IDENTITIES = 1
"""How ids of records become digests; another number would count the same people anew."""


class Resumable(LinearModel):
    """The half of an online estimator that knows about folders, crashes and copies.

    ``_run`` is the live stream, with its noise; ``_kept`` what else belongs to the run, public.
    """

    checkpoint: Any
    n_steps: int | None
    _run: OnlineRun | None = None
    _kept: dict[str, Any]

    @abstractmethod
    def _begin(
        self,
        kept: dict[str, Any],
        models: int,
        steps: int = 0,
        spent: tuple[Spent, ...] = (),
        key: str = "",
    ) -> OnlineRun:
        """A run at its start, or at the start of another stream after ``steps`` steps."""

    @abstractmethod
    def _show(self) -> None:
        """Set the attributes of the run's last step."""

    def resume(self) -> Self:
        """Load the last committed step from the ``checkpoint`` folder.

        ``partial_fit`` does so by itself; this is for predicting, or for looking at ``steps_``,
        before the next batch comes.
        """
        self._run = None
        if not self._resumed():
            raise Refused("there is no run to resume: checkpoint names no folder that holds one.")
        return self

    def _resumed(self) -> bool:
        found = None if self.checkpoint is None else Checkpoint.load(self.checkpoint)
        if found is None:
            return False
        checkpoint, saved = found
        kept = saved.model["extra"]
        self._refuse_changes(kept)
        run = self._loaded(saved.model, saved.records)
        run.load_secret(saved.noise)
        run.checkpoint = checkpoint
        self._run, self._kept = run, kept
        self._show()
        return True

    def start_new_stream(self) -> Self:
        """Go on with the model, but with fresh noise: after a crash that lost the noise, or to
        change what a stream fixes: its budget, its number of steps, its noise, its rule.

        The budget pays for both streams. The new one gets what the old one has left, so it is
        noisier; with a larger ``epsilon``, set before, it need not be.
        """
        old, kept, seen = self._run, getattr(self, "_kept", {}), 0
        if old is not None and old._process != os.getpid():
            raise Refused("this is a copy of a stream in another process, which goes on with it.")
        checkpoint, live = None if old is None else old.checkpoint, old
        folder = self.checkpoint if old is None else checkpoint and checkpoint.folder
        if folder is not None:
            # The folder is the authority: other objects may have gone on since this one looked.
            found = Checkpoint.standing(folder)
            if found is None and live is not None:
                raise Refused("the folder of this stream is gone: clone() the estimator.")
            if found is not None:
                checkpoint, model, seen = found
                kept = model["extra"]
                before = cast(Self, clone(self)).set_params(**_thawed(kept["parameters"]))
                old = before._loaded(model, checkpoint.records(model["step"]))
                if live is not None:
                    old.trace = live.trace
        if old is None:
            raise Refused("there is no stream to go on with: begin with partial_fit.")
        changed = self._changed(kept)
        if set(changed) - set(NOISE):
            name = next(name for name in changed if name not in NOISE)
            raise Refused(
                f"{name} belongs to the model or to its guarantee: set it back, or clone() the "
                "estimator for a run of its own."
            )
        if self._parameters()["n_steps"] is not None and cast(int, self.n_steps) <= old.steps:
            raise Refused("all declared steps are done: raise n_steps for another stream.")
        kept = {**kept, "parameters": self._parameters()}
        run = self._begin(kept, len(old.leaders), old.steps, old.given_up(seen), old.key)
        run.follow(old)
        run.pay(account_for(self.ledger, self.dataset))
        if checkpoint is not None:
            checkpoint.renew(old.steps, fresh_name(), run.public(kept))
            run.checkpoint = checkpoint
        self._run, self._kept = run, kept
        self._show()
        return self

    def _loaded(self, model: dict[str, Any], records: list[list[str]]) -> OnlineRun:
        """The public half of a run on disk."""
        kept = model["extra"]
        if kept["estimator"] != type(self).__name__:
            raise Refused(f"the checkpoint's folder holds a run of {kept['estimator']}.")
        if model["enrolled"] and kept.get("identities") != IDENTITIES:
            raise Refused(
                "the folder counts participations by ids as an earlier version wrote them: begin a "
                "run with a budget of its own in another folder."
            )
        spent = tuple(Spent(**stream) for stream in model["spent"])
        run = self._begin(kept, len(model["leaders"]), model["step"], spent, model["key"])
        run.load(model, records)
        return run

    def _changed(self, kept: dict[str, Any]) -> list[str]:
        """Names of the parameters that are not those of the run."""
        now = self._parameters()
        return sorted(name for name in now if now[name] != kept["parameters"].get(name))

    def _refuse_changes(self, kept: dict[str, Any]) -> None:
        changed = self._changed(kept)
        if changed:
            renewed = "call start_new_stream(), which accounts both"
            anew = "clone() the estimator for a run of its own"
            raise Refused(
                f"{changed[0]} cannot change within a stream: set it back, or "
                f"{renewed if changed[0] in NOISE else anew}."
            )

    def _refuse_a_copy(self) -> None:
        if hasattr(self, "steps_"):
            raise Refused(
                "a copy of a model has no noise to go on with its stream: resume from a "
                "checkpoint, or clone() it for a new run with a budget of its own."
            )

    def _parameters(self) -> dict[str, Any]:
        found = {k: v for k, v in self.get_params(deep=False).items() if k not in APART}
        return json.loads(json.dumps(found, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _thawed(parameters: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in parameters.items()}
