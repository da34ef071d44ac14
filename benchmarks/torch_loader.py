"""Training through a loader, from tensors in the host's memory to the last update.

Ordinary training takes its batches from torch's loader, which collates them item by item; a private
loader of the same tensors draws and cuts them at once. Opacus is timed if it is there.

    python -m benchmarks.torch_loader [--device cuda] [--tf32] [--models cnn28 cnn32]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.torch_speed import MODELS, clock
from privopt.torch import make_private

Epoch = Callable[[], None]
BATCHES = 12
"""In an epoch."""


def loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def moved(loader: Any, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    for x, y in loader:
        yield x.to(device), y.to(device)


def ordinary(model: nn.Module, loader: DataLoader[Any], device: str) -> Epoch:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def epoch() -> None:
        for x, y in moved(loader, device):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return epoch


def ours(model: nn.Module, loader: DataLoader[Any], device: str, compiled: bool = False) -> Epoch:
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 1e-3),
        loader,
        epsilon=8.0,
        delta=1e-5,
        epochs=20,
        noise="independent",
        compile=compiled,
        device_noise=True,
    )

    def epoch() -> None:
        for x, y in moved(private.loader, device):
            private.step(loss, x, targets=y)

    return epoch


def opacus(model: nn.Module, loader: DataLoader[Any], device: str) -> Epoch:
    from opacus.data_loader import DPDataLoader
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped, batch = GradSampleModule(model), loader.batch_size or 1
    plain = torch.optim.SGD(model.parameters(), 1e-3)
    optimizer = DPOptimizer(
        plain, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch
    )
    drawn = DPDataLoader.from_data_loader(loader)

    def epoch() -> None:
        for x, y in moved(drawn, device):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(wrapped(x), y).backward()
            optimizer.step()

    return epoch


WAYS: dict[str, Callable[..., Epoch]] = {
    "ordinary": ordinary,
    "privopt": ours,
    "privopt, compiled": lambda *given: ours(*given, compiled=True),
    "Opacus hooks": opacus,
}


def seconds(way: str, name: str, device: str, rounds: int) -> float:
    """Of a step, at the median of the epochs after the first one."""
    build, shape, batch = MODELS[name]
    big = device == "cuda"
    torch.manual_seed(0)
    count = BATCHES * batch[0 if big else 1]
    rows = TensorDataset(torch.randn(count, *shape), torch.randint(0, 10, (count,)))
    loader = DataLoader(rows, batch[0 if big else 1], shuffle=True)
    epoch = WAYS[way](build(big).to(device), loader, device)
    epoch()
    times = []
    for _ in range(rounds):
        start = clock(device)
        epoch()
        times.append((clock(device) - start) / BATCHES)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="*", default=["cnn28", "cnn32"], choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tf32", action="store_true", help="let matrix products round to TF32")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    chosen = parser.parse_args()
    if chosen.tf32:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    ways = [w for w in chosen.ways if find_spec("opacus") or not w.startswith("Opacus")]
    for name in chosen.models:
        for way in ways:
            try:
                found = seconds(way, name, chosen.device, chosen.rounds)
            except Exception as problem:
                print(f"{name:6s} {way:18s} {type(problem).__name__}: {problem}"[:200], flush=True)
            else:
                print(f"{name:6s} {way:18s} {1e3 * found:8.2f} ms a step", flush=True)


if __name__ == "__main__":
    main()
