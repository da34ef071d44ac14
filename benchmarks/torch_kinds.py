"""Kinds of models, each in seven ways of training, against a loop over single examples.

Every cell is a real step of ``make_private`` on made-up records, checks and all, up to its
release: the clipped sum is compared with that of gradients from batches of one. A cell is right,
refused in words, or wrong.

    python -m benchmarks.torch_kinds [--ways plain bf16 fp16 microbatch compile apart]
        [--only bert] [--device cuda]
"""

from __future__ import annotations

import argparse
import collections
import math
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.data import DataLoader, TensorDataset

from privopt.privacy import Refused
from privopt.torch import make_private

COUNT, CLIP, WORDS = 5, 0.1, 30
WAYS = ("plain", "bf16", "fp16", "microbatch", "compile", "compile bf16", "apart")
CLOSE = {"bf16": 0.05, "fp16": 0.02, "compile bf16": 0.05}
"""How far a sum may be from the loop's, as a share of clip norm x root of the number of examples;
double precision elsewhere, where it is 1e-6."""

Build = Callable[[], nn.Module]
KINDS: dict[str, tuple[Build, tuple[int, ...] | str]] = {}


class Then(nn.Module):
    """Layers one after the other; of several outputs, the first."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        own = [x for x in layers if isinstance(x, nn.Module)]
        self.layers = nn.ModuleList(own)
        self.steps = [own.index(x) if isinstance(x, nn.Module) else x for x in layers]

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = self.layers[step](x) if isinstance(step, int) else step(x)
            x = x[0] if isinstance(x, tuple) else x
        return x


def kind(name: str, shape: tuple[int, ...] | str, *layers: Callable[[], Any]) -> None:
    KINDS[name] = (lambda: Then(*(make() for make in layers))), shape


def flat() -> nn.Module:
    return nn.Flatten()


def on(function: Callable[[Tensor], Tensor]) -> Callable[[], Callable[[Tensor], Tensor]]:
    return lambda: function


def mean(x: Tensor) -> Tensor:
    return x.mean(1)


# ---------------------------------------------------------------- layers of torch.nn
def linear(width: int = 6, out: int = 6, **choices: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(width, out, **choices)


kind("linear", (6,), linear(), nn.Tanh, linear(out=3))
kind("linear without bias", (6,), linear(bias=False), nn.Tanh, linear(out=3, bias=False))
kind("linear on sequences", (5, 6), linear(), nn.Tanh, linear(out=3), on(mean))
kind("linear on long sequences", (40, 6), linear(out=4), nn.Tanh, linear(4, 3), on(mean))
kind("linear on grids", (2, 3, 6), linear(), nn.GELU, linear(out=3), flat)
for _one in (nn.ReLU, nn.ELU, nn.SiLU, nn.Softplus, nn.Mish, nn.Hardswish, nn.CELU, nn.SELU):
    kind(f"activation {_one.__name__}", (6,), linear(), _one, linear(out=3))
kind("gated linear units", (6,), linear(), nn.GLU, linear(3, 3))
kind("PReLU", (6,), linear(), nn.PReLU, linear(out=3))
kind("PReLU of channels", (6,), linear(), lambda: nn.PReLU(6), linear(out=3))
kind("RReLU in evaluation", (6,), linear(), lambda: nn.RReLU().eval(), linear(out=3))
kind("maxout", (6,), linear(out=8), on(lambda h: h.unflatten(1, (4, 2)).amax(2)), linear(4, 3))
kind("bilinear", (6,), lambda: _Both(nn.Bilinear(6, 6, 4)), linear(4, 3))
for _d, _conv in ((1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)):
    _shape = (2, *(5,) * _d)
    kind(f"conv{_d}d", _shape, lambda c=_conv: c(2, 4, 3), nn.Tanh, flat)
    kind(f"conv{_d}d padded", _shape, lambda c=_conv: c(2, 4, 3, padding=1), nn.ReLU, flat)
    kind(f"conv{_d}d with strides", _shape, lambda c=_conv: c(2, 4, 3, 2, bias=False), flat)
    kind(f"conv{_d}d dilated", _shape, lambda c=_conv: c(2, 4, 2, dilation=2), flat)
    kind(f"conv{_d}d in groups", _shape, lambda c=_conv: c(2, 4, 3, groups=2), flat)
for _mode in ("reflect", "replicate", "circular"):
    kind(
        f"conv2d padded, {_mode}",
        (2, 5, 5),
        lambda m=_mode: nn.Conv2d(2, 3, 3, padding=1, padding_mode=m),
        flat,
    )
kind("conv2d same", (2, 5, 5), lambda: nn.Conv2d(2, 3, 4, padding="same"), flat)
kind("conv2d of one place", (6, 4, 4), lambda: nn.Conv2d(6, 3, 1), flat)
kind("conv2d apart and together", (4, 6, 6), lambda: nn.Conv2d(4, 4, 3, groups=4), nn.ReLU)
KINDS["conv2d apart and together"] = (
    lambda: Then(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.Flatten()),
    (4, 6, 6),
)
kind("conv transposed 1d", (2, 5), lambda: nn.ConvTranspose1d(2, 3, 3), flat)
kind("conv transposed 2d", (2, 4, 4), lambda: nn.ConvTranspose2d(2, 3, 3, 2), flat)
kind("conv transposed 3d", (2, 3, 3, 3), lambda: nn.ConvTranspose3d(2, 2, 2), flat)
for _pool in (nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.LPPool2d(2.0, 2)):
    kind(
        f"pool {type(_pool).__name__}",
        (2, 6, 6),
        lambda: nn.Conv2d(2, 3, 3, padding=1),
        lambda p=_pool: p,
        flat,
    )
kind("fractional pool", (2, 8, 8), lambda: nn.Conv2d(2, 3, 3), lambda: nn.FractionalMaxPool2d(2, 3))
kind("layer norm", (6,), linear(), lambda: nn.LayerNorm(6), linear(out=3))
kind("layer norm of two", (3, 6), linear(), lambda: nn.LayerNorm((3, 6)), flat)
kind("rms norm", (5, 6), linear(), lambda: nn.RMSNorm(6), on(mean))
kind("group norm", (4, 5, 5), lambda: nn.Conv2d(4, 4, 3), lambda: nn.GroupNorm(2, 4), flat)
kind("group norm of vectors", (4,), linear(4, 4), lambda: nn.GroupNorm(2, 4))
kind("instance norm", (4, 5, 5), lambda: nn.Conv2d(4, 4, 3), lambda: nn.InstanceNorm2d(4))
kind("instance norm, trained", (4, 5), lambda: nn.InstanceNorm1d(4, affine=True), flat)
kind(
    "instance norm, tracked",
    (4, 5),
    lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    flat,
)
kind("local response norm", (4, 5), lambda: nn.Conv1d(4, 4, 1), lambda: nn.LocalResponseNorm(2))
kind("batch norm", (4,), linear(4, 4), lambda: nn.BatchNorm1d(4))
kind("batch norm 2d", (4, 3, 3), lambda: nn.BatchNorm2d(4), flat)
kind("batch norm, synchronised", (4,), linear(4, 4), lambda: nn.SyncBatchNorm(4))
kind("batch norm, frozen", (4,), linear(4, 4), lambda: _frozen(nn.BatchNorm1d(4)), linear(4, 3))
kind("batch norm, evaluation", (4,), linear(4, 4), lambda: nn.BatchNorm1d(4).eval())
kind("embedding", "words", lambda: nn.Embedding(WORDS, 6), on(mean), linear(out=3))
kind("embedding, padded", "words", lambda: nn.Embedding(WORDS, 6, padding_idx=0), on(mean))
kind("embedding, sparse", "words", lambda: nn.Embedding(WORDS, 6, sparse=True), on(mean))
kind("embedding, renormed", "words", lambda: nn.Embedding(WORDS, 6, max_norm=1.0), on(mean))
kind("embedding bag", "words", lambda: nn.EmbeddingBag(WORDS, 6), linear(out=3))
kind("embedding bag, largest", "words", lambda: nn.EmbeddingBag(WORDS, 6, mode="max"))
for _cell in (nn.RNN, nn.LSTM, nn.GRU):
    _name = _cell.__name__
    for _text, _more in (
        ("", {}),
        (" of two layers", {"num_layers": 2}),
        (", both ways", {"bidirectional": True}),
        (" without bias", {"bias": False}),
    ):
        kind(
            f"{_name}{_text}",
            (4, 5),
            lambda c=_cell, m=_more: c(5, 3, batch_first=True, **m),
            on(mean),
        )
kind("LSTM, projected", (4, 5), lambda: nn.LSTM(5, 4, proj_size=2, batch_first=True), on(mean))
kind("LSTM, time first", (4, 5), lambda: _TimeFirst(nn.LSTM(5, 3)), on(mean))
for _step in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    kind(f"{_step.__name__} by hand", (4, 5), lambda c=_step: _Stepped(c(5, 3)))
kind("attention", (4, 6), lambda: _Self(nn.MultiheadAttention(6, 2, batch_first=True)), on(mean))
kind(
    "attention, own keys",
    (4, 6),
    lambda: _Self(nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True)),
    on(mean),
)
kind("attention, time first", (4, 6), lambda: _TimeFirst(_Self(nn.MultiheadAttention(6, 2))))
kind(
    "encoder layer",
    (4, 6),
    lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True),
    on(mean),
)
kind(
    "encoder, norms first",
    (4, 6),
    lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True, norm_first=True),
        2,
        enable_nested_tensor=False,
    ),
    on(mean),
)
kind("decoder layer", (4, 6), lambda: _Decoder(), on(mean))
kind("transformer", (4, 6), lambda: _Whole(), on(mean))
kind("weight norm", (6,), lambda: parametrizations.weight_norm(nn.Linear(6, 4)), linear(4, 3))
kind("orthogonal", (6,), lambda: parametrizations.orthogonal(nn.Linear(6, 6)), linear(out=3))
kind("spectral norm", (6,), lambda: parametrizations.spectral_norm(nn.Linear(6, 4)), linear(4, 3))
kind("lazy linear", (6,), lambda: nn.LazyLinear(4), linear(4, 3))
kind("dropout", (6,), linear(), lambda: nn.Dropout(0.0), linear(out=3))
kind("alpha dropout", (6,), linear(), lambda: nn.AlphaDropout(0.0), linear(out=3))
kind("pixel shuffle", (4, 3, 3), lambda: nn.Conv2d(4, 8, 1), lambda: nn.PixelShuffle(2), flat)
kind("upsampling", (2, 3, 3), lambda: nn.Conv2d(2, 2, 1), lambda: nn.Upsample(scale_factor=2), flat)
kind("unfolding", (2, 4, 4), lambda: nn.Conv2d(2, 2, 1), lambda: nn.Unfold(2), flat)
kind("softmax", (6,), linear(), lambda: nn.Softmax(1), linear(out=3))
kind("cosine", (6,), linear(), on(lambda h: F.normalize(h, dim=1)), linear(out=3))
kind("fourier", (8,), linear(8, 8), on(lambda h: torch.fft.rfft(h.float()).abs().to(h.dtype)))
kind("cumulative sums", (6,), linear(), on(lambda h: h.cumsum(1)), linear(out=3))
kind("sorted", (6,), linear(), on(lambda h: h.sort(1).values), linear(out=3))
kind("residual", (6,), lambda: _Residual(), linear(out=3))
kind("dense connections", (6,), lambda: _Dense(), linear(12, 3))
kind("tied", "words", lambda: _Tied())
kind("shared layer", (6,), lambda: _Shared(), linear(out=3))
kind("bare parameter", (6,), lambda: _Scale(), linear(out=3))
kind("weight behind its back", (6,), lambda: _Behind())
kind("low-rank adapter", (6,), lambda: _Adapter(), linear(out=3))
kind("experts, soft", (6,), lambda: _Experts(), linear(out=3))
kind("hyper-network", (6,), lambda: _Hyper())
kind("squeeze and excitation", (4, 4, 4), lambda: _Squeeze(), flat)
kind("depth by stochastic gates, closed", (6,), lambda: _Residual(), lambda: nn.Identity())
kind("mixer", (4, 6), lambda: _Mixer(), on(mean))
kind("positions", "words", lambda: _Positions(), on(mean))
kind("graph convolution", (4, 6), linear(), on(lambda h: h.softmax(2) @ h.mT @ h), on(mean))
kind("autoencoder", (6,), linear(out=2), nn.Tanh, linear(2, 6))
kind("complex inside", (6,), linear(), on(lambda h: torch.view_as_real(_turned(h)).flatten(1)))
kind("checkpoints", (6,), lambda: _Checkpointed(), linear(out=3))
kind("conditional computation", (6,), lambda: _Branch(), linear(out=3))


class _Both(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x.flip(1))


class _TimeFirst(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x.transpose(0, 1))
        return (found[0] if isinstance(found, tuple) else found).transpose(0, 1)


class _Stepped(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return state[0] if isinstance(state, tuple) else state  # type: ignore[return-value]


class _Self(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class _Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x.flip(1))


class _Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Transformer(6, 2, 1, 1, 8, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x.flip(1))


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(F.relu(self.one(x)))


class _Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.one(x)], 1)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(WORDS, 5), nn.Linear(5, WORDS, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.table(x).tanh()).mean(1)


class _Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(self.one(x).tanh())


class _Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class _Behind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.one(x).tanh(), self.one.weight)


class _Adapter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.one, self.two = nn.Linear(6, 2), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        share = self.gate(x).softmax(1)
        return share[:, :1] * self.one(x) + share[:, 1:] * self.two(x)


class _Hyper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.made = nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("nij,nj->ni", self.made(x).unflatten(1, (3, 6)), x)


class _Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        return h * self.one(h.mean((2, 3))).sigmoid()[:, :, None, None]


class _Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places, self.widths = nn.Linear(4, 4), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.places(x.mT).mT
        return x + self.widths(x)


class _Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 6), nn.Embedding(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x) + self.places(torch.arange(x.shape[1])[None])


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.one, x, use_reentrant=False).tanh()  # type: ignore[union-attr]


class _Branch(nn.Module):
    """Each example takes its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1] > 0, self.one(x), self.two(x))


