"""The work of `extract`, of an agent and of its ref, before and after the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.errors import NotExtracted, UsageError
from understudy.outcomes import Completed, Failed, Outcome
from understudy.run.until_tool import UntilTool, collapse_until_tool


def refuse_until(tool: UntilTool, options: Mapping[str, object]) -> None:
    """Raise a `UsageError` for an option that names the until tool a second time."""
    for fixed in ("until_tool", "until_tool_success"):
        if fixed in options:
            raise UsageError(f"extract() runs until {tool!r} succeeds: leave {fixed} out")


def value_of(tool: UntilTool, outcome: Outcome) -> Any:
    """The value that the tool returned.

    Raises:
        NotExtracted: if the run ended in another way; the run's own error is its cause.

    """
    if isinstance(outcome, Completed) and outcome.tool_result is not None:
        return outcome.tool_result.value
    names, _ = collapse_until_tool(None, tool)
    kind, explained = type(outcome).__name__, outcome.explain()
    ended = explained if explained.startswith(kind) else f"{kind}: {explained}"
    error = NotExtracted(tool=", ".join(names or ()), outcome=ended)
    raise error from (outcome.error if isinstance(outcome, Failed) else None)
