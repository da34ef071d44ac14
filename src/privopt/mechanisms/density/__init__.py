"""Exact samplers of a log-concave density on a convex body: one file, one sampler.

Each draws from exp(-potential) exactly (in real arithmetic) and stops only when a point is
accepted: no cap, no fallback, no Markov chain. How long that takes depends on the data.
"""

from privopt.mechanisms.density.body import Body, body_of
from privopt.mechanisms.density.target import Target

__all__ = ["Body", "Target", "body_of"]
