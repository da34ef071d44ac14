"""Planted bugs. Each is one small patch in memory, and some check must notice it.

``python -m tests.mutants`` plants them one after the other and prints who was killed by what; a
mutant that survives is a hole in the checks. ``test_mutants.py`` runs the quick ones.
"""
