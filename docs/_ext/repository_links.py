"""Links between files of the repository, for the site: to the page that a file is, or the file's name where it is none.

Pages are read in the repository, too, where a link is a path. Some files outside of docs/ are on the site (`PAGES`,
each included by the page that is named); others are not, and a link to them becomes their name.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "docs/development/changelog.md",
    "CONTRIBUTING.md": "docs/development/contributing.md",
    "README.md": "docs/index.md",
    "docs": "docs/index.md",
    "docs/decisions": "docs/decisions/index.md",
    "docs/examples": "docs/gallery/index.rst",
    "docs/examples/README.rst": "docs/gallery/index.rst",
}
"""Files and folders of the repository, and the page that stands for them."""

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_EXAMPLE = re.compile(r"^docs/examples/(plot_\w+)\.py$")
_CODE = re.compile(r"(^```.*?^```$|^ {4}[^\n]*$)", re.M | re.S)


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", _read)
    app.connect("include-read", _included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app: Any, docname: str, source: list[str]) -> None:
    path = f"docs/{os.fspath(app.env.doc2path(docname, base=False))}"
    if path.endswith(".md"):
        source[0] = rewritten(source[0], path, path)


def _included(app: Any, path: Path, parent: str, source: list[str]) -> None:
    if path.suffix == ".md":
        own = posixpath.normpath(posixpath.join("docs", path.as_posix()))
        page = os.fspath(app.env.doc2path(app.env.docname, base=False))
        source[0] = rewritten(source[0], own, f"docs/{page}")


def rewritten(text: str, own: str, page: str) -> str:
    """The text of the file `own`, shown on `page`, with links as they are there; both are paths in the repository."""
    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(lambda link: _rewritten(link, own, page), part) for part in parts[::2]]
    return "".join(parts)


def _rewritten(link: re.Match[str], own: str, page: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(own), link["path"]))
    target = PAGES.get(target, _EXAMPLE.sub(r"docs/gallery/\1.rst", target))
    if not (ROOT / target).exists() and not target.startswith("docs/gallery/"):
        return link[0]  # Sphinx says that it is broken
    if target.startswith("docs/") or link["image"]:
        path = posixpath.relpath(target, posixpath.dirname(page))
        return f"{link['image']}[{link['text']}]({path}{link['anchor'] or ''})"
    return link["text"] if target in link["text"] else f"{link['text']} (`{target}`)"
