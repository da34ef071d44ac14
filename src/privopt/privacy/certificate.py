"""The certificate: what was guaranteed, to whom, under which relation, by which events."""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from importlib.metadata import version
from typing import Any, cast

from privopt.privacy.accountant import Accountant
from privopt.privacy.budget import Budget, Neighbouring, Refused
from privopt.privacy.events import Cell, Event, Log
from privopt.privacy.groups import grouped
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.spend import Charge, Spend, Step, spend

VERSION = 1
LIBRARY = f"privopt {version('privopt')}"
MOST_SLACK = 1e-3
"""A fit whose samplers add more to delta is refused before data is touched."""
GROWS = 700.0
"""Beyond this epsilon there is no guarantee to speak of, and its exponential overflows."""

DELTAS = (
    *(float(f"{m}e-{k}") for k in range(10, 1, -1) for m in (1, 3)),
    *(k / 10 for k in range(1, 10)),  # they matter where epsilon is large
)
"""Where a curve of epsilon by delta is read."""
LEAST_EPSILON = 1e-9
"""Less than this is what samplers add to an epsilon of 0."""

RUN = object()  # held by runs: they alone certify, and have gates with secure noise


@cache
def certificate_schema() -> dict[str, Any]:
    """The published JSON Schema of ``Certificate.to_json``."""
    text = resources.files("privopt.privacy").joinpath("certificate.schema.json").read_text()
    return json.loads(text)


