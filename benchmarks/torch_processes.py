"""Noise of one training run in several processes: CPU time and memory of each of them.

    PYTHONPATH=src python -m benchmarks.torch_processes [--parameters 4000000] [--noise blt]

A wide linear layer without anything else, so that noise is what a step costs. The processes meet
through gloo on this machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.mechanisms import Gate
from privopt.torch import make_private


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=int, default=4_000_000)
    parser.add_argument("--noise", default="blt")
    chosen = parser.parse_args()
    print("processes   seconds of noise in a step   MB of buffers   (in the busiest process)")
    for count in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            arguments = (count, folder, chosen.parameters, chosen.noise)
            multiprocessing.spawn(work, arguments, nprocs=count)
            found = [torch.load(file) for file in Path(folder).glob("*.pt")]
        seconds, kept = (max(values) for values in zip(*found, strict=True))
        print(f"{count:9d}   {seconds:26.3f}   {kept / 1e6:13.1f}")


def work(rank: int, count: int, folder: str, parameters: int, noise: str) -> None:
    """CPU seconds of a step's release at the median of its steps, and bytes of its buffers."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", f"file://{folder}/meeting", None, count, rank)
    model = nn.Linear(parameters, 1, bias=False)
    data = TensorDataset(torch.zeros(8, parameters), torch.zeros(8))
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        DataLoader(data, batch_size=1),
        epsilon=2.0,
        delta=1e-5,
        epochs=2,
        noise=noise,
        batches="fixed",
    )
    spent, release = [], Gate.release

    def timed(self: Gate, *arguments: Any) -> Any:
        start = time.process_time()
        noisy = release(self, *arguments)
        spent.append(time.process_time() - start)
        return noisy

    Gate.release = timed  # type: ignore[method-assign]
    for _ in range(2):
        for x, y in private.loader:
            private.step(lambda out, y: out[:, 0] - y, x, targets=y)
    stream = private.state_dict()["noise"]
    vectors = stream["noise"]["vectors"] if stream else []
    kept = sum(vector.numel() * vector.element_size() for vector in vectors)
    torch.save((sorted(spent)[len(spent) // 2], kept), Path(folder) / f"{rank}.pt")


if __name__ == "__main__":
    main()
