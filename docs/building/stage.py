"""Puts together what the site is built from: `python -m docs.building.stage` fills `.docs`.

The pages of `docs/` stay as they are, so that their links work on every viewer of Markdown. What a
site needs in addition is made here: links to files outside of `docs/` lead to pages of the site,
the anchor in a heading becomes that of the heading, pictures get a light and a dark variant, each
rule gets the tests that cite it, and the pages of examples and of the reference are written.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path, PurePosixPath

from docs.building.llms import write_llms
from docs.building.reference import reference_pages
from docs.building.rules import guards_of_rules, with_tests

ROOT = Path(__file__).parents[2]
STAGE = ROOT / ".docs"
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    "examples": "examples/index.md",
    "deploy": "deploy_files.md",
}
"""Where files and folders outside of `docs/` are on the site."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".service": "ini", "": "docker"}
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(
    r"(?P<before>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<to>[^)\s#]+)?(?P<anchor>#[^)\s]*)?\)"
)
PICTURE = re.compile(
    r'<picture>\n(?P<sources>.*?) *<img alt="(?P<alt>[^"]*)" src="(?P<src>[^"]*)">\n</picture>',
    re.DOTALL,
)
SOURCE = re.compile(r'<source media="(?P<media>[^"]*)" srcset="(?P<src>[^"]*)">')
ANCHORED = re.compile(r'^(#+ )<a id="([\w-]+)"></a>(.+)$', re.MULTILINE)
DARK_ONLY = "@media (prefers-color-scheme:dark)"


