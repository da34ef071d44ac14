"""What an evaluation released, with its certificate; everything it says is computed from that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from privopt.evaluation.bins import ScoreBins
from privopt.evaluation.estimate import Estimate, NoisyCounts
from privopt.evaluation.many_classes import ManyClasses, ManyClassesResult
from privopt.evaluation.numbers import Numbers, NumbersResult
from privopt.evaluation.two_classes import TwoClasses, TwoClassesResult
from privopt.privacy import Certificate
from privopt.privacy.budget import Refused

VERSION = 1
Layout = TwoClasses | ManyClasses | Numbers
LAYOUTS: dict[str, Any] = {one.__name__: one for one in (TwoClasses, ManyClasses, Numbers)}

MEANING = {
    "held_out": (
        "The rows were not used to fit the model, so the metrics are those of new rows of the same "
        "kind. A person whose rows are in both parts pays for both."
    ),
    "training": (
        "The rows were also used to fit the model: the metrics are those of the training rows, and "
        "better than on new ones. Every record pays for the fit and for this evaluation."
    ),
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Private metrics of one model on one set of rows.

    Metrics are attributes by their names, each an ``Estimate`` with ``value``, ``low``, ``high``
    and its standard errors; ``metrics`` holds them all.

    Attributes
    ----------
    metrics : dict of str to Estimate
    certificate : Certificate
    sums : ndarray
        What was released, in records.
    """

    model: str
    layout: Layout
    classes: tuple[Any, ...]
    sums: np.ndarray
    variance: float
    group: int
    level: float
    rows: str
    certificate: Certificate

    @cached_property
    def _result(self) -> TwoClassesResult | ManyClassesResult | NumbersResult:
        variances = np.full(len(self.sums), self.variance)
        counts = NoisyCounts(self.sums, variances, self.group, self.level)
        if isinstance(self.layout, TwoClasses):
            return TwoClassesResult(self.layout, counts)
        if isinstance(self.layout, ManyClasses):
            return ManyClassesResult(self.layout, counts, tuple(map(str, self.classes)))
        return NumbersResult(self.layout, counts)

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        return self._result.metrics()

    def __getattr__(self, name: str) -> Estimate:
        if name.startswith("_") or name in {one.name for one in fields(self)}:
            raise AttributeError(name)
        if name not in self.metrics:
            known = ", ".join(self.metrics)
            raise AttributeError(f"there is no metric {name!r} here: there are {known}.")
        return self.metrics[name]

    @property
    def confusion_matrix(self) -> np.ndarray | None:
        """Noisy counts, true classes in rows and predicted ones in columns; none below zero."""
        found = self._result.confusion()
        return None if found is None else np.maximum(found[0], 0.0)

    @property
    def confusion_noise(self) -> np.ndarray | None:
        """One standard deviation of the noise in each cell of the confusion matrix."""
        found = self._result.confusion()
        return None if found is None else found[1]

    @cached_property
    def roc(self) -> list[tuple[float, Estimate, Estimate]]:
        """Score, false- and true-positive rate at each edge between bins, for two classes."""
        return self._result.roc()

    @cached_property
    def calibration(self) -> list[tuple[float, Estimate, float]]:
        """Probability said, rate observed and number of records, for each bin that holds any."""
        return self._result.calibration()

    def one_against_rest(self, label: Any) -> TwoClassesResult:
        """ROC and calibration of one class of several, if ``one_vs_rest`` was asked for."""
        if not isinstance(self._result, ManyClassesResult) or not self._result.layout.ranks:
            raise ValueError("this was not asked for: evaluate(..., one_vs_rest=True).")
        return self._result.one_against_rest(list(self.classes).index(label))

    @property
    def meaning(self) -> str:
        """Whose metrics these are."""
        return MEANING[self.rows]

    # ------------------------------------------------------------ shown
    def to_frame(self) -> Any:
        """A pandas frame with one line for each metric."""
        import pandas as pd

        return pd.DataFrame({name: asdict(one) for name, one in self.metrics.items()}).T

    def __str__(self) -> str:
        width = max(map(len, self.metrics))
        head = f"{'':{width}}  {'value':>8}  {f'{100 * self.level:g} % interval':>18}"
        lines = [f"{head}  {'sampling':>8}  {'noise':>8}"]
        for name, one in self.metrics.items():
            interval = f"{one.low:.4g} to {one.high:.4g}"
            lines.append(
                f"{name:{width}}  {one.value:8.4g}  {interval:>18}  "
                f"{one.sampling:8.2g}  {one.noise:8.2g}"
            )
        return "\n".join([f"{self.model} on {self.rows.replace('_', '-')} rows", *lines, "",
                          self.meaning, str(self.certificate)])  # fmt: skip

    # ------------------------------------------------------------ kept
    def to_dict(self) -> dict[str, Any]:
        """Plain values: what was released and what follows from it."""
        return {
            "version": VERSION,
            "model": self.model,
            "layout": {"kind": type(self.layout).__name__, **_plain(self.layout)},
            "classes": list(self.classes),
            "sums": [float(value).hex() for value in self.sums],
            "variance": self.variance,
            "group": self.group,
            "level": self.level,
            "rows": self.rows,
            "metrics": {name: _finite(asdict(one)) for name, one in self.metrics.items()},
            "certificate": self.certificate.to_dict(),
        }

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read one back; metrics and epsilon are computed again, not believed."""
        try:
            found = json.loads(text)
            version = found["version"]
        except (ValueError, KeyError, TypeError):
            raise Refused("this is not an evaluation that privopt wrote.") from None
        if version != VERSION:
            raise Refused(f"evaluation version {version!r} is not known here.")
        layout = dict(found["layout"])
        kind = LAYOUTS[layout.pop("kind")]
        if layout.get("bins") is not None:
            layout["bins"] = ScoreBins(**layout["bins"])
        return cls(
            model=found["model"],
            layout=kind(**layout),
            classes=tuple(found["classes"]),
            sums=np.array([float.fromhex(value) for value in found["sums"]]),
            variance=found["variance"],
            group=found["group"],
            level=found["level"],
            rows=found["rows"],
            certificate=Certificate.from_json(json.dumps(found["certificate"])),
        )


def _plain(layout: Layout) -> dict[str, Any]:
    return {
        one.name: asdict(value) if is_dataclass(value := getattr(layout, one.name)) else value  # type: ignore[call-overload]
        for one in fields(layout)
    }


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in values.items()}
