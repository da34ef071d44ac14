"""Private federated learning: privacy for people who take part in rounds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from privopt.federated.optimizers import SGD, Adam, ServerOptimizer
from privopt.federated.participations import Participations
from privopt.federated.server import Server

if TYPE_CHECKING:
    from privopt.federated.flower import FTRL, clipping_mod
    from privopt.federated.pfl import PFLMechanism
    from privopt.federated.secure import SecureFTRL, counting_mod

__all__ = [
    "FTRL",
    "SGD",
    "Adam",
    "PFLMechanism",
    "Participations",
    "SecureFTRL",
    "Server",
    "ServerOptimizer",
    "clipping_mod",
    "counting_mod",
]

_ELSEWHERE = {
    "PFLMechanism": "pfl",
    "FTRL": "flower",
    "clipping_mod": "flower",
    "SecureFTRL": "secure",
    "counting_mod": "secure",
}


def __getattr__(name: str) -> Any:
    """What needs Flower or pfl-research is loaded when it is asked for."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"privopt.federated.{_ELSEWHERE[name]}"), name)
    except ModuleNotFoundError as problem:
        if problem.name == "flwr":
            raise ImportError(f"{name} needs Flower: pip install 'privopt[flower]'.") from None
        if (problem.name or "").partition(".")[0] == "pfl":
            wanted = "pip install --no-deps pfl multiprocess dill"
            raise ImportError(f"{name} needs pfl-research: {wanted}.") from None
        raise
