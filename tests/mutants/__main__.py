"""Plant every bug, print who killed it: ``python -m tests.mutants [words in the name]``.

Without words, random mutants follow; ``--random 400 1`` (how many, seed) makes these alone, and
``--page`` writes the list of planted bugs into the documentation instead.
"""

from __future__ import annotations

import sys
import warnings

from .bugs import ALL
from .page import PAGE, page_text
from .score import MANY, score


def main(words: list[str]) -> int:
    if words == ["--page"]:
        PAGE.write_text(page_text(), encoding="utf-8")
        return 0
    if words[:1] == ["--random"]:
        numbers = [int(word) for word in words[1:] if word.isdigit()]
        return score(*[*numbers, *(MANY, 0)[len(numbers) :]][:2], [])
    failed = _known(words)
    return failed if words else max(failed, score(MANY, 0, []))


def _known(words: list[str]) -> int:
    warnings.simplefilter("ignore")
    chosen = [mutant for mutant in ALL if all(word in mutant.name for word in words)]
    survived, alarms = [], []
    honest: dict[int, str | None] = {}
    for mutant in chosen:
        if id(mutant.check) not in honest:
            # A check that finds fault with the honest code kills nothing.
            honest[id(mutant.check)] = mutant.check()
            if honest[id(mutant.check)] is not None:
                alarms.append(f"{mutant.name}: {honest[id(mutant.check)]}")
        found = mutant.try_it()
        if found is None:
            survived.append(mutant.name)
        verdict = "SURVIVED" if found is None else f"killed by {mutant.by}: {found}"
        print(f"{mutant.name:75s} {verdict}", flush=True)
    print(f"\n{len(chosen) - len(survived)} of {len(chosen)} mutants killed")
    print(f"{len(honest) - len(alarms)} of {len(honest)} checks pass on the honest code")
    for name in survived:
        print(f"survived: {name}")
    for text in alarms:
        print(f"false alarm: {text}")
    return 1 if survived or alarms or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
