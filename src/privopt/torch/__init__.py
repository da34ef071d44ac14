"""Private training of torch models: DP-SGD and DP-FTRL behind the user's own optimizer."""

from privopt.torch.checks import objections, repaired
from privopt.torch.prepare import make_private
from privopt.torch.private import PrivateTraining

__all__ = ["PrivateTraining", "make_private", "objections", "repaired"]
