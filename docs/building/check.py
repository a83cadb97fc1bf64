"""What is checked of the built site beside the generator's own checks of links.

Nothing is loaded from elsewhere, and each public name is in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

from docs.building.reference import PublicName

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "form": "action"}
"""What a browser loads for a tag, or sends to; a link that a reader may click is none of that."""
MENTIONED = {"canonical", "next", "prev", "describedby", "alternate"}
ELSEWHERE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_CSS = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
LOADERS = ("mermaid", "pyodide", "glightbox")
"""Classes of elements for which the script of the theme loads a library from elsewhere."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        address = has.get(LOADED.get(tag, ""), "")
        if tag == "link" and not MENTIONED & set(has.get("rel", "").split()):
            address = has.get("href", "")
        if ELSEWHERE.match(address):
            self.foreign.append(address)
        self.foreign += IN_CSS.findall(has.get("style", ""))
        for name in has.get("class", "").split():
            if name in LOADERS:
                self.foreign.append(f"the library of class {name}")


def foreign(site: Path) -> Iterator[str]:
    """What pages and style sheets would load from other places, each with the file."""
    for path in sorted(site.rglob("*")):
        text = path.read_text(encoding="utf-8") if path.suffix in (".html", ".css", ".svg") else ""
        found = IN_CSS.findall(text) if path.suffix != ".html" else []
        if path.suffix == ".html":
            page = _Page()
            page.feed(text)
            found = page.foreign + IN_CSS.findall(
                "".join(re.findall(r"<style>(.*?)</style>", text))
            )
        yield from (f"{path.relative_to(site)} loads {address}" for address in found)


def undescribed(site: Path, public: Mapping[str, Sequence[PublicName]]) -> Iterator[str]:
    """The public names that no page of the reference has, or that have no docstring."""
    for module, names in public.items():
        page = site / "reference" / f"{module}.html"
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        for each in names:
            if not each.summary:
                yield f"{each.of.path} has no docstring"
            elif each.home == module and f'id="{each.of.path}"' not in text:
                yield f"{each.of.path} is not in the reference"
