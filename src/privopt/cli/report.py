"""``privopt report``: a page that explains a saved model, and a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privopt.cli.options import ModelFile, console, loaded, plain_errors, progress


def report(
    model: ModelFile,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    card: Annotated[
        Path | None, typer.Option(help="Also write a model card in Markdown, say card.md.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="What `privopt evaluate --out` wrote, to show as well.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading; the model's name by default.")] = None,
) -> None:
    """Write one HTML page about a saved model: guarantee, plan, coefficients, attacks.

    Costs no budget: everything on it follows from the certificate and the released model.
    """
    from privopt.evaluation import Evaluation
    from privopt.report import write_card, write_report

    with plain_errors():
        pipeline = loaded(model)
        judged = None
        if evaluation is not None:
            if not evaluation.is_file():
                raise ValueError(f"there is no file {evaluation}.")
            judged = Evaluation.from_json(evaluation.read_text(encoding="utf-8"))
        with progress("writing the report"):
            write_report(pipeline, out, title=title, evaluation=judged)
            if card is not None:
                write_card(pipeline, card, title=title, evaluation=judged)
        written = f"{out}" if card is None else f"{out} and {card}"
        console.print(f"wrote {written}", markup=False, highlight=False, soft_wrap=True)
