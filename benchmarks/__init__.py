"""Benchmarks: speed against peers, accuracy against the theory. ``python -m benchmarks`` runs all.

Every speed is a ratio of two things measured in one process, turn by turn. CPU time is what counts
on a busy machine; wall time is printed beside it.
"""
