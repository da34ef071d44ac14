"""The law test sees how noise is spread, not its energy alone: for every mechanism. False alarms:
1e-5 each."""

from __future__ import annotations

import inspect
import math
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pytest

import privopt.mechanisms as room
from privopt.audit import noise_p_value, record
from privopt.audit.replay import Release, Tape
from privopt.geometry import Box, L2Ball
from privopt.losses import Logistic, Quantile
from privopt.mechanisms import (
    HOOK,
    BestOf,
    CorrelatedGaussian,
    Described,
    DiscreteCorrelatedGaussian,
    DiscreteGaussian,
    DiscreteLaplace,
    DiscreteNormGamma,
    ExponentialDensity,
    ExponentialMechanism,
    Gate,
    Gaussian,
    GeneralizedGaussian,
    GridWalk,
    KNorm,
    Laplace,
    Minimiser,
    NormGamma,
    ObjectivePerturbation,
    OutputPerturbation,
    PermuteAndFlip,
    RankQuantile,
    ReportNoisyMax,
)
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds, Sensitivity
from privopt.oracle.counting import grid_step
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Grid
from privopt.privacy.events import Event
from privopt.privacy.factorizations import Tree
from privopt.privacy.kinds import Pure

RUNS, STEPS, P = 40, 6, 9
DIAGONAL = np.eye(3).ravel()
"""Nine numbers are a three by three matrix."""


def value(mechanism):
    """Nine numbers, on the mechanism's grid if it has one."""
    if getattr(mechanism, "resolution", None) is None:
        return Sealed(KEY, np.ones(P), Sensitivity(mechanism.accepts, 0.5, 0.5))
    grid = Grid(grid_step(0.5, mechanism.resolution), P)
    sensitivity = Sensitivity(mechanism.accepts, 0.5, 0.5, grid=grid)
    return Sealed(KEY, np.full(P, 1000), sensitivity)


def scores(mechanism):
    found = np.array([0.0, 1.0, 3.0, 4.0, -2.0, 3.5, 2.0, 2.5, 1.0])
    return Sealed(KEY, found, Sensitivity("range", 2.0, 2.0))


def function(loss, p, n=6):
    X = np.random.default_rng(0).standard_normal((n, p)) if p > 1 else np.ones((n, 1))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(np.arange(n) % 2, 1.0, -1.0) if loss.classification else np.linspace(0.2, 0.8, n)
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(0),
        classification=loss.classification,
    )
    return lambda mechanism: oracle.everything().function(loss)


# Each mechanism, the value it opens, and where it draws its noise: (module, name) of functions.
ADDITIVE = {
    "Gaussian": (Gaussian(2.0), value, ("additive.gaussian",)),
    "Laplace": (Laplace(2.0), value, ("additive.laplace",)),
    "NormGamma": (NormGamma(2.0), value, ("additive.norm_gamma",)),
    "GeneralizedGaussian": (
        GeneralizedGaussian(2.0, 3.0),
        value,
        ("additive.generalized_gaussian",),
    ),
    "KNorm": (KNorm(2.0, 1.5), value, ("additive.k_norm",)),
    "DiscreteGaussian": (DiscreteGaussian(2.0), value, ("on_grid.discrete_gaussian",)),
    "DiscreteLaplace": (DiscreteLaplace(2.0), value, ("on_grid.discrete_laplace",)),
    "DiscreteNormGamma": (DiscreteNormGamma(2.0, P), value, ("on_grid.norm_gamma",)),
    "ObjectivePerturbation": (
        ObjectivePerturbation("gaussian", 2.0, 30.0, 1e-6, 100.0),
        function(Logistic(), P),
        ("objective_perturbation.gaussian",),
    ),
    "ObjectivePerturbation, pure": (
        ObjectivePerturbation("pure", 2.0, 30.0, 1e-6, 100.0),
        function(Logistic(), P),
        ("objective_perturbation.norm_gamma",),
    ),
    "OutputPerturbation": (
        OutputPerturbation("gaussian", 2.0, Minimiser(30.0, 1e-6)),
        function(Logistic(), P),
        ("output_perturbation.gaussian",),
    ),
    "OutputPerturbation, pure": (
        OutputPerturbation("pure", 2.0, Minimiser(30.0, 1e-6)),
        function(Logistic(), P),
        ("output_perturbation.norm_gamma",),
    ),
    "CorrelatedGaussian": (
        CorrelatedGaussian(Tree(STEPS), 2.0),
        value,
        ("correlated.gaussian",),
    ),
    "DiscreteCorrelatedGaussian": (
        DiscreteCorrelatedGaussian(Tree(STEPS), 2.0),
        value,
        ("correlated.narrow_gaussian",),
    ),
    "ExponentialMechanism": (ExponentialMechanism(1.0), scores, ("selection.gumbel",)),
    "PermuteAndFlip": (PermuteAndFlip(1.0), scores, ("selection.exponential",)),
    "ReportNoisyMax": (ReportNoisyMax(1.0), scores, ("selection.laplace",)),
}
BALL = L2Ball(2.0)
DRAWN = {
    "RankQuantile": (RankQuantile(0.5, 0.0, 1.0, 1e-3), function(Quantile(0.3), 1)),
    "ExponentialDensity, ball": (
        ExponentialDensity("pure", 0.5, BALL, "cells"),
        function(Logistic(), 2),
    ),
    "ExponentialDensity, grid": (
        ExponentialDensity("pure", 0.5, BALL, "grid", spacing=0.25),
        function(Logistic(), 2),
    ),
    "ExponentialDensity, piecewise linear": (
        ExponentialDensity("pure", 0.5, Box(0.0, 1.0), "piecewise_linear"),
        function(Quantile(0.3), 1),
    ),
    "GridWalk": (GridWalk(2.0, L2Ball(0.5), 1), function(Logistic(), 1, n=1)),
}
ELSEWHERE = {
    BestOf: "it adds nothing: the runs it chooses among release through gates of their own, and "
    "the law of their number is tested in tests/privacy/test_tuning.py",
}


