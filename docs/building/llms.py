"""`llms.txt` and `llms-full.txt`: the pages of the site for programs that read Markdown.

The form is that of llmstxt.org: a title, a sentence, and the pages by section, each with what it is
about. The sections are those of the nav.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Nav = Sequence[Any]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Reads `mkdocs.yml`, whose function for anchors concerns nobody here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def config(root: Path) -> Mapping[str, Any]:
    """What `mkdocs.yml` says."""
    loaded = yaml.load((root / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)  # noqa: S506
    assert isinstance(loaded, dict)
    return loaded


def in_nav(nav: Nav) -> Iterator[tuple[str, str]]:
    """Each page of the nav: its title there, empty where it has none of its own, and its path."""
    for entry in nav:
        match entry:
            case str():
                yield "", entry
            case dict():
                for title, below in entry.items():
                    if isinstance(below, str):
                        yield title, below
                    else:
                        yield from in_nav(below)


def write_llms(root: Path, stage: Path) -> None:
    """Write both files into the folder of the staged pages."""
    settings = config(root)
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}"]
    full: list[str] = []
    for section in settings["nav"]:
        ((title, below),) = section.items()
        lines += ["", f"## {title}", ""]
        for name, path in in_nav(below):
            text = (stage / path).read_text(encoding="utf-8")
            about = _about(text)
            is_text = not path.startswith("reference/")  # those are written by the generator
            to = path if is_text else f"{path.removesuffix('.md')}.html"
            lines.append(f"- [{name or _title(text)}]({to}){about}")
            if is_text:
                full.append(f"<!-- {path} -->\n\n{text}")
    (stage / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (stage / "llms-full.txt").write_text("\n".join(full), encoding="utf-8")


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _about(text: str) -> str:
    """The first sentence of a page, without its links."""
    for part in text.split("\n\n")[1:]:
        if re.match(r"(?!```)[\w\"`*\[]", part):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(part.split()))
            return f": {re.split(r'(?<=[.?:]) ', plain)[0].rstrip(':')}"
    return ""
