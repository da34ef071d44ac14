"""Private training of torch models: DP-SGD and DP-FTRL behind the user's own optimizer."""

from privopt.torch.checks import objections, repaired
from privopt.torch.private import PrivateTraining, make_private

__all__ = ["PrivateTraining", "make_private", "objections", "repaired"]
