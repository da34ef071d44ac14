"""Spellings of other libraries, for scripts that were written for them."""
