"""Whether a built site is whole: every local link and anchor is there, and no page takes anything from elsewhere.

python docs/check_site.py docs/_build/html
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "video": "src"}
"""Elements of what a browser fetches to show a page."""


class Page(HTMLParser):
    """What a page links to and what may be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        own = {name: value for name, value in attributes if value}
        self.anchors.update(own[name] for name in ("id", "name") if name in own)
        if tag == "a" and "href" in own:
            self.links.append(own["href"])
        elif FETCHED.get(tag) in own and own.get("rel") not in ("canonical", "index", "search", "next", "prev"):
            self.fetched.append(own[FETCHED[tag]])


def faults(site: Path) -> list[str]:
    """One line for each link that leads nowhere and each thing that would come from the network."""
    written = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path.resolve(): Page(path.read_text()) for path in written}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: fetches {target}" for target in page.fetched if urlsplit(target).netloc]
        for target in [*page.links, *page.fetched]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            anchor = unquote(parts.fragment)
            if not there.exists():
                found.append(f"{name}: {target} is not there")
            elif anchor and there in pages and anchor not in pages[there].anchors:
                found.append(f"{name}: {target} has no such anchor")
    for sheet in sorted(site.rglob("*.css")):
        text = sheet.read_text(errors="replace")
        if "url(http" in text or "url(//" in text or "@import url" in text:
            found.append(f"{sheet.relative_to(site)}: fetches something from elsewhere")
    return found


def main(argument: str) -> int:
    found = faults(Path(argument))
    print("\n".join(found) if found else f"{argument}: no link is broken, and nothing comes from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
