"""The site of the documentation: its nav is complete, its links resolve, its pages are made so.

The build itself is `make docs`, each warning of which is an error.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from docs.building.check import foreign, undescribed
from docs.building.llms import config, in_nav, write_llms
from docs.building.reference import public_modules, public_names, reference_pages
from docs.building.search import found, unfound
from docs.building.stage import ROOT, pages, rewritten, site_path

NAV = [path for _, path in in_nav(config(ROOT)["nav"])]
GENERATED = {"examples/index.md", "deploy_files.md", "license.md"}
HEADING = re.compile(r"^#+ (.+?)(?: \{.*\})?$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as viewers of Markdown and the site make them."""
    counted: Counter[str] = Counter()
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    found = set(ANCHOR.findall(text))
    for heading in HEADING.findall(ANCHOR.sub("", text)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}_{counted[slug]}" if counted[slug] else slug)
        counted[slug] += 1
    return found


# ------------------------------------------------------------------------- the nav


def test_each_page_of_the_documentation_is_in_the_nav_once() -> None:
    wrong = [page for page in pages() if NAV.count(site_path(page) or "") != 1]
    assert wrong == [], "add them to the nav of mkdocs.yml"


def test_the_nav_has_no_page_that_is_not_there() -> None:
    there = {site_path(page) for page in pages()} | GENERATED
    assert {
        path for path in NAV if path not in there and not path.startswith("reference/")
    } == set()


def test_the_nav_has_a_reference_of_each_public_module_and_of_no_other() -> None:
    referred = {path for path in NAV if path.startswith("reference/")}
    modules = {f"reference/{module}.md" for module in public_modules(ROOT)}
    assert referred == {"reference/index.md", *modules}


def test_each_anchor_of_a_link_is_a_heading_of_its_page() -> None:
    there = functools.cache(anchors)
    for page in [*pages(), "README.md"]:
        text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for to, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
            if "://" not in to:
                target = (ROOT / page).parent / to if to else ROOT / page
                assert anchor in there(target.resolve()), f"{page} links to {to}#{anchor}"


def test_no_page_has_two_headings_of_one_name_to_which_a_link_leads() -> None:
    """Viewers of Markdown number the second one each in their own way."""
    for page in [*pages(), "README.md"]:
        links = re.findall(r"#([a-z0-9-]+_\d+)\)", (ROOT / page).read_text(encoding="utf-8"))
        assert links == [], page


def test_no_page_says_a_paragraph_twice() -> None:
    """As a merge of two changes leaves it."""
    for page in [*pages(), "README.md"]:
        text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
        counted = Counter(each for each in text.split("\n\n") if len(each) > 150)
        assert [each for each, count in counted.items() if count > 1] == [], page


def test_the_page_of_installation_names_each_extra_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {
        *("bench", "browser", "demo", "dev", "docs", "local", "others", "release", "supply")
    }
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("## Extras")[2].partition("\n## ")[0]
    first = " ".join(re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE))
    assert set(re.findall(r"`([\w-]+)`", first)) == extras


# ------------------------------------------------------------------- how it is staged


def test_a_link_out_of_the_folder_leads_to_a_page_of_the_site() -> None:
    text = "[a](../README.md), [b](../examples/approval.py), [c](tools.md#rules), [d](https://x.y)"
    assert rewritten(text, "docs/why.md") == (
        "[a](index.md), [b](examples/approval.md), [c](tools.md#rules), [d](https://x.y)",
        set(),
    )


def test_a_link_to_a_file_that_is_no_page_leads_to_a_copy_of_it() -> None:
    assert rewritten("[a](../../examples/notebook.ipynb)", "docs/tutorial/index.md") == (
        "[a](../files/examples/notebook.ipynb)",
        {"examples/notebook.ipynb"},
    )


def test_each_link_of_a_page_leads_to_what_the_site_can_have() -> None:
    for page in pages():
        _, files = rewritten((ROOT / page).read_text(encoding="utf-8"), page)
        assert [file for file in files if not (ROOT / file).is_file()] == [], page


def test_a_page_in_a_folder_keeps_its_links() -> None:
    text, _ = rewritten("[a](../tools.md#rules)", "docs/tutorial/index.md")
    assert text == "[a](../tools.md#rules)"


def test_a_link_to_what_the_site_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="which is not on the site"):
        rewritten("[a](../tests/conftest.py)", "docs/why.md")


def test_a_picture_is_there_for_both_schemes() -> None:
    assert rewritten("![x](pictures/web-inbox-light.png)", "docs/inbox.md") == (
        "![x](pictures/web-inbox-light.png#only-light)![x](pictures/web-inbox-dark.png#only-dark)",
        set(),
    )