def spread_like(bug, draw):
    """A function that draws noise, with a bug in how it is spread."""
    kept, count = [], 0

    def drawn(source, *args):
        nonlocal count
        noise = draw(source, *args)
        count += 1
        if bug == "shared":  # the right law in every entry, but one number for all of them
            return np.full_like(noise, np.ravel(noise)[0])
        if bug == "diagonal":  # the right energy
            return (noise * DIAGONAL * math.sqrt(3)).astype(noise.dtype)
        if bug == "reused" and count % 2 == 0:
            return kept[-1].copy()
        if bug == "carried":  # a part of the noise before it
            part = 0.8 * noise + 0.6 * (kept[-1] if kept else noise)
            kept.append(noise)
            return part.astype(noise.dtype) if noise.dtype == np.int64 else part
        kept.append(noise.copy())
        return noise

    return drawn


def tapes(name, bug=None, runs=RUNS):
    mechanism, sealed, where = ADDITIVE[name]
    found = []
    with ExitStack() as stack:
        for place in where:
            module, function_name = place.split(".")
            owner = getattr(room, module)
            draw = spread_like(bug, getattr(owner, function_name))
            stack.enter_context(patch.object(owner, function_name, draw))
        source = SeededSource(3)

        def run(X, y):
            gate = Gate(source, hook=HOOK.get())
            for _ in range(STEPS):
                gate.release(mechanism, sealed(mechanism))

        for _ in range(runs if "OutputPerturbation" not in name else 20):
            found.append(record(run, (None, None))[1])
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("name", ADDITIVE)
def test_honest_noise_passes(name):
    assert noise_p_value(tapes(name)) > 1e-5


# Noise that is carried on in part changes hardly a choice: 240 of them do not show it.
CHOICES = ("ExponentialMechanism", "PermuteAndFlip", "ReportNoisyMax")
BUGS = [
    (name, bug)
    for name in ADDITIVE
    for bug in ("shared", "diagonal", "reused", "carried")
    if bug != "carried" or name not in CHOICES
]


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "bug"), BUGS)
def test_noise_of_the_wrong_shape_is_found(name, bug):
    """One number in every entry, all of it on the diagonal, returned or carried on in a later
    release: in additive noise, in the noise behind a choice, in a stream's fresh draws."""
    assert noise_p_value(tapes(name, bug)) < 1e-7


def drawn_tapes(name, bug=None):
    mechanism, sealed = DRAWN[name]
    opened = sealed(mechanism)
    event = Event("draw", mechanism.kinds(opened.sensitivity))
    payload, source, found = opened.open(KEY), SeededSource(4), []
    for _ in range(15):
        releases, last = [], None
        for step in range(STEPS):
            theta = mechanism.run(payload, opened.sensitivity, source)
            if bug == "shared":
                theta = np.full_like(theta, theta[0] / math.sqrt(theta.size))
            if bug == "diagonal":
                theta = theta * (np.arange(theta.size) == 0)
            if bug == "reused" and step % 2:
                theta = last
            last = theta
            releases.append(Release(mechanism, payload, opened.sensitivity, event, theta))
        found.append(Tape(releases))
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("name", DRAWN)
def test_honest_draws_pass(name):
    assert noise_p_value(drawn_tapes(name)) > 1e-5


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "bug"),
    [(name, "reused") for name in DRAWN]
    # One number has no other shape.
    + [
        (f"ExponentialDensity, {on}", bug)
        for on in ("ball", "grid")
        for bug in ("shared", "diagonal")
    ],
)
def test_draws_of_the_wrong_shape_are_found(name, bug):
    assert noise_p_value(drawn_tapes(name, bug)) < 1e-6


@pytest.mark.statistical
def test_noise_reused_between_runs_is_found():
    honest = tapes("Gaussian", runs=20)
    assert noise_p_value([tape for tape in honest for _ in (0, 1)]) < 1e-4


def test_every_mechanism_is_here():
    """A new mechanism describes its noise and is tested with the bugs above."""
    known = {
        one
        for one in (getattr(room, name) for name in room.__all__)
        if inspect.isclass(one) and hasattr(one, "kinds") and hasattr(one, "run")
    } - {room.Mechanism}
    here = {type(case[0]) for case in (*ADDITIVE.values(), *DRAWN.values())}
    assert known == here | set(ELSEWHERE)
    for one in here - {CorrelatedGaussian, DiscreteCorrelatedGaussian}:
        assert issubclass(one, Described)


def test_a_mechanism_that_does_not_describe_its_noise_is_refused():
    class Secretive:
        def kinds(self, sensitivity):
            return (Pure(1.0),)

    sensitivity = Sensitivity("l1", 1.0, 1.0)
    release = Release(Secretive(), np.zeros(2), sensitivity, Event("sum", (Pure(1.0),)), np.ones(2))
    with pytest.raises(NotImplementedError, match="Secretive does not describe its noise"):
        noise_p_value([Tape([release])])
