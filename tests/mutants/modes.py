"""The ways in which private libraries have failed, and which of them each mutant stands for.

Collected from public threads, papers and post-mortems of many libraries. A mutant belongs to the
first mode one of whose patterns is found in its name; what fits none belongs to the mode of the
check that kills it, so that a new mutant needs no entry here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .mutant import Mutant


@dataclass(frozen=True)
class Mode:
    """A failure mode: what goes wrong, and the words by which its mutants are known."""

    key: str
    what: str
    words: tuple[str, ...] = ()
    instead: str = ""
    """What stands in the way where no mutant can be planted."""


MODES = (
    # ------------------------------------------------------------ batches and steps
    Mode(
        "B1",
        "batches that are shuffled or of fixed size, accounted as Poisson",
        ("shuffled", "fixed size", "a new order in every epoch", "dealt by position"),
    ),
    Mode(
        "B2",
        "a sampling rate other than the accounted one",
        ("half as often again", "twice the rate", "every record (in|at) every", "rate squared"),
    ),
    Mode("B3", "an empty batch is drawn again or skipped", ("empty batch", "take no step")),
    Mode(
        "B4",
        "the private number of records used as if it were public",
        ("n taken from the data", "from the records there are"),
    ),
    Mode(
        "B5",
        "a sum divided by the records it holds",
        ("divided by the", "drawn batch size", "mean of the records"),
    ),
    Mode("B6", "passes or micro-steps counted wrongly", ("several passes", "last round", "as two")),
    Mode("B7", "two batches under one noise: a sum that is not cleared", ("not cleared",)),
    Mode("B8", "a clip for groups of records, charged as one for each", ("clipped in pairs",)),
    Mode("B9", "a number of steps that depends on data", ("one step more",)),
    Mode(
        "B10",
        "correlated noise beyond its horizon or its rule",
        ("beyond the horizon", "clip norm that changes", "any noise$", "too early", "is counted"),
    ),
    Mode("B11", "batches that repeat or depend on each other", ("same batch at every step",)),
    Mode(
        "B12", "records that come back more often than declared", ("participations", "two places")
    ),
    # ------------------------------------------------------------ the accountant
    Mode(
        "A1",
        "a composition that can fall below the truth",
        (
            "composed by their maximum",
            "releases forgotten",
            "do not add up",
            "only one is charged",
            "what holds it",
            "first cell",
            "half of mu",
            "every slope",
            "given-up stream",
            "as if they were different",
        ),
    ),
    Mode("A2", "a wrong conversion between notions of privacy", ("conversion", "at 1.1 epsilon")),
    Mode("A3", "numerics that fail and still print a number", ("not a number",)),
    Mode("A4", "a reading that changes the account", ("reading epsilon",)),
    Mode("A5", "calibrated noise that is over its target", ("calibrat",)),
    Mode(
        "A6",
        "the constant of another mechanism",
        ("four times too small", "a tenth$", "with half its epsilon", "twice the noise", "factor"),
    ),
    Mode("A7", "a sign error in a formula", ("sign error", "not subtracted")),
    Mode(
        "A8",
        "a mechanism that declares less than its noise costs",
        (
            "declares half",
            "not declared",
            "determinant",
            "slack of",
            "tree not counted",
            "for free",
        ),
    ),
    Mode(
        "A9",
        "further fits, tuning or first looks that are not paid",
        ("not paid", "whole budget again", "counted once", "share the noise", "noise of the first"),
    ),
    Mode(
        "A10",
        "several releases from one slice of the budget",
        ("charged once", "charged for one", "served one leaf", "what it shares"),
    ),
    Mode(
        "A11",
        "the wrong neighbouring relation",
        (
            "L for 2L",
            "gradient by L",
            "replaced",
            "replacing",
            "relations are not compared",
            r"instead of sqrt\(2\)",
        ),
    ),
    Mode(
        "A12",
        "an epsilon that is printed too small",
        ("rounded down when printed", "printed too small"),
    ),
    # ------------------------------------------------------------ sensitivity
    Mode(
        "S1",
        "a sensitivity that is too small",
        (
            "radius of one",
            "Lipschitz",
            "sensitivity",
            "reach",
            "moved by a half",
            "count twice",
            "moments bounded",
        ),
    ),
    Mode("S2", "the bound of another column or norm", ("another norm", "another column")),
    Mode(
        "S3",
        "data that is clipped, and the unclipped copy used",
        ("rows not clipped", "rows are not clipped", "rows that are not clipped", "not shortened"),
    ),
    Mode("S4", "labels or classes read from data", ("classes read",)),
    Mode("S5", "bounds or settings read from data", ("read from data",)),
    Mode("S6", "records that are not finite", ("not finite",)),
    Mode(
        "S7",
        "a clip that is left out, or an argument that is ignored",
        ("not clipped", "no clip", "clip counts", "pass the clip"),
    ),
    Mode("S8", "a clip of each part where one of the whole is declared", ("clipped by itself",)),
    Mode(
        "S9",
        "rounding, order or overflow of a sum",
        ("cut off", "rounded up", "costs rounded down", "underflows"),
    ),
    Mode(
        "S10",
        "a choice whose scores move further than said",
        (
            "range",
            "before the choice",
            "slopes renewed",
            "half the room",
            "every proposal",
            "drift",
        ),
    ),
    Mode("S11", "an objective in other units than the theorem's", ("regulariser",)),
    Mode(
        "S12",
        "objective perturbation outside its theorem",
        ("smoothness", "tolerance"),
    ),
    Mode(
        "S13",
        "layers that mix records",
        (
            "mixes records",
            "model is tried",
            "on the way back",
            "a new buffer",
            "remembers examples",
            "holds a batch",
        ),
    ),
    # ------------------------------------------------------------ noise and random bits
    Mode(
        "N1",
        "the same noise twice",
        ("same .* noise at every step", "same draw", "a seed begins anew", "completed without"),
    ),
    Mode("N2", "a forked process repeats the noise", ("forked",)),
    Mode("N3", "one stream for two purposes", ("one stream", "second random word")),
    Mode("N4", "bits that can be guessed", ("constant key", "called private")),
    Mode(
        "N5",
        "noise of several processes: on each of them, on none, or the same on all",
        ("^processes:",),
    ),
    Mode(
        "N6",
        "a checkpoint that is resumed twice or elsewhere",
        ("taken twice", "any run is taken", "buffers are not kept", "state forgotten"),
    ),
    Mode("N7", "low-order bits of floating-point noise", ("added in floating point",)),
    Mode("N8", "a number of draws or a time that can be seen", ("own stream", "trip count")),
    Mode(
        "N9",
        "side outputs: answers, pickles, copies, files",
        ("leak", "pickled", "copy carries", "everybody reads"),
    ),
    Mode("N10", "noise in other units than the sum's", ("units of the clip norm", "of twice the")),
    Mode(
        "N11",
        "noise that is smaller than, or shaped unlike, the declared one",
        (
            "half the .*noise",
            "no .*noise",
            "redrawn",
            "averaged",
            "independent Laplaces",
            "half as wide",
            "one digit",
            "one-sided",
            "without noise",
            "when they are swallowed",
            "children",
        ),
    ),
    # ------------------------------------------------------------ budgets that last
    Mode("L1", "a ledger that lets more be spent than there is"),
    Mode("L2", "a ledger that does not see that it was changed", ("head", "hashes", "chain")),
    Mode("L3", "a crash or a retry that gives budget back", ("given back", "the dead", "keys are")),
)
BY_CHECK = {
    "law": "N11",
    "covariance": "N11",
    "attack": "N11",
    "fresh": "N1",
    "replay": "S1",
    "exact": "S9",
    "rounding": "S9",
    "log": "A10",
    "dry run": "B9",
    "closed form": "A1",
    "accounting": "A1",
    "charge": "A1",
    "certificate": "A1",
    "batches": "B2",
    "source": "N4",
    "ledger": "L1",
    "refusal": "B10",
    "participants": "B12",
    "checkpoint": "N6",
}
"""The mode of a mutant whose name says nothing, by the check that kills it."""
KNOWN = {mode.key: mode for mode in MODES}


def mode_of(mutant: Mutant) -> Mode:
    """The failure mode that a mutant stands for."""
    if mutant.name.startswith("ledger"):
        found = next((m for m in MODES[-3:] if _fits(m, mutant.name)), None)
        if found is not None or "relations" not in mutant.name:
            return found or KNOWN["L1"]
    for mode in MODES:
        if _fits(mode, mutant.name):
            return mode
    return KNOWN[BY_CHECK.get(mutant.by, "S1")]


def _fits(mode: Mode, name: str) -> bool:
    return any(re.search(words, name) for words in mode.words)
