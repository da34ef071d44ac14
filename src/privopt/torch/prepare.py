"""From a model, its optimizer and its loader to a private training run."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from privopt.ledger import account_for
from privopt.mechanisms import Run, Steps
from privopt.noise import source_for
from privopt.noise.tensors import DeviceSource
from privopt.privacy import Budget, Neighbouring
from privopt.privacy.factorizations import Independent
from privopt.torch.batches import (
    FixedOrder,
    PoissonBatches,
    PrivateLoader,
    Schedule,
    check_loader,
)
from privopt.torch.checks import check_model, check_optimizer
from privopt.torch.clip import Clip, Clipping
from privopt.torch.engine import Engine
from privopt.torch.noise import TensorStream, tensor_noise
from privopt.torch.plan import choose_plan
from privopt.torch.private import PrivateTraining
from privopt.torch.processes import Processes

ASSUMPTIONS = (
    "the output for one example depends on that example alone (tried on made-up inputs)",
    "the loss of one example depends on its own output and target alone",
)
DEVICE_NOISE = "the noise comes from the device's own generator, which is not cryptographic"


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    *,
    epsilon: float,
    delta: float,
    epochs: int,
    clip_norm: float = 1.0,
    noise: str = "auto",
    batches: str = "auto",
    clipping: Clipping = "flat",
    neighbouring: Neighbouring = "zero_out",
    unit: str = "record",
    n_public: int | None = None,
    microbatch: int | None = None,
    compile: bool | str = False,
    device_noise: bool = False,
    ledger: Any = None,
    dataset: str | None = None,
    random_state: object = None,
) -> PrivateTraining:
    """Prepare a model, its optimizer and its data for private training.

    Parameters
    ----------
    model : nn.Module
        Any model that treats the examples of a batch separately. Layers that do not are refused by
        name, before any data is used.
    optimizer : Optimizer
        The user's own. It sees noisy gradients only, so whatever it does is post-processing.
    loader : DataLoader
        Its data set and its ``batch_size`` are used; batches are drawn anew.
    epsilon, delta, neighbouring, unit
        The budget, as in ``Budget``.
    epochs : int
        Passes over the data that the budget pays for.
    clip_norm : float, default=1.0
        Bound on the norm of one example's gradient: the sensitivity of a step.
    noise : str, default="auto"
        ``independent`` (DP-SGD), ``banded``, ``blt``, ``honaker``, ``tree`` or ``sqrt_toeplitz``
        (DP-FTRL). ``auto`` takes what adds the least noise to the running sums of gradients.
    batches : {"auto", "poisson", "fixed"}, default="auto"
        ``poisson``: secret coins, amplified; independent and banded noise only. ``fixed``: the same
        batches in every epoch. ``auto`` takes Poisson where there is a choice.
    clipping : {"flat", "per_layer", "automatic"}, default="flat"
        See ``Clip``.
    n_public : int, optional
        Under add_remove: a public guess of the number of records, which is private there.
    microbatch : int, optional
        Largest number of examples at a time, for memory. Noise is added once per step.
    compile : bool or str, default=False
        Compile the step, for batches filled up to a fixed size; a string names torch's backend.
        ``step`` then needs ``targets``, and a loss that uses nothing else.
    device_noise : bool, default=False
        On an accelerator, draw noise with its own generator instead of ChaCha20: faster, not
        cryptographic.
    ledger, dataset : Ledger or path, str; optional
        The budget that pays for all epochs, before the first step.
    random_state : int, optional
        A seed for tests: the result is then not private, and the certificate says so.

    Formal guarantee
    ----------------
    Step t releases S_t + noise, S_t the sum over the batch of clipped gradients. One record moves
    S_t by at most clip_norm (twice that under replace_one), in the steps that hold it. Poisson
    batches: each step is a sampled Gaussian; with b groups and banded noise of at most b bands, a
    record pays for its own group's steps (Choquette-Choo et al., 2023). Fixed batches: the whole
    run is one Gaussian with mu^2 = 1_pi' C'C 1_pi / multiplier^2 for a record in the steps pi
    (Denisov et al., 2022). Division by the expected batch size comes after the noise.

    In several processes (``torch.distributed`` initialised before, a whole model and the whole data
    set in each) S_t is the sum over all of them, and each coordinate of it is given noise once, by
    the process that owns it: together they release one Gaussian of the whole vector.
    """
    budget = Budget(epsilon, delta, neighbouring, unit)
    if budget.pure:
        raise ValueError("Gaussian noise needs delta > 0: take a value well below 1/n.")
    for name, value in (("epochs", epochs), ("microbatch", microbatch)):
        if value is not None and not (isinstance(value, Integral) and value >= 1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    epochs = int(epochs)
    if not isinstance(compile, (bool, str)):
        raise ValueError(f"compile must be True, False or the name of a backend, got {compile!r}.")
    processes = Processes()
    loader = check_loader(loader)
    check_model(model)
    engine = Engine(model, Clip(float(clip_norm), clipping))
    check_optimizer(engine, optimizer)
    count, batch_size = len(loader.dataset), int(loader.batch_size or 1)  # type: ignore[arg-type]
    if neighbouring == "add_remove" and n_public is None:
        raise ValueError("under add_remove the number of records is private: give n_public.")
    records = count if n_public is None else int(n_public)
    if neighbouring != "add_remove" and records != count:
        raise ValueError(f"under {neighbouring} the number of records is public: drop n_public.")
    if not 1 <= batch_size <= records:
        raise ValueError(f"a batch of {batch_size} does not fit into {records} records.")
    source = source_for(random_state)
    plan = choose_plan(budget, records, batch_size, epochs, noise, batches, engine.size)
    schedule: Schedule
    if plan.batches == "fixed":
        schedule = FixedOrder(count, batch_size, source)
    else:
        schedule = PoissonBatches(count, records, batch_size, plan.groups, source)
    engine.crowd = schedule.likely_size()
    if not isinstance(plan.factorization, Independent):
        tensor_noise(plan.factorization)  # refuses noise that is not there for models
    bits = DeviceSource(processes.source(source), fast=device_noise)

    def run(declared: Steps) -> Run:
        own = processes.own(engine.like())
        made = lambda mechanism: TensorStream(mechanism, own)  # noqa: E731
        return Run(budget, declared, bits, what="torch", stream=made)

    account = account_for(ledger, dataset)
    return PrivateTraining(
        engine,
        optimizer,
        PrivateLoader(loader, schedule, plan.factorization.steps, processes),
        schedule,
        run,
        budget,
        plan,
        microbatch,
        compile=("inductor" if compile is True else compile) or None,
        assumptions=ASSUMPTIONS + (DEVICE_NOISE,) * (device_noise and engine.like().is_cuda),
        account=account if processes.first else None,
        processes=processes,
    )
