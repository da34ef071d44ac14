"""The part of the page on how good the model is, and the paragraph that somebody signs."""

from __future__ import annotations

from html import escape
from typing import Any

from privopt.evaluation import Evaluation
from privopt.privacy.certificate import round_up, shown
from privopt.report.chart import GREY, Curves, Line
from privopt.report.findings import Findings
from privopt.report.markup import figure, table


def judged(found: Findings, plots: list[dict[str, Any]]) -> str:
    """Metrics with intervals, calibration, ROC and confusion; nothing if none were bought."""
    evaluation = found.evaluation
    if evaluation is None:
        return ""
    rows = [
        (
            name.replace("_", " "),
            f"{one.value:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            f"{one.sampling:.2g}",
            f"{one.noise:.2g}",
        )
        for name, one in evaluation.metrics.items()
    ]
    certificate = evaluation.certificate
    level = f"{100 * evaluation.level:g} %"
    head = ("metric", "value", f"{level} interval", "± sampling", "± noise")
    warning = "" if certificate.private else " <strong>Not private: seeded noise.</strong>"
    return (
        "<h2>How good it is</h2>"
        f"<p>{escape(evaluation.meaning)} Bought for epsilon {round_up(certificate.epsilon)}"
        f"{_delta(certificate.delta)}. Each interval holds the sampling of the rows, the noise, "
        f"and what bins leave open; it misses in {100 * (1 - evaluation.level):.2g} of 100 cases."
        f"{warning}</p>"
        + f'<div class="metrics">{table(head, rows, numbers=4)}</div>'
        + _pictures(evaluation, plots)
        + _confusion(evaluation)
    )


def _pictures(evaluation: Evaluation, plots: list[dict[str, Any]]) -> str:
    pictures = []
    curve = evaluation.calibration
    if len(curve) > 1:
        said = [one[0] for one in curve]
        chart = Curves(
            [
                Line("as it should be", [0.0, 1.0], [0.0, 1.0], GREY, dashed=True),
                Line(
                    "observed",
                    said,
                    [one[1].value for one in curve],
                    marks=True,
                    low=[one[1].low for one in curve],
                    high=[one[1].high for one in curve],
                ),
            ],
            "probability said",
            "rate observed",
        )
        caption = "Calibration. Band: interval of each bin, noise included."
        pictures.append(figure(chart, plots, caption))
    if evaluation.roc:
        points = [(1.0, 1.0), *((f.value, t.value) for _, f, t in evaluation.roc), (0.0, 0.0)]
        lows = [1.0, *(t.low for _, _, t in evaluation.roc), 0.0]
        highs = [1.0, *(t.high for _, _, t in evaluation.roc), 0.0]
        chart = Curves(
            [
                Line("a coin", [0.0, 1.0], [0.0, 1.0], GREY, dashed=True),
                Line(
                    "this model",
                    [x for x, _ in points],
                    [y for _, y in points],
                    marks=True,
                    low=lows,
                    high=highs,
                ),
            ],
            "false-positive rate",
            "true-positive rate",
        )
        area = evaluation.metrics["auc"]
        caption = f"ROC at the edges of the bins; area {area.value:.3f} "
        caption += f"({area.low:.3f} to {area.high:.3f}). Band: interval of the true-positive rate."
        pictures.append(figure(chart, plots, caption))
    return f'<div class="pair">{"".join(pictures)}</div>' if pictures else ""


def _confusion(evaluation: Evaluation) -> str:
    counts, noise = evaluation.confusion_matrix, evaluation.confusion_noise
    if counts is None or noise is None:
        return ""
    names = [str(label) for label in evaluation.classes]
    rows = [
        (name, *(f"{count:.0f}" for count in line))
        for name, line in zip(names, counts, strict=True)
    ]
    head = ("true class", *(f"said {name}" for name in names))
    return (
        f"<p>Confusion matrix; noise of about {float(noise.mean()):.0f} rows in each cell.</p>"
        + table(head, rows, numbers=len(names))
    )


def _delta(delta: float) -> str:
    return "" if delta == 0 else f", delta {shown(delta)}"


# ------------------------------------------------------------ to be signed
def signed(found: Findings) -> str:
    """One paragraph for the record of a decision."""
    return (
        '<h2>For the record</h2><p class="record">'
        f"{escape(paragraph(found))}</p>"
        '<p class="soft">Signed: ______________________ &nbsp; Date: ______________</p>'
    )


def paragraph(found: Findings) -> str:
    """What was released, under which guarantee, what follows from it and what does not."""
    certificate, evaluation = found.certificate, found.evaluation
    delta = "" if certificate.delta == 0 else f" and delta = {shown(certificate.delta)}"
    said = [
        f"The model “{found.title}” ({found.model}, {certificate.library}) was fitted under "
        f"differential privacy with epsilon = {round_up(certificate.epsilon)}{delta}, for each "
        f"{certificate.unit}, under the relation {certificate.neighbouring}.",
        found.guess,
        found.false_alarms,
    ]
    if not certificate.private:
        said.append("The noise was seeded, so this model must not be published as private.")
    if found.summary is not None:
        said.append(
            "Its intervals cost nothing beyond that epsilon; they include sampling and the noise."
        )
    if evaluation is not None:
        bought = evaluation.certificate
        name, key = ("accuracy",) * 2 if "accuracy" in evaluation.metrics else ("RMSE", "rmse")
        one, rows = evaluation.metrics[key], evaluation.rows.replace("_", "-")
        together = (
            "a person in one part only pays for that part, if the split looked at nobody's data"
            if evaluation.rows == "held_out"
            else "both epsilons add for every person"
        )
        said.append(
            f"Its {name} on {rows} rows is {one.value:.3f} ({100 * evaluation.level:g} % interval "
            f"{one.low:.3f} to {one.high:.3f}), measured for epsilon = {round_up(bought.epsilon)}"
            f"{_delta(bought.delta)}; {together}."
        )
    assumed = [*certificate.assumptions]
    said.append(
        "The guarantee rests on the facts that were declared public, listed above"
        + (f", and on this: {'; '.join(assumed)}." if assumed else ".")
    )
    said.append(
        "It does not cover other releases from the same records, nor preprocessing that was done "
        "without privacy."
    )
    return " ".join(said)
