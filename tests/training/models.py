"""Models for the tests, and per-example gradients by a loop: slow, and hard to get wrong."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

CLASSES = 3


def cross_entropy(output, target):
    return F.cross_entropy(output, target, reduction="none")


def loop(model, loss, x, y):
    """Gradients of all trained parameters, one row for each example, from batches of one."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(y)):
        value = loss(model(*(part[i : i + 1] for part in x)), y[i : i + 1])
        found = torch.autograd.grad(value[0], parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])
        )
    return torch.stack(rows)


def clipped(rows, bound):
    """Sum of rows, each scaled to at most the bound."""
    return (rows * (bound / rows.norm(dim=1).clamp_min(bound))[:, None]).sum(0)


class Tied(nn.Module):
    """Embeddings that are the last layer's weight as well."""

    def __init__(self, words=40, width=5):
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=0)
        self.middle = nn.Linear(width, width)
        self.last = nn.Linear(width, words, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x):
        return self.last(torch.tanh(self.middle(self.table(x)))).mean(1)


class Recurrent(nn.Module):
    """One layer called again and again, and one module under two names."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)
        self.again = self.step
        self.out = nn.Linear(4, CLASSES)

    def forward(self, x):
        state = x[:, 0]
        for t in range(1, x.shape[1]):
            state = torch.tanh(self.step(state) + self.again(x[:, t]))
        return self.out(state)


class BareParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 4))
        self.out = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.out(x * self.scale)


class Adapter(nn.Module):
    """A frozen layer with a trained low-rank change."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, CLASSES).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, CLASSES, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Attention(nn.Module):
    """Attention built from linear layers, with positions given as one row for all."""

    def __init__(self, words=20, width=8, heads=2):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(12, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.out, self.heads = nn.Linear(width, CLASSES), heads

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1])[None])
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(h)).chunk(3, 2)
        )
        h = h + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return self.out(h.mean(1))


class Functional(nn.Module):
    """Uses a layer's weight behind the layer's back."""

    def __init__(self):
        super().__init__()
        self.table, self.middle = nn.Embedding(CLASSES, 5), nn.Linear(5, 5)

    def forward(self, x):
        return F.linear(self.middle(self.table(x)).mean(1), self.table.weight)


class PlacesWithoutRow(Attention):
    """Positions without a dimension for examples: as many of them as there are examples."""

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.proj(torch.tanh(self.qkv(self.norm(h)).chunk(3, 2)[0])).mean(1))


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.out(torch.tanh(self.layer(x.transpose(0, 1))).mean(0))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 5), nn.Bilinear(5, 4, CLASSES)

    def forward(self, x, z):
        return self.other(torch.tanh(self.one(x)), z)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(4, 3, batch_first=True), nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


class MixesExamples(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        h = self.one(x)
        return self.two(h - h.mean(0))


def flat(*layers, size):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, CLASSES))


def _floats(*shape):
    return lambda n: (torch.randn(n, *shape),)


def _words(below, length):
    return lambda n: (torch.randint(0, below, (n, length)),)