def test_a_picture_by_width_and_scheme_is_there_for_both_schemes_of_the_switch() -> None:
    dark = '<source media="(max-width: 600px) and (prefers-color-scheme: dark)" srcset='
    text = f"""<picture>
  {dark}"pictures/a-phone-dark.png">
  <source media="(max-width: 600px)" srcset="pictures/a-phone-light.png">
  <source media="(prefers-color-scheme: dark)" srcset="pictures/a-dark.png">
  <img alt="An a" src="pictures/a-light.png">
</picture>
"""
    shown, _ = rewritten(text, "docs/index.md")
    assert shown.splitlines() == [
        f'<picture><source media="(max-width: 600px)" srcset="pictures/a-phone-{scheme}.png">'
        f'<img alt="An a" src="pictures/a-{scheme}.png#only-{scheme}"></picture>'
        for scheme in ("light", "dark")
    ]


def test_a_picture_that_moves_stands_still_for_who_prefers_that_and_is_loaded_when_shown() -> None:
    still, dark = "(prefers-reduced-motion: reduce)", "(prefers-color-scheme: dark)"
    text = f"""<picture>
  <source media="{still} and {dark}" srcset="pictures/a-still-dark.png">
  <source media="{still}" srcset="pictures/a-still-light.png">
  <source media="{dark}" srcset="pictures/a-dark.webp">
  <img alt="An a" src="pictures/a-light.webp">
</picture>
"""
    shown, _ = rewritten(text, "docs/index.md")
    assert shown.splitlines() == [
        f'<picture><source media="{still}" srcset="pictures/a-still-{scheme}.png">'
        f'<img alt="An a" src="pictures/a-{scheme}.webp#only-{scheme}" loading="lazy"></picture>'
        for scheme in ("light", "dark")
    ]


def test_each_picture_of_a_page_is_there_in_both_schemes() -> None:
    drawn = {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    found = 0
    for page in [*pages(), "README.md"]:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"<picture>.*?</picture>", text, re.DOTALL):
            found += 1
            files = re.findall(r'pictures/([\w.-]+)"', block)
            assert {name for name in files if name not in drawn} == set(), page
            both = [re.sub("-(light|dark)", "-*", name) for name in files if "-" in name]
            assert all(both.count(name) == 2 for name in both), f"{page}: {files}"
    assert found, "nothing is checked"


def test_an_anchor_in_a_heading_becomes_that_of_the_heading() -> None:
    text, _ = rewritten('### <a id="r1"></a>It ends (R1)\n\nSee [R1](#r1).', "docs/rules.md")
    assert text == "### It ends (R1) {: #r1 }\n\nSee [R1](#r1)."


def test_what_is_fenced_stays_as_it_is() -> None:
    text = "```python\nx = [a](../README.md)\n```\n"
    assert rewritten(text, "docs/why.md") == (text, set())


# --------------------------------------------------------------------------- the search


def sections() -> list[dict[str, str]]:
    """The sections of all pages, in the form of the index that the search of the site has."""
    found = []
    for page in pages():
        path = (site_path(page) or "").removesuffix(".md") + ".html"
        text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for part in re.split(r"^#{1,3} ", text, flags=re.MULTILINE)[1:]:
            heading, _, said = part.partition("\n")
            given = ANCHOR.match(heading)
            title = ANCHOR.sub("", heading)
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            anchor = "" if text.startswith(f"# {heading}\n") else f"#{given[1] if given else slug}"
            found.append({"location": f"{path}{anchor}", "title": title, "text": said})
    return found


@pytest.mark.slow
def test_what_people_look_for_is_among_the_first_results() -> None:
    """`make docs` asks the real index of the search the same."""
    assert list(unfound(sections())) == []


@pytest.mark.slow
def test_what_nobody_has_written_is_not_found() -> None:
    known = sections()
    without = [each for each in known if not each["location"].startswith("inbox.html")]
    missing = list(unfound(without))
    assert "The search for 'snooze' does not find" in " ".join(missing)
    assert len(missing) >= 8
    assert found(known, "zeppelin inbox") == []


# ---------------------------------------------------------------- the reference, checks


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a small package of the library's name."""
    inner = tmp_path / "understudy"
    (inner / "parts").mkdir(parents=True)
    (inner / "__init__.py").write_text(
        '"""All."""\nfrom understudy.parts import Part\nfrom understudy.own import Own\n'
        '__all__ = ["Own", "Part"]\n'
    )
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "index.md").write_text("# Reference\n")
    listed = (
        "## Modules\n\n`understudy`, `understudy.parts`.\n\n## Deprecation\n\n`understudy.own`\n"
    )
    (tmp_path / "docs" / "versions.md").write_text(listed)
    (inner / "own.py").write_text('class Own:\n    """One. Of its own."""\n')
    (inner / "parts" / "__init__.py").write_text(
        '"""Parts."""\nfrom understudy.parts.part import Bare, Part\n__all__ = ["Bare", "Part"]\n'
    )
    (inner / "parts" / "part.py").write_text(
        'class Part:\n    """A part."""\n    def go(self):\n        """Goes."""\n\n\n'
        "class Bare(Part):\n    def go(self): ...\n"
    )
    return tmp_path


