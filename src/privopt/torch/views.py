"""Several views of an example, such as random crops of a picture: one record, one clip.

An example's loss is the mean of the losses of its K views, so its gradient is the mean of theirs,
taken before the clip (De et al., 2022). What the sum of a step moves by when one record comes or
goes is the clip norm as before, whatever the views are: noise and epsilon stay. The model sees the
views as rows, K of each example in a row; whatever has a row for each view is folded back to
examples before a norm is taken.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from privopt.privacy.budget import Refused
from privopt.torch.losses import LossFunction, identity

SHAPE = (
    "views={count} takes tensors with {count} views of each example in the second dimension: "
    "examples x views x what the model is called with; targets hold one row for each example, or "
    "one for each view."
)


class Views(nn.Module):
    """A model that is given views of examples, and gives outputs for them."""

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__()
        self.model, self.count = model, count
        self.train(model.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(self._rows, (args, kwargs))
        return tree_map(self._examples, self.model(*args, **kwargs))

    def _rows(self, x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.dim() < 2 or x.shape[1] != self.count:
            raise Refused(SHAPE.format(count=self.count))
        return x.flatten(0, 1)

    def _examples(self, x: Any) -> Any:
        return x.unflatten(0, (-1, self.count)) if isinstance(x, Tensor) and x.dim() else x


class LossOfViews:
    """From a loss with a number for each view to one with their mean for each example."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._known: tuple[Any, LossFunction] | None = None

    def __call__(self, loss: LossFunction) -> LossFunction:
        """One function for what computes the same: a lambda is a new object in every step."""
        if self.count == 1:
            return loss
        key = identity(loss)
        if self._known is None or self._known[0] != key:
            self._known = key, self._mean(loss)
        return self._known[1]

    def _mean(self, loss: LossFunction) -> LossFunction:
        count = self.count

        def of_examples(output: Any, *targets: Any) -> Tensor:
            rows = tree_map(lambda x: x.flatten(0, 1) if isinstance(x, Tensor) else x, output)
            goals = tree_map(lambda x: _of_views(x, count), targets)
            losses = loss(rows, *goals)
            if not isinstance(losses, Tensor) or losses.dim() != 1 or len(losses) % count:
                return losses  # refused by whoever wants a number for each example
            return losses.unflatten(0, (-1, count)).mean(1)

        return of_examples


def _of_views(x: Any, count: int) -> Any:
    if not isinstance(x, Tensor):
        return x
    if x.dim() > 1 and x.shape[1] == count:
        return x.flatten(0, 1)
    return x.repeat_interleave(count, 0)
