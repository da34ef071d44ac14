"""Parameters of estimators: declared and documented once, by the class that brings them.

A class names what it adds as annotated attributes, ``alpha: float = parameter(default=1.0)``, and
describes it in its own docstring. The constructor takes them together with those of the classes it
is derived from, its own first, and the docstring lists them all: scikit-learn reads parameters off
the signature, people off the page. A class that writes its own ``__init__`` keeps it.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, ClassVar, Literal, dataclass_transform

COMPOSED = ("Parameters", "Attributes")
"""Sections to which every class adds its own."""
_TITLE = re.compile(r"^(\S[^\n]*)\n-{3,}\n", re.M)


class _Parameter:
    def __init__(self, default: Any, keyword: bool) -> None:
        self.default, self.keyword = default, keyword


class _Fitted:
    """Where an attribute stands that ``fit`` will set."""


def parameter(*, default: Any, kw_only: bool = True) -> Any:
    """A parameter with its default; the first ones may be given by position."""
    return _Parameter(default, kw_only)


def fitted(*, init: Literal[False] = False) -> Any:
    """An attribute that ``fit`` sets: no parameter."""
    return _Fitted()


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter, fitted))
class Declared:
    """Makes constructor and docstring from the declared parameters."""

    _declared_here: ClassVar[dict[str, _Parameter]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {k: v for k, v in vars(cls).items() if isinstance(v, _Parameter)}
        for name, value in list(vars(cls).items()):
            if isinstance(value, _Fitted):
                delattr(cls, name)
        cls._declared_here = own
        for name, value in own.items():
            setattr(cls, name, value.default)
        if "__init__" not in vars(cls):
            cls.__init__ = _constructor(cls)
            cls.__doc__ = _documented(cls)


def _constructor(cls: type) -> Any:
    found: dict[str, _Parameter] = {}
    for parent in cls.__mro__:  # what is most special comes first, and decides on the default
        for name, value in vars(parent).get("_declared_here", {}).items():
            found.setdefault(name, value)
    ordered = sorted(found.items(), key=lambda entry: entry[1].keyword)
    kind = inspect.Parameter
    signature = inspect.Signature(
        [kind("self", kind.POSITIONAL_OR_KEYWORD)]
        + [
            kind(
                name,
                kind.KEYWORD_ONLY if value.keyword else kind.POSITIONAL_OR_KEYWORD,
                default=value.default,
            )
            for name, value in ordered
        ]
    )

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    return __init__


def _documented(cls: type) -> str | None:
    """The docstring of ``cls`` with what the classes it is derived from say of parameters and
    attributes."""
    if cls.__doc__ is None:  # python -OO
        return None
    cls._plain_doc = inspect.cleandoc(cls.__doc__)  # type: ignore[attr-defined]
    whole: dict[str, dict[str, str]] = {}
    for parent in cls.__mro__:
        sections = _sections(vars(parent).get("_plain_doc") or parent.__doc__ or "")
        for title in COMPOSED:
            for name, text in _entries(sections.get(title, "")).items():
                whole.setdefault(title, {}).setdefault(name, text)
    taken = inspect.signature(cls).parameters
    listed = {name: text for name, text in whole.get("Parameters", {}).items() if name in taken}
    whole["Parameters"] = {name: listed[name] for name in taken if name in listed}
    sections = _sections(cls._plain_doc)  # type: ignore[attr-defined]
    head = sections.pop("")
    made = {title: "".join(whole[title].values()) for title in COMPOSED if whole.get(title)}
    parts = [
        f"{title}\n{'-' * len(title)}\n{body}" for title, body in (made | sections | made).items()
    ]
    return "\n\n".join(part.rstrip() for part in (head, *parts))


def _sections(doc: str) -> dict[str, str]:
    """The text before all sections under the empty title, and each section under its own."""
    pieces = _TITLE.split(inspect.cleandoc(doc))
    return {"": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}


def _entries(section: str) -> dict[str, str]:
    """What a section says of each name: its line and the indented lines below."""
    entries = re.finditer(r"^(?P<name>\w+) :.*\n(?:[ ]+.*\n)*", section.rstrip() + "\n", re.M)
    return {entry["name"]: entry[0] for entry in entries}