def _frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(False)


def _turned(h: Tensor) -> Tensor:
    wide = h.double() if h.dtype == torch.float64 else h.float()
    return torch.complex(wide, wide.flip(1)) * torch.tensor(0.6 + 0.8j, dtype=torch.complex64)


# ---------------------------------------------------------------- families of transformers
_BASE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
_TEXT = {"vocab_size": WORDS, "max_position_embeddings": 16, "pad_token_id": 0, **_BASE}
_CAUSAL = {**_TEXT, "num_key_value_heads": 1}
_N = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
_IMAGE = {**_BASE, "image_size": 8, "patch_size": 4}
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "Bert": ("ForSequenceClassification", _TEXT, "words"),
    "Roberta": ("ForSequenceClassification", _TEXT, "words"),
    "Electra": ("ForSequenceClassification", {**_TEXT, "embedding_size": 16}, "words"),
    "Albert": ("ForSequenceClassification", {**_TEXT, "embedding_size": 16}, "words"),
    "DistilBert": (
        "ForSequenceClassification",
        {"vocab_size": WORDS, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
        "words",
    ),
    "DebertaV2": ("ForSequenceClassification", _TEXT, "words"),
    "XLNet": (
        "ForSequenceClassification",
        {"vocab_size": WORDS, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},
        "words",
    ),
    "MPNet": ("ForSequenceClassification", _TEXT, "words"),
    "GPT2": ("LMHeadModel", _N, "words"),
    "GPTNeoX": ("ForCausalLM", _TEXT, "words"),
    "OPT": (
        "ForCausalLM",
        {**_TEXT, "ffn_dim": 24, "word_embed_proj_dim": 16},
        "words",
    ),
    "Bloom": (
        "ForCausalLM",
        {"vocab_size": WORDS, "hidden_size": 16, "n_layer": 2, "n_head": 2},
        "words",
    ),
    "Llama": ("ForCausalLM", _CAUSAL, "words"),
    "Mistral": ("ForCausalLM", _CAUSAL, "words"),
    "Qwen2": ("ForCausalLM", _CAUSAL, "words"),
    "Gemma": ("ForCausalLM", {**_CAUSAL, "head_dim": 8}, "words"),
    "Phi": ("ForCausalLM", _TEXT, "words"),
    "ViT": ("ForImageClassification", _IMAGE, "image"),
    "DeiT": ("ForImageClassification", _IMAGE, "image"),
    "ConvNext": (
        "ForImageClassification",
        {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 6, 8, 8], "patch_size": 2},
        "bigger image",
    ),
    "T5": (
        "EncoderModel",
        {
            "vocab_size": WORDS,
            "d_model": 16,
            "d_ff": 24,
            "d_kv": 8,
            "num_layers": 2,
            "num_heads": 2,
        },
        "words",
    ),
}


