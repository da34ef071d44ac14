"""What a fitted model's budget bought, for people: an HTML page and a Markdown model card."""

from privopt.report.attack import Attack
from privopt.report.card import card
from privopt.report.findings import Findings, findings
from privopt.report.page import page
from privopt.report.statement import hub_section, registry_entry, tracking_tags
from privopt.report.write import write_card, write_report

__all__ = [
    "Attack",
    "Findings",
    "card",
    "findings",
    "hub_section",
    "page",
    "registry_entry",
    "tracking_tags",
    "write_card",
    "write_report",
]
