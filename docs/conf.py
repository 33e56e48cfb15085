"""The documentation site: `make docs` writes it to docs/_build/html. It works without a network."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import nearfield  # noqa: E402

project = "nearfield"
author = "the nearfield developers"
version = release = nearfield.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "command_tables",
    "mathml",
    "repository_links",
]
exclude_patterns = ["_build", "_ext", "_static", "_templates", "examples", "figures", "gallery/*.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [  # what other packages document, on sites that are elsewhere
    (r"py:.*", r"(numpy|np|scipy|sklearn|pandas|polars|pyarrow|dask|distributed|matplotlib|os)\..*"),
    (r"py:.*", r".*(set_fit_request|set_score_request)"),
]
suppress_warnings = ["config.cache"]
smartquotes = False
default_role = "literal"
highlight_language = "none"  # what is indented in the pages is for the shell, or a picture in letters

# --- pages ------------------------------------------------------------------------------------------------------------

source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

# --- reference --------------------------------------------------------------------------------------------------------

autodoc_typehints = "none"  # doc strings say what is taken, in words
autodoc_member_order = "bysource"
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"

# --- examples ---------------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("nearfield",),
    "backreferences_dir": None,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

# --- the look ---------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = f"nearfield {release}"
html_static_path = ["_static"]
html_css_files = ["nearfield.css"]
html_js_files = ["nearfield.js"]
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "nearfield"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "use_edit_page_button": False,
    "back_to_top_button": True,
    "secondary_sidebar_items": ["page-toc"],
}
copyright = f"{author}. Apache License 2.0. nearfield {release}"


def setup(app: Any) -> None:
    """Pictures in letters are no programming language, and what scikit-learn says links to pages of its own site."""
    app.add_lexer("layout", TextLexer)
    app.connect("autodoc-process-docstring", _unlinked, priority=400)


def _unlinked(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if not (getattr(obj, "__module__", None) or "").startswith("nearfield"):
        lines[:] = [re.sub(r":[a-z]+:`~?([^`<]+?)(?: <[^`]*>)?`", r"`\1`", line) for line in lines]