@dataclass(frozen=True)
class Certificate:
    """A guarantee that can be recomputed from what it lists.

    ``charges`` holds, for each cell of the public partition that no other cell dominates, the steps
    one of its records pays for; the guarantee of every record follows from them.
    ``private`` is false when the noise came from a seed: such a result may be reproduced, and
    everyone who knows the seed can subtract the noise.
    """

    epsilon: float
    delta: float
    neighbouring: Neighbouring
    unit: str
    private: bool
    solver: str
    charges: tuple[tuple[Cell, Charge], ...]
    releases: int
    cells: int
    assumptions: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    library: str = ""
    ledger: dict[str, Any] | None = None
    """Where it was charged: data set, number and hash of the ledger's entry."""
    numerics: dict[str, Any] | None = None
    """Releases in exact integers, out of all, and the epsilon and delta that their sampler may add:
    see ``slack``. None if all releases are in floating point."""

    @classmethod
    def of_run(
        cls,
        key: object,
        log: Log,
        planned: Spend,
        budget: Budget,
        *,
        solver: str,
        private: bool,
        assumptions: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
        group: int = 1,
        kept_together: bool = False,
        ledger: dict[str, Any] | None = None,
    ) -> Certificate:
        """Certify what a run's gate has logged; refuses if it is more than planned or budgeted.

        ``group`` is how many records one unit may own: charges are those of all of them, which lie
        in one part each if they are ``kept_together``. Only a
        ``Run`` holds the key, so the log is that of its gate, and the plan that of its declaration.
        """
        if key is not RUN:
            raise Refused("only a run certifies: declare what is to be released, and make a Run.")
        spent = grouped(spend(log), group, kept_together=kept_together)
        if not spent.at_most(planned):
            raise Refused(
                f"{solver} released more than it had planned: no certificate is given, and the "
                "result must not be published. Please report this as a privacy bug."
            )
        epsilon = Accountant(budget.neighbouring).epsilon(spent, budget.delta)
        if epsilon > budget.epsilon * (1 + 1e-9):
            raise Refused(
                f"{solver} spent more than its budget: no certificate is given, and the result "
                "must not be published. Please report this as a privacy bug."
            )
        numerics = slack(log, epsilon)
        added = (0.0, 0.0) if numerics is None else worth_saying(numerics, epsilon, budget.delta)
        return cls(
            epsilon=epsilon + added[0],
            delta=min(1.0, budget.delta + added[1]),
            neighbouring=budget.neighbouring,
            unit=budget.unit,
            private=private,
            solver=solver,
            charges=tuple(spent.frontier()),
            releases=len(log),
            cells=len(spent.leaves()),
            assumptions=assumptions,
            settings=dict(settings or {}),
            library=LIBRARY,
            ledger=ledger,
            numerics=numerics,
        )

    def epsilon_at(self, delta: float) -> float:
        """Epsilon of the same run at another delta (infinite if it has no pure guarantee)."""
        if not 0 <= delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {delta!r}.")
        accountant = Accountant(self.neighbouring)

        def of_laws(left: float) -> float:
            found = (accountant.epsilon(charge, left) for _, charge in self.charges)
            return max(found, default=0.0)

        epsilon = of_laws(delta)
        if self.numerics is None:
            return epsilon
        ratio, grown = float(self.numerics["epsilon"]), min(self.epsilon, GROWS)
        distance = float(self.numerics["delta"]) / (1 + math.exp(grown))  # at least that of the log
        for _ in range(60):  # what a sampler adds to delta grows with epsilon
            delta_added = (1 + math.exp(min(epsilon + ratio, GROWS))) * distance
            added = worth_saying({"epsilon": ratio, "delta": delta_added}, epsilon, delta)
            if added[1] > delta:
                return math.inf
            found = of_laws(delta - added[1])
            if found <= epsilon * (1 + 1e-12):
                return epsilon + added[0]
            epsilon = found
        return math.inf

    @cached_property
    def exact_mu(self) -> float | None:
        """mu where all that was released is exactly Gaussian, so that nobody tells a record's
        presence better than one draw of N(0, 1) from one of N(mu, 1); else None."""
        worst = 0.0
        for _, charge in self.charges:
            square = 0.0
            for step, count in charge.items():
                if not step.sampling.full or len(step.kinds) == 0:
                    return None
                for kind in step.kinds:
                    if not isinstance(kind, GaussianKind):
                        return None
                    square += count * kind.mu**2
            worst = max(worst, math.sqrt(square))
        return worst

    @cached_property
    def mu(self) -> float:
        """The guarantee as one number: ``exact_mu``, or the least mu of a Gaussian curve that is
        nowhere below this one's at deltas from 1e-10 to .9, but for what samplers add."""
        if self.exact_mu is not None:
            return self.exact_mu
        deltas = {*DELTAS, self.delta} - {0.0}
        pairs = [(delta, self.epsilon_at(delta)) for delta in deltas]
        known = [gaussian_mu(e, d) for d, e in pairs if LEAST_EPSILON < e < math.inf]
        return max(known, default=0.0)

    def verify(self) -> bool:
        """Recompute epsilon from the listed charges and compare it with the stated one."""
        return self.epsilon_at(self.delta) <= self.epsilon * (1 + 1e-9)

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "library": self.library,
            "guarantee": {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "neighbouring": self.neighbouring,
                "unit": self.unit,
                "private": self.private,
                **({} if not self.exact_mu else {"mu": self.exact_mu}),
            },
            "solver": self.solver,
            "settings": self.settings,
            "assumptions": list(self.assumptions),
            "releases": self.releases,
            "cells": self.cells,
            "charges": charges_to_list(self.charges),
            **({} if self.ledger is None else {"ledger": dict(self.ledger)}),
            **({} if self.numerics is None else {"numerics": dict(self.numerics)}),
        }

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate back; refuses one whose epsilon its own events do not support."""
        data = json.loads(text)
        if data.get("version") != VERSION:
            raise Refused(f"certificate version {data.get('version')!r} is not known here.")
        guarantee = data["guarantee"]
        certificate = cls(
            epsilon=guarantee["epsilon"],
            delta=guarantee["delta"],
            neighbouring=cast(Neighbouring, guarantee["neighbouring"]),
            unit=guarantee["unit"],
            private=guarantee["private"],
            solver=data["solver"],
            charges=charges_from_list(data["charges"]),
            releases=data["releases"],
            cells=data["cells"],
            assumptions=tuple(data["assumptions"]),
            settings=data["settings"],
            library=data["library"],
            ledger=data.get("ledger"),
            numerics=data.get("numerics"),
        )
        stated = guarantee.get("mu", math.inf)  # older ones do not say
        if not certificate.verify() or stated < (certificate.exact_mu or 0.0) * (1 - 1e-12):
            raise Refused(
                "this certificate states an epsilon that its own events do not support: "
                "it was altered or written by a faulty version."
            )
        return certificate

    def __getstate__(self) -> dict[str, str]:
        """As text: a certificate that travels is recomputed where it arrives."""
        return {"json": self.to_json(None)}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__.update(vars(Certificate.from_json(state["json"])))

    def __str__(self) -> str:
        kind = "pure" if self.delta == 0 else f"delta={shown(self.delta)}"
        exact = 0 if self.numerics is None else int(self.numerics["exact_releases"])
        added = 0.0 if self.numerics is None else float(self.numerics["epsilon"])
        lines = [
            f"epsilon={round_up(self.epsilon + added)} ({kind}), {self.neighbouring}, "
            f"per {self.unit}, by {self.solver} in {self.releases} release(s)"
        ]
        if not self.private:
            lines.append("NOT PRIVATE: the noise came from a seed (random_state was given)")
        if self.exact_mu:
            lines.append(f"exactly Gaussian, mu={round_up(self.exact_mu)}")
        if self.ledger is not None:
            where = f"{self.ledger['dataset']!r}, entry {self.ledger['entry']}"
            lines.append(f"charged to {where} ({self.ledger['hash'][:12]})")
        if self.numerics is not None:
            adds = (
                f"{self.numerics['epsilon']:.1e} to epsilon, {self.numerics['delta']:.1e} to delta"
            )
            share = f"{exact} of {self.releases} release(s)"
            lines.append(f"exact integers in {share}, whose sampler adds at most {adds}")
        if exact < self.releases:
            lines.append(
                f"floating point in {self.releases - exact} of {self.releases} release(s): the "
                "guarantee is that of real numbers, and low-order bits are not covered"
            )
        lines += [f"assumes: {text}" for text in self.assumptions]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        first, *rest = (html.escape(line) for line in str(self).splitlines())
        return f"<strong>{first}</strong><ul>{''.join(f'<li>{line}</li>' for line in rest)}</ul>"


def slack(log: Iterable[Event], epsilon: float) -> dict[str, Any] | None:
    """What the samplers of exact releases may add to a guarantee of ``epsilon``.

    Let every release differ from its law by a factor e^r outside a set of probability t, and let R
    and T be the sums over releases. Whatever has (epsilon, delta) for the laws then has
    (epsilon + 2R, delta + (1 + e^(epsilon + 2R)) T): once for each of two neighbours.
    """
    exact = [event.numerics for event in log if event.numerics is not None]
    if not exact:
        return None
    ratio = 2 * math.fsum(one.log_ratio for one in exact)
    distance = math.fsum(one.distance for one in exact)
    grows = min(epsilon + ratio, GROWS)
    delta = min(1.0, (1 + math.exp(grows)) * distance)
    if delta > MOST_SLACK:
        raise Refused(
            f"at epsilon={epsilon:.3g} the tables that exact noise is drawn from add "
            f"{round_up(delta, 2)} to delta: take a smaller epsilon, or discrete_noise=False."
        )
    return {"exact_releases": len(exact), "epsilon": ratio, "delta": delta}


def worth_saying(numerics: dict[str, Any], epsilon: float, delta: float) -> tuple[float, float]:
    """What samplers add to epsilon and delta, where it is more than rounding would hide: a
    billionth of epsilon, a thousandth of delta, or 1e-12."""
    ratio, slack = float(numerics["epsilon"]), float(numerics["delta"])
    return (
        ratio if ratio > 1e-9 * epsilon else 0.0,
        slack if slack > max(1e-12, 1e-3 * delta) else 0.0,
    )


def shown(delta: float) -> str:
    """As it was given, or rounded up where more than a few digits would be needed."""
    plain = f"{delta:g}"
    return plain if float(plain) >= delta else round_up(delta)


def charges_to_list(charges: Iterable[tuple[Cell, Charge]]) -> list[dict[str, Any]]:
    """Charges as plain JSON values."""
    return [
        {
            "cell": list(cell),
            "steps": [
                {"count": count, **step.to_dict()}
                for step, count in sorted(charge.items(), key=repr)
            ],
        }
        for cell, charge in charges
    ]


def charges_from_list(entries: Iterable[dict[str, Any]]) -> tuple[tuple[Cell, Charge], ...]:
    """Inverse of ``charges_to_list``."""
    charges: list[tuple[Cell, Charge]] = []
    for entry in entries:
        charge: Charge = Counter()
        for step in entry["steps"]:
            charge[Step.from_dict(step)] += int(step["count"])
        charges.append((tuple(entry["cell"]), charge))
    return tuple(charges)


def round_up(epsilon: float, digits: int = 4) -> str:
    """Print an epsilon so that the printed number is never below the true one."""
    return _rounded(epsilon, digits, math.ceil, 1 - 1e-12)


def round_down(epsilon: float, digits: int = 4) -> str:
    """Print what is left of a budget so that the printed number is never above the true one."""
    return _rounded(epsilon, digits, math.floor, 1 + 1e-12)


def _rounded(epsilon: float, digits: int, whole: Callable[[float], int], slack: float) -> str:
    if not math.isfinite(epsilon) or epsilon == 0:
        return f"{epsilon:g}"
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(epsilon)))
    return f"{whole(epsilon * scale * slack) / scale:g}"
