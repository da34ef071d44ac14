"""Private federated learning: privacy for people who take part in rounds."""

from privopt.federated.participations import Participations

__all__ = ["Participations"]
