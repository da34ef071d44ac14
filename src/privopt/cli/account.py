"""``privopt account``: epsilon of a noise multiplier, or the noise for an epsilon."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.table import Table

from privopt.cli.options import Delta, Neighbouring, Relation, console, plain_errors


def account(
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise over the clip norm of one record."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Target: prints the smallest noise that reaches it.")
    ] = None,
    delta: Delta = 1e-6,
    steps: Annotated[int, typer.Option(help="Number of releases.")] = 1,
    sampling_rate: Annotated[
        float, typer.Option(help="Probability that a record is in a batch (Poisson).")
    ] = 1.0,
    questions: Annotated[int, typer.Option(help="Releases from each batch.")] = 1,
    neighbouring: Neighbouring = Relation.zero_out,
) -> None:
    """Account Gaussian noise, on all records or on Poisson batches.

    The noise multiplier is relative to the clip norm of ONE record under every relation;
    replacing a record moves the sum twice as far, and that factor is applied here.
    """
    from privopt.privacy import Accountant, Sampling
    from privopt.privacy.certificate import round_up
    from privopt.privacy.kinds import Gaussian
    from privopt.privacy.spend import Charge, Step

    with plain_errors():
        if (noise_multiplier is None) == (epsilon is None):
            raise ValueError("give either --noise-multiplier or --epsilon.")
        if not 0 < delta < 1:
            raise ValueError(f"Gaussian noise needs delta in (0, 1), got {delta:g}.")
        if steps < 1 or questions < 1:
            raise ValueError("--steps and --questions must be at least 1.")
        if noise_multiplier is not None and not noise_multiplier > 0:
            raise ValueError(f"--noise-multiplier must be positive, got {noise_multiplier:g}.")
        if epsilon is not None and not epsilon > 0:
            raise ValueError(f"--epsilon must be positive, got {epsilon:g}.")
        accountant = Accountant(neighbouring.value)
        factor = 2 if neighbouring is Relation.replace_one else 1

        def charge(multiplier: float) -> Charge:
            kind = Gaussian(factor / multiplier, 1 / multiplier)
            return Counter({Step(Sampling(sampling_rate), (kind,) * questions): steps})

        if noise_multiplier is None:
            assert epsilon is not None
            noise_multiplier = accountant.calibrate(charge, epsilon, delta)
        found = accountant.epsilon(charge(noise_multiplier), delta)
        table = Table("quantity", "value", show_header=False)
        table.add_row("epsilon", round_up(found))
        table.add_row("delta", f"{delta:g}")
        table.add_row("neighbouring", neighbouring.value)
        table.add_row("noise multiplier", f"{noise_multiplier:.6g}")
        table.add_row("steps", f"{steps}")
        table.add_row("sampling rate", f"{sampling_rate:g}")
        if questions > 1:
            table.add_row("questions per batch", f"{questions}")
        console.print(table)
