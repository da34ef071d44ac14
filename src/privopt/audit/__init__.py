"""Audits: record/replay on hostile neighbours, the law of the noise, and statistical attacks."""

from privopt.audit.bounds import Claim
from privopt.audit.law import noise_p_value
from privopt.audit.low_bits import low_bits
from privopt.audit.neighbours import Pair, hostile_pairs, user_pairs
from privopt.audit.replay import Tape, record, replay
from privopt.audit.statistical import Finding, audit

__all__ = [
    "Claim",
    "Finding",
    "Pair",
    "Tape",
    "audit",
    "hostile_pairs",
    "low_bits",
    "noise_p_value",
    "record",
    "replay",
    "user_pairs",
]
