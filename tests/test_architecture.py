"""`docs/architecture.md` names what exists: functions, files, layers, phases, pictures."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.pictures.draw import USUAL, pictures
from tests.support.sources import ROOT, parsed
from understudy.actors.agent.phase import NEXT_PHASES, Phase

PACKAGE = ROOT / "understudy"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PICTURES = ROOT / "docs" / "pictures"
CODE = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+")
MEMBER = re.compile(r"[A-Z]\w*\.\w+")
Scope = ast.Module | ast.ClassDef


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def codes(page: Path) -> Iterator[str]:
    """What the page sets as code in a line, fenced blocks apart."""
    yield from CODE.findall(re.sub(r"^```.*?^```$", "", read(page), flags=re.DOTALL | re.MULTILINE))


def section(title: str) -> str:
    parts = re.split(r"^## (.+)$", read(ARCHITECTURE), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def table(title: str) -> list[list[str]]:
    """The cells of the rows of a section's table, without its head."""
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


# ------------------------------------------------------------- names, read without imports


def names_in(scope: Scope) -> Iterator[tuple[str, ast.stmt]]:
    for node in scope.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def is_defined(dotted: str) -> bool:
    """Whether `folder.module.Class.method` is defined where it says, and not only imported."""
    parts = dotted.split(".")
    path = PACKAGE
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if not parts:
        return True
    module = path / f"{parts.pop(0)}.py"
    if not module.exists():
        return False
    scope: ast.AST = parsed(module)
    for part in parts:
        if not isinstance(scope, Scope):
            return False
        scope = dict(names_in(scope)).get(part, ast.Pass())
    return not isinstance(scope, ast.Pass)


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Every name that the library defines: of modules, classes, functions, fields, parameters."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        found |= {path.stem, path.parent.name}
        for node in ast.walk(parsed(path)):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    found.add(node.name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    found.add(name)
    return found


def members() -> set[str]:
    """The names of what each class of the library has in its body, as `Class.name`."""
    return {
        f"{scope.name}.{name}"
        for path in PACKAGE.rglob("*.py")
        for scope in ast.walk(parsed(path))
        if isinstance(scope, ast.ClassDef)
        for name, _ in names_in(scope)
    }


def wrong_names(page: Path) -> list[str]:
    known = members()

    def is_there(code: str) -> bool:
        if MEMBER.fullmatch(code) and not (ROOT / code).exists():
            return code in known
        if code.startswith("make "):
            return f"\n{code.split()[1]}:" in read(ROOT / "Makefile")
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", code) and ("/" in code or (ROOT / code).exists()):
            return (ROOT / code).exists()
        return DOTTED.fullmatch(code) is None or is_defined(code)

    return [code for code in codes(page) if not is_there(code)]


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.stem)
@pytest.mark.slow
def test_each_name_path_and_make_target_of_the_page_exists(page: Path) -> None:
    assert wrong_names(page) == []


@pytest.mark.slow
def test_each_word_that_the_page_sets_as_code_is_one_of_the_library(words: set[str]) -> None:
    said = {code for code in codes(ARCHITECTURE) if code.isidentifier()}
    assert said - words - {"await", "with"} == set()


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("actors", True),
        ("actors.agent.phase", True),
        ("actors.agent.phase.Phase.PASSIVE", True),
        ("actors.agent_ref.AgentRef.run", True),
        ("errors.stores.Fenced", True),
        ("actors.no_such_module", False),
        ("actors.agent.phase.no_such_name", False),
        ("actors.agent_ref.AgentRef.no_such_method", False),
        ("actors.agent_ref.AgentActor", False),
        ("actors.agent_ref.AgentRef.run.no_such_name", False),
    ],
)
def test_a_name_exists_where_it_is_defined_and_nowhere_else(name: str, exists: bool) -> None:
    assert is_defined(name) is exists


# --------------------------------------------------------------------- layers, phases


def import_linter() -> dict[str, Any]:
    options: dict[str, Any] = tomllib.loads(read(ROOT / "pyproject.toml"))["tool"]["importlinter"]
    return options


def test_the_table_of_layers_is_the_import_contract() -> None:
    contracts = import_linter()["contracts"]
    (contract,) = (each for each in contracts if each.get("containers") == ["understudy"])

    layers = [set(CODE.findall(row[0])) for row in table("Layers")]

    assert layers == [
        # One in parentheses is optional: it may not be there yet.
        {
            name.strip("()")
            for name in layer.split(" | ")
            if "(" not in name or (PACKAGE / name.strip("()")).exists()
        }
        for layer in contract["layers"]
    ]


def test_the_import_contracts_have_no_exception() -> None:
    options = import_linter()

    assert {each["type"] for each in options["contracts"]} == {"layers", "acyclic_siblings"}
    assert options.keys() == {"root_package", "contracts"}, "imports for type checkers count"
    assert not any("ignore_imports" in each for each in options["contracts"])


def test_the_table_of_phases_is_the_graph_of_the_code() -> None:
    rows = [[CODE.findall(cell) for cell in row] for row in table("The phases of an agent")]

    documented = {Phase[name]: {Phase[other] for other in others} for (name,), _, others in rows}

    assert documented == NEXT_PHASES
    assert list(documented) == list(Phase)


# --------------------------------------------------------------------------- pictures


def test_the_usual_changes_of_phase_are_changes_that_may_happen() -> None:
    assert [change for change in USUAL if change[1] not in NEXT_PHASES[change[0]]] == []


@pytest.mark.parametrize("path", sorted(pictures()), ids=lambda path: path.stem)
def test_a_picture_is_what_its_source_says_and_a_page_shows_it(path: Path) -> None:
    assert read(path) == pictures()[path], "draw it again: python -m docs.pictures.draw"
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    assert any(re.search(rf'pictures/{path.name}[")]', read(page)) for page in pages)


def test_every_picture_has_a_source() -> None:
    assert set(PICTURES.glob("*.svg")) == set(pictures())


@pytest.mark.parametrize(
    "source",
    [path for path in sorted(PICTURES.glob("*.toml")) if "steps" in tomllib.loads(read(path))],
    ids=lambda path: path.stem,
)
def test_a_walk_names_functions_that_exist_and_its_section_shows_it(source: Path) -> None:
    toml = tomllib.loads(read(source))
    drawn = [name for _, name, *_ in toml["steps"] if name]

    assert [name for name in drawn if not is_defined(name)] == []
    assert f"(pictures/{source.stem}.svg)" in section(toml["title"])
