"""``privopt demo``: a private model on real data, from nothing to a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.panel import Panel
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from privopt.cli.options import console

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SPLITS = 20
# Upper ends of plausible ranges of the thirty measurements (all start at 0), written down once:
# declared, not read from the patients.
UPPER = (
    *(30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1),
    *(3, 5, 25, 600, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03),
    *(40, 50, 260, 4500, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21),
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot and the certificate.")] = Path(
        "privopt-demo"
    ),
) -> None:
    """Fit private logistic regressions to 569 breast-cancer records, at several epsilons."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression as NonPrivate
    from sklearn.model_selection import train_test_split

    from privopt import LogisticRegression
    from privopt.privacy.certificate import round_up

    X, y = load_breast_cancer(return_X_y=True)
    X = 2 * np.clip(X / np.array(UPPER), 0, 1) - 1
    console.print(
        Panel(
            f"{len(X)} patients, {X.shape[1]} measurements of a tumour, benign or malignant\n"
            "Wisconsin Diagnostic Breast Cancer (UCI, CC BY 4.0), shipped with scikit-learn",
            title="privopt: private logistic regression on real data",
        )
    )
    scores = {epsilon: [] for epsilon in EPSILONS}
    baseline: list[float] = []
    guess = float(max(np.mean(y), 1 - np.mean(y)))
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("fitting", total=SPLITS * (len(EPSILONS) + 1))
        for split in range(SPLITS):
            A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=split, stratify=y)
            baseline.append(NonPrivate(max_iter=5000).fit(A, a).score(B, b))
            bar.advance(task)
            for epsilon in EPSILONS:
                model = LogisticRegression(epsilon, DELTA, classes=[0, 1], random_state=split)
                scores[epsilon].append(model.fit(A, a).score(B, b))
                bar.advance(task)
    table = Table(
        "epsilon", "test accuracy", "spread", title=f"{SPLITS} random splits, delta={DELTA:g}"
    )
    for epsilon in EPSILONS:
        table.add_row(
            f"{epsilon:g}", f"{np.mean(scores[epsilon]):.3f}", f"+- {np.std(scores[epsilon]):.3f}"
        )
    table.add_row("non-private", f"{np.mean(baseline):.3f}", f"+- {np.std(baseline):.3f}")
    table.add_row("always benign", f"{guess:.3f}", "")
    console.print(table)

    A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    final = LogisticRegression(epsilon=1.0, delta=DELTA, classes=[0, 1]).fit(A, a)
    out.mkdir(parents=True, exist_ok=True)
    (out / "certificate.json").write_text(final.privacy_.to_json() + "\n")
    console.print(
        Panel(
            f"{final.privacy_}\n"
            f"at delta=1e-8 the same model has epsilon={round_up(final.privacy_.epsilon_at(1e-8))}"
            f"\ntest accuracy of this model: {final.score(B, b):.3f}",
            title="one model with secure noise, and its certificate",
        ),
        highlight=False,
    )
    console.print(f"certificate: {out / 'certificate.json'}", markup=False)
    _plot(scores, baseline, guess, out / "accuracy.png")
    console.print(
        "[dim]The table above fits one data set again and again, with seeded noise: good for a "
        "picture, and a real budget would have to pay for every fit.[/dim]"
    )


def _plot(
    scores: dict[float, list[float]], baseline: list[float], guess: float, path: Path
) -> None:
    import numpy as np

    try:
        import matplotlib
    except ImportError:
        console.print("the plot needs matplotlib: pip install 'privopt[plot]'", markup=False)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    x = list(scores)
    mean = np.array([np.mean(scores[e]) for e in x])
    spread = np.array([np.std(scores[e]) for e in x])
    axes.fill_between(x, mean - spread, mean + spread, alpha=0.2, color="tab:blue", lw=0)
    axes.plot(x, mean, "o-", color="tab:blue", label="private (mean and standard deviation)")
    axes.axhline(float(np.mean(baseline)), color="black", ls="--", label="non-private")
    axes.axhline(guess, color="grey", ls=":", label="always benign")
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{e:g}" for e in x])
    axes.minorticks_off()
    axes.set_xlabel("epsilon (privacy loss of the whole fit)")
    axes.set_ylabel("test accuracy")
    axes.set_ylim(0.5, 1.0)
    axes.set_title("Private logistic regression, 398 training patients")
    axes.legend(loc="lower right", frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    console.print(f"plot: {path}", markup=False)