MODELS = {
    "linear": (
        lambda: nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, CLASSES)),
        _floats(4),
    ),
    "linear on places, few": (
        lambda: flat(nn.Linear(40, 30), nn.ReLU(inplace=True), size=90),
        _floats(3, 40),
    ),
    "linear on places, many": (lambda: flat(nn.Linear(2, 3, bias=False), size=60), _floats(20, 2)),
    "conv1d": (
        lambda: flat(nn.Conv1d(2, 4, 3, padding="same", padding_mode="reflect"), size=36),
        _floats(2, 9),
    ),
    "conv2d": (
        lambda: flat(
            nn.Conv2d(2, 4, 3, stride=2, padding=2, dilation=2, groups=2),
            nn.GroupNorm(2, 4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 6, (3, 2), padding=(1, 0), padding_mode="circular"),
            size=6 * 5 * 4,
        ),
        _floats(2, 9, 9),
    ),
    "conv2d, wide and small": (lambda: flat(nn.Conv2d(16, 32, 3), size=32), _floats(16, 3, 3)),
    "conv2d, large map": (
        lambda: flat(
            nn.Conv2d(8, 4, 3, padding=2, padding_mode="replicate"),
            nn.Tanh(),
            nn.MaxPool2d(9),
            size=4,
        ),
        _floats(8, 14, 14),
    ),
    "conv1d, large map": (
        lambda: flat(
            nn.Conv1d(16, 4, 3, groups=2, dilation=2, stride=2), nn.AdaptiveAvgPool1d(3), size=12
        ),
        _floats(16, 300),
    ),
    "depthwise": (lambda: flat(nn.Conv2d(4, 4, 3, groups=4), size=36), _floats(4, 5, 5)),
    "conv3d": (lambda: flat(nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), size=54), _floats(2, 4, 4, 4)),
    "norms": (
        lambda: flat(
            nn.LayerNorm((3, 4)), nn.Linear(4, 4), nn.RMSNorm(4), nn.LayerNorm(4), size=12
        ),
        _floats(3, 4),
    ),
    "norms on vectors": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.Linear(4, CLASSES)),
        _floats(4),
    ),
    "embedding": (lambda: flat(nn.Embedding(7, 3), size=18), _words(7, 6)),
    "tied": (lambda: Tied(), _words(40, 4)),
    "tied, few words": (lambda: Tied(6, 5), _words(6, 4)),
    "called again": (lambda: Recurrent(), _floats(5, 4)),
    "bare parameter": (lambda: BareParameter(), _floats(4)),
    "adapter": (lambda: Adapter(), _floats(6)),
    "attention": (lambda: Attention(), _words(20, 6)),
    "transformer layer": (
        lambda: flat(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), size=20),
        _floats(5, 4),
    ),
    "functional": (lambda: Functional(), _words(CLASSES, 6)),
    "places without a row": (lambda: PlacesWithoutRow(), _words(20, 6)),
    "time first": (lambda: TimeFirst(), _floats(6, 4)),
    "two inputs": (lambda: TwoInputs(), lambda n: (torch.randn(n, 4), torch.randn(n, 4))),
    "recurrent": (lambda: Gru(), _floats(5, 4)),
    "prelu, transposed": (
        lambda: flat(
            nn.ConvTranspose2d(2, 3, 2), nn.PReLU(3), nn.InstanceNorm2d(3, affine=True), size=75
        ),
        _floats(2, 4, 4),
    ),
}


def made(name, count, dtype=torch.float64, seed=0):
    """A model, its inputs and targets."""
    torch.manual_seed(seed)
    build, inputs = MODELS[name]
    model = build().to(dtype)
    x = tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs(count))
    return model, x, torch.randint(0, CLASSES, (count,))


def random_model(seed):
    """A convolutional or dense network with random sizes."""
    torch.manual_seed(seed)

    def pick(low, high):
        return int(torch.randint(low, high + 1, ()))

    channels, side = pick(1, 4), pick(5, 9)
    shape, layers, width = (channels, side, side), [], channels
    for _ in range(pick(1, 3)):
        kernel, stride = pick(1, 3), pick(1, 2)
        new = 2 * pick(1, 8)
        layers += [nn.Conv2d(width, new, kernel, stride, padding=pick(0, 2), bias=bool(pick(0, 1)))]
        layers += [nn.GroupNorm(2, new)] if pick(0, 1) else []
        layers += [nn.Tanh() if pick(0, 1) else nn.ReLU(inplace=True)]
        width = new
    body = nn.Sequential(*layers)
    with torch.no_grad():
        size = math.prod(body(torch.zeros(1, *shape)).shape)
    return flat(body, size=size), torch.randn(6, *shape), torch.randint(0, CLASSES, (6,))


class Sentences(Dataset):
    """Six words each; the label is whether the first is odd."""

    def __init__(self, n=61):
        made = torch.Generator().manual_seed(0)
        self.words = torch.randint(1, 20, (n, 6), generator=made)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        words = self.words[i]
        return {"input_ids": words, "attention_mask": words.new_ones(6), "labels": words[0] % 2}


def tiny_bert(transformers, seed=0):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    shape = {"vocab_size": 20, "intermediate_size": 8, "max_position_embeddings": 8}
    torch.manual_seed(seed)
    config = transformers.BertConfig(**sizes, **quiet, **shape)
    return transformers.BertForSequenceClassification(config)
