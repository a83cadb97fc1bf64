"""What the package promises: each public name with its signature, as a text to compare.

`python -m tests.support.public_names tests/data/public_names.txt` writes it anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[2]

PACKAGES = (
    "understudy",
    "understudy.actors",
    "understudy.ag_ui",
    "understudy.cluster",
    "understudy.journal",
    "understudy.loop_actors.supervisor",
    "understudy.mcp",
    "understudy.middleware",
    "understudy.models",
    "understudy.modes",
    "understudy.notify",
    "understudy.telemetry",
    "understudy.testing",
    "understudy.tools",
    "understudy.trust",
    "understudy.web",
)
"""What is imported from: `__all__` says which names."""
MODULES = (
    "understudy.errors",
    "understudy.events",
    "understudy.history",
    "understudy.interrupts",
    "understudy.login.oidc",
    "understudy.mcp.agents_server",
    "understudy.outcomes",
    "understudy.stopping",
)
"""The same, of modules and of a package that have one topic each."""

LONG = 100
"""The maximum characters of parameters, beyond which each has a line of its own."""

Definition = griffe.Class | griffe.Function | griffe.Attribute | griffe.TypeAlias


def public_names() -> list[str]:
    """A line for each name, and for each public member of a class. Read, and never imported.

    A name that is exported in several places is written out where it comes first.
    """
    package = griffe.load("understudy", search_paths=[ROOT], allow_inspection=False)
    assert isinstance(package, griffe.Module)
    lines = list(_exported(package.modules_collection))
    return [*lines, *_unpacked(package, lines)]


def _exported(collection: griffe.ModulesCollection) -> Iterator[str]:
    places: dict[str, str] = {}
    for module in (*PACKAGES, *MODULES):
        exported = collection[module].exports or []
        for name in sorted(map(str, exported)):
            member: griffe.Object | griffe.Alias = collection[f"{module}.{name}"]
            definition = member.final_target if isinstance(member, griffe.Alias) else member
            first = places.setdefault(definition.path, f"{module}.{name}")
            if first == f"{module}.{name}":
                yield from _described(first, definition)
            else:
                yield f"{module}.{name} is {first}"


def _unpacked(package: griffe.Module, lines: list[str]) -> Iterator[str]:
    """The keyword arguments that signatures take from a `TypedDict`, which is not exported."""
    for name in sorted(set(re.findall(r"Unpack\[(\w+)", "\n".join(lines)))):
        for module in _modules(package):
            found = module.classes.get(name)
            if found is not None and not found.is_alias:
                yield from _described(f"**{name}", found)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for inner in module.modules.values():
        yield from _modules(inner)


def _described(name: str, definition: griffe.Object) -> Iterator[str]:
    if not isinstance(definition, griffe.Class):
        yield f"{name}{_signature(definition)}"
        return
    bases = ", ".join(map(str, definition.bases))
    yield f"{name}: class({bases}){_parameters(definition.parameters)}"
    for member_name, found in sorted(definition.all_members.items()):
        # A contract may get more tests with any version.
        if member_name.startswith(("_", "test_")):
            continue
        member = found.final_target if isinstance(found, griffe.Alias) else found
        if isinstance(member, Definition):
            yield f"{name}.{member_name}{_signature(member)}"


def _signature(definition: griffe.Object) -> str:
    match definition:
        case griffe.Function():
            overloads = "".join(
                f"\n    {_parameters(each.parameters)} -> {each.returns}"
                for each in definition.overloads or []
            )
            word = "async " if "async" in definition.labels else ""
            return (
                f": {word}{_parameters(definition.parameters)} -> {definition.returns}{overloads}"
            )
        case griffe.Attribute() if "property" in definition.labels:
            return f": property {definition.annotation}"
        case griffe.Attribute() if definition.annotation is not None:
            return f": {definition.annotation}"
        case griffe.Attribute() | griffe.TypeAlias():
            return f" = {definition.value}"
        case _:
            return ": class"


def _parameters(parameters: griffe.Parameters) -> str:
    shown = []
    keyword_only = False
    for parameter in parameters:
        if parameter.name in ("self", "cls"):
            continue
        star = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(parameter.kind or griffe.ParameterKind.positional_or_keyword, "")
        if parameter.kind is griffe.ParameterKind.var_positional:
            keyword_only = True
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            keyword_only = True
            shown.append("*")
        text = f"{star}{parameter.name}"
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not star:
            text += f" = {parameter.default}"
        shown.append(text)
    line = f"({', '.join(shown)})"
    return (
        line if len(line) <= LONG else "".join(["(", *(f"\n    {text}," for text in shown), "\n)"])
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(public_names()) + "\n", encoding="utf-8")
