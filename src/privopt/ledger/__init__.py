"""Budgets that last: what all fits on a data set have spent together, kept in a file."""

from privopt.ledger.dataset import Dataset
from privopt.ledger.ledger import SEEDED, Ledger, account_for
from privopt.ledger.reservation import Reservation, stored

__all__ = ["SEEDED", "Dataset", "Ledger", "Reservation", "account_for", "stored"]
