"""The list of planted bugs. A bug times every algorithm it applies to; each names its check."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

import privopt.oracle.dense as dense_module
import privopt.oracle.objective as objective_module
import privopt.oracle.view as oracle_module
from privopt import Problem
from privopt.geometry import L2Ball, WholeSpace
from privopt.losses import Huber, Logistic, Squared
from privopt.mechanisms import (
    additive,
    mask,
    objective_perturbation,
    on_grid,
    output_perturbation,
    selection,
)
from privopt.mechanisms import exponential_density as density_module
from privopt.mechanisms.gate import Gate
from privopt.mechanisms.greedy_scores import GreedyScores
from privopt.mechanisms.maps import VertexScores
from privopt.mechanisms.output_perturbation import Minimiser
from privopt.mechanisms.stable_sgd import StableSGD
from privopt.noise import SeededSource, discrete_gaussian, discrete_laplace
from privopt.noise import source as source_module
from privopt.oracle import column_shapes, mapped, moments, queries
from privopt.oracle.dense import DenseRows
from privopt.oracle.incremental_gradient import IncrementalGradient
from privopt.oracle.sampling import GeometricSkips
from privopt.oracle.sparse import SparseRows
from privopt.oracle.vertex_draw import VertexDraw
from privopt.privacy import accountant, certificate, kinds, profiles
from privopt.privacy.events import Sampling
from privopt.solvers import (
    greedy_coordinate,
    noisy_gd,
    noisy_sgd,
    solver_named,
    standardized_objective,
)

from .checks import (
    accounted,
    attacked,
    batches_are_counted,
    batches_are_poisson,
    fresh,
    kinds_of_objective_perturbation,
    law,
    logged,
    long_rows,
    minimised,
    replayed,
    sources,
    stale_by_itself,
    unseen,
    vertices_drawn,
    within_budget,
)
from .chunked import chunks
from .classes import classes
from .densities import densities
from .evaluation import evaluation
from .foreign import foreign
from .further import further
from .geometry import geometry
from .integers import coarse, integers
from .intervals import intervals
from .kinks import kinks
from .learning import learning
from .ledger_bugs import ledger
from .masks import masks
from .mutant import Mutant
from .nonconvex import nonconvex
from .processes import processes
from .regressions import regressions
from .rounds import rounds
from .runs import runs
from .streams import streams
from .torch_bugs import training
from .torch_mixing import mixing
from .torch_models import models
from .torch_state import state as torch_state
from .torch_users import torch_users
from .tuning import tuning
from .users import users
from .vectors import vectors
from .weights import weights

# The packages export functions under the names of these modules.
solve_module = import_module("privopt.planner.solve")
spend = import_module("privopt.privacy.spend")

DELTA = 1e-5


# ---------------------------------------------------------------- noise
def scaled(module: Any, name: str, factor: float) -> tuple[Any, str, Any]:
    honest = getattr(module, name)
    return module, name, lambda source, scale, size: honest(source, factor * scale, size)


def quiet(module: Any, name: str, factor: float) -> tuple[tuple[Any, str, Any], ...]:
    discrete_noise = {
        (additive, "gaussian"): (on_grid, "discrete_gaussian", coarse(factor)),
        (additive, "norm_gamma"): scaled(on_grid, "norm_gamma", factor),
        (additive, "laplace"): (on_grid, "discrete_laplace", coarse(factor, discrete_laplace)),
        (output_perturbation, "gaussian"): (mask, "discrete_gaussian", coarse(factor)),
    }
    also = discrete_noise.get((module, name))
    return (scaled(module, name, factor), *([] if also is None else [also]))


ADDITIVE = {
    "noisy_gd": (additive, "norm_gamma", "gaussian"),
    "coordinate_descent": (additive, "laplace", "gaussian"),
    "greedy_coordinate": (additive, "laplace", "gaussian"),
    "noisy_sgd": (additive, None, "gaussian"),
    "one_point_sgd": (additive, None, "gaussian"),
    "objective_perturbation": (objective_perturbation, "norm_gamma", None),
    "approximate_minima": (objective_perturbation, "norm_gamma", None),
    "standardized_objective": (objective_perturbation, "norm_gamma", "gaussian"),
    "standardized_regression": (objective_perturbation, "norm_gamma", "gaussian"),
    "output_perturbation": (output_perturbation, "norm_gamma", None),
    "bolt_on_sgd": (output_perturbation, "norm_gamma", None),
    "phased_localization": (output_perturbation, "norm_gamma", None),
    "localization": (output_perturbation, "norm_gamma", "gaussian"),
    "frank_wolfe": (selection, "exponential", "gumbel"),
}


def noise() -> Iterator[Mutant]:
    for solver, (module, pure, gaussian) in ADDITIVE.items():
        for delta, name in ((0.0, pure), (DELTA, gaussian)):
            if name is None:
                continue
            weak = solver in ("frank_wolfe", "greedy_coordinate")
            runs = 200 if weak else 60
            yield Mutant(
                f"{solver}: half the {name} noise",
                quiet(module, name, 0.5),
                law(solver, delta, runs=runs),
                "law",
                quick=not weak,
            )
            if module is not selection:
                yield Mutant(
                    f"{solver}: no {name} noise",
                    quiet(module, name, 1e-9),
                    law(solver, delta, runs=20),
                    "law",
                    quick=False,
                )
    for solver, name, delta in (
        ("noisy_gd", "norm_gamma", 0.0),
        ("noisy_gd", "gaussian", DELTA),
        ("noisy_sgd", "gaussian", DELTA),
        ("coordinate_descent", "gaussian", DELTA),
    ):
        yield Mutant(
            f"{solver}: the same {name} noise at every step",
            (
                (additive, name, _constant(getattr(additive, name))),
                (on_grid, "discrete_gaussian", _same_integers),
                (on_grid, "norm_gamma", _constant(on_grid.norm_gamma)),
                (on_grid, "discrete_laplace", _same_integers),
            ),
            fresh(solver, delta),
            "fresh",
        )
    for delta, name in ((0.0, "norm_gamma"), (DELTA, "gaussian")):
        yield Mutant(
            f"objective_perturbation: {name} noise redrawn when it is large",
            ((objective_perturbation, name, _redrawn(getattr(objective_perturbation, name))),),
            law(
                "standardized_objective" if delta else "objective_perturbation",
                delta,
                runs=600 if delta else 60,
            ),
            "law",
            quick=delta == 0,
        )
        yield Mutant(
            f"output_perturbation: {name} noise averaged over two draws",
            (
                (output_perturbation, name, _averaged(getattr(output_perturbation, name))),
                (mask, "discrete_gaussian", _averaged_integers),
            ),
            law("localization" if delta else "output_perturbation", delta, runs=150),
            "law",
        )
    for solver, delta in (("output_perturbation", 0.0), ("output_perturbation", DELTA)):
        name = "gaussian" if delta else "norm_gamma"
        yield Mutant(
            f"{solver}: half the {name} noise, seen by an attack",
            quiet(output_perturbation, name, 0.5),
            attacked(solver, delta, 4.0 if delta else 1.0),
            "attack",
        )
    for solver, module, name, delta in (
        ("noisy_gd", additive, "gaussian", DELTA),
        ("noisy_gd", additive, "norm_gamma", 0.0),
        ("objective_perturbation", objective_perturbation, "norm_gamma", 0.0),
        ("objective_perturbation", objective_perturbation, "gaussian", DELTA),
        ("frank_wolfe", selection, "exponential", 0.0),
        ("noisy_sgd", additive, "gaussian", DELTA),
    ):
        yield Mutant(
            f"{solver}: half the {name} noise, seen by an attack",
            quiet(module, name, 0.5),
            # Several pure releases are weak at every one event; their curve is not.
            attacked(solver, delta, 4.0 if delta or solver == "noisy_gd" else 1.0),
            "attack",
            quick=False,
        )
    yield Mutant(
        "norm-Gamma noise drawn as independent Laplaces",
        ((on_grid, "norm_gamma", lambda source, scale, p: additive.laplace(source, scale, p)),),
        law("noisy_gd", 0.0),
        "law",
    )
    yield Mutant(
        "selection: Gumbel noise on scores doubled before the choice",
        ((selection, "_scores", lambda payload: 2 * np.asarray(payload, dtype=float)),),
        law("frank_wolfe", DELTA, runs=200),
        "law",
        quick=False,
    )
    yield Mutant(
        "exponential_sampling: a quarter of the loss's range",
        ((density_module, "loss_range", _smaller(density_module.loss_range, 0.25)),),
        attacked("exponential_sampling", 0.0, 4.0, runs=3000),
        "attack",
        quick=False,
    )


def _constant(honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda source, scale, size: honest(SeededSource(7), scale, size)


def _same_integers(source: Any, size: Any) -> Any:
    return discrete_gaussian(SeededSource(7), size)


def _unclipped(lengths: Any, bound: float, dimension: int) -> Any:
    return np.ones_like(lengths)


def _redrawn(honest: Callable[..., Any]) -> Callable[..., Any]:
    def draw(source: Any, scale: float, size: Any) -> Any:
        found = honest(source, scale, size)
        while np.linalg.norm(found) > 1.2 * scale * math.sqrt(np.size(found)):
            found = honest(source, scale, size)
        return found

    return draw


def _averaged(honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda source, scale, size: (
        honest(source, scale, size) / 2 + honest(source, scale, size) / 2
    )


def _averaged_integers(source: Any, size: Any) -> Any:
    return (discrete_gaussian(source, size) + discrete_gaussian(source, size)) // 2


def _smaller(honest: Callable[..., Any], factor: float) -> Callable[..., Any]:
    return lambda *args, **kwargs: factor * honest(*args, **kwargs)


# ---------------------------------------------------------------- choices on sparse rows
def sparse_choices() -> Iterator[Mutant]:
    """The sampler that reads a few columns, and the gradient it follows."""
    draw = VertexDraw
    choose, prepare, move = draw.choose, draw._prepare, IncrementalGradient.move

    def mutant(name: str, check: Any, by: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"sparse choices: {name}", patches, check, by, quick="in a run" not in name)

    def rooms_halved(self: Any, *args: Any) -> None:
        prepare(self, *args)
        self._room /= 2

    def renewed_together(self: Any, *args: Any) -> None:
        """All slopes, as soon as one record's margin has drifted."""
        move(self, *args)
        now = self._margins * self._shrunk
        if self._seen is not None and np.abs(now - self._seen).max() > 0.25:
            self._seen = now

    mixed, heavy = vertices_drawn(24.0), vertices_drawn(8.0)
    yield mutant(
        "half the noise",
        heavy,
        "law",
        (draw, "choose", lambda self, scale, source: choose(self, scale / 2, source)),
    )
    yield mutant(
        "half the noise, in a run",
        law("frank_wolfe", DELTA, runs=200, mode="exact"),
        "law",
        (draw, "choose", lambda self, scale, source: choose(self, scale / 2, source)),
    )
    yield mutant(
        "every proposal accepted", mixed, "law", (draw, "_acceptance", lambda self, k, value: 1.0)
    )
    yield mutant("half the room", mixed, "law", (draw, "_prepare", rooms_halved))
    yield mutant(
        "drift not counted", heavy, "law", (IncrementalGradient, "drift", lambda self: 0.0)
    )
    yield mutant(
        "drift not counted, stale",
        vertices_drawn(8.0, True),
        "law",
        (IncrementalGradient, "drift", lambda self: 0.0),
    )
    yield mutant(
        "noise from the source's own stream",
        unseen,
        "streams",
        (source_module.SeededSource, "apart", lambda self: self.noise),
    )
    yield mutant(
        "slopes renewed together",
        stale_by_itself,
        "replay",
        (IncrementalGradient, "move", renewed_together),
    )
    for mode in ("exact", "stale"):
        yield mutant(
            f"rows not shortened, {mode}",
            replayed("frank_wolfe", "zero_out", DELTA, mode=mode),
            "replay",
            (SparseRows, "columns", lambda self: (self._X.tocsc(), self._y, self._sizes)),
        )
        yield mutant(
            f"slope not clipped, {mode}",
            replayed("frank_wolfe", "zero_out", DELTA, mode=mode),
            "replay",
            (
                queries.CoordinateClippedGradient,
                "weigh",
                lambda self, z, y, s: 5 * self.loss.slope(z, y),
            ),
        )


