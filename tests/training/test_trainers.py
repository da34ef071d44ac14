"""Loops of other packages, with the real packages: the same run as by hand, and nothing private."""

from __future__ import annotations

import copy
import logging
import stat
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.privacy import Refused
from privopt.torch import make_private
from privopt.torch.clip import Clip
from privopt.torch.rounding import WIDE_MARGIN

from .models import Sentences, tiny_bert

BUDGET = {"epsilon": 3.0, "delta": 1e-5, "noise": "independent", "random_state": 0}


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# ------------------------------------------------------------ Lightning
@pytest.fixture
def lightning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of itself while it is imported
        lightning = pytest.importorskip("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return lightning


def mean_free(output, target):
    return F.cross_entropy(output, target, reduction="none")


def digits(n=61):
    made = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(n, 4, generator=made), torch.randint(0, 3, (n,), generator=made)
    )


def run_of(model, **choices):
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.5)
    loader = DataLoader(digits(), batch_size=10)
    return make_private(model, optimizer, loader, epochs=3, **(BUDGET | choices))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def trainer(lightning, folder, epochs=3, **choices):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", default_root_dir=folder, **(quiet | choices)
    )


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.* is deprecated:FutureWarning"
)  # Lightning's own use
def test_lightning(lightning, tmp_path):
    """By hand and by Lightning: the same weights; and a checkpoint goes on."""
    from privopt.torch.lightning import PrivateModule

    by_hand = run_of(net())
    for _ in range(3):
        for x, y in by_hand.loader:
            by_hand.step(mean_free, x, targets=y)
    module = PrivateModule(run_of(net()), mean_free)
    loop = trainer(lightning, tmp_path, enable_checkpointing=False)
    loop.fit(module)
    assert loop.global_step == module.private.steps_done == 21
    torch.testing.assert_close(weights(module.model), weights(by_hand.model))
    averages = [weights(private.averaged()) for private in (module.private, by_hand)]
    torch.testing.assert_close(*averages)
    assert float(loop.callback_metrics["epsilon"]) == pytest.approx(by_hand.epsilon_spent())
    assert set(loop.callback_metrics) == {"epsilon"}

    first = PrivateModule(run_of(net(), noise="blt"), mean_free)
    loop = trainer(lightning, tmp_path, 1, enable_checkpointing=False)
    loop.fit(first)
    file = tmp_path / "first.ckpt"
    loop.save_checkpoint(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # it holds the run's state
    second = PrivateModule(lambda device: run_of(net().to(device), noise="blt"), mean_free)
    trainer(lightning, tmp_path, enable_checkpointing=False).fit(second, ckpt_path=file)
    assert second.private.steps_done == 21
    assert second.private.epsilon_spent() == pytest.approx(3.0)
    with pytest.raises(Refused, match="epsilon would be forgotten"):
        second.on_load_checkpoint({})
    with pytest.raises(Refused, match="all 21 steps"):
        trainer(lightning, tmp_path, 1, enable_checkpointing=False).fit(second)


def test_lightning_strategies_that_cut_the_model_are_refused(lightning):
    from privopt.torch.lightning import PrivateModule

    module = PrivateModule(run_of(net()), mean_free)
    for strategy in (lightning.pytorch.strategies.FSDPStrategy(), type("Cut", (), {})()):
        module._trainer = SimpleNamespace(strategy=strategy, world_size=1)
        with pytest.raises(Refused, match="may cut the model"):
            module.setup("fit")
        module.setup("test")


# ------------------------------------------------------------ Hugging Face
@pytest.fixture
def transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    return transformers


def arguments(transformers, folder, **choices):
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
    sizes = {"per_device_train_batch_size": 10, "num_train_epochs": 2, "max_grad_norm": 0.0}
    return transformers.TrainingArguments(str(folder), **(quiet | sizes | choices))


def constant(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)


def test_hugging_face(transformers, tmp_path):
    """By hand and by the Trainer: the same weights; logs and results hold nothing private."""
    from privopt.torch.huggingface import PrivateTrainer, label_loss

    model = tiny_bert(transformers)
    other, data = copy.deepcopy(model), Sentences()
    loader = DataLoader(data, batch_size=10, collate_fn=transformers.default_data_collator)
    by_hand = make_private(other, constant(other)[0], loader, epochs=2, **BUDGET)
    for _ in range(2):
        for batch in by_hand.loader:
            labels = batch.pop("labels")
            by_hand.step(label_loss, targets=labels, **batch)
    trainer = PrivateTrainer(
        model,
        arguments(transformers, tmp_path, logging_steps=7, include_num_input_tokens_seen="all"),
        train_dataset=data,
        optimizers=constant(model),
        private=BUDGET,
    )
    result = trainer.train()
    assert trainer.private.steps_done == result.global_step == 14
    torch.testing.assert_close(weights(model), weights(other), rtol=1e-4, atol=1e-5)
    assert trainer.private.run_by_example == ()
    logs = trainer.state.log_history
    assert logs[-1]["epsilon"] == pytest.approx(by_hand.epsilon_spent())
    assert not any("loss" in name for log in logs for name in log)
    assert result.training_loss == result.metrics["total_flos"] == 0.0
    assert trainer.state.num_input_tokens_seen == 0
    with pytest.raises(Refused, match="all 14 steps"):
        trainer.train()


def test_hugging_face_goes_on_from_a_checkpoint(transformers, tmp_path):
    from privopt.torch.huggingface import PrivateTrainer

    def trainer(**choices):
        args = arguments(transformers, tmp_path, save_strategy="steps", save_steps=4, **choices)
        budget = BUDGET | {"noise": "blt", "random_state": None}
        model = tiny_bert(transformers)
        return PrivateTrainer(model, args, train_dataset=Sentences(), private=budget)

    whole = trainer()
    whole.train()
    written = list(tmp_path.rglob("private.pt"))
    assert len(written) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in written} == {0o600}
    spent = whole.private.epsilon_spent()
    resumed = trainer()
    result = resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert resumed.private.steps_done == result.global_step == 14
    assert resumed.private.epsilon_spent() == pytest.approx(spent)
    assert resumed.private.certificate().private
    (tmp_path / "checkpoint-8" / "private.pt").unlink()
    with pytest.raises(Refused, match="epsilon would be forgotten"):
        trainer().train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))


