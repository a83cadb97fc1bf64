"""The pages of the reference: one for each public module, from the code as it is written.

Which modules are public `docs/versions.md` says. The code is read and not imported, so that no
extra of the library need be installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

from docs.building.inherited import InheritedDocstrings, above

ROOT_MODULE = "understudy"


@dataclass(frozen=True)
class PublicName:
    """A name that a public module exports."""

    module: str
    name: str
    home: str
    """The module on whose page it is described; each name is described once."""
    of: griffe.Object

    @property
    def summary(self) -> str:
        """The first sentence of its docstring; empty where there is none."""
        said = self.of.docstring.value if self.of.docstring else ""
        return " ".join(said.strip().partition("\n\n")[0].split())


@cache
def _package(root: Path) -> griffe.Object:
    found = griffe.load(
        ROOT_MODULE,
        search_paths=[root],
        try_relative_path=False,
        docstring_parser="google",
        allow_inspection=False,
        extensions=griffe.load_extensions(InheritedDocstrings),
    )
    assert isinstance(found, griffe.Object)
    return found


def _module(package: griffe.Object, path: str) -> griffe.Object:
    found = package if path == ROOT_MODULE else package[path.removeprefix(f"{ROOT_MODULE}.")]
    assert isinstance(found, griffe.Object)
    return found


def public_modules(root: Path) -> list[str]:
    """The modules that `docs/versions.md` lists, sorted."""
    page = (root / "docs" / "versions.md").read_text(encoding="utf-8")
    section = page.partition("## Modules\n")[2].partition("\n## ")[0]
    return sorted(set(re.findall(r"`(understudy(?:\.\w+)*)`", section)))


def _exported(module: griffe.Object) -> list[str]:
    if module.exports is None:  # all that it defines
        return sorted(
            name
            for name, found in module.members.items()
            if not name.startswith("_") and not found.is_alias and not found.is_module
        )
    return sorted(str(name) for name in module.exports or ())


def public_names(root: Path) -> dict[str, list[PublicName]]:
    """What each public module exports, by the name of the module."""
    modules = {module: _module(_package(root), module) for module in public_modules(root)}
    objects: dict[tuple[str, str], griffe.Object] = {}
    exporters: dict[str, list[str]] = {}
    for path, module in modules.items():
        for name in _exported(module):
            found = module[name]
            of = found.final_target if found.is_alias else found
            objects[path, name] = of
            exporters.setdefault(of.path, []).append(path)
    return {
        path: [
            PublicName(path, name, _home(of.path, exporters[of.path]), of)
            for (where, name), of in objects.items()
            if where == path
        ]
        for path in modules
    }


def _home(defined: str, exporters: list[str]) -> str:
    """The page of a name: of the module that defines it, else of one that is not the package."""

    def rank(module: str) -> tuple[bool, bool, int, str]:
        inside = defined.startswith(f"{module}.")
        return module == ROOT_MODULE, not inside, -len(module) if inside else len(module), module

    return min(exporters, key=rank)


def reference_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Each page with its path."""
    public = public_names(root)
    rows = [
        f"| [`{module}`]({module}.md) | {_summary(_module(_package(root), module))} |"
        for module in public
    ]
    yield (
        "reference/index.md",
        (root / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
        + "\n| module | what it has |\n|---|---|\n"
        + "\n".join(rows)
        + "\n",
    )
    described = {each.of.path for names in public.values() for each in names}
    for module, names in public.items():
        yield f"reference/{module}.md", _page(root, module, names, described)


def _summary(module: griffe.Object) -> str:
    said = module.docstring.value if module.docstring else ""
    return " ".join(said.strip().partition("\n\n")[0].split())


def _page(root: Path, module: str, names: list[PublicName], public: Set[str]) -> str:
    rows = [f"| [`{each.name}`]({_link(each)}) | {_cell(each.summary)} |" for each in names]
    here = [each for each in names if each.home == module]
    parts = [
        f"# {module}",
        _summary(_module(_package(root), module)),
        "| name | what it is |\n|---|---|\n" + "\n".join(rows),
        *(_described(each, public) for each in here),
    ]
    return "\n\n".join(parts) + "\n"


def _described(name: PublicName, public: Set[str]) -> str:
    """The line from which the generator describes a name, with what it has of private classes."""
    line = f"::: {name.of.path}"
    taken = taken_over(name.of, public)
    return f"{line}\n    options:\n      inherited_members: {json.dumps(taken)}" if taken else line


def taken_over(of: griffe.Object, public: Set[str]) -> list[str]:
    """The members that a class has of classes above it which no page describes.

    The tests of a contract are not among them: `judge` and pytest name those that fail.
    """
    if not isinstance(of, griffe.Class):
        return []
    private = [base for base in above(of) if base.path not in public]
    return sorted(
        {
            name
            for base in private
            for name, member in base.members.items()
            if not name.startswith(("_", "test_")) and name not in of.members
            if member.docstring and not member.is_alias
        }
    )


def _link(name: PublicName) -> str:
    page = "" if name.home == name.module else f"{name.home}.md"
    return f"{page}#{name.of.path}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
