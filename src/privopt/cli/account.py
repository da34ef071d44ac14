"""``privopt account``: epsilon of a noise multiplier, or the noise for an epsilon."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privopt.cli.options import Delta, Neighbouring, Relation, console, plain_errors
from privopt.cli.streams import Accounting, Conversion, Noise, Stream

if TYPE_CHECKING:
    from privopt.privacy.spend import Charge

STREAM = "A stream with correlated noise"


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
    fixed_size: Annotated[
        bool, typer.Option(help="Batches hold exactly that share of the records instead.")
    ] = False,
    questions: Annotated[int, typer.Option(help="Releases from each batch.")] = 1,
    neighbouring: Neighbouring = Relation.zero_out,
    noise: Annotated[
        Noise | None,
        typer.Option(help="Noise over the steps of a stream.", rich_help_panel=STREAM),
    ] = None,
    epochs: Annotated[
        int, typer.Option(help="Passes over the same batches in order.", rich_help_panel=STREAM)
    ] = 1,
    times: Annotated[
        int | None,
        typer.Option(help="Instead: most steps a record is in.", rich_help_panel=STREAM),
    ] = None,
    min_separation_steps: Annotated[
        int | None,
        typer.Option(help="With --times: least gap of two such steps.", rich_help_panel=STREAM),
    ] = None,
    restart_every: Annotated[
        int | None, typer.Option(help="Steps of one tree.", rich_help_panel=STREAM)
    ] = None,
    completion: Annotated[
        bool, typer.Option(help="Complete trees before a restart.", rich_help_panel=STREAM)
    ] = False,
    accounting: Annotated[
        Accounting,
        typer.Option(
            help="Charge a tree by what it releases or all nodes.", rich_help_panel=STREAM
        ),
    ] = Accounting.exact,
    groups: Annotated[
        int | None,
        typer.Option(
            help="Parts that take turns, for banded noise on Poisson batches.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    conversion: Annotated[
        Conversion,
        typer.Option(help="Of an unsampled stream, to compare.", rich_help_panel=STREAM),
    ] = Conversion.exact,
) -> None:
    """Account Gaussian noise: on all records, on batches, or correlated over a stream.

    The noise multiplier is relative to the clip norm of ONE record under every relation;
    replacing a record moves the sum twice as far, and that factor is applied here.
    """
    from privopt.privacy import Accountant, Sampling
    from privopt.privacy.budget import records_moved
    from privopt.privacy.certificate import round_up
    from privopt.privacy.conversions import gaussian_conversion
    from privopt.privacy.kinds import GaussianKind
    from privopt.privacy.spend import Step

    with plain_errors():
        _check(noise_multiplier, epsilon, delta, steps, questions)
        accountant = Accountant(neighbouring.value)
        factor = records_moved(neighbouring.value)
        sampling = Sampling(sampling_rate, fixed_size and sampling_rate < 1)
        stream, size, count = None, 1.0, steps
        if noise is not None:
            if questions > 1:
                raise ValueError("each step of a stream is one release: leave --questions out.")
            if neighbouring is Relation.add_remove and sampling.full:
                raise ValueError(
                    "records of a stream keep their steps: use --neighbouring zero_out or "
                    "replace_one."
                )
            stream = Stream(
                noise, steps, sampling, epochs, times, min_separation_steps,
                restart_every, completion, accounting, groups,
            )  # fmt: skip
            factorization = stream.factorization()
            size, count = stream.charged(factorization)
        elif epochs != 1 or times or min_separation_steps or restart_every or groups:
            raise ValueError("a stream needs a --noise, for example --noise honaker.")

        def charge(multiplier: float) -> Charge:
            kind = GaussianKind(factor * size / multiplier, size / multiplier)
            return Counter({Step(sampling, (kind,) * questions): count})

        if noise_multiplier is None:
            assert epsilon is not None
            noise_multiplier = accountant.calibrate(charge, epsilon, delta)
        found = accountant.epsilon(charge(noise_multiplier), delta)
        if conversion is not Conversion.exact:
            if stream is None or not sampling.full:
                raise ValueError("--conversion is for a stream that is not sampled.")
            mu = factor * size / noise_multiplier
            found = gaussian_conversion(mu, delta, conversion.value)
        table = Table("quantity", "value", show_header=False)
        table.add_row("epsilon", round_up(found))
        table.add_row("delta", f"{delta:g}")
        table.add_row("neighbouring", neighbouring.value)
        table.add_row("noise multiplier", f"{noise_multiplier:.6g}")
        table.add_row("steps", f"{steps}")
        table.add_row("sampling rate", f"{sampling_rate:g}")
        if sampling.fixed_size:
            table.add_row("batches", "fixed size")
        if questions > 1:
            table.add_row("questions per batch", f"{questions}")
        if stream is not None:
            for quantity, value in stream.rows(factorization, noise_multiplier):
                table.add_row(quantity, value)
        console.print(table)
        if stream is not None and noise is Noise.auto and sampling.full:
            _compare(stream)


def _check(
    noise_multiplier: float | None, epsilon: float | None, delta: float, steps: int, questions: int
) -> None:
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


def _compare(stream: Stream) -> None:
    """The table behind the choice."""
    from privopt.privacy.factorizations import compare

    table = Table("noise", "squared sensitivity", "largest error", "rms error", "vectors kept")
    for row in compare(stream.steps, stream.participation()):
        figures = (row.sensitivity_squared, row.largest_error, row.mean_error)
        table.add_row(row.name, *(f"{figure:.4g}" for figure in figures), f"{row.vectors_kept}")
    console.print("Errors of running sums at mu = 1 and clip norm 1:")
    console.print(table)
