"""Sphinx configuration: MyST pages, NumPy docstrings, the Furo theme."""

from importlib.metadata import version as installed_version
from importlib.util import find_spec

project = "privopt"
author = "The privopt developers"
project_copyright = "The privopt developers"
release = installed_version("privopt")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}  # .rst: pages autosummary writes

# Pages
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Docstrings
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Formal guarantee", "notes_style")]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# An optional package that is not installed is replaced by an empty one: the API page always builds.
autodoc_mock_imports = [name for name in ("torch", "flwr", "plotly") if find_spec(name) is None]

# Theme
html_theme = "furo"
html_title = f"privopt {release}"
