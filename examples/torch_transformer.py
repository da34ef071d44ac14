"""A small transformer that learns whether a sentence holds a certain word, on made-up sentences.

Nothing in the model is special: embeddings, attention, layer normalisation and linear layers are
clipped by rules. The data are made here; take yours by giving another data set.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.torch import make_private

WORDS, LENGTH, EPOCHS = 12, 8, 6


class Block(nn.Module):
    """Attention and a small network, each on normalised inputs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mix(self.before(x)).chunk(3, 2)
        query, key, value = (p.unflatten(2, (self.heads, -1)).transpose(1, 2) for p in parts)
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.back(seen)
        return x + self.down(F.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 2)

    def forward(self, sentence: Tensor) -> Tensor:
        places = torch.arange(LENGTH, device=sentence.device)
        x = self.words(sentence) + self.places(places[None])
        return self.out(self.norm(self.blocks(x)).mean(1))


def sentences(count: int, seed: int) -> TensorDataset:
    """Half of them hold the first word, the others do not."""
    made = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (count, LENGTH), generator=made)
    marked = torch.arange(count) % 2
    place = torch.randint(0, LENGTH, (count,), generator=made)
    words[torch.arange(count), place] *= 1 - marked
    return TensorDataset(words, marked)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    """One loss for each sentence."""
    return F.cross_entropy(output, labels, reduction="none")


def main() -> None:
    train, test = sentences(4000, 0), sentences(1000, 1)
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(train, batch_size=200)
    private = make_private(model, optimizer, loader, epsilon=8.0, delta=1e-5, epochs=EPOCHS)
    for epoch in range(1, EPOCHS + 1):
        for words, labels in private.loader:
            private.step(loss, words, targets=labels)
        with torch.no_grad():
            right = model(test.tensors[0]).argmax(1) == test.tensors[1]
        print(
            f"epoch {epoch}: {100 * right.float().mean():.1f} % of the test sentences, "
            f"epsilon {private.epsilon_spent():.2f}"
        )
    print(private.certificate())


if __name__ == "__main__":
    main()
