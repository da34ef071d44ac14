"""What online estimators share: one batch is one step of a stream, certified at every moment.

Order of a step: parameters, validation, what was promised (horizon, participations), the release,
the checkpoint, and only then the attributes. A step that is refused releases nothing; a step that
did not get as far as its checkpoint was never seen.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.frames import concrete
from privopt.estimators.online_run import OneLeader, OnlineRun, Recipe, Spent
from privopt.estimators.pipelines import learned_before
from privopt.estimators.resumable import IDENTITIES, Resumable
from privopt.estimators.targets import Targets
from privopt.estimators.users import OWNED, rows_that_count
from privopt.geometry import Domain, L2Ball
from privopt.ledger import account_for
from privopt.mechanisms.checkpoint import Checkpoint
from privopt.noise import Source, fresh_name, source_for
from privopt.oracle import Query, RowBounds
from privopt.oracle.identities import canonical_ids
from privopt.privacy import Budget, Certificate, Neighbouring, Refused
from privopt.privacy.participation import Participation
from privopt.problem import Problem

FIT_STEPS = 100
"""Steps of ``fit`` when neither n_steps nor batch_size says how many."""


class OnlineModel(Resumable):
    """A private linear model of a stream. Subclasses say which loss, query and leader."""

    n_steps: int | None
    batch_size: int | None
    max_participations: int
    min_separation_steps: int
    radius: float | None
    noise: str
    average: bool | str
    _solver = "dp_ftrl"
    _margin = 5.0
    __metadata_request__fit: ClassVar = {"sample_weight": UNUSED}

    def _design(self, X: Any) -> Any:
        """Batches are small and read once: a copy serves them best."""
        declared = self._declared(X.shape[1])
        return X if declared is None else declared.apply(X)

    # ------------------------------------------------------------ what subclasses say
    @abstractmethod
    def _query(self, problem: Problem) -> Query:
        """What is asked of each batch."""

    @abstractmethod
    def _leader(self, recipe: Recipe, kept: dict[str, Any]) -> OneLeader:
        """A leader before its first step."""

    def _parts(self, batch: int) -> int:
        """How many steps of noise a batch of so many rows is."""
        return 1

    def _bounds(self, problem: Problem) -> RowBounds:
        """What rows are clipped to before any question."""
        return RowBounds(problem.row_norm, problem.intercept)

    # ------------------------------------------------------------ one step, or one pass
    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def _step(
        self,
        X: Any,
        y: Any,
        record_ids: Any,
        public: Any,
        classes: Any = None,
        user_ids: Any = None,
    ) -> Self:
        """``partial_fit``: one batch, one step."""
        if self._run is None and not self._resumed():
            self._refuse_a_copy()
        if self._run is not None:
            self._refuse_changes(self._kept)
        aside = self._aside()
        X, targets = aside._checked(X, y, classes)
        if self._run is None:
            targets = replace(targets, assumptions=(*targets.assumptions, *learned_before()))
        if public is not None:
            public = aside._checked(*public, targets.attributes.get("classes_"))
        X, targets, users = self._of_users(X, targets, user_ids)
        if users is not None and record_ids is not None:
            raise ValueError(
                "give user_ids or record_ids: participations are those of one of them."
            )
        return self._take(aside, X, targets, record_ids if users is None else users, public)

    def _of_users(
        self, X: Any, targets: Targets, user_ids: Any
    ) -> tuple[Any, Targets, list[str] | None]:
        """The rows that count of each user, and who is there; all rows without users."""
        counting = rows_that_count(user_ids, X.shape[0], self.rows_per_user)
        if counting is None:
            return X, targets, None
        names = canonical_ids(concrete(user_ids, "user_ids"), X.shape[0], "user_ids")
        labels = tuple(part[counting.rows] for part in targets.labels)
        known = (*targets.assumptions, *(one for one in (OWNED,) if one not in targets.assumptions))
        return (
            X[counting.rows],
            replace(targets, labels=labels, assumptions=known),
            sorted({*names}),
        )

    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def _pass(self, X: Any, y: Any, user_ids: Any = None) -> Self:
        """``fit``: a new run over the rows in their order, cut into batches."""
        if self.checkpoint is not None and Checkpoint.model_of(self.checkpoint) is not None:
            raise Refused(
                "the checkpoint's folder holds a run: go on with partial_fit, or use another one."
            )
        aside = cast(Self, clone(self))
        X, targets = aside._checked(X, y, None, read=True)
        targets = replace(targets, assumptions=(*targets.assumptions, *learned_before()))
        rows_that_count(user_ids, X.shape[0], self.rows_per_user)  # refuses before anything
        rows = X.shape[0]
        size = self.batch_size or -(-rows // (self.n_steps or min(rows, FIT_STEPS)))
        steps = -(-rows // size)
        if self.n_steps is not None and steps > self.n_steps:
            raise ValueError(
                f"{rows} rows in batches of {size} are {steps} steps, more than n_steps="
                f"{self.n_steps}: declare more steps or a larger batch_size."
            )
        self._forget()
        for start in range(0, rows, size):
            part = slice(start, start + size)
            labels = tuple(labels[part] for labels in targets.labels)
            few = None if user_ids is None else concrete(user_ids, "user_ids")[part]
            batch = self._of_users(X[part], replace(targets, labels=labels), few)
            self._take(aside, *batch, None)
        return self

    def _take(self, aside: Any, X: Any, targets: Targets, names: Any, public: Any) -> Self:
        """One step on validated rows."""
        run, rows = self._run, X.shape[0]
        if run is None:
            batch = self.batch_size or rows
            kept = self._extra(aside, targets, batch)
            run = self._begin(kept, len(targets.labels))
        else:
            kept = self._kept
        if self.batch_size is not None and rows > self.batch_size:
            raise ValueError(
                f"a batch holds at most batch_size={self.batch_size} rows, got {rows}."
            )
        records = run.check(rows if self.rows_per_user is None else len(names), names)
        entry = None
        if public is not None:
            entry = run.trace.entry(aside._design(public[0]), public[1].labels, run.thetas)
        if self._run is None:
            run.pay(account_for(self.ledger, self.dataset))
        if self._run is None and self.checkpoint is not None:
            run.checkpoint = Checkpoint(self.checkpoint, fresh_name())
            run.checkpoint.begin(run.public(kept))
        moved = run.step(aside._design(X), targets.labels)
        run.commit(moved, records, names is None, kept)
        if entry is not None:
            run.trace.entries.append(entry)
        self._run, self._kept = run, kept
        self._show()
        return self

    def _aside(self) -> Any:
        """A clone that validates: what it learns about X is kept only if the step succeeds."""
        aside = clone(self)
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(self, name):
                setattr(aside, name, getattr(self, name))
        return aside

    def _checked(self, X: Any, y: Any, classes: Any, read: bool = False) -> tuple[Any, Targets]:
        """Parameters and data, before anything is computed."""
        self._budget()
        self._rule()
        if isinstance(self.data_norm, str):
            raise ValueError(
                "a stream needs a declared data_norm, a positive number: it is fixed before any "
                "data is seen."
            )
        X, y = self._validated(X, y, reset=not hasattr(self, "n_features_in_"))
        return X, self._labelled(y, classes, read)

    def _labelled(self, y: np.ndarray, classes: Any, read: bool) -> Targets:
        """Labels of each model; ``read``: classes that nobody declared may be read from y."""
        return self._targets(y)

    # ------------------------------------------------------------ what is promised
    def _budget(self) -> Budget:
        unit = "record" if self.rows_per_user is None else "user"
        budget = Budget(self.epsilon, self.delta, cast(Neighbouring, self.neighbouring), unit)
        if budget.pure:
            raise ValueError("a stream needs delta > 0: take a value well below 1 / records.")
        if budget.neighbouring == "add_remove":
            raise ValueError(
                "batches shift when a record is added or removed: "
                'use neighbouring="zero_out" or "replace_one".'
            )
        return budget

    def _rule(self) -> Participation:
        for name in ("max_participations", "min_separation_steps", "n_steps", "batch_size"):
            value, optional = getattr(self, name), name in ("n_steps", "batch_size")
            if value is None and optional:
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}.")
        if self.radius is not None and not 0 < self.radius < math.inf:
            raise ValueError(f"radius must be positive and finite, got {self.radius!r}.")
        rule = Participation.separated(self.max_participations, self.min_separation_steps)
        if self.n_steps is None:
            if rule.times > 1:
                raise ValueError(
                    "an open-ended stream takes each record once: declare n_steps for more "
                    "participations."
                )
            if self.noise not in ("auto", "honaker"):
                raise ValueError(
                    f"noise={self.noise!r} needs a declared n_steps: an open-ended stream has "
                    "Honaker trees."
                )
        return rule

    def _domain(self) -> Domain:
        return L2Ball(self._ball())

    def _ball(self) -> float:
        """Radius of the ball that holds the models: margins of about 5 for rows at their bound."""
        if self.radius is not None:
            return float(self.radius)
        return self._margin / math.hypot(self._unit_norm(), self._column())

    def _column(self) -> float:
        return self._unit_norm() / 3 if self.fit_intercept else 0.0

    def _begin(
        self,
        kept: dict[str, Any],
        models: int,
        steps: int = 0,
        spent: tuple[Spent, ...] = (),
        key: str = "",
    ) -> OnlineRun:
        """A run at its start, or at the start of another stream after ``steps`` steps."""
        problem = self._problem(1, kept["features"])
        recipe = Recipe(
            budget=self._budget(),
            problem=problem,
            query=self._query(problem),
            rule=self._rule(),
            steps=None if self.n_steps is None else int(self.n_steps),
            noise=self.noise,
            models=models,
            solver=self._solver,
            bounds=self._bounds(problem),
            # All rows that a user has in a batch are in one step.
            parts=1 if self.rows_per_user else self._parts(kept["batch_size"]),
            rows=self.rows_per_user or 1,
        )
        leaders = [self._leader(recipe, kept) for _ in range(models)]
        source = self._source(steps, len(spent))
        return OnlineRun(recipe, leaders, source, spent=spent, key=key)

    def _source(self, steps: int, streams: int) -> Source:
        """A seed gives other numbers after a restart: noise is never drawn twice."""
        source = source_for(self.random_state)
        if not isinstance(self.random_state, (int, np.integer)) or not steps + streams:
            return source
        text = f"{int(self.random_state)}/{steps}/{streams}".encode()
        return source_for(int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big"))

    # ------------------------------------------------------------ attributes
    def _extra(self, aside: Any, targets: Targets, batch: int) -> dict[str, Any]:
        classes = targets.attributes.get("classes_")
        names = getattr(aside, "feature_names_in_", None)
        return {
            "estimator": type(self).__name__,
            "parameters": self._parameters(),
            "features": aside.n_features_in_,
            "names": None if names is None else names.tolist(),
            "batch_size": batch,
            "classes": None if classes is None else [str(classes.dtype), classes.tolist()],
            "assumptions": list(targets.assumptions),
            "identities": IDENTITIES,
        }

    def _show(self) -> None:
        run, extra = self._run, self._kept
        assert run is not None
        problem = self._problem(1, extra["features"])
        thetas = run.thetas
        if self.average in (True, "all"):  # least squares: a yes or no
            thetas = [total / run.steps if run.steps else total for total in run.totals]
        theta = np.stack(thetas)
        coef = np.ascontiguousarray(theta[:, : extra["features"]])
        intercept = theta[:, -1] * problem.intercept if problem.intercept else np.zeros(len(theta))
        self.n_features_in_, self.batch_size_ = extra["features"], extra["batch_size"]
        if extra["names"] is not None:
            self.feature_names_in_ = np.array(extra["names"], dtype=object)
        if extra["classes"] is not None:
            kind, values = extra["classes"]
            self.classes_ = np.array(values, dtype=kind)
        norm = run.recipe.bounds.data_norm
        self.steps_, self._row_map = run.steps, None
        self.data_norm_ = None if math.isinf(norm) else norm
        self._certificate: Certificate | None = None
        self._keep(*self._undesigned(coef, intercept, extra["features"]))

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self._run = None

    @property
    def privacy_(self) -> Certificate:
        """What has been guaranteed so far."""
        check_is_fitted(self, "steps_")
        if self._certificate is None:
            assert self._run is not None
            settings = {
                name: value
                for name, value in self._kept["parameters"].items()
                if isinstance(value, (int, float, str))
            }
            settings |= {"batch_size": self.batch_size_, "noise_multiplier": self._run.multiplier}
            assumptions = tuple(self._kept["assumptions"])
            self._certificate = self._run.certificate(settings, assumptions)
        return self._certificate

    def epsilon_spent(self, *, at_end: bool = False) -> float:
        """Epsilon of everything released so far, or of the whole stream once all its declared steps
        are done."""
        check_is_fitted(self, "steps_")
        if not at_end or self._run is None:
            return self.privacy_.epsilon
        return self._run.epsilon_at_end()

    def regret(self) -> np.ndarray:
        """Average regret after each step that came with ``public`` records: mean loss of the models
        in force on them, minus that of the best fixed model in hindsight, within the ball."""
        if self._run is None or not self._run.trace.entries:
            raise Refused(
                "regret is measured on public records only: pass public=(X, y) to partial_fit."
            )
        return self._run.trace.regret()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if tags.classifier_tags is not None:
            tags.classifier_tags.poor_score = True  # a stream of a few hundred records is short
        return tags

    def __getstate__(self) -> Any:
        """A copy holds the model and its certificate, never the noise: it cannot go on."""
        state = super().__getstate__()
        if self._run is not None:
            state["_certificate"] = self.privacy_
        state.pop("_run", None)
        return state
