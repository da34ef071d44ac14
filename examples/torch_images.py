"""MNIST or Fashion-MNIST with the 26 thousand parameters of Papernot et al. (2021).

    python torch_images.py mnist.npz --epsilon 3 --noise banded

The file holds ``x_train``, ``y_train``, ``x_test`` and ``y_test``, as Keras publishes it. Without a
file, scikit-learn's small digits are enlarged, and everything is smaller.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.torch import make_private


def images(file: str | None) -> tuple[TensorDataset, TensorDataset]:
    if file is None:
        pixels, labels = load_digits(return_X_y=True)
        small = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
        x, y = F.interpolate(small, size=28, mode="bilinear"), torch.tensor(labels)
        return TensorDataset(x[:1400], y[:1400]), TensorDataset(x[1400:], y[1400:])
    with np.load(file) as data:
        train, test = (
            TensorDataset(
                torch.from_numpy(data[f"x_{part}"])[:, None] / 127.5 - 1,
                torch.from_numpy(data[f"y_{part}"]).long(),
            )
            for part in ("train", "test")
        )
    return train, test


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten()),
        *(nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


def loss(output: Tensor, labels: Tensor) -> Tensor:
    """One loss for each image."""
    return F.cross_entropy(output, labels, reduction="none")


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    x, y = data.tensors
    with torch.no_grad():
        found = torch.cat([model(few).argmax(1) for few in x.split(1000)])
    return 100 * float((found == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--noise", default="auto")
    chosen = parser.parse_args()
    train, test = images(chosen.file)
    epochs = chosen.epochs or (20 if chosen.file else 10)
    loader = DataLoader(train, batch_size=chosen.batch_size or (1000 if chosen.file else 200))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.learning_rate, momentum=0.9)
    private = make_private(
        *(model, optimizer, loader),
        epsilon=chosen.epsilon,
        delta=chosen.delta,
        epochs=epochs,
        clip_norm=1.0,
        noise=chosen.noise,
    )
    print(f"{private.plan.noise} noise on {private.plan.batches} batches")
    for epoch in range(1, epochs + 1):
        for x, labels in private.loader:
            private.step(loss, x, targets=labels)
        if epoch == epochs or epoch % 5 == 0:
            spent = private.epsilon_spent()
            print(f"epoch {epoch}: {accuracy(model, test):.2f} %, epsilon {spent:.2f}")
    print(f"average of the last steps: {accuracy(private.averaged(), test):.2f} %")
    print(private.certificate())


if __name__ == "__main__":
    main()
