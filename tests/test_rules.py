"""`docs/rules.md` defines each rule once, a test cites it, and every cited id is there."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.building.rules import ID, NAMED, RULE, Cited, guards_of_rules, with_tests
from tests.support.sources import ROOT, parsed, sources

PAGE = ROOT / "docs" / "rules.md"
HEADING = re.compile(r"^### (.*)$", re.MULTILINE)
TEST = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
TEXT = PAGE.read_text(encoding="utf-8")
RULES = [(found["id"], found["text"]) for found in RULE.finditer(TEXT)]


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def existing() -> set[str]:
    """The names of all test functions, read without importing them."""
    return {
        name
        for path in sources("tests", "understudy/testing/contracts")
        for name in DEFINED.findall(path.read_text(encoding="utf-8"))
    }


@pytest.fixture(scope="module")
def guards() -> dict[str, list[Cited]]:
    """By the id of a rule the tests that cite it."""
    return guards_of_rules(ROOT)


def strings_as_statements(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes and functions, and those below attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_each_rule_is_defined_once() -> None:
    defined = Counter(rule for rule, _ in RULES)
    assert len(defined) > 80
    assert [rule for rule, times in defined.items() if times > 1] == []


def test_each_heading_is_the_sentence_of_a_rule_and_its_id_is_an_anchor() -> None:
    found = list(RULE.finditer(TEXT))
    assert len(found) == len(HEADING.findall(TEXT)), "a heading has another form than the others"
    for rule in found:
        assert rule["anchor"] == rule["id"].lower()
        words = rule["heading"].split()
        assert 3 <= len(words) <= 16, f"{rule['id']} has a heading that nobody reads"
    assert [
        text for text, times in Counter(rule["heading"] for rule in found).items() if times > 1
    ] == []


def test_each_subject_is_in_the_contents_and_has_rules() -> None:
    contents, *sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    listed = re.findall(r"^- \[([^\]]+)\]\(#", contents, re.MULTILINE)
    assert listed == [section.partition("\n")[0] for section in sections]
    assert [section for section in sections if RULE.search(section) is None] == []


def test_each_rule_says_something() -> None:
    assert [rule for rule, text in RULES if not re.match(r'[A-Z`"-]', text.strip())] == []


def test_each_rule_has_a_test_that_cites_it(guards: dict[str, list[Cited]]) -> None:
    """Who changes a test finds its rule by the id, and the id finds all tests of a rule."""
    tested = {rule for rule, cited in guards.items() if any(each.name for each in cited)}
    assert [rule for rule, _ in RULES if rule not in tested] == []


def test_the_page_lists_no_tests_and_the_site_lists_those_that_cite_a_rule(
    guards: dict[str, list[Cited]], existing: set[str]
) -> None:
    assert TEST.findall(TEXT) == []
    shown = {found["id"]: found["text"] for found in RULE.finditer(with_tests(TEXT, guards))}
    assert list(shown) == [rule for rule, _ in RULES]
    for rule, text in RULES:
        assert shown[rule].startswith(text.rstrip()), f"the text of {rule} is another"
        said, _, folded = shown[rule].partition('<details class="tests" markdown>\n')
        assert TEST.findall(said) == []
        named = TEST.findall(folded)
        assert 1 <= len(named) <= NAMED, rule
        assert [name for name in named if name not in existing] == [], rule


def test_tests_cite_rules_one_by_one() -> None:
    """A range, as in J1 to J8, is found by its ends alone."""
    ranges = re.compile(rf"{ID.pattern}(?:-| to ){ID.pattern}")
    paths = [path for path in sources("tests") if path != Path(__file__)]
    found = [path for path in paths if ranges.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_each_rule_that_is_cited_is_defined() -> None:
    defined = {rule for rule, _ in RULES}
    paths = [*sources("understudy", "tests", "examples", "benchmarks"), *pages()]
    cited = {
        (str(path.relative_to(ROOT)), rule)
        for path in paths
        for rule in ID.findall(path.read_text(encoding="utf-8"))
    }
    assert {place for place in cited if place[1] not in defined} == set()


def test_each_link_to_a_rule_leads_to_one() -> None:
    anchors = {rule.lower() for rule, _ in RULES}
    for page in pages():
        for anchor in re.findall(r"rules\.md#([a-z]\d+)", page.read_text(encoding="utf-8")):
            assert anchor in anchors, f"{page.name} links to rules.md#{anchor}"


def test_each_test_that_the_library_names_exists(existing: set[str]) -> None:
    """A comment names the test that fails without a line: one that is renamed is found there."""
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in sources("understudy")
        for name in re.findall(r"\btest_\w+", path.read_text(encoding="utf-8"))
    }
    assert named, "nothing is checked"
    there = existing | {path.stem for path in sources("tests")}
    assert {place for place in named if place[1] not in there} == set()


def test_no_docstring_of_the_library_cites_a_rule() -> None:
    """A docstring says the reason in words: its reader has no table of ids at hand."""
    cited = [
        f"{path.relative_to(ROOT)}:{line}: {rule}"
        for path in sources("understudy")
        if ID.search(path.read_text(encoding="utf-8"))
        for line, text in strings_as_statements(parsed(path))
        for rule in ID.findall(text)
    ]
    assert cited == []
