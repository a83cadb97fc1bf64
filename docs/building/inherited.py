"""Gives an overriding method the docstring of the method that it overrides, for the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe


class InheritedDocstrings(griffe.Extension):
    """Runs when griffe has read the package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Fill in what the code leaves to the class above."""
        for found in _classes(pkg):
            for name, member in found.members.items():
                if member.is_alias or member.docstring:
                    continue
                for above in _above(found):
                    told = above.members.get(name)
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


def _above(found: griffe.Class) -> list[griffe.Class]:
    try:
        return found.mro()
    except ValueError:  # a base of another package comes in between, which is not read
        return []
