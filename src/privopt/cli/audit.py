"""``privopt audit``: a lower bound on epsilon beside every certified one."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.table import Table

from privopt.cli.options import Neighbouring, Relation, console, plain_errors

if TYPE_CHECKING:
    from privopt.audit import Finding

T = TypeVar("T")
COLUMNS = ("audited", "delta", "epsilon", "lower", "ratio", "point", "runs", "verdict")
MILLION = 1_000_000
WRONG = 1e-3
"""Probability that any verdict on a correct mechanism is wrong."""


def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A solver, an estimator, or module:name of a function of your own; "
            "all solvers by default."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Runs on each of the two data sets; slow solvers get a share of it. "
            "4000 by default, a million for mechanisms."
        ),
    ] = None,
    mechanisms: Annotated[
        bool, typer.Option("--mechanisms", help="The mechanisms by themselves, closely.")
    ] = False,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Replay on hostile neighbours instead, under all relations."),
    ] = False,
    repeat: Annotated[
        int,
        typer.Option(help="Audits of each mechanism with other seeds: counts false alarms."),
    ] = 1,
    neighbouring: Neighbouring = Relation.zero_out,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Certified epsilon; may be repeated.")
    ] = None,
    delta: Annotated[float, typer.Option(help="What a function of your own claims.")] = 0.0,
    regression: Annotated[
        bool, typer.Option("--regression", help="Labels of a function of your own are numbers.")
    ] = False,
    confidence: Annotated[
        float, typer.Option(help="With which all bounds of the table hold together.")
    ] = 0.95,
    workers: Annotated[int, typer.Option(help="Processes; 0 takes one for each core.")] = 0,
    seed: Annotated[int, typer.Option(help="Makes the table reproducible.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table here, as JSON.")] = None,
) -> None:
    """Attack on a hostile pair of neighbours and bound epsilon from below.

    Exits with status 1 if any certificate is refuted.
    """
    from privopt.audit.table import EPSILONS

    with plain_errors():
        if not 0 < confidence < 1:
            raise ValueError(f"--confidence must lie in (0, 1), got {confidence:g}.")
        if runs is not None and runs < 20:
            raise ValueError(f"--runs must be at least 20, got {runs}.")
        if repeat < 1:
            raise ValueError(f"--repeat must be positive, got {repeat}.")
        epsilons = tuple(epsilon) if epsilon else EPSILONS
        sure = {"confidence": confidence, "seed": seed}
        if target is not None and ":" in target:
            own = {"delta": delta, "neighbouring": neighbouring.value}
            bad = _own(target, epsilons[:1], runs or 4000, regression, replay, out, **own, **sure)
        elif replay:
            bad = _replay(target, workers, seed)
        elif mechanisms and repeat > 1:
            bad = _false_alarms(target, epsilons, runs or 20_000, repeat, workers, **sure)
        elif mechanisms:
            bad = _mechanisms(target, epsilons, runs or MILLION, workers, out, **sure)
        else:
            bad = _solvers(target, neighbouring.value, epsilons, runs or 4000, workers, out, **sure)
    if bad:
        console.print(f"[red]A certificate is wrong:[/red] {', '.join(bad)}", highlight=False)
        raise typer.Exit(1)


# ---------------------------------------------------------------- what is audited
def _solvers(
    target: str | None,
    neighbouring: Any,
    epsilons: tuple[float, ...],
    runs: int,
    workers: int,
    out: Path | None,
    *,
    confidence: float,
    seed: int,
) -> list[str]:
    from privopt.audit.table import audit_row, rows

    wanted = rows(neighbouring, target, epsilons)
    if not wanted:
        raise ValueError(f"{target} does not take neighbouring={neighbouring}.")
    each = 1 - (1 - confidence) / len(wanted)
    one = partial(audit_row, runs=runs, confidence=each, seed=seed)
    found = zip((row.solver for row in wanted), _spread(one, wanted, workers), strict=True)
    return _shown(f"epsilon under {neighbouring}", found, _together(confidence, len(wanted)), out)


def _mechanisms(
    target: str | None,
    epsilons: tuple[float, ...],
    runs: int,
    workers: int,
    out: Path | None,
    *,
    confidence: float,
    seed: int,
) -> list[str]:
    from privopt.audit.mechanisms import audit_mechanism, names

    wanted = [(name, epsilon) for name in names(target) for epsilon in epsilons]
    sure = 1 - WRONG / len(wanted)
    one = partial(audit_mechanism, runs=runs, confidence=confidence, sure=sure, seed=seed)
    found = zip((name for name, _ in wanted), _spread(one, wanted, workers), strict=True)
    said = (
        f"Each lower bound holds with {100 * confidence:g} % confidence, "
        f"all {len(wanted)} verdicts together with {100 * (1 - WRONG):g} %."
    )
    return _shown("epsilon of mechanisms", found, said, out)


def _false_alarms(
    target: str | None,
    epsilons: tuple[float, ...],
    runs: int,
    repeat: int,
    workers: int,
    *,
    confidence: float,
    seed: int,
) -> list[str]:
    from privopt.audit.mechanisms import false_alarms, names

    wanted = [(name, epsilon) for name in names(target) for epsilon in epsilons]
    one = partial(false_alarms, runs=runs, repeat=repeat, confidence=confidence, seed=seed)
    table, total, alarms = Table(box=None, pad_edge=False), 0, 0
    for column in ("mechanism", "epsilon", "audits", "false alarms"):
        table.add_column(column, justify="left" if column == "mechanism" else "right")
    for (name, epsilon), wrong in zip(wanted, _spread(one, wanted, workers), strict=True):
        table.add_row(name, f"{epsilon:g}", f"{repeat}", f"{wrong}")
        total, alarms = total + repeat, alarms + wrong
    console.print(table)
    allowed = (1 - confidence) * total
    console.print(
        f"{alarms} false alarms in {total} correct audits at {100 * confidence:g} % confidence, "
        f"{allowed:g} allowed.",
        highlight=False,
    )
    return ["far more alarms than the confidence allows"] if alarms > 2 * allowed + 10 else []


def _replay(target: str | None, workers: int, seed: int) -> list[str]:
    from privopt.audit.sweep import places, replay_place

    wanted, pairs, bad = places(target, seed), 0, []
    for place, (count, findings) in zip(
        wanted, _spread(replay_place, wanted, workers), strict=True
    ):
        pairs += count
        for text in findings:
            bad.append(place.name)
            where = f"{place.name}, {place.neighbouring}"
            where += f", delta={place.delta:g}" if place.draw is None else ""
            console.print(f"{where}: {text}", highlight=False, soft_wrap=True)
    names = len({place.name for place in wanted})
    console.print(
        f"{names} solvers, estimators and other entry points in {len(wanted)} settings, "
        f"{pairs} pairs of neighbours replayed, {len(bad)} findings.",
        highlight=False,
        soft_wrap=True,
    )
    return list(dict.fromkeys(bad))


def _own(
    target: str,
    epsilons: tuple[float, ...],
    runs: int,
    regression: bool,
    replayed: bool,
    out: Path | None,
    *,
    delta: float,
    neighbouring: Any,
    confidence: float,
    seed: int,
) -> list[str]:
    from privopt.audit.user_code import PAIRS, attack_user_code, replay_user_code
    from privopt.privacy import Budget

    budget = Budget(epsilons[0], delta, neighbouring)
    findings = replay_user_code(target, budget, classification=not regression)
    if findings is None:
        console.print("It releases nothing through a gate of privopt: there is nothing to replay.")
    else:
        for text in findings:
            console.print(f"{target}: {text}", highlight=False, soft_wrap=True)
        console.print(f"Replay on hostile neighbours: {len(findings)} findings.", highlight=False)
    bad = [target] if findings else []
    if replayed:
        return bad
    found = attack_user_code(
        target,
        budget,
        runs=runs,
        confidence=confidence,
        classification=not regression,
        seed=seed,
    )
    said = _together(confidence, len(PAIRS))
    return bad + _shown(f"{target} under {neighbouring}", found.items(), said, out)


# ---------------------------------------------------------------- how it is run and shown
def _spread(one: Callable[[T], Any], wanted: list[T], workers: int) -> Iterator[Any]:
    """The results in order, from as many processes as asked for."""
    count = min(workers or os.cpu_count() or 1, len(wanted))
    if count == 1:
        yield from map(one, wanted)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        yield from pool.map(one, wanted)


def _together(confidence: float, count: int) -> str:
    each = 1 - (1 - confidence) / count
    return (
        f"All {count} lower bounds hold together with {100 * confidence:g} % confidence "
        f"(each with {100 * each:.4g} %)."
    )


def _shown(
    title: str,
    found: Iterable[tuple[str, Finding]],
    said: str,
    out: Path | None,
) -> list[str]:
    """Print the table and with which confidence it holds, write it down, and return what is
    refuted."""
    # Narrow enough for eighty columns: a file or a pipe has no other width.
    table = Table(title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in COLUMNS:
        left = column in ("audited", "verdict")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    refuted, kept, powerless = [], [], []
    for name, finding in found:
        table.add_row(
            name,
            f"{finding.delta:g}",
            f"{finding.certified:.3f}",
            f"{finding.lower_bound:.3f}",
            f"{finding.ratio:.2f}",
            f"{finding.point:.3f}",
            f"{finding.runs}",
            "[red]REFUTED[/red]" if finding.refuted else finding.verdict,
        )
        own = {"ratio": finding.ratio, "verdict": finding.verdict}
        error = finding.smallest_error if math.isfinite(finding.smallest_error) else None
        kept.append({"name": name, **asdict(finding), **own, "smallest_error": error})
        if finding.verdict == "no power":
            seen = f"{error:.2g} times" if error is not None else "none"
            powerless.append(f"{name} at epsilon {finding.certified:.3g} ({seen})")
        if finding.refuted:
            refuted.append(name)
    console.print(table)
    console.print(
        f"{said} 'lower' reads the rates in the family of the claimed curve, 'point' in "
        "(epsilon, delta) alone.",
        highlight=False,
    )
    if powerless:
        console.print(
            "No power, with the smallest error that would have been seen: "
            + ", ".join(powerless)
            + ". More runs, or a nearer pair, would tell.",
            highlight=False,
        )
    if out is not None:
        out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return list(dict.fromkeys(refuted))