# ---------------------------------------------------------------- declared losses
def declared() -> Iterator[Mutant]:
    """A mechanism that declares half of the loss its noise gives."""
    for mechanism, solver, delta in (
        (on_grid.DiscreteGaussian, "noisy_gd", DELTA),
        (on_grid.DiscreteGaussian, "coordinate_descent", DELTA),
        (on_grid.DiscreteLaplace, "coordinate_descent", 0.0),
        (on_grid.DiscreteNormGamma, "noisy_gd", 0.0),
        (output_perturbation.OutputPerturbation, "output_perturbation", 0.0),
        (output_perturbation.OutputPerturbation, "localization", DELTA),
        (objective_perturbation.ObjectivePerturbation, "objective_perturbation", 0.0),
        (selection.ExponentialMechanism, "frank_wolfe", DELTA),
        (selection.PermuteAndFlip, "frank_wolfe", 0.0),
        (density_module.ExponentialDensity, "exponential_sampling", 0.0),
    ):
        yield Mutant(
            f"{mechanism.__name__} declares half its loss ({solver})",
            ((mechanism, "kinds", _halved(mechanism.kinds)),),
            law(solver, delta, runs=300 if "frank" in solver or "expo" in solver else 60),
            "law",
            quick="frank" not in solver and "expo" not in solver,
        )
    own = objective_perturbation.ObjectivePerturbation.kinds
    yield Mutant(
        "objective perturbation: output noise not declared",
        ((objective_perturbation.ObjectivePerturbation, "kinds", lambda s, r: own(s, r)[:1]),),
        kinds_of_objective_perturbation,
        "closed form",
    )
    yield Mutant(
        "objective perturbation: determinant left out",
        ((objective_perturbation.ObjectivePerturbation, "kinds", _without_determinant(own)),),
        kinds_of_objective_perturbation,
        "closed form",
    )
    yield Mutant(
        "objective perturbation: replaced record's mu halved",
        ((objective_perturbation.ObjectivePerturbation, "kinds", _halved(own)),),
        kinds_of_objective_perturbation,
        "closed form",
    )