def site_path(path: str) -> str | None:
    """Where a file of the repository is on the site; None where it is not on it."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    parts = PurePosixPath(path)
    match parts.parts:
        case ("docs", *_):
            return str(parts.relative_to("docs"))
        case ("examples", _) if parts.suffix == ".py":
            return str(parts.with_suffix(".md"))
        case ("deploy", name):
            return f"deploy_files.md#{_anchor(name)}"
        case ("understudy" | "examples" | "deploy" | "benchmarks", *_):
            return f"files/{path}"
    return None


def _anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.lower())


def rewritten(text: str, source: str) -> tuple[str, set[str]]:
    """The page with its links as the site needs them, and the files that it links to as they are.

    What is fenced stays as it is. Raises `ValueError` for a link to what the site cannot have.
    """
    files = set[str]()
    here = str(PurePosixPath(site_path(source) or "").parent)

    def link(found: re.Match[str]) -> str:
        to, anchor = found["to"] or "", found["anchor"] or ""
        if not to or "://" in to or to.startswith("mailto:"):
            return found[0]
        target = relpath(str(PurePosixPath(source).parent / to), ".")
        path = site_path(target)
        if path is None:
            raise ValueError(f"{source} links to {to}, which is not on the site")
        if found["before"].startswith("!"):
            return "".join(_variants(found["before"], path, here))
        if path.startswith("files/"):
            files.add(target)
        return f"{found['before']}{relpath(path, here)}{anchor})"

    def picture(found: re.Match[str]) -> str:
        sources = [(each["media"], each["src"]) for each in SOURCE.finditer(found["sources"])]
        shown = _pictures([*sources, ("", found["src"])], found["alt"], source, here)
        return "\n".join(shown)

    parts = FENCED.split(text)
    parts[::2] = [
        PICTURE.sub(picture, ANCHORED.sub(r"\1\3 {: #\2 }", LINK.sub(link, part)))
        for part in parts[::2]
    ]
    return "".join(parts), files


def _variants(before: str, path: str, here: str) -> Iterator[str]:
    """A picture twice: one for the light scheme, one for the dark one."""
    stem, suffix = (
        re.sub(r"-(light|dark)$", "", path.rpartition(".")[0]),
        PurePosixPath(path).suffix,
    )
    for scheme in ("light", "dark"):
        yield f"{before}{relpath(f'{stem}-{scheme}{suffix}', here)}#only-{scheme})"


def _pictures(sources: list[tuple[str, str]], alt: str, source: str, here: str) -> Iterator[str]:
    """A `<picture>` twice, because the site has a switch for its scheme.

    What a source says of the width stays. What it says of the scheme chooses between the two.
    """
    for scheme, other in (("light", "dark"), ("dark", "light")):
        kept = dict[str, str]()
        for media, src in sources:
            if f"scheme: {other})" in media:
                continue
            width = re.sub(r"(?: and )?\(prefers-color-scheme: \w+\)", "", media)
            stem, dot, suffix = src.rpartition(".")
            themed = f"{re.sub(r'-(light|dark)$', '', stem)}-{scheme}{dot}{suffix}"
            path = site_path(relpath(str(PurePosixPath(source).parent / themed), ".")) or ""
            kept.setdefault(width, relpath(path, here))
        src = kept.pop("")
        # What moves is large: that of the other scheme, which is not shown, is not loaded.
        lazy = ' loading="lazy"' if src.endswith(".webp") else ""
        shown = f'<img alt="{alt}" src="{src}#only-{scheme}"{lazy}>'
        narrow = [f'<source media="{media}" srcset="{src}">' for media, src in kept.items()]
        yield f"<picture>{''.join(narrow)}{shown}</picture>"


def _copied(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _written(path: str, text: str) -> None:
    target = STAGE / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def pages() -> list[str]:
    """The Markdown files of the repository that are pages of the site, by their paths."""
    inside = sorted((ROOT / "docs").rglob("*.md"))
    of_root = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
    return [*(path.relative_to(ROOT).as_posix() for path in inside), *of_root]


def example_pages() -> Iterator[tuple[str, str]]:
    """A page for each script of `examples/`, and one that lists them."""
    rows = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        said = re.match(r'"""(.*?)"""', code, re.DOTALL)
        if path.stem == "__init__" or said is None:
            continue
        first, _, more = said[1].strip().partition("\n\n")
        first = " ".join(first.split())
        rows.append(f"| [{path.name}]({path.stem}.md) | {first} |")
        yield (
            f"examples/{path.stem}.md",
            f"# {path.name}\n\n{first}\n\n{more}\n\n"
            f"Run it from a checkout: `.venv/bin/python -m examples.{path.stem}`.\n\n"
            f"```python\n{code[said.end() :].lstrip()}```\n\n[All examples](index.md)\n",
        )
    head = (
        "# Examples\n\nEach is a script that runs without a key, from a checkout: "
        "`.venv/bin/python -m examples.minimal_agent`.\n\n| script | what it shows |\n|---|---|\n"
    )
    yield "examples/index.md", head + "\n".join(rows) + "\n"


def deploy_page() -> str:
    """One page with all files of `deploy/`."""
    parts = ["# Files for a deployment\n\n[Deployment](deploy.md) explains them.\n"]
    for path in sorted(path for path in (ROOT / "deploy").iterdir() if path.is_file()):
        text = path.read_text(encoding="utf-8")
        language = LANGUAGES.get(path.suffix, "text")
        parts.append(f"## {path.name} {{: #{_anchor(path.name)} }}\n\n```{language}\n{text}```\n")
    return "\n".join(parts)


def stage() -> None:
    """Fill `.docs` anew."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        if page == "docs/rules.md":
            text = with_tests(text, guards_of_rules(ROOT))
        staged, files = rewritten(text, page)
        _written(site_path(page) or "", staged)
        for file in files:
            _copied(ROOT / file, STAGE / (site_path(file) or ""))
    for path, text in [
        *example_pages(),
        *reference_pages(ROOT),
        ("deploy_files.md", deploy_page()),
    ]:
        _written(path, text)
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    _written("license.md", f"# License\n\n```text\n{licence}```\n")
    for picture in sorted((ROOT / "docs" / "pictures").iterdir()):
        if picture.suffix == ".png" or picture.stem.endswith(("-light", "-dark")):
            _copied(picture, STAGE / "pictures" / picture.name)
        elif picture.suffix == ".svg":
            drawn = picture.read_text(encoding="utf-8")
            for scheme, media in (("light", "@media not all"), ("dark", "@media all")):
                themed = drawn.replace(DARK_ONLY, media)
                _written(f"pictures/{picture.stem}-{scheme}.svg", themed)
    for asset in sorted((ROOT / "docs" / "assets").iterdir()):
        _copied(asset, STAGE / "assets" / asset.name)
    write_llms(ROOT, STAGE)


if __name__ == "__main__":
    stage()
