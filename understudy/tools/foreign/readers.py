"""Finds the reader of a tool by the library of its class, without an import of the library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understudy.tools.foreign.foreign_tool import Foreign


def _langchain(given: object, **options: Any) -> Foreign:
    from understudy.tools.foreign.langchain import read

    return read(given, **options)


def _openai_agents(given: object) -> Foreign:
    from understudy.tools.foreign.openai_agents import read

    return read(given)


Reader = Callable[..., "Foreign"]
_READERS: dict[str, Reader] = {
    "langchain_core.tools.base.BaseTool": _langchain,
    "agents.tool.FunctionTool": _openai_agents,
}
"""The reader of each library's tools, by a class of the library."""


def reader_of(given: object) -> Reader | None:
    """The reader of this tool; None if it is a tool of none of these libraries."""
    for kind in type(given).__mro__:
        reader = _READERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if reader is _openai_agents and not _is_agents_sdk():
            return None
        if reader is not None:
            return reader
    is_hosted = type(given).__module__ == "agents.tool" and _is_agents_sdk()
    return _openai_agents if is_hosted else None


def _is_agents_sdk() -> bool:
    """Whether the package `agents` is the Agents SDK: an application may have its own package
    `agents`.
    """
    return hasattr(sys.modules.get("agents"), "RunContextWrapper")
