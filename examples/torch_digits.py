"""A private network on handwritten digits: two lines of an ordinary training loop change.

The noise is chosen from public numbers, and epsilon is known after every epoch.

    python examples/torch_digits.py
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.torch import make_private

EPOCHS = 20


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1797 images of 8 x 8 pixels; a fifth of them stands for public test data."""
    X, y = load_digits(return_X_y=True)
    images = torch.tensor(X / 8 - 1, dtype=torch.float32).reshape(-1, 1, 8, 8)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], torch.tensor(y)[order]
    return TensorDataset(images[:1437], labels[:1437]), TensorDataset(images[1437:], labels[1437:])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One loss for each image."""
    return F.cross_entropy(output, labels, reduction="none")


def main() -> None:
    train, test = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(train, batch_size=128, shuffle=True)
    private = make_private(
        model, optimizer, loader, epsilon=4.0, delta=1e-5, epochs=EPOCHS, clip_norm=1.0
    )
    print(f"{private.plan.noise} noise on {private.plan.batches} batches")
    for epoch in range(1, EPOCHS + 1):
        for images, labels in private.loader:
            private.step(loss, images, targets=labels)
        if epoch % 5 == 0:
            with torch.no_grad():
                right = model(test.tensors[0]).argmax(1) == test.tensors[1]
            print(
                f"epoch {epoch:2d}: {100 * right.float().mean():.1f} % of the test images, "
                f"epsilon {private.epsilon_spent():.2f}"
            )
    print(private.certificate())


if __name__ == "__main__":
    main()