def _halved(honest: Callable[..., Any]) -> Callable[..., Any]:
    def kinds_of(self: Any, sensitivity: Any) -> Any:
        first, *rest = honest(self, sensitivity)
        fields = {
            name: getattr(first, name) / 2
            for name in ("mu", "single", "epsilon", "eta")
            if hasattr(first, name)
        }
        return (replace(first, **fields), *rest)

    return kinds_of


def _without_determinant(honest: Callable[..., Any]) -> Callable[..., Any]:
    def kinds_of(self: Any, sensitivity: Any) -> Any:
        return honest(replace(self, regularisation=1e12), sensitivity)

    return kinds_of


# ---------------------------------------------------------------- sensitivity
def output_sensitivity() -> Iterator[Mutant]:
    gradient = queries.ClippedGradient

    def unclipped(self: Any, margins: Any, labels: Any, sizes: Any) -> Any:
        return 3 * self.loss.slope(margins, labels)

    for solver in ("noisy_gd", "noisy_sgd", "one_point_sgd"):
        delta = DELTA
        # Of one record a step, steps enough to meet the one that differs.
        long: dict[str, Any] = {"n_iter": 150} if solver == "one_point_sgd" else {}
        yield Mutant(
            f"{solver}: gradients not clipped",
            ((gradient, "_weigh", unclipped),),
            replayed(solver, "zero_out", delta, discrete_noise=False, **long),
            "replay",
        )
        yield Mutant(
            f"{solver}: integer gradients not clipped",
            ((gradient, "_weigh", unclipped), (dense_module, "shorten", _unclipped)),
            replayed(solver, "zero_out", delta, **long),
            "replay",
        )
        yield Mutant(
            f"{solver}: L for 2L when a record is replaced",
            ((gradient, "diameter", gradient.radius),),
            # Slopes of the logistic loss at one point differ by 1, not by 2: it would hide this.
            replayed(solver, "replace_one", delta, problem=Problem(Huber(0.5), L2Ball(3.0))),
            "replay",
        )
        yield Mutant(
            f"{solver}: radius of one record halved",
            ((gradient, "radius", lambda self: self.clip_norm / 2),),
            replayed(solver, "add_remove", delta),
            "replay",
        )
    coordinate = queries.CoordinateClippedGradient
    honest_radius = coordinate.radius
    for solver in ("frank_wolfe", "greedy_coordinate", "coordinate_descent"):
        yield Mutant(
            f"{solver}: reach of a gradient's coordinates halved",
            ((coordinate, "radius", lambda self: honest_radius(self) / 4),),
            replayed(solver, "replace_one", DELTA),
            "replay",
        )
        yield Mutant(
            f"{solver}: slope not clipped",
            ((coordinate, "weigh", lambda self, z, y, s: 5 * self.loss.slope(z, y)),),
            replayed(solver, "zero_out", 0.0),
            "replay",
        )
    yield Mutant(
        "frank_wolfe: range of the vertices' scores as for monotone scores",
        ((VertexScores, "stretch", _smaller(VertexScores.stretch, 0.25)),),
        replayed("frank_wolfe", "replace_one"),
        "replay",
    )
    yield Mutant(
        "greedy_coordinate: range of one score instead of two",
        ((GreedyScores, "stretch", _smaller(GreedyScores.stretch, 0.25)),),
        replayed("greedy_coordinate", "replace_one"),
        "replay",
    )
    yield Mutant(
        "greedy_coordinate: squares of features not clipped",
        ((queries.SquaresAlong, "_square", lambda self, entries: 3 * entries * entries),),
        replayed("greedy_coordinate", "zero_out", DELTA, problem=COLUMNS),
        "replay",
    )
    least_squares = {"problem": LEAST_SQUARES, "label_bound": 0.5}
    yield Mutant(
        "greedy_coordinate: labels behind a Gram matrix not clipped",
        ((queries.GramGradient, "moments", _raw_moments),),
        replayed("greedy_coordinate", "zero_out", DELTA, **least_squares),
        "replay",
    )
    yield Mutant(
        "greedy_coordinate: a Gram matrix asked where residuals pass the clip",
        (
            (queries.GramGradient, "check_point", lambda self, at: None),
            (greedy_coordinate.Room, "cut", lambda self, theta, j, value: value),
        ),
        replayed("greedy_coordinate", "zero_out", 0.1, step_factor=60.0, **least_squares),
        "replay",
    )
    yield from _first_sums()
    yield from _shapes()
    yield from _functions()
    yield from _stable()
    yield from _rows()


