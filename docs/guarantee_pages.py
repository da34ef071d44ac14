"""One page for each mechanism and each solver: theorem, relations, assumptions, events, audit
ratio, planted bugs. Everything is read from where it is kept: docstrings, a recorded run, the
tables of the audit page, the list of planted bugs."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FIELDS = (
    "Guarantee",
    "References",
    "Relations",
    "Assumptions",
    "Events",
    "Audit ratio",
    "Planted bugs",
)
RELATIONS = ("zero_out", "replace_one", "add_remove")
CITED = {
    "on_grid": "Canonne, Kamath and Steinke (2020); [the error budget](PROOF).",
    "correlated": "Denisov, McMahan, Rush, Smith and Thakurta (2022); Kairouz et al. (2021).",
}
"""Of modules whose docstrings name none."""
ALIASES = {
    "DiscreteGaussian": ("integers",),
    "DiscreteLaplace": ("integers",),
    "CorrelatedGaussian": ("stream", "tree", "honaker", "banded", "blt", "correlated"),
    "DiscreteCorrelatedGaussian": ("integers of a stream", "stream:"),
    "ExponentialMechanism": ("gumbel",),
    "PermuteAndFlip": ("exponential noise",),
    "ExponentialDensity": ("exponential_sampling",),
    "grid_walk": ("GridWalk",),
}
"""Other words by which planted bugs speak of a mechanism."""
STANDS_FOR_A_RATIO = {
    "RankQuantile": (
        (
            "its density, enumerated on pairs of neighbours, keeps epsilon",
            "tests/planner/test_quantile.py::test_rank_density_is_within_epsilon",
        ),
        (
            "releases follow a density that is written out again",
            "tests/planner/test_quantile.py::test_rank_releases_follow_that_density",
        ),
        (
            "replay compares the log weights of neighbours with epsilon, for q at both ends",
            "tests/audit/test_entries.py::test_a_movement_of_2q_in_quantiles_by_rank_is_found",
        ),
    ),
    "GeneralizedGaussian": (
        (
            "its Renyi divergence by quadrature stays below what it declares",
            "tests/noise/test_generalized_gaussian.py::"
            "test_the_divergence_stays_below_the_declared_bound",
        ),
        (
            "its noise follows its law in scale and shape",
            "tests/audit/test_shape.py::test_noise_of_the_wrong_shape_is_found",
        ),
    ),
    "BestOf": (
        (
            "its curve dominates exact cases",
            "tests/privacy/test_tuning.py::test_the_curve_dominates_every_exact_case",
        ),
        (
            "pure epsilon is above the exact worst case",
            "tests/privacy/test_tuning.py::test_pure_epsilon_is_above_the_exact_worst_case",
        ),
    ),
}
"""What a page may say of something that no table audits: a sentence, and the test behind it. A test
looks the tests up; without one the page says "Not audited."."""
BOUNDED = {
    "range": "The scores' range is bounded: no record raises one score by more than that further "
    "than another. Queries enforce it by their clip.",
    "function": "Every record's loss is convex with bounded slope and curvature. Rows are clipped, "
    "so that the loss's own constants hold.",
}


@dataclass
class Seen:
    """What recorded runs of the audit's problems showed."""

    events: dict[str, Counter[str]] = field(default_factory=dict)
    """Solver to its events."""
    kinds: dict[str, set[str]] = field(default_factory=dict)
    """Mechanism to the kinds of loss it declared."""
    users: dict[str, set[str]] = field(default_factory=dict)
    """Mechanism to the solvers that release through it."""
    assumptions: dict[str, set[str]] = field(default_factory=dict)
    relations: dict[str, list[str]] = field(default_factory=dict)


def mechanisms() -> dict[str, type]:
    """What a gate can release through, by name."""
    import privopt.mechanisms as room

    found = {name: getattr(room, name) for name in room.__all__ if name != "Mechanism"}
    return {
        name: one
        for name, one in sorted(found.items())
        if inspect.isclass(one) and hasattr(one, "kinds") and hasattr(one, "run")
    }


