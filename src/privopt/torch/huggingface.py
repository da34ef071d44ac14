"""Private training in the Trainer of Hugging Face. Needs ``transformers`` and ``accelerate``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate.utils import DistributedType
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from privopt.noise.random_numbers import same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.losses import LossFunction
from privopt.torch.prepare import make_private
from privopt.torch.private import PrivateTraining
from privopt.torch.states import write_secret

STATE = "private.pt"
WHOLE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Where every process has the whole model."""


def label_loss(output: Any, labels: Tensor) -> Tensor:
    """Cross-entropy of one label for each example, from the logits of a classifier."""
    return F.cross_entropy(output.logits, labels, reduction="none")


def causal_loss(output: Any, labels: Tensor) -> Tensor:
    """Mean cross-entropy of the tokens of each example, each predicted from those before it.

    Labels below zero do not count; an example without any other has loss zero.
    """
    logits, goals = output.logits[:, :-1], labels[:, 1:]
    counts = goals >= 0
    each = F.cross_entropy(logits.mT.float(), goals.clamp_min(0), reduction="none")
    return (each * counts).sum(1) / counts.sum(1).clamp_min(1)


def is_causal(model: Any) -> bool:
    """Whether a model predicts each token from those before it."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    return type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


PACKED = "a row may hold parts of several texts: what is protected is a row, not a text"
TEXTS = "each text is in one row of the data set"
PACKS = (
    "a row of the data set holds several texts laid end to end, and the guarantee would be that of "
    'a row: give each text a row of its own, or say packing="rows" if a row is what is protected.'
)


def check_unpacked(rows: Iterable[Any], ends: Collection[int]) -> None:
    """Refuse rows with several texts: positions that begin again, or tokens after the end of one.

    Padding after the end is one token again and again; so are several tokens that end a text.
    """
    for row in rows:
        if any(name in row for name in ("cu_seq_lens_q", "seq_idx")):
            raise Refused(PACKS)
        places = row.get("position_ids")
        if places is not None and bool((torch.as_tensor(places).diff() < 0).any()):
            raise Refused(PACKS)
        words = torch.as_tensor(row["input_ids"])
        for end in ends:
            after = words[1:][(words == end).cummax(0).values[:-1]]
            after = after[after != end]
            if len(after) and bool((after != after[0]).any()):
                raise Refused(PACKS)


class PrivateTrainer(Trainer):
    """``transformers.Trainer`` with private steps.

    The trainer's optimizer, schedule, logging and checkpoints stay. ``per_device_train_batch_size``
    times the number of processes is the expected batch size, and ``num_train_epochs`` are the
    epochs that the budget pays for. In several processes the trainer wraps the model, but the
    clipped gradients of a step never pass through the wrapper: it has nothing to average. Logs
    hold ``epsilon`` in place of the training loss, which is private. The trainer's
    ``max_grad_norm`` cuts the noisy gradient: free, but set it to 0 to keep the steps as they are.

    ``private`` is the run, once training has begun. Checkpoints hold its state in ``private.pt``,
    which is secret and readable by its owner alone: publish
    the model without it.

    Parameters
    ----------
    *arguments, **keywords
        As those of ``Trainer``.
    private : dict
        Budget and choices of ``make_private``: epsilon, delta, clip_norm, noise and so on.
    loss : callable, optional
        From the model's output and the batch's ``labels`` to one loss for each example:
        ``causal_loss`` for a causal language model, else ``label_loss``.
    packing : {"refused", "rows"}, default="refused"
        Rows of a causal language model that hold several texts are refused: the data set is read
        once beforehand. ``"rows"`` states that a row is what is protected, whatever it holds, and
        so does the certificate.
    """

    private: PrivateTraining | None = None

    def __init__(
        self,
        *arguments: Any,
        private: dict[str, Any],
        loss: LossFunction | None = None,
        packing: str = "refused",
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        if packing not in ("refused", "rows"):
            raise ValueError(f'packing must be "refused" or "rows", got {packing!r}.')
        self._causal, self._packing = is_causal(self.model), packing
        usual = causal_loss if self._causal else label_loss
        self._choices, self._loss = private, usual if loss is None else loss
        chosen = self.args
        if chosen.gradient_accumulation_steps != 1:
            raise ValueError(
                "noise is added once per step: leave gradient_accumulation_steps at 1, and give "
                "microbatch in private=... for memory."
            )
        if chosen.max_steps > 0 or chosen.num_train_epochs != int(chosen.num_train_epochs):
            raise ValueError("the budget pays for whole epochs: set num_train_epochs alone.")
        if chosen.n_gpu > 1:
            raise Refused("a process trains privately on one device: start one for each device.")
        kind = self.accelerator.distributed_type
        if kind not in WHOLE or getattr(self.accelerator, "parallelism_config", None) is not None:
            raise Refused(
                f"{kind.value} may cut the model or its gradients into pieces: train privately "
                "with the whole model in every process."
            )
        if chosen.label_smoothing_factor or self.compute_loss_func is not None:
            raise ValueError(
                "private steps take one loss for each example: give it as loss=..., instead of "
                "label_smoothing_factor or compute_loss_func."
            )
        if chosen.fp16 or chosen.auto_find_batch_size:
            raise ValueError("private steps take neither fp16 (use bf16) nor auto_find_batch_size.")
        chosen.ignore_data_skip = True  # a resumed run knows by itself which batch comes next

    def get_train_dataloader(self) -> Any:
        """The private batches; the run begins here."""
        if self.private is None:
            if self._causal and self._packing == "refused":
                self._check_unpacked()
            loader = DataLoader(
                self.train_dataset,  # type: ignore[arg-type]
                batch_size=self.args.train_batch_size * self.args.world_size,
                collate_fn=self._get_collator_with_removed_columns(self.data_collator, "training"),
                num_workers=self.args.dataloader_num_workers,
                pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            )
            self.private = make_private(
                self.model,  # type: ignore[arg-type]
                self.create_optimizer(),
                loader,
                epochs=int(self.args.num_train_epochs),
                **self._choices,
            )
            if self._causal:
                self.private.assume(TEXTS if self._packing == "refused" else PACKED)
        return self.private.loader

    def _check_unpacked(self) -> None:
        ends = getattr(self.model.config, "eos_token_id", None)  # type: ignore[union-attr]
        ends = ends if isinstance(ends, (list, tuple)) else [ends]
        data: Any = self.train_dataset
        rows = (data[i] for i in range(len(data)))
        with same_random_numbers():
            check_unpacked(rows, [end for end in ends if end is not None])

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Noisy gradients; zero stands for the loss, which is private."""
        assert self.private is not None
        model.train()
        given = dict(self._prepare_inputs(inputs))
        labels = given.pop("labels")
        with self.accelerator.autocast():  # around the whole step: clipping must know of it
            self.private.backward(self._loss, targets=labels, **given)
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], *arguments: Any, **keywords: Any) -> None:
        """Without the training loss, which is not computed."""
        if self.private is not None:
            logs = {k: v for k, v in logs.items() if k not in ("loss", "train_loss")}
            logs["epsilon"] = self.private.epsilon_spent()
        super().log(logs, *arguments, **keywords)

    def floating_point_ops(self, inputs: Any) -> int:
        """None: their number would tell the size of a batch, which is secret."""
        return 0

    def _track_num_input_tokens(self, inputs: Any) -> None:
        """Not at all, for the same reason."""

    # ------------------------------------------------------------ checkpoints
    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        states = [] if self.private is None else self.private.state_dicts()
        if states:  # in process 0
            write_secret(states, Path(output_dir) / STATE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.private is not None:
            file = Path(checkpoint) / STATE
            if not file.exists():
                raise Refused("this checkpoint has no private run: its epsilon would be forgotten.")
            self.private.load(file)
