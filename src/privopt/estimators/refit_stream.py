"""A stream learned block by block: a batch estimator fitted anew to each; a record pays once."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from privopt.estimators.delegating import Delegating
from privopt.estimators.frames import concrete, validated
from privopt.estimators.linear_model import LinearModel
from privopt.estimators.online_model import OnlineModel
from privopt.estimators.participants import Participants
from privopt.noise import fresh_name
from privopt.privacy import Certificate, Refused
from privopt.privacy.participation import Participation
from privopt.solvers import Blocks

ONCE = "each record is in one block of the stream: not checked, not named"
COPIED = (
    "the stream went on from a copy or a file: records of the blocks before do not come again, and "
    "no other copy goes on with the same records: not checked"
)
USUAL = 10
"""Blocks of ``fit`` where nothing says how many."""


class RefitStream(Delegating):
    """A batch estimator that follows a stream: it is fitted anew to each block of records.

    Blocks hold different records, so each record takes part in one fit and the whole budget goes
    into every block: the guarantee of the stream is that of one fit, however long it lasts.
    The model in force is the mean of the last ones.

    An online estimator moves its model with every batch and shares one budget between them. Refits
    are better where a block is large enough for a fit of its own, from some hundred records for
    each column and unit of epsilon on, and where what is learned changes from block to block.

    Parameters
    ----------
    estimator : a linear estimator of privopt
        Its ``random_state`` and ledger are set by the stream.
    block_size : int, optional
        Rows of a block in ``fit``; ``partial_fit`` takes each call for a block. Default: a tenth of
        the rows.
    average : int, default=1
        The model in force is the mean of so many last models. More of them have less noise and
        follow later.
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger : Ledger or path, optional
        Charge the stream to a budget before its first block; later is refused. Blocks must then be
        of one size.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.

    Attributes
    ----------
    model_ : estimator
        The model in force.
    blocks_ : int
        Blocks taken in.
    coef_, intercept_ : ndarray
    plan_ : Plan
        Of the last block.
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Notes
    -----
    Formal guarantee: parallel composition. The k-th block is a cell of the records that no other
    block touches, and a record's loss is that of its own cell; models of earlier blocks are public
    when a later one is fitted, and no block depends on them. Which block a record is in must not
    depend on what other records say: the order of arrival, or time. ``record_ids`` let the stream
    refuse a record that comes twice; once a block had none, the certificates of later blocks
    assume that none does.

    All blocks keep the first one's budget, with its relation, and the ledger that paid for it, or
    none: a block with another is refused. ``fit`` begins a new stream.

    What is kept between blocks is public, so a stream is resumed from ``privopt.save`` or pickle.
    Ids of records are not kept: a copy that goes on cannot notice a record of an earlier block, nor
    what another copy was given, and its certificate assumes that neither comes.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import LogisticRegression, RefitStream
    >>> angle = 2.4 * np.arange(20_000)  # spreads evenly over the circle
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> y = X[:, 0] > 0
    >>> model = RefitStream(LogisticRegression(1.0, classes=[False, True]))
    >>> for block in range(4):
    ...     rows = slice(5000 * block, 5000 * block + 5000)
    ...     model = model.partial_fit(X[rows], y[rows])
    >>> model.blocks_, model.privacy_.epsilon <= 1.0, bool(model.score(X, y) > 0.9)
    (4, True, True)
    """

    _inside = "model_"
    _blocks: Blocks | None = None
    _people: Participants | None = None
    _promised: tuple[str, ...] = ()
    _unnamed: bool = False

    def __init__(
        self,
        estimator: Any,
        *,
        block_size: int | None = None,
        average: int = 1,
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.block_size = block_size
        self.average = average
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

    # ------------------------------------------------------------ blocks
    def fit(self, X: Any, y: Any) -> Self:
        """Begin anew and go through the rows in their order, in blocks of equal size.

        What is left over at the end, less than one row for each block, is not used. Classes that
        were not declared are read from y, and the certificate says so.
        """
        made = self._checked()
        X, probe = concrete(X), cast(Any, clone(made))
        plain, y = probe._validated(X, y)
        X = X if hasattr(probe, "feature_names_in_") else plain
        classes, rows, promises = None, len(y), ()
        if made._classification and made.classes is None:
            targets = probe._targets(y)
            classes, promises = targets.attributes["classes_"], targets.assumptions
        size = self.block_size or max(1, rows // USUAL)
        many = max(1, rows // size)
        size = rows // many
        self._forget()
        for index in range(many):
            part = slice(index * size, (index + 1) * size)
            self._block(_safe_indexing(X, part), y[part], classes, None, promises)
        self._show()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, record_ids: Any = None) -> Self:
        """Take in one block: records that were in none before.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, n_features)
        y : array of shape (rows,)
        classes : array-like, optional
            The public list of labels, at the first call; not needed if the estimator has it.
        record_ids : array of shape (rows,), optional
            Names of the records; one that was in an earlier block is refused.
        """
        if hasattr(self, "n_features_in_"):
            validated(
                self, X, accept_sparse="csr", dtype=None, reset=False, ensure_all_finite=False
            )
        if classes is None:
            classes = getattr(self, "_classes", None)
        # Names cannot be held against records of earlier blocks that had none.
        promises = (ONCE,) if record_ids is None or self._unnamed else ()
        self._block(concrete(X), y, classes, record_ids, promises)
        self._show()
        return self

    def _block(self, X: Any, y: Any, classes: Any, names: Any, promises: tuple[str, ...]) -> None:
        made = self._checked()
        if made._classification and made.classes is None:
            if classes is None:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit, or to the estimator."
                )
            made.set_params(classes=np.asarray(classes))
        blocks = Blocks() if self._blocks is None else self._blocks
        seed = None if self.random_state is None else _seed(self.random_state, blocks.entered)
        made.set_params(random_state=seed, ledger=self.ledger, dataset=self.dataset)
        people = Participants(Participation.single_pass(), fresh_name())
        people = people if self._people is None else self._people
        step, entered = blocks.entered, []
        if names is not None:
            entered = people.digests(names, _rows(X), step)
        promised = tuple(dict.fromkeys((*self._promised, *promises)))
        made._blocks, made._promises = blocks, promised
        try:
            made.fit(X, y)
        finally:
            del made._blocks, made._promises
            if blocks.entered > step:  # from here on the block is spent, whatever became of it
                people.enter(step, entered)
                self._blocks, self._people, self._promised = blocks, people, promised
                self._unnamed = self._unnamed or names is None
        self._classes = getattr(made, "classes_", None)
        self._models = [*getattr(self, "_models", []), made][-int(self.average) :]

    def _checked(self) -> Any:
        """A copy of the estimator, which can be refitted."""
        if not isinstance(self.estimator, LinearModel) or isinstance(self.estimator, OnlineModel):
            raise TypeError("RefitStream refits a linear batch estimator of privopt.")
        for name in ("average", "block_size"):
            value = getattr(self, name)
            if value is None and name == "block_size":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}.")
        made = cast(LinearModel, clone(self.estimator))
        if made.neighbouring == "add_remove":
            raise ValueError(
                "blocks shift when a record is added or removed: "
                'use neighbouring="zero_out" or "replace_one".'
            )
        if made.rows_per_user is not None:
            raise ValueError(
                "a user's rows may lie in several blocks, and each block spends the whole budget: "
                "RefitStream promises privacy for records, so leave out rows_per_user."
            )
        if made.ledger is not None:
            raise ValueError("give the ledger to the stream: it pays for all blocks together.")
        if self.average > 1 and (
            getattr(made, "link", "logit") == "capped" or made.data_norm == "private"
        ):
            raise ValueError(
                "models that clip rows each in their own way have no mean: take average=1."
            )
        return made

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") or name in STATE]:
            delattr(self, name)

    def _show(self) -> None:
        self.model_ = _mean(self._models)
        self.blocks_ = cast(Blocks, self._blocks).entered
        self.n_features_in_ = self.model_.n_features_in_
        if hasattr(self.model_, "feature_names_in_"):
            self.feature_names_in_ = self.model_.feature_names_in_

    # ------------------------------------------------------------ what it has cost
    @property
    def privacy_(self) -> Certificate:
        """What all blocks so far have cost: that of the dearest one."""
        return self._fitted().privacy_

    def epsilon_spent(self) -> float:
        """Epsilon of all blocks so far."""
        return self.privacy_.epsilon

    # ------------------------------------------------------------ the model in force
    @property
    def coef_(self) -> np.ndarray:
        return self._fitted().coef_

    @property
    def intercept_(self) -> Any:
        return self._fitted().intercept_

    @property
    def plan_(self) -> Any:
        return self._fitted().plan_

    def to_sklearn(self) -> Any:
        """The model in force as a plain estimator of scikit-learn."""
        return self._fitted().to_sklearn()

    # ------------------------------------------------------------ copies
    def __getstate__(self) -> Any:
        """What is public: a copy can go on, and its certificate says what that assumes."""
        state = dict(cast(dict[str, Any], super().__getstate__()))
        state.pop("_people", None)
        if "_blocks" in state:
            state["_blocks"] = copy.deepcopy(state["_blocks"])
            state["_promised"] = tuple(dict.fromkeys((*self._promised, COPIED)))
        return state


STATE = ("_blocks", "_people", "_promised", "_unnamed", "_classes", "_models")
"""What belongs to one stream."""


def _mean(models: list[Any]) -> Any:
    """The model whose coefficients and shapes are the mean of these."""
    found = copy.copy(models[-1])
    if len(models) == 1:
        return found
    found.coef_ = np.mean([one.coef_ for one in models], axis=0)
    intercept = np.mean([one.intercept_ for one in models], axis=0)
    found.intercept_ = intercept if np.ndim(intercept) else float(intercept)
    kept = [getattr(one, "shapes_", None) for one in models]
    if any(shapes is None for shapes in kept):
        if any(shapes is not None for shapes in kept):
            raise Refused("blocks of different sizes fit other shapes: take average=1.")
        return found
    found.shapes_ = [
        replace(parts[-1], values=np.mean([part.values for part in parts], axis=0))
        for parts in zip(*kept, strict=True)
    ]
    return found


def _rows(X: Any) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _seed(state: Any, block: int) -> Any:
    """Another seed for each block: equal noise in two of them would tell their difference."""
    if not isinstance(state, (int, np.integer)) or isinstance(state, bool):
        return state
    text = f"{int(state)}/{block}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big") >> 1
