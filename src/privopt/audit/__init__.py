"""Audits: record/replay on hostile neighbours, and the law of the noise."""

from privopt.audit.law import noise_p_value
from privopt.audit.neighbours import Pair, hostile_pairs
from privopt.audit.replay import Tape, record, replay

__all__ = ["Pair", "Tape", "hostile_pairs", "noise_p_value", "record", "replay"]
