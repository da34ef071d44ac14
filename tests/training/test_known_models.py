"""Small models of well-known kinds, from transformers, against batches of one."""

from __future__ import annotations

import pytest
import torch

from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.probe import probe

from .models import clipped

transformers = pytest.importorskip("transformers")

COUNT, WORDS = 4, 30
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
TEXT = {"vocab_size": WORDS, "max_position_embeddings": 16, **SIZES}
MODELS = {
    "Bert": ("ForSequenceClassification", TEXT, "input_ids"),
    "Roberta": ("ForSequenceClassification", TEXT, "input_ids"),
    "Llama": ("ForCausalLM", {**TEXT, "num_key_value_heads": 1}, "input_ids"),
    "GPT2": (
        "LMHeadModel",
        {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16},
        "input_ids",
    ),
    "ViT": ("ForImageClassification", {**SIZES, "image_size": 8, "patch_size": 4}, "pixel_values"),
}


def losses(output):
    return output.logits.flatten(1).square().mean(1)


@pytest.mark.parametrize("name", MODELS)
def test_known_models_equal_a_loop(name):
    kind, sizes, argument = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name}{kind}")(config).double()
    x = torch.randint(2, WORDS, (COUNT, 6))
    if argument == "pixel_values":
        x = torch.randn(COUNT, 3, 8, 8, dtype=torch.float64)
    engine = Engine(model.train(), Clip(0.1))
    probe(engine, (), {argument: x})  # with dropout, as it trains
    assert len(engine.units) > 10  # rules stay in force
    model.eval()
    total = engine.clipped_sum(losses, (), {argument: x}, (), COUNT)
    rows = []
    for i in range(COUNT):
        value = losses(model(**{argument: x[i : i + 1]}))[0]
        found = torch.autograd.grad(value, engine.parameters, allow_unused=True)
        pairs = zip(engine.parameters, found, strict=True)
        rows.append(
            torch.cat(
                [torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in pairs]
            )
        )
    expected = clipped(torch.stack(rows), 0.1 / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-10)
