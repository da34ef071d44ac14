"""Sphinx configuration: MyST pages, NumPy docstrings, the Furo theme."""

import os
import re
import sys
from importlib import import_module
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.ext.autodoc.mock import _MockObject

project = "privopt"
author = "The privopt developers"
project_copyright = "The privopt developers"
release = installed_version("privopt")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = [
    "_build",
    "_templates",
    "generated/catalogue.md",
]  # solvers.md includes the last
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}  # .rst: pages autosummary writes

# Pages
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Docstrings
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Formal guarantee", "notes_style")]
autosummary_ignore_module_all = False  # a module page lists what its __all__ names
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# An optional package that is not installed is replaced by an empty one: the API page always builds.
autodoc_mock_imports = [
    name
    for name in ("accelerate", "flwr", "lightning", "pfl", "plotly", "torch", "transformers")
    if find_spec(name) is None
]
_MockObject.__or__ = _MockObject.__ror__ = lambda self, other: self  # Tensor | None, without torch

# Theme
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"privopt {release}"
html_math_renderer = "mathml"  # browsers draw it themselves: no script, no network


# What is made from the library itself: the solver page, and docstrings with norms in them
CODE = re.compile(r"(``.*?``)")


def outside_code(change, line):
    """Apply a change to the parts of a line that are not ``code``."""
    return "".join(p if p.startswith("``") else change(p) for p in CODE.split(line))


def as_markdown(docstring):
    """A docstring as Markdown: code and lists stay, every other sign means itself."""

    def escape(text):
        return re.sub(r"([\\`*_{}\[\]<>#$|~])", r"\\\1", text)

    lines = [outside_code(escape, line) for line in cleandoc(docstring).splitlines()]
    return "\n".join(re.sub(r"^(\s*)\\\* ", r"\1* ", line) for line in lines)


def write_catalogue(app):
    """The solvers, one section each, from their summaries and docstrings."""
    from privopt.planner.opinions import opinion_of
    from privopt.solvers import catalogue

    sections = []
    for name, solver in sorted(catalogue().items()):
        summary = as_markdown(
            solver.summary + (" (reference)" if opinion_of(name).reference else "")
        )
        text = as_markdown(import_module(f"privopt.solvers.{name}").__doc__ or "")
        _, _, promise = cleandoc(type(solver).__doc__ or "").partition("Formal guarantee\n")
        promise = as_markdown(promise.lstrip("-\n"))
        sections.append(f"## {name}\n\n*{summary}*\n\n{text}\n\n**Formal guarantee.** {promise}\n")
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "catalogue.md").write_text("\n".join(sections), encoding="utf-8")


def draw_gallery(app):
    """The pictures of gallery.md, by the code that the page shows."""
    import numpy as np

    text = (Path(app.srcdir) / "gallery.md").read_text(encoding="utf-8")
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (500, 3))
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    back = os.getcwd()
    os.chdir(folder)
    try:
        names = {"X": X, "y": (X[:, 0] > 0).astype(int), "__name__": "gallery"}
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
            exec(compile(block, "gallery.md", "exec"), names)
    finally:
        os.chdir(back)


def write_guarantees(app):
    """One page for each mechanism and each solver."""
    sys.path.insert(0, str(app.srcdir))
    try:
        from guarantee_pages import write
    finally:
        sys.path.remove(str(app.srcdir))
    write(Path(app.srcdir) / "generated" / "guarantees", as_markdown)


def escape_bars(app, what, name, obj, options, lines):
    """||x|| is a norm, not a substitution of reStructuredText."""
    lines[:] = [outside_code(lambda text: text.replace("|", r"\|"), line) for line in lines]


def skip_member(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn adds for routing metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def mathml(text, display="inline"):
    """A formula as MathML; the converter does not know \\arg."""
    return convert(text.replace(r"\arg", r"\operatorname{arg}"), display=display)


def formula(self, node):
    """An inline formula."""
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def displayed(self, node):
    """Formulas of their own; a blank line parts two of them."""
    for text in re.split(r"\n\s*\n", node.astext().strip()):
        self.body.append(f'<div class="formula">{mathml(text, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (formula, None), (displayed, None))
    app.connect("builder-inited", write_catalogue)
    app.connect("builder-inited", draw_gallery)
    app.connect("builder-inited", write_guarantees)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", escape_bars)
