"""A model card in Markdown: what a person needs to know before using a private model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from privopt.privacy.certificate import round_up, shown
from privopt.report.findings import Findings

SHOWN = 20


def card(found: Findings) -> str:
    """The card as text; what only its owner knows is left as a line to fill in."""
    certificate = found.certificate
    parts = [
        f"# {_plain(found.title)}",
        _lines(
            [
                f"- **Model:** {found.model}, fitted by {_plain(certificate.solver)} "
                f"({certificate.library})",
                f"- **Guarantee:** epsilon {round_up(certificate.epsilon)} at delta "
                f"{shown(certificate.delta)}, {_plain(certificate.neighbouring)}, "
                f"per {_plain(certificate.unit)}",
                f"- **Private:** {'yes' if certificate.private else 'NO: the noise was seeded'}",
            ]
        ),
        "## Intended use\n\n(Say who may use the model, for what, and for what not.)",
        "## Privacy",
        f"{found.headline}\n\n{found.guess}",
        _table(
            ("false alarms", "right alarms, at most", "belief after an alarm, from 50 %"),
            found.attacks(),
        ),
        "The same fit at other deltas:",
        _table(("delta", "epsilon"), found.curve()),
        "## Public facts it rests on",
        _table(("fact", "value"), found.public),
    ]
    if found.columns:
        parts.append(_table(("column", "kind", "bounds or categories"), found.columns))
    if found.coefficients:
        single = len(found.outputs) == 1
        head, rows = ["column", *found.outputs], []
        head += ["standard error"] if single and found.summary is not None else []
        for one in found.coefficients[:SHOWN]:
            errors = [f"{one.errors[0]:.2g}"] if single and one.errors is not None else []
            rows.append([one.name, *(f"{value:.4g}" for value in one.values), *errors])
        parts += [
            "## Coefficients",
            "Effect of one unit of each column"
            + (f", the {SHOWN} largest." if len(found.coefficients) > SHOWN else ".")
            + f" {found.how_sure}",
            _table(head, rows),
        ]
    if found.evaluation is not None:
        judged = found.evaluation
        metrics = [
            (name, f"{one.value:.4g}", f"{one.low:.4g} to {one.high:.4g}")
            for name, one in judged.metrics.items()
        ]
        epsilon = round_up(judged.certificate.epsilon)
        parts += [
            "## Evaluation",
            f"{judged.meaning} Bought for epsilon {epsilon}; intervals hold the sampling of the "
            "rows and the noise.",
            _table(("metric", "value", f"{100 * judged.level:g} % interval"), metrics),
        ]
    parts += [
        "## Limits",
        _lines(
            [
                "- The unit is the one named above: several records of one person are not covered.",
                "- Other models fitted to the same records add to the loss.",
                "- Preprocessing and scores computed without privacy are not covered.",
                "- Accuracy must be measured on records that are not private, or be bought.",
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text that means itself in Markdown and stays in one line."""
    text = " ".join(text.split())
    return text if text == "---" else re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text)
