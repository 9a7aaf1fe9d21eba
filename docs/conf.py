"""The settings of the site that ``make docs`` builds from this folder."""

from typing import Any

from sphinx.application import Sphinx

import batonflow.fleet  # noqa: F401 - autodoc cannot be the first to import its events
from batonflow import __version__

project = "batonflow"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = "batonflow"
html_show_copyright = False
myst_heading_anchors = 4
exclude_patterns = ["[!i]*.md"]  # at the top lie pointers from earlier places
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_pages: dict[int, str] = {}


def described_elsewhere(app: Sphinx, what: str, _name: str, described: Any, *_: Any) -> bool | None:
    """Leave out a public name that an earlier package of the page describes."""
    if what != "module":
        return None
    here = app.env.ref_context.get("py:module", "")
    return True if _pages.setdefault(id(described), here) != here else None


def setup(app: Sphinx) -> None:
    """Register the handler above."""
    app.connect("autodoc-skip-member", described_elsewhere)
