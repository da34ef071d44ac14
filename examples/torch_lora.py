"""Fine-tuning with low-rank adapters: a public model stays frozen, a few numbers are learned.

A network is trained without privacy on public images, frozen, and adapted to private ones that are
turned on their side. Frozen parameters get no noise, so few trained ones mean little noise.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.torch import make_private

EPOCHS = 20


class Adapted(nn.Module):
    """A frozen linear layer plus a trained product of two thin matrices, which begins at zero."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


def images() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Public images; private ones, turned, to learn from; and turned ones to test."""
    pixels, labels = load_digits(return_X_y=True)
    upright = torch.tensor(pixels, dtype=torch.float32).view(-1, 8, 8) / 8 - 1
    turned = upright.rot90(1, (1, 2))
    y = torch.tensor(labels)
    public, private, test = slice(0, 500), slice(500, 1500), slice(1500, None)
    return (
        TensorDataset(upright[public].flatten(1), y[public]),
        TensorDataset(turned[private].flatten(1), y[private]),
        TensorDataset(turned[test].flatten(1), y[test]),
    )


def loss(output: Tensor, labels: Tensor) -> Tensor:
    """One loss for each image."""
    return F.cross_entropy(output, labels, reduction="none")


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    with torch.no_grad():
        return 100 * float((model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean())


def pretrained(public: TensorDataset) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss(model(public.tensors[0]), public.tensors[1]).mean().backward()
        optimizer.step()
    return model


def main() -> None:
    public, private_images, test = images()
    base = pretrained(public)
    print(f"the public model: {accuracy(base, test):.1f} % of the turned test images")
    model = nn.Sequential(Adapted(base[0], 4), base[1], Adapted(base[2], 4))  # type: ignore[arg-type]
    trained = [p for p in model.parameters() if p.requires_grad]
    count, total = (sum(p.numel() for p in some) for some in (trained, model.parameters()))
    print(f"{count} of {total} parameters are trained")
    optimizer = torch.optim.SGD(trained, lr=0.5, momentum=0.9)
    loader = DataLoader(private_images, batch_size=100)
    private = make_private(
        model, optimizer, loader, epsilon=4.0, delta=1e-5, epochs=EPOCHS, clip_norm=0.3
    )
    for _ in range(EPOCHS):
        for x, labels in private.loader:
            private.step(loss, x, targets=labels)
    print(f"adapted privately: {accuracy(private.averaged(), test):.1f} %")
    print(private.certificate())


if __name__ == "__main__":
    main()
