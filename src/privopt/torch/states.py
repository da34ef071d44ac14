"""States of several processes, put together and cut for one of them; and files that hold them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from privopt import durable
from privopt.privacy.budget import Refused

COMMON = ("settings", "budget", "steps_done", "leg")
NEEDED = {
    *(*COMMON, "private", "charged", "process", "share"),
    *("average", "schedule", "records", "curve", "noise"),
}


def joined(states: list[dict[str, Any]], own: slice) -> dict[str, Any]:
    """The state of the process that owns a share of the noise, from states that hold it.

    Buffers are cut by coordinates, and noise is correlated over steps alone: a coordinate goes on
    with its own past in whichever process it is. States of different runs, or of two that went on
    from one state, would give it the past of another; they are refused.
    """
    try:
        states = sorted(states, key=lambda state: state["process"])
        first = states[0]
        if not first.keys() >= NEEDED:
            raise Refused("this is not the state of such a run.")
        if any(state[name] != first[name] for state in states for name in COMMON):
            raise Refused("these states belong to different runs, or to different steps of one.")
        state = first | {"private": all(state["private"] for state in states)}
        if first["noise"] is not None:
            state["noise"] = _cut(states, own)
    except (IndexError, KeyError, TypeError, ValueError) as problem:
        raise Refused("this is not the state of such a run.") from problem
    return state


def _cut(states: list[dict[str, Any]], own: slice) -> dict[str, Any]:
    """The stream of the first state, with the buffers of one share."""
    start = there = states[0]["share"][0]
    for state in states:
        if state["share"][0] != there:
            raise Refused("a process's state is missing between these.")
        there = state["share"][1]
    if own.start < start or there < own.stop:
        raise Refused(
            f"this state has the noise of parameters {start} to {there}, and this process adds "
            f"that of {own.start} to {own.stop}: load its own state, or a list of all."
        )
    streams = [state["noise"] for state in states]
    buffers = [stream["noise"] for stream in streams]
    if any(one["step"] != buffers[0]["step"] for one in buffers):
        raise Refused("a step of this run failed in some of its processes: take an earlier state.")
    here = slice(own.start - start, own.stop - start)
    parts = zip(*(one["vectors"] for one in buffers), strict=True)
    vectors = [torch.cat(part)[here] for part in parts]
    return streams[0] | {"noise": buffers[0] | {"vectors": vectors}}


# ------------------------------------------------------------ files
GONE_ON = (
    "what other runs have released that went on from the same file is not counted here: its note "
    "says that it was loaded before"
)


def noted_before(path: str | os.PathLike[str]) -> bool:
    """Note beside a state's file that it was gone on from; whether it was before."""
    with suppress(PermissionError):  # where nothing can be written, nothing is noted
        try:
            os.close(os.open(f"{os.fspath(path)}.resumed", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return True
    return False


def write_secret(state: Any, path: str | os.PathLike[str]) -> None:
    """Save a state in a file that its owner alone can read, from its first byte on; a crash leaves
    the file that was there."""
    durable.replace(path, lambda file: torch.save(state, file))


@contextmanager
def secretly() -> Iterator[None]:
    """Files that others make meanwhile can be read by their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