COLUMNS = Problem(Logistic(), WholeSpace(), column_bounds=1.0)
LEAST_SQUARES = Problem(Squared(residual_clip=1.0), WholeSpace(), column_bounds=1.0)


def _raw_moments(self: Any, rows: Any) -> Any:
    origin = np.zeros(rows.dimension)
    gram = rows.weighted_gram(origin, lambda z, y, size: z * 0.0 + 1.0)
    return gram, rows.weighted_sum(origin, lambda z, y, size: y)


def _first_sums() -> Iterator[Mutant]:
    """The sums that standardisation releases."""
    for solver in ("standardized_objective", "standardized_regression"):
        yield Mutant(
            f"{solver}: histogram moved by 1 instead of sqrt(2)",
            ((moments.NormHistogram, "diameter", lambda self: 1.0),),
            replayed(solver, "replace_one", DELTA),
            "replay",
        )
        yield Mutant(
            f"{solver}: moments bounded by 1 instead of sqrt(2)",
            ((moments.Moments, "radius", lambda self: 1.0),),
            replayed(solver, "zero_out", DELTA),
            "replay",
        )
        yield Mutant(
            f"{solver}: replaced moments bounded as one record's",
            ((moments.Moments, "diameter", lambda self: math.sqrt(2)),),
            replayed(solver, "replace_one", DELTA),
            "replay",
        )
        yield Mutant(
            f"{solver}: moments of rows that are not clipped",
            ((moments, "shorten", _unclipped),),
            replayed(solver, "zero_out", DELTA),
            "replay",
        )
        yield Mutant(
            f"{solver}: mapped rows not clipped",
            ((mapped.MappedRows, "build", classmethod(_not_clipped)),),
            replayed(solver, "zero_out", DELTA),
            "replay",
        )
    for name, power in (
        ("neither shortened nor weighted", 0.0),
        ("weighted by half the power", 0.5),
    ):
        yield Mutant(
            f"standardized_objective: long rows {name}",
            ((mapped.RowMap, "notes", _weighted(power)),),
            long_rows(),
            "closed form",
        )
    yield Mutant(
        "standardized_objective: number of positive labels moved by a half",
        ((queries.CountPositive, "radius", lambda self: 0.5),),
        replayed("standardized_objective", "zero_out", DELTA),
        "replay",
    )


def _shapes() -> Iterator[Mutant]:
    """Histograms of columns, and the features that follow from them."""
    histograms, learner = column_shapes.ColumnHistograms, "standardized_objective"
    shaped = {"problem": SHAPED, "harmonics": 3}
    yield Mutant(
        "shapes: histograms of all columns moved by 1",
        ((histograms, "radius", lambda self: 1.0),),
        replayed(learner, "zero_out", DELTA, **shaped),
        "replay",
    )
    yield Mutant(
        "shapes: replaced histograms moved as by one record",
        ((histograms, "diameter", histograms.radius),),
        replayed(learner, "replace_one", DELTA, **shaped),
        "replay",
    )
    yield Mutant(
        "shapes: empty records counted in the bin of zero",
        ((histograms, "_counts", _with_empty_records),),
        replayed(learner, "zero_out", DELTA, **shaped),
        "replay",
    )
    yield Mutant(
        "shapes: their features not clipped with the row",
        ((mapped.MappedRows, "build", classmethod(_not_clipped)),),
        replayed(learner, "zero_out", DELTA, **shaped),
        "replay",
    )
    yield Mutant(
        "shapes: an empty record has the features of a zero row",
        ((DenseRows, "widened", _with_features_of_nobody),),
        replayed(learner, "zero_out", DELTA, **shaped),
        "replay",
    )
    yield Mutant(
        "shapes: histograms not paid from the budget",
        ((standardized_objective, "shape_noise", _unpaid_shapes),),
        logged(learner, DELTA, **shaped),
        "dry run",
    )


