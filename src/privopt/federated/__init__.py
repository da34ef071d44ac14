"""Private federated learning: privacy for people who take part in rounds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from privopt.federated.optimizers import SGD, Adam, ServerOptimizer
from privopt.federated.participations import Participations
from privopt.federated.server import Server

if TYPE_CHECKING:
    from privopt.federated.flower import FTRL, clipping_mod
    from privopt.federated.secure import SecureFTRL, counting_mod

__all__ = [
    "FTRL",
    "SGD",
    "Adam",
    "Participations",
    "SecureFTRL",
    "Server",
    "ServerOptimizer",
    "clipping_mod",
    "counting_mod",
]

_OF_FLOWER = {
    "FTRL": "flower",
    "clipping_mod": "flower",
    "SecureFTRL": "secure",
    "counting_mod": "secure",
}


def __getattr__(name: str) -> Any:
    """What needs Flower is loaded when it is asked for."""
    if name not in _OF_FLOWER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"privopt.federated.{_OF_FLOWER[name]}"), name)
    except ModuleNotFoundError as problem:
        if problem.name != "flwr":
            raise
        raise ImportError(f"{name} needs Flower: pip install 'privopt[flower]'.") from None
