"""From a model, its optimizer and its loader to a private training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from privopt.ledger import account_for
from privopt.mechanisms import Run, Steps
from privopt.noise import source_for
from privopt.noise.source import fresh_name
from privopt.noise.tensors import DeviceSource
from privopt.privacy import Budget, Neighbouring, Refused
from privopt.privacy.factorizations import Independent
from privopt.torch.apart import Apart
from privopt.torch.batches import (
    Allocated,
    FixedOrder,
    PoissonBatches,
    PrivateLoader,
    Schedule,
    check_loader,
    rate_of_some,
)
from privopt.torch.checks import check_model, check_optimizers
from privopt.torch.clip import Clip, Clipping
from privopt.torch.curve import LossCurve
from privopt.torch.engine import Engine
from privopt.torch.fingerprints import EqualRecords, Roster
from privopt.torch.fixed_noise import epsilon_of, fixed_plan, open_plan
from privopt.torch.lengths import Lengths
from privopt.torch.noise import TensorStream, tensor_noise
from privopt.torch.passes import ASSUMPTION, Passes, PassLoader, in_passes, noise_of_passes
from privopt.torch.plan import TrainingPlan, check_repeats, choose_plan
from privopt.torch.private import PrivateTraining
from privopt.torch.processes import Processes
from privopt.torch.users import IDS, Together, UserLoader, Users

ITEMS = "an item of the data set is one record, whatever else the data set holds"
LOOP = "numbers that the training loop puts into model or loss are public"
CHECKED = (
    "examples do not meet: output and loss of each depends on that example alone (checked, on "
    "made-up inputs and on some batches with records exchanged)",
    LOOP,
    ITEMS,
)
APART = ("examples do not meet: by construction, each is run by itself", LOOP, ITEMS)
TOGETHER = ("users do not meet: by construction, each is run by itself", LOOP, ITEMS)
DEVICE_NOISE = "the noise comes from the device's own generator, which is not cryptographic"


def make_private(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    loader: DataLoader[Any],
    *,
    epsilon: float | None = None,
    delta: float,
    epochs: int | None,
    noise_multiplier: float | None = None,
    clip_norm: float = 1.0,
    noise: str = "auto",
    batches: str = "auto",
    clipping: Clipping = "flat",
    neighbouring: Neighbouring = "zero_out",
    unit: str = "record",
    n_public: int | None = None,
    user_ids: Any = None,
    rows_per_user: int | None = None,
    user_clipping: str = "together",
    views: int = 1,
    lengths: Sequence[int] | None = None,
    microbatch: int | None = None,
    compile: bool | str = False,
    examples: str = "checked",
    device_noise: bool = False,
    equal_records: EqualRecords = "auto",
    repeats: int = 1,
    loss_curve: float | None = None,
    progress: bool = False,
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
    optimizer : Optimizer, or a sequence of them for different parameters
        The user's own. It sees noisy gradients only, so whatever it does is post-processing.
    loader : DataLoader
        Its data set and its ``batch_size`` are used; batches are drawn anew. An ``IterableDataset``
        is read in passes of ``n_public`` records, in fixed batches with independent noise.
    epsilon, delta, neighbouring, unit
        The budget, as in ``Budget``. Without epsilon it follows from ``noise_multiplier``.
    epochs : int or None
        Passes over the data that the budget pays for. None: as many steps as the budget pays for at
        ``noise_multiplier``, 1 if that is not given; then ``finished`` is true.
    noise_multiplier : float, optional
        Standard deviation of the noise in units of a step's sensitivity, in place of epsilon or of
        epochs.
    clip_norm : float, default=1.0
        Bound on the norm of one example's gradient: the sensitivity of a step.
    noise : str, default="auto"
        ``independent`` (DP-SGD), ``banded``, ``blt``, ``honaker``, ``tree`` or ``sqrt_toeplitz``
        (DP-FTRL). ``auto`` takes what adds the least noise to the running sums of gradients.
    batches : {"auto", "poisson", "fixed", "allocated"}, default="auto"
        ``poisson``: secret coins, amplified; independent and banded noise only. ``fixed``: the same
        batches in every epoch. ``allocated``: each record in one random batch of each epoch,
        amplified; independent noise, not under replace_one. ``auto`` takes Poisson where there is a
        choice.
    clipping : {"flat", "per_layer", "automatic"}, default="flat"
        See ``Clip``.
    n_public : int, optional
        Under add_remove: a public guess of the number of records, which is private there. Of an
        ``IterableDataset``: the number of records in a pass.
    user_ids : sequence, optional
        Whose each record is: the guarantee is then for users, and ``batch_size``, ``epochs`` and
        ``n_public`` count users.
    rows_per_user : int, optional
        With ``user_ids``: so many rows of a user at most enter a step, chosen anew each time.
    user_clipping : {"together", "rows"}, default="together"
        See ``privopt.torch.users``; ``rows`` is faster, ``together`` is better where rows differ.
    views : int, default=1
        Views of each example, such as random crops, in the second dimension of what the model is
        given: their gradients are averaged before the clip, at the same noise and epsilon.
    lengths : sequence of int, optional
        Lengths at which records are run, each at the shortest that holds it: public numbers, the
        last of which every record is padded to. ``step`` then needs ``targets``.
    microbatch : int, optional
        Largest number of examples at a time, for memory. Noise is added once per step.
    compile : bool or str, default=False
        Compile the step, for batches filled up to a fixed size; a string names torch's backend.
        ``step`` then needs ``targets``, and a loss that uses nothing else.
    examples : {"checked", "apart"}, default="checked"
        ``checked``: batches run as one, under the assumption that examples do not meet, which is
        checked. ``apart``: every example runs by itself, so that no code can mix them: slower.
        The certificate names which.
    device_noise : bool, default=False
        On an accelerator, draw noise with its own generator instead of ChaCha20: faster, not
        cryptographic.
    equal_records : {"auto", "refused", "people", "unchecked"}, default="auto"
        ``refused``: the data set is read once beforehand, and refused if it holds a record more
        than once. ``people`` states that equal records are different people. ``unchecked`` reads
        nothing, for data sets that take long. Both stand in the certificate. ``auto`` is ``people``
        for a ``TensorDataset``, whose rows are records, and ``refused`` for other classes.
    repeats : int, default=1
        So many copies of one record the data set holds at most, each clipped by itself: neighbours
        differ in all of them, and the noise is ``repeats`` times that of records held once. More
        copies are refused, as ``equal_records`` says.
    loss_curve : float, optional
        The largest loss of an example that counts, a public number: the mean loss of each epoch is
        released with the gradients, for half a percent more noise, in the same certificate.
    progress : bool, default=False
        Show steps and time on the standard error stream.
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
    counts: dict[str, Any] = {
        "epochs": epochs,
        "microbatch": microbatch,
        "views": views,
        "repeats": repeats,
    }
    for name, value in counts.items():
        if value is not None and not (isinstance(value, Integral) and int(value) >= 1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    if not isinstance(compile, (bool, str)):
        raise ValueError(f"compile must be True, False or the name of a backend, got {compile!r}.")
    if compile and loss_curve is not None:
        raise ValueError("a compiled step keeps no losses: drop loss_curve or compile.")
    if examples == "apart" and loss_curve is not None:
        raise ValueError('examples apart keep no losses: drop loss_curve or examples="apart".')
    if examples not in ("checked", "apart"):
        raise ValueError(f'examples must be "checked" or "apart", got {examples!r}.')
    if examples == "apart" and compile:
        raise ValueError('a compiled step runs a batch as one: drop compile or examples="apart".')
    declared = None if lengths is None else Lengths(lengths)
    if declared is not None and (compile or views > 1):
        raise ValueError("a step of several lengths is neither compiled nor one of views.")
    processes = Processes()
    iterable = in_passes(loader, n_public)
    if repeats > 1 and (iterable or user_ids is not None):
        raise ValueError(
            "repeats are counted in a data set with a length, and not beside user_ids, which say "
            "whose each row is."
        )
    loader = loader if iterable else check_loader(loader, repeats)
    check_model(model)
    if compile and any(isinstance(module, nn.RNNBase) for module in model.modules()):
        raise Refused(
            "a recurrent layer runs example by example, and that is not compiled: drop compile."
        )
    optimizers = (optimizer,) if isinstance(optimizer, Optimizer) else optimizer
    if not isinstance(optimizers, (list, tuple)) or not optimizers:
        raise ValueError(f"optimizer must be a torch Optimizer, got {type(optimizer).__name__}.")
    users = _users(loader, user_ids, rows_per_user, user_clipping, iterable)
    if users is not None:
        users.check(bool(compile), loss_curve is not None)
        if declared is not None:
            raise ValueError("lengths is for records: drop it, or user_ids.")
        unit = "user" if unit == "record" else unit
    parts = repeats if users is None else users.parts
    clip = float(clip_norm) / (1 if users is None else parts)
    engine = Engine(model, Clip(clip, clipping), int(views))
    check_optimizers(engine, optimizers)
    batch_size = int(loader.batch_size or 1)
    records, count = _sizes(loader, neighbouring, n_public, batch_size, users)
    if iterable:
        noise, batches = noise_of_passes(noise, batches, neighbouring, processes)
    budget, plan = _planned(
        *(epsilon, delta, neighbouring, unit, epochs, noise_multiplier),
        *(records, batch_size, noise, batches, engine.size, int(repeats)),
    )
    source = source_for(random_state)
    schedule: Schedule
    if iterable:
        schedule = Passes(count, batch_size)
    elif plan.batches == "fixed":
        schedule = FixedOrder(count, batch_size, source)
    elif plan.batches == "allocated":
        schedule = Allocated(count, records, batch_size, source)
    else:
        schedule = PoissonBatches(*(count, records, batch_size, plan.groups, source), int(repeats))
    schedule.parts = parts
    engine.crowd = schedule.likely_size() * (1 if users is None else users.most)
    if users is not None and compile:
        microbatch = microbatch or -(-engine.crowd // processes.count)  # rows, not users
    if not isinstance(plan.factorization, Independent):
        tensor_noise(plan.factorization)  # refuses noise that is not there for models
    bits = DeviceSource(processes.source(source), fast=device_noise)
    curve = None
    if loss_curve is not None:
        batch, per_epoch = schedule.expected_batch_size, schedule.steps_per_epoch
        curve = LossCurve(loss_curve, engine.clip.norm, batch, per_epoch)

    def run(declared: Steps) -> Run:
        own = processes.own(engine.like().new_zeros(engine.size + (curve is not None)))
        made = lambda mechanism: TensorStream(mechanism, own)  # noqa: E731
        return Run(budget, declared, bits, what="torch", stream=made)

    assumptions = CHECKED if examples == "checked" else APART
    if users is not None and users.clipping == "together":
        assumptions = TOGETHER
    assumptions += (DEVICE_NOISE,) * (device_noise and engine.like().is_cuda)
    known, made = None, PassLoader if iterable else PrivateLoader
    if users is not None:
        made = partial(UserLoader, users, source)
        assumptions += (IDS,)
    batched = made(loader, schedule, plan.factorization.steps, processes, progress)
    apart = Apart(engine) if examples == "apart" else None
    if isinstance(batched, UserLoader) and batched.users.clipping == "together":
        apart, microbatch = Together(engine, batched, microbatch), None
    account = account_for(ledger, dataset)
    who = Roster(loader, equal_records, int(repeats))
    if isinstance(batched, PassLoader):
        wanted = equal_records in ("auto", "refused")
        batched.key = bytes.fromhex(fresh_name()) if wanted else None
        assumptions += (ASSUMPTION,)
    else:
        known = who
        processes.together(who.check if processes.first else lambda: None, engine.like().device)
    return PrivateTraining(
        engine,
        optimizers,
        batched,
        schedule,
        run,
        budget,
        plan,
        microbatch,
        compile=("inductor" if compile is True else compile) or None,
        apart=apart,
        assumptions=assumptions + (who.assumptions() if users is None else ()),
        account=account if processes.first else None,
        processes=processes,
        records=known,
        curve=curve,
        users=users,
        lengths=declared,
        repeats=int(repeats),
    )


def _users(
    loader: DataLoader[Any], user_ids: Any, most: int | None, clipping: str, iterable: bool
) -> Users | None:
    """Whose the records are, if anybody said so."""
    if user_ids is None:
        if most is not None:
            raise ValueError("rows_per_user needs user_ids: whose each record is.")
        return None
    if iterable or most is None:
        raise ValueError("user_ids need rows_per_user, and a data set with a length.")
    return Users(user_ids, most, clipping, len(loader.dataset))  # type: ignore[arg-type]


def _sizes(
    loader: DataLoader[Any],
    neighbouring: Neighbouring,
    n_public: int | None,
    batch_size: int,
    users: Users | None,
) -> tuple[int, int]:
    """The public number of records or users, and how many there are."""
    if users is not None:
        count = users.count
    elif n_public is not None and in_passes(loader, n_public):
        count = int(n_public)
    else:
        count = len(loader.dataset)  # type: ignore[arg-type]
    if neighbouring == "add_remove" and n_public is None:
        raise ValueError("under add_remove the number of records is private: give n_public.")
    records = count if n_public is None else int(n_public)
    if neighbouring != "add_remove" and records != count:
        raise ValueError(f"under {neighbouring} the number of records is public: drop n_public.")
    if not 1 <= batch_size <= records:
        raise ValueError(f"a batch of {batch_size} does not fit into {records} records.")
    return records, count


def _planned(
    epsilon: float | None,
    delta: float,
    neighbouring: Neighbouring,
    unit: str,
    epochs: int | None,
    multiplier: float | None,
    records: int,
    batch_size: int,
    noise: str,
    batches: str,
    parameters: int,
    repeats: int,
) -> tuple[Budget, TrainingPlan]:
    """Two of epsilon, epochs and the multiplier give the third."""
    if epsilon is not None and epochs is not None and multiplier is not None:
        raise ValueError("epsilon, epochs and noise_multiplier: give two, the third follows.")
    if epsilon is None and (epochs is None or multiplier is None):
        raise ValueError("give epsilon=, or noise_multiplier= and epochs=, and epsilon follows.")
    budget = Budget(1.0 if epsilon is None else epsilon, delta, neighbouring, unit)
    if budget.pure:
        raise ValueError("Gaussian noise needs delta > 0: take a value well below 1/n.")
    if batches == "allocated" and (epsilon is None or epochs is None):
        raise ValueError("allocated batches are planned for an epsilon: give epsilon and epochs.")
    check_repeats(repeats, noise, batches)
    per_epoch, rate = -(-records // batch_size), min(1.0, batch_size / records)
    rate = rate_of_some(rate, repeats)
    if epochs is None:
        chosen = 1.0 if multiplier is None else float(multiplier)
        return budget, open_plan(budget, chosen, per_epoch, rate, noise, batches)
    if epsilon is None:
        assert multiplier is not None
        steps = int(epochs) * per_epoch
        plan = fixed_plan(float(multiplier), steps, int(epochs), noise, batches, neighbouring)
        spent = epsilon_of(plan, delta, neighbouring, rate, int(epochs))
        if not math.isfinite(spent):
            raise ValueError("no epsilon is proved for so little noise: raise noise_multiplier.")
        return Budget(spent, delta, neighbouring, unit), plan
    found = choose_plan(
        budget, records, batch_size, int(epochs), noise, batches, parameters, repeats
    )
    return budget, found
