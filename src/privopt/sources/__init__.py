"""Data sets larger than memory: a list of chunks that is fixed before anything is paid or read."""

from privopt.sources.dataset import Dataset, dataset

__all__ = ["Dataset", "dataset"]
