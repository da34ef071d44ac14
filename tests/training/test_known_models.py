"""Small models of well-known kinds, from transformers, against batches of one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privopt.privacy import Refused
from privopt.torch.by_example import Part
from privopt.torch.clip import Clip
from privopt.torch.compiled import CompiledSum
from privopt.torch.engine import Engine
from privopt.torch.probe import probe
from privopt.torch.units import Layer

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
FEWER = {**TEXT, "num_key_value_heads": 1}
TOKENS = {"decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIDES = [
    f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads")
]
TWO = dict.fromkeys(SIDES, 2)
MODELS = {
    "Bert": ("ForSequenceClassification", TEXT),
    "GPT2": (
        "LMHeadModel",
        {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16},
    ),
    "Llama": ("ForCausalLM", FEWER),
    "Mistral": ("ForCausalLM", FEWER),
    "Qwen3": ("ForCausalLM", {**FEWER, "head_dim": 8}),
    "Gemma": ("ForCausalLM", {**FEWER, "head_dim": 8}),
    "T5": (
        "ForConditionalGeneration",
        {
            **{"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2},
            **{"num_heads": 2, "decoder_start_token_id": 0},
        },
    ),
    "OPT": ("ForCausalLM", {**TEXT, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "Bart": (
        "ForConditionalGeneration",
        {
            **{"vocab_size": WORDS, "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
            **{"max_position_embeddings": 16, **TWO, **TOKENS},
        },
    ),
    "ViT": ("ForImageClassification", {**SIZES, "image_size": 8, "patch_size": 4}),
    "Swin": (
        "ForImageClassification",
        {
            **{"image_size": 8, "patch_size": 2, "embed_dim": 8, "depths": [1, 1]},
            **{"num_heads": [2, 2], "window_size": 2},
        },
    ),
    "Mamba": (
        "ForCausalLM",
        {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    ),
    "Mixtral": ("ForCausalLM", {**FEWER, "num_local_experts": 4, "num_experts_per_tok": 2}),
}


def known(name):
    """A model of that kind, and what it is called with."""
    kind, sizes = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes)
    if name == "Mixtral":
        config._experts_implementation = "eager"  # others take no double precision
    model = getattr(transformers, f"{name}{kind}")(config).double()
    with torch.no_grad():
        for p in model.parameters():  # norms and biases begin at one and zero
            p.add_(0.1 * torch.randn_like(p))
    if kind == "ForImageClassification":
        return model, {"pixel_values": torch.randn(COUNT, 3, 8, 8, dtype=torch.float64)}
    x = {"input_ids": torch.randint(3, WORDS, (COUNT, 6))}
    if kind == "ForConditionalGeneration":
        x["decoder_input_ids"] = torch.randint(3, WORDS, (COUNT, 5))
    return model, x


def losses(output):
    return output.logits.flatten(1).square().mean(1)


def quiet(model):
    """Without dropout: made-up inputs are then tried a few times instead of 32."""
    for module in model.modules():
        for name in ("p", "dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model.train()


def rows_of(model, x, parameters):
    rows = []
    for i in range(COUNT):
        value = losses(model(**{name: t[i : i + 1] for name, t in x.items()}))[0]
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        rows.append(
            torch.cat(
                [torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in pairs]
            )
        )
    return torch.stack(rows)


@pytest.mark.parametrize("name", MODELS)
def test_known_models_equal_a_loop(name):
    model, x = known(name)
    engine = Engine(quiet(model), Clip(0.1))
    probe(engine, (), x)
    model.eval()
    total = engine.clipped_sum(losses, (), x, (), COUNT)
    parts = [unit for unit in engine.units if isinstance(unit, Part)]
    assert not any(part.one_by_one or part.name == "" for part in parts)
    copied = sum(p.numel() for part in parts for p in part.parameters())
    assert copied <= (0.2 if name == "Mamba" else 0.05) * engine.size  # tables, not products
    assert sum(isinstance(unit, Layer) for unit in engine.units) > 10
    expected = clipped(rows_of(model, x, engine.parameters), 0.1 / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-8)


def tried(name):
    model, x = known(name)
    engine = Engine(quiet(model), Clip(0.1))
    probe(engine, (), x)
    return engine, x


@pytest.mark.parametrize("name", ["GPT2", "Mamba", "Swin"])
def test_compiled_steps_of_known_models(name):
    engine, x = tried(name)
    engine.model.eval()
    expected = engine.clipped_sum(losses, (), x, (), COUNT)
    compiled = CompiledSum(engine, COUNT + 2, "eager")
    found = compiled.clipped_sum(
        lambda out, target: losses(out) + 0 * target, (), x, (torch.ones(COUNT),), COUNT
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_decisions_by_values_are_not_compiled():
    engine, x = tried("Mixtral")
    with pytest.raises(Refused, match="decisions by values"):
        CompiledSum(engine, COUNT, "eager").clipped_sum(
            lambda out, target: losses(out), (), x, (torch.ones(COUNT),), COUNT
        )


@pytest.mark.parametrize("name", ["GPT2", "Mamba", "OPT"])
def test_checkpointed_activations(name):
    engine, x = tried(name)
    expected = engine.clipped_sum(losses, (), x, (), COUNT)
    model, _ = known(name)
    quiet(model).gradient_checkpointing_enable({"use_reentrant": False})
    engine = Engine(model, Clip(0.1))
    probe(engine, (), x)
    assert not any(isinstance(unit, Part) and unit.slow for unit in engine.units)
    found = engine.clipped_sum(losses, (), x, (), COUNT)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


# ------------------------------------------------------------ recognised by what they compute
class TurnedRound(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, 4), self.weight).view(*x.shape[:-1], 5)


class RootMeanSquare(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.weight, self.start = nn.Parameter(torch.randn(4)), start

    def forward(self, x):
        scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return scaled * (self.start + self.weight)


class Curved(RootMeanSquare):
    """Not a weight times something."""

    def forward(self, x):
        return super().forward(x) * self.weight.tanh()


class Crossed(RootMeanSquare):
    """A weight times something, but of its neighbour."""

    def forward(self, x):
        return super().forward(x).roll(1, -1) + self.weight.roll(1)


def rule_name(module):
    from privopt.torch.layers import rule_for

    rule = rule_for(module)
    return rule and getattr(rule, "func", rule).__name__


def test_layers_are_recognised_by_what_they_compute():
    assert rule_name(TurnedRound()) == "product"
    assert rule_name(RootMeanSquare(0.0)) == rule_name(RootMeanSquare(1.0)) == "scale"
    assert rule_name(nn.PReLU(4)) == "scale"
    assert rule_name(Curved(0.0)) is rule_name(Crossed(0.0)) is None
    assert rule_name(nn.BatchNorm1d(4)) is None
    before, layer = torch.get_rng_state(), RootMeanSquare(0.0)
    torch.set_rng_state(before)
    rule_name(layer)
    assert torch.equal(before, torch.get_rng_state())
