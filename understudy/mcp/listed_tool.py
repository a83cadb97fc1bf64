"""`ListedTool`: an MCP server's description of a tool, with limits on its size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from understudy._base.json_values import as_json, digest, shown
from understudy.errors import UsageError

MAX_LISTED = 10_000
"""The maximum number of tools that a server may list."""
MAX_PAGES = 1_000
"""The maximum number of pages of a server's list."""
MAX_DESCRIPTION = 20_000
"""The maximum characters of one description."""

Hint = Literal["readOnly", "destructive", "idempotent", "openWorld"]
HINTS: tuple[Hint, ...] = ("readOnly", "destructive", "idempotent", "openWorld")


class NotReached(ConnectionError):
    """The error of a server that cannot be reached, or does not speak MCP. No call was sent."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as a server lists it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON schema of the arguments."""
    hints: Mapping[str, bool] = field(default_factory=dict)
    """The hints by name. A hint that the server does not give is missing."""

    @property
    def digest(self) -> str:
        """The digest of the whole description. A tool with another digest is another tool."""
        return digest([self.name, self.description, self.parameters, dict(self.hints)])

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "hints": dict(self.hints),
        }

    @classmethod
    def from_dict(cls, data: object, *, what: str) -> ListedTool:
        """From its `to_dict`.

        Raises:
            UsageError: if the data is no listed tool.

        """
        if not isinstance(data, dict) or set(data) != {
            "name",
            "description",
            "parameters",
            "hints",
        }:
            raise UsageError(f"{what} holds what is no saved tool: {shown(data)[:200]}")
        fits = (
            isinstance(data["name"], str)
            and isinstance(data["description"], str)
            and isinstance(data["parameters"], dict)
            and isinstance(data["hints"], dict)
            and all(key in HINTS and isinstance(on, bool) for key, on in data["hints"].items())
        )
        if not fits:
            raise UsageError(f"{what} holds what is no saved tool: {shown(data)[:200]}")
        return cls(**data)


def listed_tools(tools: Iterable[Any], *, server: str) -> dict[str, ListedTool]:
    """The tools of a server's list, by name.

    Args:
        tools: the tools, as the SDK has them.
        server: the name of the server in errors.

    Raises:
        UsageError: for two different tools of one name, or more than may be listed.

    """
    found: dict[str, ListedTool] = {}
    for tool in tools:
        hints = tool.annotations
        given = {
            "readOnly": hints and hints.read_only_hint,
            "destructive": hints and hints.destructive_hint,
            "idempotent": hints and hints.idempotent_hint,
            "openWorld": hints and hints.open_world_hint,
        }
        listed = ListedTool(
            name=tool.name,
            description=tool.description or "",
            parameters=as_json(tool.input_schema),
            hints={name: hint for name, hint in given.items() if hint is not None},
        )
        if found.setdefault(listed.name, listed) != listed:
            raise UsageError(f"{server} lists two different tools named {listed.name!r}")
        if len(found) > MAX_LISTED:
            raise UsageError(f"{server} lists more than {MAX_LISTED:,} tools")
    return found