def test_each_public_name_is_described_on_one_page(package: Path) -> None:
    made = dict(reference_pages(package))
    assert made["reference/understudy.parts.md"].count("::: understudy.parts.part.Part") == 1
    assert "::: understudy.parts.part.Part" not in made["reference/understudy.md"]
    link = "[`Part`](understudy.parts.md#understudy.parts.part.Part) | A part. |"
    assert link in made["reference/understudy.md"]
    assert "::: understudy.own.Own" in made["reference/understudy.md"]


def test_a_class_is_described_with_what_it_has_of_private_classes(package: Path) -> None:
    (package / "understudy" / "own.py").write_text(
        'class Below:\n    """Private."""\n    def lists(self):\n        """Lists."""\n\n\n'
        'class Own(Below):\n    """One. Of its own."""\n'
    )
    page = dict(reference_pages(package))["reference/understudy.md"]
    assert page.endswith(
        '::: understudy.own.Own\n    options:\n      inherited_members: ["lists"]\n'
    )
    other = dict(reference_pages(package))["reference/understudy.parts.md"]
    assert "inherited_members" not in other  # `Part`, above `Bare`, has an entry of its own


def test_a_method_without_docstring_has_that_of_the_method_above(package: Path) -> None:
    (bare, _) = public_names(package)["understudy.parts"]
    (said,) = [member.docstring for member in bare.of.members.values()]
    assert said is not None
    assert said.value == "Goes."


def test_each_name_of_one_assignment_has_its_own_docstring(package: Path) -> None:
    (package / "understudy" / "own.py").write_text(
        'class Own:\n    """One."""\n    a: int\n    """An a."""\n    b: str\n    """A b."""\n'
        "    c: str\n    def __init__(self) -> None:\n        self.a = self.b = self.c = 0\n"
    )
    (own, _) = public_names(package)["understudy"]
    said = [member.docstring for member in list(own.of.members.values())[:3]]
    assert [each and each.value for each in said] == ["An a.", "A b.", None]


def test_a_public_name_without_docstring_or_description_is_found(package: Path) -> None:
    site = package / "site"
    (site / "reference").mkdir(parents=True)
    (site / "reference" / "understudy.html").write_text('<h2 id="understudy.own.Own">')
    assert set(undescribed(site, public_names(package))) == {
        "understudy.parts.part.Bare has no docstring",
        "understudy.parts.part.Part is not in the reference",
    }


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', True),
        ('<img src="//cdn.example/x.png">', True),
        ('<link rel="stylesheet" href="https://fonts.example/css">', True),
        ("<style>@import 'https://fonts.example/css';</style>", True),
        ('<p style="background: url(https://cdn.example/x.png)">', True),
        ('<div class="mermaid">', True),
        ('<a href="https://docs.example/">a page that a reader may open</a>', False),
        ('<link rel="next" href="https://docs.example/next.html">', False),
        ('<script src="assets/x.js"></script><img src="x.png">', False),
        ("<code>&lt;script src='https://cdn.example/x.js'&gt;</code>", False),
    ],
)
def test_what_a_page_would_load_from_elsewhere_is_found(
    tmp_path: Path, page: str, found: bool
) -> None:
    (tmp_path / "page.html").write_text(page)
    assert bool(list(foreign(tmp_path))) is found


def test_what_a_style_sheet_would_load_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "site.css").write_text("@font-face { src: url('https://fonts.example/a.woff2') }")
    assert len(list(foreign(tmp_path))) == 1


def test_the_public_modules_say_in_a_docstring_what_they_have() -> None:
    for module in sorted(public_modules(ROOT)):
        path = ROOT / Path(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))), module


def test_the_pages_for_programs_name_each_page_of_the_nav_and_what_it_is_about(
    tmp_path: Path,
) -> None:
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: x\nsite_description: About x.\nnav:\n"
        "  - Begin:\n      - index.md\n      - More:\n          - Own title: a.md\n"
        "  - Reference:\n      - y: reference/y.md\n"
    )
    (tmp_path / "reference").mkdir()
    (tmp_path / "index.md").write_text("# Home\n\nA [page](a.md) to begin. And more.\n")
    (tmp_path / "a.md").write_text("# A\n\n```python\nx\n```\n\nThe answer.\n")
    (tmp_path / "reference" / "y.md").write_text("# y\n\n::: y\n")
    write_llms(tmp_path, tmp_path)
    assert (tmp_path / "llms.txt").read_text().splitlines() == [
        *("# x", "", "> About x.", "", "## Begin", ""),
        "- [Home](index.md): A page to begin.",
        "- [Own title](a.md): The answer.",
        *("", "## Reference", ""),
        "- [y](reference/y.html)",
    ]
    assert "The answer." in (tmp_path / "llms-full.txt").read_text()


def test_the_script_from_elsewhere_is_the_one_that_its_note_names() -> None:
    assets = ROOT / "docs" / "assets"
    digest = hashlib.sha256((assets / "iframe-worker-shim.js").read_bytes()).hexdigest()
    assert f"SHA-256: {digest}" in (assets / "VENDORED.txt").read_text(encoding="utf-8")
