"""Budgets, events, accounting and certificates."""

from privopt.privacy.accountant import Accountant, charge_of
from privopt.privacy.budget import Budget, Neighbouring, PrivacyWarning, Refused
from privopt.privacy.certificate import Certificate, certificate_schema
from privopt.privacy.events import FULL, ROOT, Event, Log, Sampling
from privopt.privacy.participation import Participation
from privopt.privacy.spend import Spend, spend
from privopt.privacy.tuning import RandomCount, Tuned

__all__ = [
    "FULL",
    "ROOT",
    "Accountant",
    "Budget",
    "Certificate",
    "Event",
    "Log",
    "Neighbouring",
    "Participation",
    "PrivacyWarning",
    "RandomCount",
    "Refused",
    "Sampling",
    "Spend",
    "Tuned",
    "certificate_schema",
    "charge_of",
    "spend",
]
