"""Gives each name of the reference its own docstring, or that of the name that it overrides."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import griffe


class InheritedDocstrings(griffe.Extension):
    """Runs while griffe reads the package, and when it has read it."""

    def __init__(self) -> None:
        super().__init__()
        self._declared: dict[str, tuple[Any, Any]] = {}

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **_: Any
    ) -> None:
        """Undo that griffe gives all targets of `self.a = self.b = x` the docstring of one."""
        if isinstance(node, ast.AnnAssign):
            self._declared[attr.path] = attr.annotation, attr.docstring
        elif isinstance(node, ast.Assign) and len(node.targets) > 1:
            attr.annotation, attr.docstring = self._declared.get(attr.path, (None, None))

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Fill in what the code leaves to the class above."""
        for found in _classes(pkg):
            for name, member in found.members.items():
                if member.is_alias or member.docstring:
                    continue
                for base in above(found):
                    told = base.members.get(name)
                    if told is not None and not told.is_alias and told.docstring:
                        member.docstring = told.docstring
                        break


def _classes(module: griffe.Object) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Class):
            yield member
            yield from _classes(member)
        elif isinstance(member, griffe.Module):
            yield from _classes(member)


def above(found: griffe.Class) -> list[griffe.Class]:
    """The classes above a class that are read, in the order in which Python looks."""
    try:
        return found.mro()
    except ValueError:  # a base of another package comes in between, which is not read
        return []
