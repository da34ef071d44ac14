"""Private training of torch models: DP-SGD and DP-FTRL behind the user's own optimizer."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError(
        "privopt.torch trains models of PyTorch, which is not installed: pip install "
        "'privopt[torch]'."
    ) from missing

from privopt.torch.checks import objections, repaired
from privopt.torch.prepare import make_private
from privopt.torch.private import PrivateTraining

__all__ = ["PrivateTraining", "make_private", "objections", "repaired"]
