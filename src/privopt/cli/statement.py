"""``privopt statement``: what a model guarantees, in the forms that others read."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privopt.cli.options import ModelFile, console, loaded, plain_errors


class Form(StrEnum):
    """Who is to read it."""

    registry = "registry"
    hub = "hub"
    tags = "tags"


def statement(
    model: ModelFile,
    form: Annotated[
        Form,
        typer.Option(
            "--for",
            help="registry: an entry of the OpenDP deployments registry (YAML); hub: a section of "
            "a Hugging Face model card (Markdown); tags: MLflow tags (JSON).",
        ),
    ] = Form.registry,
    out: Annotated[Path | None, typer.Option(help="File to write; printed by default.")] = None,
    title: Annotated[str | None, typer.Option(help="Name; the model's by default.")] = None,
) -> None:
    """State the guarantee of a saved model in a form that others read; costs no budget."""
    from privopt.report import findings, hub_section, registry_entry, tracking_tags

    with plain_errors():
        found = findings(loaded(model), title)
        if form is Form.registry:
            text = registry_entry(found)
        elif form is Form.hub:
            text = hub_section(found)
        else:
            text = json.dumps(tracking_tags(found), indent=2) + "\n"
        if out is None:
            print(text, end="")
        else:
            out.write_text(text, encoding="utf-8")
            console.print(f"wrote {out}", markup=False, highlight=False, soft_wrap=True)
