"""Per-example gradients of one parameter, kept as factors for as long as that is cheaper.

A layer that multiplies its input by a weight has, for one example, the gradient sum_t g_t a_t',
with a_t its inputs and g_t the gradients of its outputs at T places. Its norm needs no gradient:
||sum_t g_t a_t'||^2 = sum_ts <a_t, a_s> <g_t, g_s> (Goodfellow, 2015; Li et al., 2022), and the
clipped sum over examples is one product of matrices, so that one backward pass is enough (Bu et
al., 2023).

Sums of products cancel, and a record could be built whose norm is lost in rounding. Norms from
factors are therefore rounded up (``rounding``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from privopt.torch.rounding import rounded_up, slack


class Piece(Protocol):
    """What one call of one layer adds to the gradient of a parameter, for each example."""

    def dense(self) -> Tensor:
        """Gradients of all examples, one row each, flat."""
        ...

    def squared_norms(self) -> Tensor: ...

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Sum of the examples' gradients with these weights, flat."""
        ...

    def without(self, dropped: Tensor) -> Piece:
        """The same with zeros for the dropped examples, whatever they held."""
        ...

    def folded(self, views: int) -> Piece:
        """So many rows in a row are one example: their gradients add up."""
        ...


Rule = Callable[[Any, Tensor, Tensor], list[tuple[Tensor | None, Piece]]]
"""From a layer, its input and its output gradient to a piece for each of its parameters."""


@dataclass
class Dense:
    """Gradients themselves: examples by coordinates."""

    rows: Tensor

    def dense(self) -> Tensor:
        return self.rows

    def squared_norms(self) -> Tensor:
        return torch.linalg.vector_norm(self.rows, dim=1).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return weights @ self.rows

    def without(self, dropped: Tensor) -> Dense:
        return Dense(blank(self.rows, dropped))

    def folded(self, views: int) -> Dense:
        return Dense(self.rows.unflatten(0, (-1, views)).sum(1))


@dataclass
class Outer:
    """Factors of shape examples x groups x places x width: output gradients and inputs."""

    outputs: Tensor
    inputs: Tensor

    def __post_init__(self) -> None:
        self._dense: Tensor | None = None

    def dense(self) -> Tensor:
        if self._dense is None:
            self._dense = (self.outputs.transpose(2, 3) @ self.inputs).flatten(1)
        return self._dense

    @property
    def direct(self) -> bool:
        """Whether gradients are formed: they are kept then, and their weighted sum is cheap."""
        return direct(self.inputs.shape[2], self.outputs.shape[3], self.inputs.shape[3])

    def squared_norms(self) -> Tensor:
        if self.direct:
            return torch.linalg.vector_norm(self.dense(), dim=1).square()
        if self.inputs.shape[2] == 1:
            a, g = self.inputs.square().sum(3), self.outputs.square().sum(3)
            return rounded_up((a * g).sum((1, 2)), a, g)
        a, g = self.inputs @ self.inputs.mT, self.outputs @ self.outputs.mT
        # The squares of the factors are there already: no pass over the factors is needed.
        inputs, outputs = (gram.diagonal(dim1=2, dim2=3) for gram in (a, g))
        return rounded_up((a * g).sum((1, 2, 3)), inputs, outputs)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if self.direct:
            return weights @ self.dense()
        outputs, inputs, each = self.outputs, self.inputs, weights[:, None, None, None]
        if outputs.shape[3] < inputs.shape[3]:
            outputs = outputs * each
        else:
            inputs = inputs * each
        rows = [factor.movedim(1, 0).flatten(1, 2) for factor in (outputs, inputs)]
        return (rows[0].mT @ rows[1]).flatten()

    def without(self, dropped: Tensor) -> Outer:
        return Outer(blank(self.outputs, dropped), blank(self.inputs, dropped))

    def folded(self, views: int) -> Outer:
        factors = [
            factor.unflatten(0, (-1, views)).movedim(1, 2).flatten(2, 3)
            for factor in (self.outputs, self.inputs)
        ]
        return Outer(*factors)


def direct(places: int, wide: int, deep: int) -> bool:
    """Whether gradients of so many places, outputs and inputs are cheaper than their products."""
    return places > 1 and 2 * places * (wide + deep) > wide * deep