@cache
def seen() -> Seen:
    """One short run of every solver under every relation and with and without delta."""
    from privopt.audit import record
    from privopt.audit.table import case, rows
    from privopt.noise import SeededSource
    from privopt.solvers import catalogue

    found = Seen()
    for relation in RELATIONS:
        for row in rows(relation, epsilons=(4.0,)):
            name = row.solver
            if name not in catalogue():
                continue
            accepted = found.relations.setdefault(name, [])
            if relation not in accepted:
                accepted.append(relation)
            if relation != "zero_out" and name in found.events:
                continue
            run, pair, certificate = case(row)
            _, tape = record(lambda X, y, run=run: run(X, y, SeededSource(0)), pair.first)
            found.assumptions.setdefault(name, set()).update(certificate.assumptions)
            events = found.events.setdefault(name, Counter())
            for release in tape.releases:
                mechanism = type(release.mechanism).__name__
                kinds = " and ".join(kind.name for kind in release.event.kinds)
                sampled = "" if release.sensitivity.sampling.full else ", on a sampled batch"
                events[f"{mechanism} ({kinds}{sampled})"] += 1
                found.kinds.setdefault(mechanism, set()).add(kinds)
                found.users.setdefault(mechanism, set()).add(name)
    return found


# ---------------------------------------------------------------- pieces
def guarantee(docstring: str | None) -> str:
    """What a docstring says after "Formal guarantee"."""
    text = inspect.cleandoc(docstring or "")
    _, _, promise = text.partition("Formal guarantee")
    promise = promise.lstrip(":\n- ")
    return promise.strip()


def references(*docstrings: str | None) -> str:
    """The references that docstrings name."""
    found = []
    for docstring in docstrings:
        text = inspect.cleandoc(docstring or "")
        match = re.search(r"^References?(?::|\n-+\n)\s*(.*?)(?=\n\n|\Z)", text, re.S | re.M)
        if match:
            found.append(" ".join(match[1].split()))
    return " ".join(found)


