"""The problem: a loss, a domain, a regulariser and public bounds on the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from privopt.geometry import Domain, LpBall, WholeSpace
from privopt.geometry.norms import dual_order
from privopt.losses import Foreign, GuardedVector, Loss, VectorLoss, met, met_vector
from privopt.ownership import own, own_type


@dataclass(frozen=True)
class Problem:
    """Minimise the mean of loss(<x, theta>, y) + l2/2 ||theta||^2 over the domain.

    Every field is public: it must not be read from the data.

    Parameters
    ----------
    loss : Loss or VectorLoss
        A function of the margin <x, theta> and the label, or of the whole vector theta and the row.
    domain : Domain, default=WholeSpace()
    data_norm : float, optional
        Rows of X are clipped to this l2 norm. Default: what ``column_bounds`` or ``dual_norm``
        leave possible, sqrt(features) times ``column_bounds`` (``over``); 1 if neither is given.
    intercept : float, default=0.0
        Value of a constant column appended to X; 0 appends none. The last coordinate of theta then
        belongs to it, and a row's norm counts it.
    l2 : float, default=0.0
        Ridge penalty on the mean scale, on every coordinate.
    units : tuple of float, optional
        One positive number for each feature: X holds the original columns divided by these. The
        ridge of ``standardized_regression`` is then on coefficients of the original columns.
    column_bounds : float, optional
        Every entry of X lies in [-column_bounds, column_bounds], by a public map of declared
        bounds. Standardisation uses it for accuracy. Methods of the l1 geometry (frank_wolfe,
        greedy_coordinate, coordinate_descent) clip entries to it and then leave rows at any norm;
        without it they clip rows to ``data_norm`` like all others.
    dual_norm : float, optional
        Only on an LpBall: rows are bounded by this number in the dual norm l_q, 1/p + 1/q = 1.
        Methods of l_p geometry (mirror_descent, phased_mirror_descent, variance_reduced_sfw,
        stationary_frank_wolfe, proximal_guided) clip rows to it in that norm and leave their l2
        norm alone; without it they clip rows to ``data_norm`` like all others.
    sparsity : int, optional
        Methods that change few coefficients (greedy_coordinate) are compared with the best model of
        so many coefficients that are not 0. Nothing is assumed of the data: it says which models
        the bound is for, and steers the choice of a solver.
    rank : int, optional
        Rank of the rows, the constant column not counted, where that is known to be small: noise
        off their span changes no margin. Without a constraint and a ridge the bounds of
        objective_perturbation and noisy gradients then count the rank instead of the parameters.
        They assume it; privacy does not.
    theta_norm : float, optional
        How large the solution is expected to be when the domain is unbounded. It steers the choice
        of parameters and has no influence on privacy. Default: margins of about 15, that is
        15 / (largest row norm).
    shaped : tuple of (index, low, high), default=()
        Columns whose shape is fitted beside their slope, with the declared range of each. Only
        ``standardized_objective`` does so, where n and epsilon allow; other solvers fit slopes.
    intervals : bool, default=False
        Coefficients are to come with standard errors: ``with_intervals`` gives them, within the
        same budget; other solvers do not.
    weighted : bool, default=False
        Records come with weights between 0 and 1, by which their losses are multiplied
        (``Oracle.over``); solvers then count classes by weight.
    """

    loss: Any
    domain: Domain = field(default_factory=WholeSpace)
    data_norm: float | None = None
    intercept: float = 0.0
    l2: float = 0.0
    column_bounds: float | None = None
    theta_norm: float | None = None
    dual_norm: float | None = None
    units: tuple[float, ...] | None = None
    shaped: tuple[tuple[int, float, float], ...] = ()
    sparsity: int | None = None
    rank: int | None = None
    weighted: bool = False
    intervals: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss | VectorLoss):
            raise TypeError("loss must be a privopt loss, for example privopt.losses.Logistic().")
        loss = self.loss
        whole = isinstance(loss, VectorLoss)
        known = met_vector(loss) if isinstance(loss, VectorLoss) else met(loss)
        object.__setattr__(self, "loss", known)
        if whole and self.intercept:
            raise ValueError("a loss of vectors takes rows without a constant column: intercept=0.")
        if not isinstance(self.domain, Domain):
            raise TypeError("domain must be a privopt domain, for example L2Ball(5.0).")
        if self.data_norm is None and self.column_bounds is None and self.dual_norm is None:
            object.__setattr__(self, "data_norm", 1.0)
        if self.data_norm is not None and not 0 < self.data_norm < math.inf:
            raise ValueError(f"data_norm must be positive and finite, got {self.data_norm!r}.")
        if not 0 <= self.intercept < math.inf:
            raise ValueError(f"intercept must be non-negative and finite, got {self.intercept!r}.")
        if not 0 <= self.l2 < math.inf:
            raise ValueError(f"l2 must be non-negative and finite, got {self.l2!r}.")
        if self.theta_norm is not None and not 0 < self.theta_norm < math.inf:
            raise ValueError(f"theta_norm must be positive and finite, got {self.theta_norm!r}.")

        if self.units is not None and not all(0 < unit < math.inf for unit in self.units):
            raise ValueError("units must be positive and finite, one for each feature.")
        indices = [index for index, _, _ in self.shaped]
        if len(set(indices)) < len(indices) or not all(a < b for _, a, b in self.shaped):
            raise ValueError("each shaped column comes once, with a low bound below its high one.")
        if self.dual_norm is not None and not 0 < self.dual_norm < math.inf:
            raise ValueError(f"dual_norm must be positive and finite, got {self.dual_norm!r}.")
        for name in ("sparsity", "rank"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise ValueError(f"{name} must be a positive whole number, got {value!r}.")
        if self.dual_norm is not None and not isinstance(self.domain, LpBall):
            raise ValueError(
                f"dual_norm is for an LpBall, not for {type(self.domain).__name__}: use "
                "column_bounds with an L1Ball, and data_norm elsewhere."
            )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the library did not write, by name: privacy may rest on it and nothing proves it."""
        loss = getattr(self.loss, "loss", self.loss)  # what a rounded loss is made of
        found = [loss.assumption] if isinstance(loss, Foreign | GuardedVector) else []
        if not own(self.domain):
            name = type(self.domain).__name__
            found.append(f"the domain {name} is the convex set it states: not proved")
        if not own_type(type(self)):
            found.append(f"the problem {type(self).__name__} has the bounds it states: not proved")
        return tuple(found)

    @property
    def size(self) -> float:
        """Largest l2 norm of a row, the constant column included."""
        return math.hypot(self.row_norm, self.intercept)

    @property
    def row_norm(self) -> float:
        """``data_norm``, where it is given or ``over`` has filled it in."""
        if self.data_norm is None:
            raise ValueError("the norm of a row follows from its entries' bounds: over(features).")
        return self.data_norm

    def over(self, features: int) -> Problem:
        """The problem for so many features: a norm of rows that was left open is what the bounds of
        their entries, or their norm in the dual of the domain's, leave possible."""
        if self.data_norm is not None:
            return self
        norms, features = [], max(features, 1)
        if self.column_bounds is not None:
            norms.append(math.sqrt(features) * self.column_bounds)
        if self.dual_norm is not None and isinstance(self.domain, LpBall):
            power = max(0.0, 1 / 2 - 1 / dual_order(self.domain.order))
            norms.append(features**power * self.dual_norm)
        return replace(self, data_norm=min(norms))

    def dimension(self, p: int) -> int:
        """Number of parameters for p features."""
        return p + (self.intercept > 0)
