"""The fields of a form: what is in them, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "text", "long", "integer", "number", "boolean", "choice", "date", "datetime", "time", "email",
    "url", "list", "object", "json",
]  # fmt: skip


@dataclass(slots=True)
class Field:
    """One field, or a group of them."""

    kind: Kind
    path: str
    """Where its value stands, as a JSON pointer."""
    label: str
    help: str = ""
    is_required: bool = True
    """Whether the value may not be left out."""
    is_nullable: bool = False
    given: Literal["value", "null", "absent"] = "value"
    """Whether it has a value now."""
    text: str = ""
    """What is in it, or was typed."""
    attributes: dict[str, str] = field(default_factory=dict)
    options: list[tuple[str, str]] = field(default_factory=list)
    """Of a choice: the values as JSON, and what is shown."""
    fields: list[Field] = field(default_factory=list)
    """Of an object or a list."""
    errors: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the input."""
        return f"v:{self.path}"

    @property
    def id(self) -> str:
        """Of the element: a text that CSS and links can name."""
        return "f" + self.path.encode().hex()

    @property
    def all(self) -> Iterator[Field]:
        """It, and those in it."""
        yield self
        for inner in self.fields:
            yield from inner.all
