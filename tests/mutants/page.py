"""The page that lists all mutants: ``python -m tests.mutants --page`` writes docs/mutants.md."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from .bugs import ALL
from .modes import MODES, mode_of
from .mutant import Mutant

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"
GROUPS = {
    "B": "Batches and steps",
    "A": "The accountant and what is paid",
    "S": "Sensitivity",
    "N": "Noise and random bits",
    "L": "Budgets that last",
}
HEAD = """# Planted bugs

```sh
make mutants                            # all of them, some minutes
make mutants ARGS="noisy_gd clipped"    # those with these words in their names
make mutants ARGS="--random 400 1"      # random ones alone: how many, and the seed
```

plants {count} bugs, one at a time and in memory, and asks the check beside each whether it
notices. All of them are noticed, and all of these checks find nothing wrong with the code as it
is. The quick ones, {quick} of them, are planted in every run of the tests.

Each stands for one of {modes} ways in which private libraries have failed: in batches and steps
(B), in the accountant (A), in sensitivities (S), in the noise (N), in budgets that last (L). A bug
that is found in the field becomes a mutant here, in `tests/mutants`, from which this page is
written.

`make mutants` then changes the code at random: one operator, comparison, constant or call of the
rooms that the guarantee rests on, in a process of its own, and tries the few quickest tests that
run the changed line (`tests/mutants/score.py`). Its score says how much of the code somebody looks
at, and its survivors are where to look next; many of them change nothing that matters.

Of 450 drawn with seed 26 among some 9,000 (`--random 450 26`) 315 were killed, 116 survived and 19
were run by no quick test: a score of .70. None of 18 controls without a mutant failed. Tests
written since kill 25 of those that were left: .76.
"""


def page_text() -> str:
    """The whole page."""
    by_mode: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in ALL:
        by_mode[mode_of(mutant).key].append(mutant)
    quick = sum(mutant.quick for mutant in ALL)
    parts = [HEAD.format(count=len(ALL), quick=quick, modes=len(MODES))]
    for letter, title in GROUPS.items():
        parts.append(f"## {title}\n")
        for mode in (mode for mode in MODES if mode.key.startswith(letter)):
            parts.append(f"### {mode.key}: {mode.what}\n")
            if mode.instead:
                parts.append(mode.instead + "\n")
            if by_mode[mode.key]:
                rows = [f"| {m.name.replace('|', '')} | {m.by} |" for m in by_mode[mode.key]]
                parts.append("\n".join(["| planted | killed by |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)
