"""Private training in Lightning's loop. Needs the package ``lightning``."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule

from privopt.privacy.budget import Refused
from privopt.torch.engine import LossFunction
from privopt.torch.private import PrivateTraining

STATE = "privopt"


class PrivateModule(LightningModule):
    """A private training run as a Lightning module: ``trainer.fit(PrivateModule(private, loss))``.

    It brings its own batches and its own optimizer, and logs ``epsilon`` after each epoch. What
    Lightning does with gradients afterwards is post-processing. Override ``split`` for batches that
    are not a tuple of inputs and one target, and ``configure_optimizers`` to add a schedule.

    A Lightning checkpoint holds the run's state beside the model and is therefore secret: publish
    the model alone.

    Parameters
    ----------
    private : PrivateTraining
        What ``make_private`` returned, for a model that is already on its device.
    loss : callable
        From the model's output and the target to one loss for each example.
    """

    def __init__(self, private: PrivateTraining, loss: LossFunction) -> None:
        super().__init__()
        self.automatic_optimization = False  # Lightning's own would use gradients without noise
        self.model, self.private, self.loss = private.model, private, loss

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """The model's."""
        return self.model(*inputs, **keywords)

    def split(self, batch: Any) -> tuple[tuple[Any, ...], Any]:
        """Inputs of the model, and the target."""
        *inputs, target = batch
        return tuple(inputs), target

    def train_dataloader(self) -> Any:
        """The private batches."""
        return self.private.loader

    def configure_optimizers(self) -> Any:
        """The optimizer that ``make_private`` was given."""
        return self.private.optimizer

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One private step; its loss is private and is not returned."""
        inputs, target = self.split(batch)
        self.private.backward(self.loss, *inputs, targets=target)
        self.optimizers().step()  # type: ignore[union-attr]

    def on_train_epoch_end(self) -> None:
        """Log epsilon."""
        self.log("epsilon", self.private.epsilon_spent())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the run's state, which is secret."""
        checkpoint[STATE] = self.private.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the run that was saved."""
        if STATE not in checkpoint:
            raise Refused("this checkpoint has no private run: its epsilon would be forgotten.")
        self.private.load_state_dict(checkpoint[STATE])
