"""What every estimator does when it is copied, pickled or saved."""

from __future__ import annotations

import os
from typing import Any, cast

from sklearn.base import BaseEstimator

from privopt.ledger import Ledger


class Portable(BaseEstimator):
    """An estimator whose state is plain data: ledgers and folders travel as their paths."""

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast(dict[str, Any], super().__getstate__()))
        for name, value in state.items():
            if isinstance(value, Ledger):
                state[name] = str(value.path)
            elif isinstance(value, os.PathLike):
                state[name] = os.fspath(value)
        return state