@dataclass
class Rows:
    """Gradients of looked-up rows of a table: places of each example, and a vector for each."""

    places: Tensor  # examples x places; -1 marks a row that is not trained
    vectors: Tensor  # examples x places x width
    height: int

    def dense(self) -> Tensor:
        examples, _, width = self.vectors.shape
        table = self.vectors.new_zeros(examples, self.height + 1, width)
        index = (self.places % (self.height + 1)).unsqueeze(2).expand_as(self.vectors)
        return table.scatter_add_(1, index, self.vectors)[:, : self.height].flatten(1)

    def squared_norms(self) -> Tensor:
        trained = self.places >= 0
        same = (self.places[:, :, None] == self.places[:, None, :]) & trained[:, :, None]
        gram = (self.vectors @ self.vectors.mT).masked_fill_(~same, 0)
        norms = torch.linalg.vector_norm(self.vectors, dim=2) * trained
        most = norms.sum(1).square()
        return gram.sum((1, 2)).clamp_min(0).add(most, alpha=slack(most.dtype))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        width = self.vectors.shape[2]
        table = self.vectors.new_zeros(self.height + 1, width)
        rows = (self.vectors * weights[:, None, None]).flatten(0, 1)
        table.index_add_(0, (self.places % (self.height + 1)).flatten(), rows)
        return table[: self.height].flatten()

    def without(self, dropped: Tensor) -> Rows:
        return Rows(self.places, blank(self.vectors, dropped), self.height)

    def folded(self, views: int) -> Rows:
        places, vectors = (
            x.unflatten(0, (-1, views)).flatten(1, 2) for x in (self.places, self.vectors)
        )
        return Rows(places, vectors, self.height)


def squared_norms(pieces: list[Piece]) -> Tensor:
    """Squared norm, for each example, of the sum of what ``merged`` has left of one parameter."""
    if len(pieces) == 1:
        return pieces[0].squared_norms()
    table, product = pieces
    assert isinstance(table, Rows)
    assert isinstance(product, Outer)
    return _tied_norms(table, product)


def merged(pieces: list[Piece]) -> list[Piece]:
    """Calls of one kind as one longer call: a shared layer, or a layer that is used again."""
    if len(pieces) == 1:
        return pieces
    tables = [piece for piece in pieces if isinstance(piece, Rows)]
    products = [piece for piece in pieces if isinstance(piece, Outer)]
    found: list[Piece] = [piece for piece in pieces if not isinstance(piece, (Rows, Outer))]
    if len(found) > 1:
        found = [Dense(torch.stack([piece.dense() for piece in found]).sum(0))]
    if len(tables) == 1:
        found += tables
    elif tables:
        places = torch.cat([piece.places for piece in tables], 1)
        found.append(Rows(places, torch.cat([p.vectors for p in tables], 1), tables[0].height))
    if len(products) == 1:
        found += products
    elif products:
        outputs = torch.cat([piece.outputs for piece in products], 2)
        found.append(Outer(outputs, torch.cat([piece.inputs for piece in products], 2)))
    if len(found) > 1 and not _tied(found):
        # Parts of one record may cancel: norm and sum have to see the same numbers.
        return [Dense(torch.stack([piece.dense() for piece in found]).sum(0))]
    return found


def _tied(pieces: list[Piece]) -> bool:
    """A table of embeddings that is the weight of a linear layer too, with a rule of its own."""
    table, product = pieces[0], pieces[-1]
    pair = len(pieces) == 2 and isinstance(table, Rows) and isinstance(product, Outer)
    return pair and not product.direct  # type: ignore[union-attr]


def _tied_norms(table: Rows, product: Outer) -> Tensor:
    """A table of embeddings that is the weight of the last layer as well: |u|^2 + |v|^2 + 2<u, v>.

    <u, v> = sum_ts v_s[place_t] <a_s, u_t>, so neither is formed.
    """
    outputs, inputs = product.outputs[:, 0], product.inputs[:, 0]
    index = table.places.clamp_min(0).unsqueeze(1).expand(-1, outputs.shape[1], -1)
    looked_up = outputs.gather(2, index) * (table.places >= 0)[:, None, :]
    cross = (looked_up * (inputs @ table.vectors.mT)).sum((1, 2))
    one, two = table.squared_norms(), product.squared_norms()
    most = (one.sqrt() + two.sqrt()).square()
    return (one + two + 2 * cross).clamp_min(0) + slack(cross.dtype) * most


def blank(values: Tensor, dropped: Tensor) -> Tensor:
    return values.masked_fill(dropped.view(-1, *[1] * (values.dim() - 1)), 0)