def _with_empty_records(self: Any, rows: Any) -> np.ndarray:
    def counted(X: Any) -> np.ndarray:
        found = column_shapes.codes(X, self.columns)
        return np.concatenate([np.bincount(one, minlength=64) for one in found.T])

    return rows.features(counted)


def _with_features_of_nobody(self: Any, more: Any, width: int) -> Any:
    full = DenseRows(self._X, self._y, self._scale, None, self._sizes, self.bounds, self._dtype)
    found = _WIDENED(full, more, width)
    found._active = self._active
    return found


_WIDENED = DenseRows.widened


def _unpaid_shapes(*args: Any) -> Any:
    return _SHAPE_NOISE(*args)[0], ()


_SHAPE_NOISE = standardized_objective.shape_noise
SHAPED = Problem(
    Logistic(), intercept=0.5, column_bounds=1.0, shaped=((0, -1.0, 1.0), (1, -1.0, 1.0))
)


def _weighted(power: float) -> Any:
    honest = mapped.RowMap.notes

    def notes(self: Any, norms: np.ndarray) -> np.ndarray:
        found = honest(self, norms)
        found[:, 2] **= power
        return found

    return notes


def _not_clipped(cls: Any, base: Any, row_map: Any) -> Any:
    norms = np.hypot(base.features(lambda X: mapped.scaled_norms(X, row_map)), row_map.column)
    factors = np.full_like(norms, 1 / row_map.clip_norm)
    notes = np.column_stack([factors, factors * norms, np.ones_like(norms)])
    return cls(base.noted(notes).precise(), row_map)


FUNCTIONS = (
    "objective_perturbation",
    "approximate_minima",
    "output_perturbation",
    "localization",
    "bolt_on_sgd",
    "phased_localization",
)


def _functions() -> Iterator[Mutant]:
    honest = objective_module.function_facts

    def less(name: str) -> Callable[..., Any]:
        def facts(*args: Any, **kwargs: Any) -> Any:
            found = honest(*args, **kwargs)
            return replace(found, **{name: getattr(found, name) / 2})

        return facts

    own = oracle_module.View.function

    def single(self: Any, loss: Any) -> Any:
        sealed = own(self, loss)
        sealed.sensitivity = replace(sealed.sensitivity, radius=sealed.sensitivity.single)
        return sealed

    for solver in FUNCTIONS:
        yield Mutant(
            f"{solver}: half the Lipschitz constant",
            ((oracle_module, "function_facts", less("lipschitz")),),
            replayed(solver, "zero_out", 0.0),
            "replay",
        )
        yield Mutant(
            f"{solver}: half the smoothness",
            ((oracle_module, "function_facts", less("smoothness")),),
            replayed(solver, "zero_out", 0.0),
            "replay",
        )
        yield Mutant(
            f"{solver}: a replaced record moves the gradient by L",
            ((oracle_module.View, "function", single),),
            replayed(solver, "replace_one", 0.0),
            "replay",
        )


def _stable() -> Iterator[Mutant]:
    for solver, relation in (
        ("output_perturbation", "zero_out"),
        ("localization", "replace_one"),
    ):
        yield Mutant(
            f"{solver}: a third of the minimiser's sensitivity",
            ((Minimiser, "output_sensitivity", _smaller(Minimiser.output_sensitivity, 1 / 3)),),
            replayed(solver, relation, 0.0),
            "replay",
        )
    for solver in ("bolt_on_sgd", "phased_localization"):
        yield Mutant(
            f"{solver}: a quarter of the sensitivity",
            ((StableSGD, "output_sensitivity", _smaller(StableSGD.output_sensitivity, 0.25)),),
            replayed(solver, "zero_out", 0.0),
            "replay",
        )
        yield Mutant(
            f"{solver}: a batch divided by the records it holds",
            ((StableSGD, "value", _by_records_held),),
            replayed(solver, "zero_out", 0.0, problem=Problem(Huber(0.5), L2Ball(3.0))),
            "replay",
        )
    for solver, delta in (
        ("objective_perturbation", 0.0),
        ("objective_perturbation", DELTA),
        ("approximate_minima", 0.0),
        ("output_perturbation", 0.0),
    ):
        module = output_perturbation if solver == "output_perturbation" else objective_perturbation
        patches = ((module, "minimise_surely", _loose(module.minimise_surely, "gradient_norm")),)
        if solver == "approximate_minima":
            inside = objective_perturbation.mapped_below
            patches = (
                (module, "descend", _loose(objective_perturbation.descend, "distance")),
                (module, "mapped_below", lambda *a, own=inside: own(*a[:-1], 1e5 * a[-1])),
            )
        yield Mutant(
            f"{solver}: tolerance loosened ({'pure' if delta == 0 else 'gaussian'})",
            patches,
            minimised(solver, delta),
            "minimiser",
        )


