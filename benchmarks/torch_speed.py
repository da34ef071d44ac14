"""Time of one private step against ordinary training and against Opacus, all in one process.

A step is forward, backward, clipping at norm 1, noise and an SGD update. Ratios are times of
ordinary eager training over times of the step: 1 is as fast, higher is faster.

    PYTHONPATH=src python benchmarks/torch_speed.py [--device cuda] [--models cnn28 tf] [--tf32]

Noise on an accelerator is the device's own, as that of all others; ChaCha20, which is the default,
is timed apart. Opacus is timed if it is there.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Step = Callable[[], Any]


# ---------------------------------------------------------------- models
def cnn28() -> nn.Module:
    """The 26 thousand parameters of Papernot et al. (2021) for 28 x 28 images."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten()),
        *(nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


def cnn32() -> nn.Module:
    """The 550 thousand parameters of Papernot et al. (2021) for 32 x 32 images."""
    layers: list[nn.Module] = []
    width = 3
    for wide in (32, 64, 128):
        layers += [nn.Conv2d(width, wide, 3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(wide, wide, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
        width = wide
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10))


class Residual(nn.Module):
    def __init__(self, width: int, wide: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, width), nn.GroupNorm(16, wide)
        self.conv1 = nn.Conv2d(width, wide, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        same = width == wide and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(width, wide, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(x))
        return self.conv2(F.relu(self.norm2(self.conv1(h)))) + self.short(h)


def wrn(depth: int = 16, widen: int = 4) -> nn.Module:
    """A wide residual network with group normalisation."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    width = 16
    for stage, wide in enumerate((16 * widen, 32 * widen, 64 * widen)):
        for block in range((depth - 4) // 6):
            layers.append(Residual(width, wide, 2 if stage and not block else 1))
            width = wide
    head = (nn.GroupNorm(16, width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, *head, nn.Linear(width, 10))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, 2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A classifier of sequences of given vectors: no table of embeddings."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, max(width // 64, 1)) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.blocks(x)).mean(1))


# model, shape of an example, batch on an accelerator, batch on a processor
MODELS: dict[str, tuple[Callable[[bool], nn.Module], tuple[int, ...], tuple[int, int]]] = {
    "cnn28": (lambda big: cnn28(), (1, 28, 28), (4096, 256)),
    "cnn32": (lambda big: cnn32(), (3, 32, 32), (2048, 64)),
    "wrn": (lambda big: wrn(16, 4) if big else wrn(10, 1), (3, 32, 32), (512, 32)),
    "tf": (
        lambda big: Transformer(12, 768) if big else Transformer(2, 128),
        (128, 768),
        (64, 16),
    ),
}


# ---------------------------------------------------------------- steps
def ordinary(model: nn.Module, x: Tensor, y: Tensor, compiled: bool = False) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    forward = torch.compile(model) if compiled else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(forward(x), y).backward()
        optimizer.step()

    return step


def ours(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    compiled: bool = False,
    noise: str = "independent",
    cuts: int = 1,
    secure: bool = False,
    examples: str = "checked",
) -> Step:
    """As a user would: clip, sum, add noise, update; ``cuts`` parts of a batch save memory.

    Taking the next batch from the loader is not timed, for nobody.
    """
    from privopt.torch import make_private

    epochs, copies = 50, 8  # so that banded noise has eight bands
    rows = TensorDataset(*(v.repeat(copies, *[1] * (v.dim() - 1)) for v in (x, y)))
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 1e-3),
        DataLoader(rows, len(x)),
        epsilon=8.0,
        delta=1e-5,
        epochs=epochs,
        noise=noise,
        batches="fixed",
        microbatch=len(x) // cuts if cuts > 1 else None,
        compile=compiled,
        device_noise=not secure,
        examples=examples,
    )
    batches = (batch for _ in range(epochs) for batch in private.loader)
    last = x.dim() == 4 and x.stride(1) == 1

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, reduction="none")

    def ready() -> None:
        xs, step.target = next(batches)  # type: ignore[attr-defined]
        step.input = xs.to(memory_format=torch.channels_last) if last else xs  # type: ignore

    def step() -> None:
        private.step(loss, step.input, targets=step.target)  # type: ignore[attr-defined]

    step.ready = ready  # type: ignore[attr-defined]
    return step


def channels_last(way: Callable[..., Step]) -> Callable[..., Step]:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Step:
        if x.dim() != 4:
            raise RuntimeError("for images only")
        last = torch.channels_last
        return way(model.to(memory_format=last), x.to(memory_format=last), y)

    return run


def by_vmap(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Per-example gradients by hand, as in torch's tutorial."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x[None],)), y[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        found = gradients(parameters, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in found.values()]).norm(dim=0)
        factors = (1 / norms).clamp_max(1)
        for name, g in found.items():
            total = torch.einsum("n,n...->...", factors, g)
            parameters[name] -= 1e-3 * (total + torch.randn_like(total)) / len(x)

    return step


def opacus(mode: str, model: nn.Module, x: Tensor, y: Tensor) -> Step:
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    sizes = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": len(x)}
    plain = torch.optim.SGD(model.parameters(), 1e-3)
    if mode == "hooks":
        wrapped = GradSampleModule(model)
        optimizer = DPOptimizer(plain, **sizes)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(wrapped(x), y).backward()
            optimizer.step()

        return step
    ghost = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    clipper = DPOptimizerFastGradientClipping(plain, **sizes)
    loss = DPLossFastGradientClipping(ghost, clipper, nn.CrossEntropyLoss())

    def ghost_step() -> None:
        clipper.zero_grad(set_to_none=True)
        loss(ghost(x), y).backward()
        clipper.step()

    return ghost_step


WAYS: dict[str, Callable[[nn.Module, Tensor, Tensor], Step]] = {
    "ordinary": ordinary,
    "ordinary, compiled": lambda model, x, y: ordinary(model, x, y, compiled=True),
    "privopt": ours,
    "privopt, apart": lambda model, x, y: ours(model, x, y, examples="apart"),
    "privopt, compiled": lambda model, x, y: ours(model, x, y, compiled=True),
    "privopt, compiled, ChaCha20": lambda model, x, y: ours(
        model, x, y, compiled=True, secure=True
    ),
    "privopt, compiled, channels last": channels_last(
        lambda model, x, y: ours(model, x, y, compiled=True)
    ),
    "privopt, compiled, 8 parts": lambda model, x, y: ours(model, x, y, compiled=True, cuts=8),
    "privopt, compiled, BLT": lambda model, x, y: ours(model, x, y, compiled=True, noise="blt"),
    "privopt, compiled, banded": lambda model, x, y: ours(
        model, x, y, compiled=True, noise="banded"
    ),
    "vmap by hand": by_vmap,
    "Opacus hooks": lambda model, x, y: opacus("hooks", model, x, y),
    "Opacus ghost": lambda model, x, y: opacus("ghost", model, x, y),
}


# ---------------------------------------------------------------- measuring
def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()  # of all threads: run with one


def prepared(way: str, name: str, device: str) -> Step:
    """A step that was made warm."""
    build, shape, batch = MODELS[name]
    big = device == "cuda"
    if name == "tf" and not big:
        shape = (32, 128)
    torch.manual_seed(0)
    model = build(big).to(device)
    x = torch.randn(batch[0 if big else 1], *shape, device=device)
    y = torch.randint(0, 10, (len(x),), device=device)
    step = WAYS[way](model, x, y)
    for _ in range(3):
        timed(step, device)
    return step


def timed(step: Step, device: str) -> float:
    getattr(step, "ready", lambda: None)()
    start = clock(device)
    step()
    return clock(device) - start


def measure(ways: list[str], name: str, device: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds of a step and peak memory in GiB: on a processor by turns, so that what slows
    all of them down cancels; on an accelerator one after the other, for the memory."""
    times: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}
    steps: dict[str, Step] = {}
    for way in ways:
        try:
            step = prepared(way, name, device)
        except Exception as problem:
            print(f"{name:8s} {way:20s} failed: {type(problem).__name__}: {problem}"[:150])
            continue
        times[way], peaks[way] = [], 0.0
        if device != "cuda":
            steps[way] = step
            continue
        torch.cuda.reset_peak_memory_stats()
        times[way] = [timed(step, device) for _ in range(rounds)]
        peaks[way] = torch.cuda.max_memory_allocated() / 2**30
        del step
        gc.collect()
        torch.cuda.empty_cache()
    for _ in range(rounds):
        for way, step in steps.items():
            times[way].append(timed(step, device))
    return {way: (statistics.median(found), peaks[way]) for way, found in times.items()}


def keep(found: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Figures beside those of the other benchmarks, where these are there."""
    try:
        from benchmarks.measure import Figure, report
    except ImportError:
        return
    figures = []
    for name, ways in found.items():
        ours = ways["privopt"][0]
        figures.append(Figure(f"{name}: time of ordinary training", ours / ways["ordinary"][0]))
        if "Opacus hooks" in ways:
            ratio = ours / ways["Opacus hooks"][0]
            figures.append(Figure(f"{name}: time of Opacus hooks", ratio, 1.0))
    report("torch_speed", "Time of a private step, as a multiple of", figures)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tf32", action="store_true", help="let matrix products round to TF32")
    parser.add_argument("--compile", action="store_true", help="time compiled steps as well")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), help="beside ordinary training")
    chosen = parser.parse_args()
    if chosen.tf32:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    ways = [way for way in WAYS if chosen.compile or "compiled" not in way]
    if chosen.ways:
        ways = ["ordinary", *chosen.ways]
    if find_spec("opacus") is None:
        ways = [way for way in ways if not way.startswith("Opacus")]
    print(f"torch {torch.__version__}, {chosen.device}, tf32 {chosen.tf32}")
    print(f"{'model':8s} {'way':20s} {'ms':>9s} {'ordinary/this':>14s} {'peak GiB':>9s}")
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name in chosen.models:
        found[name] = measure(ways, name, chosen.device, chosen.rounds)
        for way, (seconds, peak) in found[name].items():
            ratio = found[name]["ordinary"][0] / seconds
            print(f"{name:8s} {way:20s} {1e3 * seconds:9.2f} {ratio:14.2f} {peak:9.2f}", flush=True)
    if not chosen.ways:
        keep(found)


if __name__ == "__main__":
    main()
