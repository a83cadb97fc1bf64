"""Which library a tool is of, and what reads it: found by its class, so that none is imported."""

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
"""By a class of each library, what reads its tools."""


def reader_of(given: object) -> Reader | None:
    """What reads this tool; None for what is of none of these libraries."""
    for kind in type(given).__mro__:
        reader = _READERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if reader is _openai_agents and not _is_agents_sdk():
            return None
        if reader is not None:
            return reader
    is_hosted = type(given).__module__ == "agents.tool" and _is_agents_sdk()
    return _openai_agents if is_hosted else None


def _is_agents_sdk() -> bool:
    """Whether the package `agents` is the Agents SDK: an application may have one of its own."""
    return hasattr(sys.modules.get("agents"), "RunContextWrapper")
