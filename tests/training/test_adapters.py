"""Adapters of peft: a frozen model, and few trained numbers around its layers."""

from __future__ import annotations

import pytest
import torch

from privopt.torch.by_example import Part
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.probe import probe

from .models import clipped
from .test_known_models import COUNT, known, losses, quiet, rows_of

peft = pytest.importorskip("peft")

LLAMA = ["q_proj", "v_proj"]
KINDS = {
    "lora": ("Llama", lambda: peft.LoraConfig(r=2, target_modules=LLAMA)),
    "lora of every product": ("Llama", lambda: peft.LoraConfig(r=2, target_modules="all-linear")),
    "lora of turned products": (
        "GPT2",
        lambda: peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True),
    ),
    "lora with a trained head": (
        "Llama",
        lambda: peft.LoraConfig(r=2, target_modules=LLAMA, modules_to_save=["lm_head"]),
    ),
    "dora": ("Llama", lambda: peft.LoraConfig(r=2, target_modules=LLAMA, use_dora=True)),
    "ia3": (
        "Llama",
        lambda: peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_adapters_equal_a_loop(name):
    base, config = KINDS[name]
    model, x = known(base)
    model = peft.get_peft_model(model, config()).double()
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:  # one factor of a product begins at zero
                p.add_(0.1 * torch.randn_like(p))
    engine = Engine(quiet(model), Clip(0.1))
    assert engine.size == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert engine.size < sum(p.numel() for p in model.parameters()) / 4
    probe(engine, (), x)
    model.eval()
    rows = rows_of(model, x, engine.parameters)
    engine.clip = Clip(float(rows.norm(dim=1).median()))
    total = engine.clipped_sum(losses, (), x, (), COUNT)
    parts = [unit for unit in engine.units if isinstance(unit, Part)]
    assert not any(part.one_by_one or not part.name for part in parts)
    assert name == "dora" or not any(part.slow for part in parts) or name == "ia3"
    expected = clipped(rows, engine.clip.norm / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-9 * engine.clip.norm)
