"""The file that ``privopt init-bounds`` writes: names are filled in, and types where the
file declares them; values are not."""

from __future__ import annotations

import json
from collections.abc import Mapping

from privopt.tables.schema import UNKNOWN, toml_key

HEAD = """\
# Public facts about the columns of {file}.
#
# Replace every "{unknown}". Take bounds, categories and classes from what a column means: the scale
# of a questionnaire, a law, the range of a sensor. Never take them from the data: whatever you read
# off the rows is in the model afterwards, and no noise covers it. Generous bounds cost little.
# Only the {looked} were looked at to write this file.
"""
UNDECIDED = """\
kind = "{unknown}"   # "numeric" with lower and upper, "categorical" with categories, or "ignored"
# lower = 0   # no smaller value is possible; smaller ones are moved to it
# upper = 1   # no larger value is possible; larger ones are moved to it
# missing = 0   # what a missing value counts as; the middle of the bounds if left out
# categories = ["a", "b"]   # all that are possible; any other value counts as none of them
"""
UNDECIDED_TARGET = """\
kind = "{unknown}"   # "classes" with classes, or "number" with lower and upper
# classes = ["no", "yes"]   # every label that is possible
# lower = 0   # targets below are moved to it, and so are predictions
# upper = 1
# undeclared = "empty"   # records with another label or target, or none, count as empty
"""

NUMERIC = """\
lower = "{unknown}"   # no smaller value is possible; smaller ones are moved to it
upper = "{unknown}"   # no larger value is possible; larger ones are moved to it
# missing = 0   # what a missing value counts as; the middle of the bounds if left out
"""
CATEGORICAL = """\
categories = {values}   # all that are possible; any other value, or none, counts as none of them
"""
CLASSES = """\
classes = {values}   # every label that is possible, for example ["no", "yes"] or [0, 1]
# undeclared = "empty"   # records with another label, or none, count as empty; else fit refuses
"""
NUMBER = """\
lower = "{unknown}"   # targets below are moved to it, and so are predictions
upper = "{unknown}"
# undeclared = "empty"   # records without a target count as empty; else fit refuses
"""


def template(types: Mapping[str, str], target: str, file: str, task: str | None = None) -> str:
    """A bounds file for columns of these types (``number``, ``text``, ``boolean``, ``other``, or
    ``unknown``, where a person has to say).

    ``task`` is ``"classification"`` or ``"regression"``; by default text, true/false and whole
    numbers (``integer``) are classes, other numbers are not.
    """
    known = any(kind != "unknown" for kind in types.values())
    looked = "names and types of the columns" if known else "names of the columns"
    parts = [HEAD.format(file=file, unknown=UNKNOWN, looked=looked)]
    kind = types[target]
    head = f"[target]\ncolumn = {json.dumps(target, ensure_ascii=False)}\n"
    if kind == "unknown" and task is None:
        parts.append(head + UNDECIDED_TARGET.format(unknown=UNKNOWN))
    else:
        classes = task == "classification" if task else kind != "number"
        parts.append(
            f'{head}kind = "{"classes" if classes else "number"}"   '
            f'# or "{"number" if classes else "classes"}"\n'
            + (_values(CLASSES, kind) if classes else NUMBER.format(unknown=UNKNOWN))
        )
    for name, found in types.items():
        if name == target:
            continue
        head = f"[columns.{toml_key(name)}]\n"
        if found in ("number", "integer"):
            body = 'kind = "numeric"   # or "categorical", or "ignored"\n' + NUMERIC.format(
                unknown=UNKNOWN
            )
        elif found == "unknown":
            body = UNDECIDED.format(unknown=UNKNOWN)
        elif found == "other":
            body = 'kind = "ignored"   # its type is neither a number nor text\n'
        else:
            body = 'kind = "categorical"   # or "ignored"\n' + _values(CATEGORICAL, found)
        parts.append(head + body)
    return "\n".join(parts)


def _values(text: str, kind: str) -> str:
    """A type of two values declares them; nothing else does."""
    values = "[false, true]" if kind == "boolean" else json.dumps([UNKNOWN])
    return text.format(values=values)