def family(name: str) -> Build:
    def build() -> nn.Module:
        import transformers

        end, sizes, _ = FAMILIES[name]
        config = getattr(transformers, f"{name}Config")(**sizes)
        for choice, value in vars(config).items():
            if "drop" in choice and isinstance(value, float):
                setattr(config, choice, 0.0)
        return getattr(transformers, f"{name}{end}")(config)

    return build


SHAPES: dict[str, Callable[[], Tensor]] = {
    "words": lambda: torch.randint(2, WORDS, (COUNT, 6)),
    "image": lambda: torch.randn(COUNT, 3, 8, 8),
    "bigger image": lambda: torch.randn(COUNT, 3, 32, 32),
}


# ---------------------------------------------------------------- one cell
def losses(output: Any, target: Tensor) -> Tensor:
    if not isinstance(output, Tensor):
        output = output.logits if hasattr(output, "logits") else output.last_hidden_state
    output = output.flatten(1).to(target.dtype)
    waves = torch.arange(output.shape[1]).mul(0.7).cos().add(1.2)
    return 3 * (output * waves * target[:, None]).square().mean(1)


def cell(
    build: Build, shape: tuple[int, ...] | str, way: str, device: str = "cpu"
) -> tuple[str, str]:
    """A verdict and its reason."""
    torch.manual_seed(0)
    model = build().to(device)
    x = SHAPES[shape]() if isinstance(shape, str) else torch.randn(COUNT, *shape)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(way.removeprefix("compile "))
    if half is None:
        model = model.double()
        x = x.double() if x.is_floating_point() else x
    target = 1 + torch.arange(COUNT).to(torch.float64 if half is None else torch.float32) / COUNT

    def cast() -> Any:
        return nullcontext() if half is None else torch.autocast(device, half)

    try:
        with torch.no_grad(), cast():
            build().to(x if x.is_floating_point() else target)(x)
    except RuntimeError as problem:
        return "torch fails", str(problem)
    choices: dict[str, Any] = {
        "microbatch": {"microbatch": 2},
        "compile": {"compile": "aot_eager"},
        "compile bf16": {"compile": "aot_eager"},
        "apart": {"examples": "apart"},
    }.get(way, {})
    sums: list[Tensor] = []
    try:
        with cast():
            private = make_private(
                *(model, torch.optim.SGD(model.parameters(), 0.0)),
                DataLoader(TensorDataset(x, target), COUNT),
                **{"epsilon": 1.0, "delta": 1e-5, "epochs": 1, "clip_norm": CLIP},
                **{"batches": "fixed", "random_state": 0, **choices},
            )
            private._release = lambda total: sums.append(total.clone())  # type: ignore
            rows, goals = next(iter(private.loader))
            private.backward(losses, rows, targets=goals)
    except (Refused, ValueError) as refusal:
        return "refused", str(refusal)
    parameters, right = private._engine.parameters, torch.zeros_like(sums[0])
    with cast():
        clip = CLIP * (1 - private._engine.margin(device))  # the rest is left to rounding
    for i in range(COUNT):
        with cast():
            value = losses(model(x[i : i + 1]), target[i : i + 1])
        found = torch.autograd.grad(value[0], parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        row = torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])
        right += row * min(1.0, clip / float(row.norm().clamp_min(1e-30)))
    far = float((sums[0] - right).norm()) / (CLIP * math.sqrt(COUNT))
    close = CLOSE.get(way, 1e-6)
    return ("right" if far <= close else "wrong"), f"{far:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--only", help="kinds whose name holds this")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_device(chosen.device)
    warnings.filterwarnings("ignore")
    models = KINDS | {f"transformers: {n}": (family(n), FAMILIES[n][2]) for n in FAMILIES}
    print(f"{len(KINDS)} kinds, {len(FAMILIES)} families of transformers", flush=True)
    counts: dict[tuple[str, str], collections.Counter[str]] = {}
    for name, (build, shape) in models.items():
        if chosen.only and chosen.only.lower() not in name.lower():
            continue
        for way in chosen.ways:
            start = time.perf_counter()
            try:
                verdict, reason = cell(build, shape, way, chosen.device)
            except Exception as problem:
                verdict, reason = "error", f"{type(problem).__name__}: {problem}"
            group = "families" if name.startswith("transformers") else "kinds"
            counts.setdefault((group, way), collections.Counter())[verdict] += 1
            if verdict != "right":
                spent = time.perf_counter() - start
                print(f"{name} | {way} | {verdict} | {reason[:160]} | {spent:.1f}s", flush=True)
    for (group, way), found in counts.items():
        print(f"{group:9s} {way:11s} {dict(found)}")


if __name__ == "__main__":
    main()
