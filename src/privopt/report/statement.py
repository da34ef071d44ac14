"""Statements that others can read: a deployments registry, a model hub, a tracking server."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

from privopt.privacy import Certificate
from privopt.privacy.certificate import round_up, shown
from privopt.report.findings import RELATIONS, Findings

UNPROTECTED = (
    "facts that were declared as public (see below)",
    "preprocessing and scores that were computed outside the fit",
    "other releases about the same records",
    "time, memory and other side channels",
)
TO_FILL = "(to be filled in by the data curator)"


def registry_entry(found: Findings) -> str:
    """An entry of the OpenDP deployments registry, as YAML; what only its curator knows is left
    to be filled in."""
    certificate = found.certificate
    parameters: dict[str, Any] = {"epsilon": float(round_up(certificate.epsilon))}
    if certificate.delta:
        parameters["delta"] = float(certificate.delta)
    entry = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", found.title.lower()).strip("-") or "private-model",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "product": {
                "name": found.title,
                "data_curators": [TO_FILL],
                "intended_use": TO_FILL,
                "data_product_type": "Machine learning model",
                "data_product_region": TO_FILL,
                "description": f"{found.model}, fitted by {certificate.library}.",
                "publication_date": f"{date.today():%Y-%m-%d}",
                "data_product_sector": TO_FILL,
            },
            "dp_flavor": {
                "name": "Approximate DP" if certificate.delta else "Pure DP",
                "input_metric": relation(certificate),
                "data_domain": "; ".join(" ".join(column) for column in found.columns) or TO_FILL,
                "unprotected_quantities": "; ".join(UNPROTECTED) + ".",
            },
            "privacy_loss": {
                "privacy_unit": f"{certificate.unit}-level",
                "privacy_unit_description": relation(certificate),
                "privacy_parameters": parameters,
                "privacy_parameters_description": found.headline,
            },
            "model": {
                "model_name": "Central",
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Predictions, exports and reports follow from what was "
                "released and cost nothing.",
                "composition": f"{certificate.releases} releases, composed by their privacy-loss "
                "distributions or in closed form; derived before the run from public facts and "
                "after it from the log.",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": "; ".join(
                    f"{name}: {value}" for name, value in found.public
                )
                or TO_FILL,
                "mechanisms": f"{certificate.solver}. {_arithmetic(certificate)}",
                "justification": TO_FILL,
            },
            "resources": {"sources": TO_FILL, "registry_authors": [TO_FILL]},
        },
    }
    return "\n".join(_yaml(entry)) + "\n"


def hub_section(found: Findings) -> str:
    """A section for the card of a model on a hub, in Markdown."""
    certificate = found.certificate
    return "\n".join(
        [
            "## Differential privacy",
            "",
            f"- **Guarantee:** ({round_up(certificate.epsilon)}, {shown(certificate.delta)})-"
            f"differential privacy per {certificate.unit}; {relation(certificate)}.",
            f"- **In words:** {found.guess}",
            f"- **Mechanism:** {certificate.solver}, {certificate.releases} releases, by "
            f"{certificate.library}. {_arithmetic(certificate)}",
            f"- **Noise:** {'secret' if certificate.private else 'SEEDED: not private'}.",
            *(f"- **Taken as public:** {name}: {value}." for name, value in found.public),
            f"- **Not protected:** {'; '.join(UNPROTECTED)}.",
            "",
        ]
    )


def tracking_tags(found: Findings) -> dict[str, str]:
    """Tags of a run on a tracking server such as MLflow: short texts by name."""
    certificate = found.certificate
    return {
        "privacy.epsilon": round_up(certificate.epsilon),
        "privacy.delta": shown(certificate.delta),
        "privacy.neighbouring": certificate.neighbouring,
        "privacy.unit": certificate.unit,
        "privacy.private": str(certificate.private).lower(),
        "privacy.solver": certificate.solver,
        "privacy.releases": str(certificate.releases),
        "privacy.assumptions": "; ".join(certificate.assumptions) or "none",
        "privacy.library": certificate.library,
    }


def relation(certificate: Certificate) -> str:
    """What may differ between neighbours, in a plain sentence."""
    changed, count = RELATIONS[certificate.neighbouring]
    return f"{changed.format(unit=certificate.unit)}. {count}"


def _arithmetic(certificate: Certificate) -> str:
    exact = (certificate.numerics or {}).get("exact_releases", 0)
    if exact == certificate.releases:
        return "All noise is added to exact integers."
    return (
        f"{certificate.releases - exact} of {certificate.releases} releases add noise in floating "
        "point: for those the guarantee is that of real numbers."
    )


def _yaml(value: Any, indent: int = 0) -> list[str]:
    """Mappings and lists of scalars; a scalar is written as JSON, which YAML contains."""
    lines, gap = [], "  " * indent
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines += [f"{gap}{key}:", *_yaml(inner, indent + 1)]
        elif isinstance(inner, list):
            lines += [f"{gap}{key}:", *(f"{gap}  - {_scalar(one)}" for one in inner)]
        else:
            lines.append(f"{gap}{key}: {_scalar(inner)}")
    return lines


def _scalar(value: Any) -> str:
    if not isinstance(value, float):
        return json.dumps(value, ensure_ascii=False)
    text = repr(value)  # YAML takes 1e-06 for a word
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