@cache
def ratios() -> dict[str, dict[str, str]]:
    """The tables of the audit page: name to column to ratio."""
    found: dict[str, dict[str, str]] = {}
    header: list[str] = []
    for line in (DOCS / "audit.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or set(line) <= set("|-: "):
            continue
        if cells[0] in ("solver", "mechanism"):
            header = cells
        elif header and len(cells) == len(header):
            name, _, how = cells[0].strip("`").partition("`")
            row = {f"{at}{how}": value for at, value in zip(header, cells, strict=True) if value}
            del row[header[0] + how]
            found.setdefault(name, {}).update(row)
        else:
            header = []
    return found


@cache
def planted() -> tuple[str, ...]:
    """Names of all planted bugs, from their page."""
    text = (DOCS / "mutants.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+? \|$", text, re.M)
    return tuple(row for row in rows if row != "planted")


def bugs_about(*names: str) -> list[str]:
    """Planted bugs that name one of these, in whatever spelling."""
    words = {_plain(word) for name in names for word in (name, *ALIASES.get(name, ()))}
    return [
        bug
        for bug in planted()
        if any(re.search(rf"\b{re.escape(word)}", _plain(bug)) for word in words)
    ]


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").replace("-", " ").lower()


# ---------------------------------------------------------------- pages
def pages(as_markdown: Any) -> dict[str, str]:
    """All pages by name; ``as_markdown`` turns a docstring into Markdown."""
    from privopt.solvers import catalogue

    found = {}
    for name, mechanism in mechanisms().items():
        found[name] = _page(name, _of_mechanism(name, mechanism, as_markdown))
    for name, solver in sorted(catalogue().items()):
        found[name] = _page(name, _of_solver(name, solver, as_markdown))
    return found


def _page(name: str, fields: dict[str, str]) -> str:
    parts = [f"# {name}"]
    parts += [f"## {title}\n\n{fields[title]}" for title in FIELDS]
    return "\n\n".join(parts) + "\n"


def _of_mechanism(name: str, mechanism: type, as_markdown: Any) -> dict[str, str]:
    module = sys.modules[mechanism.__module__]
    accepts = getattr(mechanism, "accepts", None)
    norm = accepts if isinstance(accepts, str) else _default(mechanism, "accepts")
    users = sorted(seen().users.get(name, ()))
    through = ", ".join(f"[{user}]({user}.md)" for user in users)
    declared = sorted(seen().kinds.get(name, ()))
    cited = references(mechanism.__doc__, module.__doc__)
    cited = as_markdown(cited) if cited else CITED.get(module.__name__.split(".")[-1], "")
    return {
        "Guarantee": as_markdown(guarantee(mechanism.__doc__)),
        "References": cited or "Derived above.",
        "Relations": "All. Noise is in units of the value's reach, which the query states for the "
        "relation: what one record adds, or under `replace_one` the difference of two.",
        "Assumptions": BOUNDED.get(
            norm or "",
            f"The value is bounded in {norm or 'the norm that its setting names'}: one record "
            "moves it by at most its sensitivity. Queries enforce it by their clip.",
        ),
        "Events": (
            f"One for each release, with the loss {' or '.join(declared)}."
            if declared
            else "One for each release, with the loss stated above."
        )
        + (f" Used by {through}." if users else ""),
        "Audit ratio": _ratio(name) or (f"That of {through}." if users else _elsewhere(name)),
        "Planted bugs": _bugs(bugs_about(name))
        + (f"\n\nAnd those of the solvers that use it: {through}." if users else ""),
    }


def _of_solver(name: str, solver: Any, as_markdown: Any) -> dict[str, str]:
    module = import_module(f"privopt.solvers.{name}")
    found = seen()
    events = found.events.get(name, Counter())
    assumed = sorted(found.assumptions.get(name, ()))
    taken = found.relations.get(name, [])
    return {
        "Guarantee": as_markdown(guarantee(type(solver).__doc__)),
        "References": as_markdown(references(module.__doc__)) or "Derived above.",
        "Relations": ", ".join(f"`{relation}`" for relation in taken) + ".",
        "Assumptions": (
            "\n".join(f"- {as_markdown(text)}" for text in assumed)
            if assumed
            else "None beyond the bounds that are enforced by clipping."
        ),
        "Events": "In the short runs of the audit, with delta and without:\n\n"
        + "\n".join(f"- {count} × {as_markdown(event)}" for event, count in sorted(events.items())),
        "Audit ratio": _ratio(name) or _elsewhere(name),
        "Planted bugs": _bugs(bugs_about(name)),
    }


def _default(mechanism: type, name: str) -> str | None:
    fields = getattr(mechanism, "__dataclass_fields__", {})
    default = fields[name].default if name in fields else None
    return default if isinstance(default, str) else None


def _ratio(name: str) -> str:
    found = ratios().get(name, {})
    if not found:
        return ""
    shown = "; ".join(f"{value} at {at}" for at, value in found.items())
    return f"Lower bound over certified epsilon: {shown} ([how it was measured](../../audit.md))."


def _elsewhere(name: str) -> str:
    """What stands for a ratio that the tables do not have: named tests, or nothing."""
    tests = STANDS_FOR_A_RATIO.get(name, ())
    if not tests:
        return "Not audited."
    listed = "\n".join(f"- {said}: `{test}`" for said, test in tests)
    return f"Not attacked by itself. In its place:\n\n{listed}"


def _bugs(found: list[str]) -> str:
    if not found:
        return "Those of [all releases](../../mutants.md)."
    listed = "\n".join(f"- {bug}" for bug in found)
    return f"{len(found)}, all of them [killed](../../mutants.md):\n\n{listed}"


def write(folder: Path, as_markdown: Any) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(as_markdown).items():
        text = text.replace("(PROOF)", "(../../proofs/discrete-gaussian.md)")
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