def test_hugging_face_in_half_precision(transformers, tmp_path, monkeypatch):
    """The clip leaves its wide margin: it knows that the model ran in bfloat16."""
    from privopt.torch.huggingface import PrivateTrainer

    margins, honest = [], Clip.factors

    def factors(self, squared, layers, margin):
        margins.append(margin)
        return honest(self, squared, layers, margin)

    monkeypatch.setattr(Clip, "factors", factors)
    args = arguments(transformers, tmp_path, bf16=True, num_train_epochs=1)
    model = tiny_bert(transformers)
    PrivateTrainer(model, args, train_dataset=Sentences(), private=BUDGET).train()
    assert margins
    assert min(margins) >= WIDE_MARGIN


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"gradient_accumulation_steps": 2}, "noise is added once per step"),
        ({"max_steps": 5}, "whole epochs"),
        ({"num_train_epochs": 1.5}, "whole epochs"),
        ({"auto_find_batch_size": True}, "neither fp16"),
        ({"label_smoothing_factor": 0.1}, "one loss for each example"),
    ],
)
def test_hugging_face_arguments_that_do_not_fit(transformers, tmp_path, choices, words):
    from privopt.torch.huggingface import PrivateTrainer

    args = arguments(transformers, tmp_path, **choices)
    with pytest.raises(ValueError, match=words):
        PrivateTrainer(tiny_bert(transformers), args, train_dataset=Sentences(), private=BUDGET)


@pytest.mark.parametrize(
    ("place", "words"), [("accelerator", "FSDP may cut the model"), ("args", "one for each device")]
)
def test_hugging_face_on_devices_that_do_not_fit(transformers, tmp_path, monkeypatch, place, words):
    from accelerate.utils import DistributedType

    from privopt.torch.huggingface import PrivateTrainer

    args = arguments(transformers, tmp_path)
    if place == "args":
        monkeypatch.setattr(type(args), "n_gpu", 2)
    else:
        kind = property(lambda self: DistributedType.FSDP)
        monkeypatch.setattr(transformers.trainer.Accelerator, "distributed_type", kind)
    with pytest.raises(Refused, match=words):
        PrivateTrainer(tiny_bert(transformers), args, train_dataset=Sentences(), private=BUDGET)


class Lines(torch.utils.data.Dataset):
    """Eight tokens each, the last three padding after the end (2) of a text."""

    def __init__(self, packed=False):
        made = torch.Generator().manual_seed(0)
        self.words = torch.randint(3, 30, (40, 8), generator=made)
        self.words[:, 5:] = 2
        if packed:
            self.words[7, 2] = 2

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        words = self.words[i]
        return {"input_ids": words, "labels": words.where(words != 2, -100)}


def language_trainer(transformers, folder, data, **choices):
    from privopt.torch.huggingface import PrivateTrainer

    peft = pytest.importorskip("peft")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=30, intermediate_size=8, eos_token_id=2, **sizes)
    model = transformers.LlamaForCausalLM(config)
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    return PrivateTrainer(
        model,
        arguments(transformers, folder),
        train_dataset=data,
        optimizers=constant(model),
        private=BUDGET,
        **choices,
    )


def test_adapters_of_a_language_model(transformers, tmp_path):
    from privopt.torch.huggingface import TEXTS

    trainer = language_trainer(transformers, tmp_path, Lines())
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    for name, p in trainer.model.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad
    certificate = trainer.private.certificate()
    assert TEXTS in certificate.assumptions
    assert certificate.settings["parameters"] == 64
    assert trainer.private.run_by_example == ()


def test_packed_rows_are_refused_or_declared(transformers, tmp_path):
    from privopt.torch.huggingface import PACKED, check_unpacked

    with pytest.raises(Refused, match="several texts laid end to end"):
        language_trainer(transformers, tmp_path, Lines(packed=True)).train()
    trainer = language_trainer(transformers, tmp_path, Lines(packed=True), packing="rows")
    trainer.get_train_dataloader()
    assert trainer.private is not None
    assert PACKED in trainer.private._assumptions
    words = torch.arange(3, 9)
    check_unpacked([{"input_ids": words, "position_ids": torch.arange(6)}], [2])
    with pytest.raises(Refused, match="several texts"):
        check_unpacked([{"input_ids": words, "position_ids": words % 4}], [2])
    with pytest.raises(ValueError, match="packing must be"):
        language_trainer(transformers, tmp_path, Lines(), packing="all")


def test_the_loss_of_a_causal_model_is_that_of_transformers(transformers):
    from privopt.torch.huggingface import causal_loss

    trainer_model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **{"vocab_size": 30, "hidden_size": 8, "intermediate_size": 8},
            **{"num_hidden_layers": 1, "num_attention_heads": 2},
        )
    )
    words = torch.randint(3, 30, (3, 8))
    labels = words.clone()
    labels[1, 5:] = -100
    found = causal_loss(trainer_model(input_ids=words), labels)
    for i in range(3):
        one = trainer_model(input_ids=words[i : i + 1], labels=labels[i : i + 1]).loss
        torch.testing.assert_close(found[i], one)
    assert causal_loss(trainer_model(input_ids=words), torch.full_like(words, -100)).sum() == 0
