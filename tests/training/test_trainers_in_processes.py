"""Loops of other packages in two processes: the run of one process that draws the noise of both."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import DataLoader

from privopt.torch import make_private

from . import ranks, trainer_ranks
from .models import Sentences, tiny_bert
from .runs import in_processes


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    for package in ("lightning", "transformers", "accelerate"):
        pytest.importorskip(package)
    return in_processes("trainer_ranks", tmp_path_factory)


def test_lightning(seen):
    """Goes red if the wrapper averages gradients, if a batch is dealt out twice, if a coordinate is
    given noise twice or none, and if a checkpoint holds the noise of one process alone."""
    with ranks.drawing_as(2):
        whole = ranks.run(trainer_ranks.begin("cpu"), 3)
    with ranks.drawing_as(2):
        first = ranks.run(trainer_ranks.begin("cpu"), 1)
    loader = DataLoader(first.loader._loader.dataset, batch_size=10)
    choices = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0} | trainer_ranks.BLT
    second = make_private(first.model, first.optimizer, loader, **choices)
    second.load_state_dict(first.state_dict())
    with ranks.drawing_as(2):
        ranks.run(second, 2)
    results = seen("in_lightning")
    assert len(results) == 2
    for found in results:
        for name, expected in (("whole", whole), ("second", second)):
            weights, spent, steps = found[name]
            torch.testing.assert_close(weights, ranks.weights(expected), rtol=0, atol=1e-12)
            assert (spent, steps) == (expected.epsilon_spent(), 21)
        assert found["wrappers"] == (3, 0)
        assert "give PrivateModule a function" in found["early"]


def test_hugging_face(seen):
    """As above; the batch of five in each process is a batch of ten."""
    import transformers

    from privopt.torch.huggingface import label_loss

    def begun(model):
        collate = transformers.default_data_collator
        loader = DataLoader(Sentences(), batch_size=10, collate_fn=collate)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        return make_private(model, optimizer, loader, epochs=2, **trainer_ranks.BUDGET)

    def go(private, steps):
        while steps:
            for batch in itertools.islice(private.loader, steps):
                private.step(label_loss, targets=batch.pop("labels"), **batch)
                steps -= 1

    with ranks.drawing_as(2):
        whole = begun(tiny_bert(transformers))
        go(whole, 14)
    with ranks.drawing_as(2):
        first = begun(tiny_bert(transformers))
        go(first, 4)
    with ranks.drawing_as(2):
        second = begun(first.model)
        second.load_state_dict(first.state_dict())
        go(second, 10)
    results = seen("in_transformers")
    assert len(results) == 2
    for found in results:
        for name, expected in (("whole", whole), ("second", second)):
            weights, spent = found[name]
            torch.testing.assert_close(weights, ranks.weights(expected), rtol=1e-4, atol=1e-5)
            assert spent == expected.epsilon_spent()
        assert found["batch"] == whole.expected_batch_size
        assert found["wrappers"] == (2, 0)
    logs = results[0]["logs"]
    assert logs[-1]["epsilon"] == whole.epsilon_spent()
    assert not any("loss" in name for log in logs for name in log)
