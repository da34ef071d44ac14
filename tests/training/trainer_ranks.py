"""Loops of other packages in two processes: ``python -m tests.training.trainer_ranks FOLDER``.

The processes are started as torchrun starts them: the package makes them known to each other.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import ranks
from .models import Sentences, tiny_bert

BLT = {"noise": "blt", "epochs": 3}
BUDGET = {"epsilon": 3.0, "delta": 1e-5, "noise": "banded", "batches": "fixed", "random_state": 0}


def begin(device: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double().to(device)
    return ranks.training(model, **BLT)


class Watch:
    """Counts how often a model is wrapped, and what the wrappers reduce by themselves."""

    def __init__(self) -> None:
        self.wrapped = self.reduced = 0
        honest = DistributedDataParallel.__init__

        def wrap(model: Any, *arguments: Any, **keywords: Any) -> None:
            honest(model, *arguments, **keywords)
            model.register_comm_hook(None, self._hook)
            self.wrapped += 1

        DistributedDataParallel.__init__ = wrap

    def _hook(self, _, bucket):  # type: ignore[no-untyped-def]
        self.reduced += 1
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def in_lightning(rank: int, folder: Path) -> Any:
    """Three epochs at once, and in two parts."""
    import lightning

    from privopt.torch.lightning import PrivateModule

    watch = Watch()

    def fit(epochs: int, private: Any = begin, **where: Any) -> Any:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        loop = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            enable_checkpointing=False,
            default_root_dir=folder,
            **quiet,
        )
        module = PrivateModule(private, ranks.loss)
        loop.fit(module, **where)
        return loop, module.private

    with patch.dict(os.environ):
        del os.environ["TORCHELASTIC_RUN_ID"]
        early = begin("cpu")
    found: dict[str, Any] = {}
    _, whole = fit(3)
    found["whole"] = ranks.weights(whole), whole.epsilon_spent(), whole.steps_done
    loop, _ = fit(1)
    loop.save_checkpoint(folder / "first.ckpt")
    _, second = fit(3, ckpt_path=folder / "first.ckpt")
    found["second"] = ranks.weights(second), second.epsilon_spent(), second.steps_done
    found["early"] = ranks.refusal(lambda: fit(1, early))
    found["wrappers"] = watch.wrapped, watch.reduced
    return found


def in_transformers(rank: int, folder: Path) -> Any:
    """Two epochs at once, and the end of them once more."""
    import transformers

    from privopt.torch.huggingface import PrivateTrainer

    watch = Watch()

    def trainer() -> Any:
        arguments = transformers.TrainingArguments(
            str(folder),
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            save_strategy="steps",
            save_steps=4,
            per_device_train_batch_size=5,
            num_train_epochs=2,
            max_grad_norm=0.0,
            logging_steps=7,
        )
        model = tiny_bert(transformers, seed=rank)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
        return PrivateTrainer(
            model,
            arguments,
            train_dataset=Sentences(),
            optimizers=(optimizer, schedule),
            private=BUDGET,
        )

    found: dict[str, Any] = {}
    whole = trainer()
    whole.train()
    found["whole"] = ranks.weights(whole.private), whole.private.epsilon_spent()
    found["batch"] = whole.private.expected_batch_size
    found["logs"] = whole.state.log_history
    second = trainer()
    second.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    found["second"] = ranks.weights(second.private), second.private.epsilon_spent()
    found["wrappers"] = watch.wrapped, watch.reduced
    return found


def launched(scenario: Any, port: int, rank: int, folder: Path) -> None:
    """As torchrun does."""
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_RANK": 0}
    named = {"TORCHELASTIC_RUN_ID": "here", "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update({k: str(v) for k, v in {**place, **meeting, **named}.items()})
    torch.save(scenario(rank, folder), folder / f"{rank}.pt")


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import lightning  # noqa: F401  # once for all
    import transformers

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    for scenario in (in_lightning, in_transformers):
        place = folder / scenario.__name__
        place.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if ranks.forked([partial(launched, scenario, port, rank, place) for rank in range(2)]):
            sys.exit(f"{scenario.__name__} failed.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
