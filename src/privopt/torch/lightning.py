"""Private training in Lightning's loop. Needs the package ``lightning``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from privopt.privacy.budget import Refused
from privopt.torch.losses import LossFunction
from privopt.torch.private import PrivateTraining
from privopt.torch.states import secretly

STATE = "privopt"


class SecretFiles(CheckpointIO):
    """Writes checkpoints as another one does, readable by their owner alone."""

    def __init__(self, inner: CheckpointIO) -> None:
        self._inner = inner

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint's file."""
        with secretly():
            self._inner.save_checkpoint(checkpoint, path, storage_options)
        if Path(path).is_file():
            Path(path).chmod(0o600)  # one that was there keeps its mode otherwise

    def load_checkpoint(self, *arguments: Any, **keywords: Any) -> dict[str, Any]:
        """Read it."""
        return self._inner.load_checkpoint(*arguments, **keywords)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove it."""
        self._inner.remove_checkpoint(path)

    def teardown(self) -> None:
        """Finish."""
        self._inner.teardown()


class PrivateModule(LightningModule):
    """A private training run as a Lightning module: ``trainer.fit(PrivateModule(private, loss))``.

    It brings its own batches and its own optimizer, and logs ``epsilon`` after each epoch. What
    Lightning does with gradients afterwards is post-processing. Override ``split`` for batches that
    are not a tuple of inputs and one target, and ``configure_optimizers`` to add a schedule.

    In several processes (``strategy="ddp"``) Lightning wraps the model, but the clipped gradients
    of a step never pass through the wrapper: it has nothing to average, and noise is added once.

    A Lightning checkpoint holds the run's state beside the model and is therefore secret, and
    written so that its owner alone can read it: publish the model alone.

    Parameters
    ----------
    private : PrivateTraining or callable
        What ``make_private`` returned, for a model that is already on its device; or a function
        from the device to that, called in ``fit``. Processes that Lightning starts know each other
        only there, and need the function.
    loss : callable
        From the model's output and the target to one loss for each example.
    """

    private: PrivateTraining

    def __init__(
        self,
        private: PrivateTraining | Callable[[torch.device], PrivateTraining],
        loss: LossFunction,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False  # Lightning's own would use gradients without noise
        self.loss = loss
        self._make = None if isinstance(private, PrivateTraining) else private
        if isinstance(private, PrivateTraining):
            self.model, self.private = private.model, private

    def setup(self, stage: str) -> None:
        """Begin the run, now that the processes know each other."""
        if stage != "fit":
            return
        strategy = self.trainer.strategy
        if not isinstance(strategy, SingleDeviceStrategy) and type(strategy) is not DDPStrategy:
            raise Refused(
                f"{type(strategy).__name__} may cut the model or its gradients into pieces: train "
                'privately on one device, or with strategy="ddp".'
            )
        if not isinstance(strategy.checkpoint_io, SecretFiles):
            strategy.checkpoint_io = SecretFiles(strategy.checkpoint_io)
        if self._make is not None:
            self.private, self._make = self._make(strategy.root_device), None
            self.model = self.private.model
        elif self.private.processes != self.trainer.world_size:
            raise Refused(
                "the run was made before its processes knew each other: give PrivateModule a "
                "function that calls make_private."
            )

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
        found: Any = self.optimizers()
        for optimizer in found if isinstance(found, list) else [found]:
            optimizer.step()

    def on_train_epoch_end(self) -> None:
        """Log epsilon."""
        self.log("epsilon", self.private.epsilon_spent())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the run's state, that of all processes, which is secret."""
        checkpoint[STATE] = self.private.state_dicts()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the run that was saved."""
        if STATE not in checkpoint:
            raise Refused("this checkpoint has no private run: its epsilon would be forgotten.")
        self.private.load_state_dict(checkpoint[STATE])
