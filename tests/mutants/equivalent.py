"""Random mutants that change nothing that matters: by name, with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