def _loose(honest: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: honest(*args, **{**kwargs, name: 1e5 * kwargs[name]})


def _by_records_held(self: Any, objective: Any) -> np.ndarray:
    """The last, smaller batch weighs as much as the others."""
    theta = np.array(self.start)
    total, t, count = np.zeros_like(theta), 0, objective.count
    for first in range(0, self.batch * self.batches, self.batch):
        part = objective.part(min(first, count), min(first + self.batch, count))
        # Empty records are not held either.
        held = max(1.0, part.rows.total(theta, lambda z, y, size: z * 0.0 + 1.0))
        t, total = t + 1, total + theta
        gradient = part.gradient(theta) / held
        theta = self.domain.project(theta - self.step * (gradient + self.ridge * theta))
    return total / t if self.average else theta


def _rows() -> Iterator[Mutant]:
    build = DenseRows.build.__func__  # type: ignore[attr-defined]

    def loose(cls: Any, X: Any, y: Any, bounds: Any, classification: bool = True) -> Any:
        rows = build(cls, X, y, bounds, classification)
        rows._scale = None
        return rows

    for solver in ("noisy_gd", "objective_perturbation", "output_perturbation", "bolt_on_sgd"):
        plain = {"discrete_noise": False} if solver == "noisy_gd" else {}
        yield Mutant(
            f"{solver}: rows not clipped to their norm",
            ((DenseRows, "build", classmethod(loose)),),
            # A sum in integers would clip each record once more, and hide this.
            replayed(solver, "zero_out", DELTA, **plain),
            "replay",
        )

    def stretched(cls: Any, X: Any, y: Any, bounds: Any, classification: bool = True) -> Any:
        """Clipped to the largest row of the data, if that is longer than the bound."""
        norms = np.linalg.norm(np.clip(np.nan_to_num(X), -1e3, 1e3), axis=1)
        longest = float(norms.max(initial=bounds.data_norm))
        return build(cls, X, y, replace(bounds, data_norm=longest), classification)

    for solver in ("noisy_gd", "objective_perturbation"):
        yield Mutant(
            f"{solver}: the bound of the rows read from data",
            ((DenseRows, "build", classmethod(stretched)),),
            replayed(solver, "zero_out", DELTA),
            "replay",
        )


# ---------------------------------------------------------------- data in public places
def glue() -> Iterator[Mutant]:
    realised = ((solve_module, "public_count", lambda n, budget, n_public: max(n, 1)),)
    for solver in ("noisy_gd", "objective_perturbation", "output_perturbation", "frank_wolfe"):
        yield Mutant(
            f"{solver}: n taken from the data under add_remove",
            realised,
            replayed(solver, "add_remove", DELTA),
            "replay",
        )
    run = noisy_gd.NoisyGD.run

    def leaking(self: Any, oracle: Any, *rest: Any, **kwargs: Any) -> Any:
        theta = run(self, oracle, *rest, **kwargs)
        label = np.nan_to_num(np.asarray(getattr(oracle._rows, "_y", np.zeros(1)), dtype=float))
        return theta + 1e-9 * float(np.sign(label).sum())

    yield Mutant(
        "noisy_gd: labels leak into the answer",
        ((noisy_gd.NoisyGD, "run", leaking),),
        replayed("noisy_gd", "replace_one", DELTA),
        "replay",
    )

    def by_count(self: Any, oracle: Any, gate: Any, problem: Any, settings: Any, *rest: Any) -> Any:
        longer = replace(settings, n_iter=settings.n_iter + int(oracle._rows.count > 0))
        return run(self, oracle, gate, problem, longer, *rest)

    yield Mutant(
        "noisy_gd: one step more on real data than on none",
        ((noisy_gd.NoisyGD, "run", by_count),),
        logged("noisy_gd", DELTA),
        "dry run",
    )

    def from_data(own: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, oracle: Any, gate: Any, problem: Any, settings: Any, *rest: Any) -> Any:
            larger = settings.regularisation * (1 + oracle._rows.count)
            return own(self, oracle, gate, problem, replace(settings, regularisation=larger), *rest)

        return run

    for solver in ("objective_perturbation", "approximate_minima"):
        kind = type(solver_named(solver))
        yield Mutant(
            f"{solver}: lambda read from data",
            ((kind, "run", from_data(kind.run)),),
            logged(solver, 0.0),
            "dry run",
        )
    batch = noisy_sgd.NoisySGD.run

    def by_drawn(self: Any, oracle: Any, gate: Any, problem: Any, settings: Any, *rest: Any) -> Any:
        counted = replace(settings, records=max(40, oracle._rows.count))
        return batch(self, oracle, gate, problem, counted, *rest)

    yield Mutant(
        "noisy_sgd: divisor and rate from the records there are",
        ((noisy_sgd.NoisySGD, "run", by_drawn),),
        logged("noisy_sgd", DELTA),
        "dry run",
    )
    ask = oracle_module.View.ask

    def averaged(expected: float) -> Callable[..., Any]:
        def mutated(self: Any, query: Any, at: Any = None, *, steps: Any = None) -> Any:
            sealed = ask(self, query, at, steps=steps)
            mean = sealed._payload * expected / max(1, self._rows.count)
            sealed._payload = np.asarray(mean, dtype=sealed._payload.dtype)
            return sealed

        return mutated

    yield Mutant(
        "noisy_sgd: batch divided by the number of records drawn",
        ((oracle_module.View, "ask", averaged(3.0)),),
        replayed("noisy_sgd", "zero_out", DELTA, batch_size=3, n_iter=80),
        "replay",
    )
    yield Mutant(
        "noisy_gd: mean of the records there are instead of the sum",
        ((oracle_module.View, "ask", averaged(60.0)),),
        replayed("noisy_gd", "add_remove", DELTA),
        "replay",
    )


# ---------------------------------------------------------------- the log
def log() -> Iterator[Mutant]:
    release = Gate.release

    def forgetful(self: Any, mechanism: Any, sealed: Any) -> Any:
        """Every second release goes through a gate whose log is thrown away."""
        if len(self._log) % 2 == 0:
            return release(self, mechanism, sealed)
        return release(Gate(self._source, hook=self._hook), mechanism, sealed)

    for solver, delta in (
        ("noisy_gd", DELTA),
        ("noisy_gd", 0.0),
        ("noisy_sgd", DELTA),
        ("localization", 0.0),
        ("phased_localization", 0.0),
        ("standardized_objective", DELTA),
        ("frank_wolfe", DELTA),
        ("greedy_coordinate", 0.0),
        ("coordinate_descent", DELTA),
    ):
        yield Mutant(
            f"{solver}: two releases charged once ({'pure' if delta == 0 else 'gaussian'})",
            ((Gate, "release", forgetful),),
            logged(solver, delta),
            "log",
        )

    def twice(self: Any, mechanism: Any, sealed: Any) -> Any:
        """The value is released twice and averaged; the second release is not charged."""
        again = release(Gate(self._source, hook=self._hook), mechanism, sealed)
        return (release(self, mechanism, sealed) + again) / 2

    for solver in ("objective_perturbation", "output_perturbation", "noisy_gd"):
        yield Mutant(
            f"{solver}: released twice, charged once",
            ((Gate, "release", twice),),
            logged(solver, 0.0),
            "log",
        )
    yield Mutant(
        "standardized_objective: the first releases are not paid from the budget",
        ((standardized_objective, "_inner_facts", _without_prior),),
        logged("standardized_objective", DELTA),
        "dry run",
    )


def _without_prior(facts: Any, *args: Any) -> Any:
    *rest, _ = args
    return _INNER(facts, *rest, ())


_INNER = standardized_objective._inner_facts


# ---------------------------------------------------------------- the accountant
def accounting() -> Iterator[Mutant]:
    def mutant(name: str, *patches: tuple[Any, str, Any], check: Any = accounted) -> Mutant:
        return Mutant(f"accountant: {name}", patches, check, "closed form")

    yield mutant(
        "Gaussian losses composed by their maximum",
        (accountant, "_total_mu", lambda found: max(k.mu for k in found if hasattr(k, "single"))),
    )
    yield mutant(
        "the number of equal Gaussian releases forgotten",
        (
            accountant,
            "_total_mu",
            lambda found: math.sqrt(sum(k.mu**2 for k in found if hasattr(k, "single"))),
        ),
    )
    exact = profiles.gaussian_delta
    yield mutant(
        "delta of a Gaussian at 1.1 epsilon",
        (profiles, "gaussian_delta", lambda e, mu: exact(1.1 * e, mu)),
    )
    yield mutant(
        "sign error in the Gaussian profile",
        (profiles, "gaussian_delta", lambda e, mu: exact(e, mu) * 0.5),
    )
    yield mutant(
        "calibrated mu a tenth too large",
        (profiles, "_bisect", lambda f, h, p: h * (0.9 if h > 0 else 1.1)),
        check=within_budget,
    )
    yield mutant(
        "calibration returns the wrong end of its bracket",
        (
            accountant.Accountant,
            "_surplus",
            lambda self, c, e, d: _SURPLUS(self, c, 1.2 * e, d),
        ),
        check=within_budget,
    )
    yield mutant(
        "epsilon rounded down when printed",
        (certificate, "round_up", lambda e, digits=4: f"{math.floor(e * 1000) / 1000:g}"),
        check=within_budget,
    )
    yield mutant(
        "zCDP four times too small",
        (kinds.Concentrated, "renyi", lambda self, alpha, n: alpha * self.rho / 4),
    )
    yield mutant(
        "Renyi conversion without log(1/delta)",
        (
            accountant,
            "renyi_epsilon",
            lambda curve, delta: profiles.renyi_epsilon(curve, math.sqrt(delta)),
        ),
    )
    yield mutant(
        "pure losses do not add up",
        (kinds.Pure, "pure", lambda self, n: self.epsilon / 5),
    )
    yield mutant(
        "selection is charged a tenth",
        (kinds.BoundedRange, "pure", lambda self, n: self.eta / 10),
    )
    yield mutant(
        "randomised response with half its epsilon",
        (
            kinds,
            "randomised_response_renyi",
            _half_first(kinds.randomised_response_renyi),
        ),
        (kinds, "pure_distribution", _half_first(kinds.pure_distribution)),
    )
    resolve = spend.Step.resolve

    def first_only(self: Any, neighbouring: Any) -> Any:
        if self.sampling.full:
            return resolve(self, neighbouring)
        return resolve(replace(self, kinds=self.kinds[:1]), neighbouring)

    yield mutant(
        "of two questions to one batch only one is charged",
        (spend.Step, "resolve", first_only),
    )

    def rarer(self: Any, neighbouring: Any) -> Any:
        if self.sampling.full:
            return resolve(self, neighbouring)
        return resolve(replace(self, sampling=Sampling(self.sampling.rate**2)), neighbouring)

    yield mutant("the sampling rate squared", (spend.Step, "resolve", rarer))
    yield mutant(
        "two questions to one batch counted as two batches",
        (spend.Step, "resolve", _separately(resolve)),
    )
    leaves = spend.Spend.leaves
    yield mutant(
        "a cell does not pay for what holds it",
        (
            spend.Spend,
            "leaves",
            lambda self: {cell: Counter(self.cells[cell]) for cell in leaves(self)},
        ),
    )
    yield mutant(
        "only the first cell is looked at",
        (
            spend.Spend,
            "frontier",
            lambda self: sorted(leaves(self).items())[:1],
        ),
    )
    objective = kinds.ObjectiveGaussian
    after = objective.delta_after_gaussian
    yield mutant(
        "objective perturbation: determinant left out of the profile",
        (
            objective,
            "delta_after_gaussian",
            lambda self, e, mu, n: after(replace(self, log_determinant=0.0), e, mu, n),
        ),
    )
    yield mutant(
        "objective perturbation: a replaced record counted as one that is gone",
        (
            objective,
            "delta_after_gaussian",
            lambda self, e, mu, n: after(self, e, mu, "zero_out"),
        ),
    )
    yield mutant(
        "objective perturbation: every slope taken to keep its sign",
        (
            objective,
            "delta_after_gaussian",
            lambda self, e, mu, n: after(replace(self, one_signed=True), e, mu, n),
        ),
    )
    yield mutant(
        "objective perturbation: half of mu",
        (
            objective,
            "delta_after_gaussian",
            lambda self, e, mu, n: after(replace(self, mu=self.mu / 2), e, mu, n),
        ),
    )


_SURPLUS = accountant.Accountant._surplus


def _half_first(honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda epsilon, *rest: honest(epsilon / 2, *rest)


def _separately(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def mutated(self: Any, neighbouring: Any) -> Any:
        if self.sampling.full:
            return resolve(self, neighbouring)
        parts = (resolve(replace(self, kinds=(kind,)), neighbouring) for kind in self.kinds)
        return tuple(kind for part in parts for kind in part)

    return mutated


# ---------------------------------------------------------------- batches and sources
def sampling() -> Iterator[Mutant]:
    choose = GeometricSkips.choose

    def shuffled(self: Any, count: int, rate: float, view: int) -> np.ndarray:
        steps = round(1 / rate)
        if (view - 1) % steps == 0 or -1 not in self._orders:
            self._orders[-1] = self._source.coins.integers(steps, size=count)
        return np.flatnonzero(self._orders[-1] == (view - 1) % steps)

    def redrawn(self: Any, count: int, rate: float, view: int) -> np.ndarray:
        found = choose(self, count, rate, view)
        while count and not len(found):
            found = choose(self, count, rate, view)
        return found

    def fixed(self: Any, count: int, rate: float, view: int) -> np.ndarray:
        return self._source.coins.choice(count, max(1, round(rate * count)), replace=False)

    for name, new in (
        ("shuffled batches accounted as Poisson", shuffled),
        ("an empty batch is drawn again", redrawn),
        ("batches of fixed size accounted as Poisson", fixed),
        (
            "records come half as often again as accounted",
            lambda self, count, rate, view: choose(self, count, min(1.0, 1.5 * rate), view),
        ),
        ("the same batch at every step", lambda self, c, r, v: _same_batch(choose, self, c, r)),
    ):
        yield Mutant(
            f"batches: {name}", ((GeometricSkips, "choose", new),), batches_are_poisson, "batches"
        )
    run = noisy_sgd.fresh_batch

    def skipping(oracle: Any, *rest: Any) -> Any:
        view = run(oracle, *rest)
        if getattr(view._rows, "count", 0) == 0 and oracle._rows.count:
            return run(oracle, *rest)
        return view

    yield Mutant(
        "noisy_sgd: an empty batch is skipped, its number too",
        ((noisy_sgd, "fresh_batch", skipping),),
        batches_are_counted,
        "dry run",
    )
    yield Mutant(
        "noisy_sgd: every record in every batch, accounted as sampled",
        ((GeometricSkips, "choose", lambda self, count, rate, view: np.arange(count)),),
        attacked("noisy_sgd", DELTA, 4.0),
        "attack",
        quick=False,
    )
    yield Mutant(
        "one_point_sgd: every record at every step, accounted as sampled",
        ((GeometricSkips, "choose", lambda self, count, rate, view: np.arange(count)),),
        attacked("one_point_sgd", DELTA, 4.0),
        "attack",
        quick=False,
    )


def _same_batch(choose: Any, sampler: Any, count: int, rate: float) -> np.ndarray:
    if -2 not in sampler._orders:
        sampler._orders[-2] = choose(sampler, count, rate, 1)
    return sampler._orders[-2]


def bits() -> Iterator[Mutant]:
    secure, seeded = source_module.SecureSource, source_module.SeededSource

    def mutant(name: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"random bits: {name}", patches, sources, "source")

    yield mutant("a seeded source is called private", (seeded, "private", True))
    yield mutant(
        "one constant key",
        (source_module, "_fresh_generator", lambda: np.random.Generator(np.random.Philox(1))),
    )
    yield mutant(
        "a forked process keeps its parent's key",
        (secure, "noise", property(lambda self: _unguarded(self))),
    )
    yield mutant("the state can be pickled", (secure, "__reduce__", object.__reduce__))
    yield mutant("noise and coins from one stream", (seeded, "coins", property(_sklearn_class)))


def _unguarded(source: Any) -> np.random.Generator:
    if source._process == -1:
        source._key()
    return source._noise


def _sklearn_class(source: Any) -> np.random.Generator:
    """Coins as they come from the stream of the noise."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(0).spawn(2)[0]))


ALL: list[Mutant] = [
    mutant
    for family in (
        noise,
        sparse_choices,
        declared,
        output_sensitivity,
        glue,
        log,
        runs,
        accounting,
        sampling,
        bits,
        ledger,
        streams,
        learning,
        geometry,
        nonconvex,
        integers,
        densities,
        kinks,
        vectors,
        masks,
        training,
        torch_state,
        mixing,
        processes,
        models,
        further,
        users,
        weights,
        rounds,
        torch_users,
        classes,
        tuning,
        regressions,
        evaluation,
        intervals,
        foreign,
        chunks,
    )
    for mutant in family()
]
