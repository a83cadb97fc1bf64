"""What holds for all tools of an agent, or of a runtime, unless they say something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.tools.effects import CheckedErrors, check_tables, checked_errors
from understudy.tools.tool_errors import ToolErrors, checked_tool_errors

Undeclared = Literal["effects", "read_only"]
"""What it does to call a tool again that does not say it: it may harm, or it never harms."""


def checked_undeclared(given: object, *, what: str) -> Undeclared | None:
    """`given`, if it is an `Undeclared` or None; else raise a `UsageError`."""
    if given not in (None, *get_args(Undeclared)):
        raise UsageError(
            f"{what}: `undeclared` must be 'effects' or 'read_only', got {shown(given)}"
        )
    return cast("Undeclared | None", given)


@dataclass(frozen=True, slots=True)
class ToolDefaults:
    """What an agent, or a runtime, says of all tools."""

    undeclared: Undeclared | None = None
    """What holds for tools that do not say what it does to call them again."""
    unknown_after: CheckedErrors = ()
    """Errors after which nobody knows what a call did, besides those that all tools have."""
    errors: ToolErrors | None = None
    """What happens with an error of a tool, besides that the model gets its text."""

    @classmethod
    def given(
        cls, undeclared: object, unknown_after: object, tool_errors: object = None, *, what: str
    ) -> ToolDefaults:
        """Those that were given.

        Raises:
            UsageError: for what they cannot be.

        """
        errors = checked_errors(unknown_after, what=f"{what}: `unknown_after`")
        check_tables((), errors, what=what)
        return cls(
            checked_undeclared(undeclared, what=what),
            errors,
            checked_tool_errors(tool_errors, what=what),
        )


NO_DEFAULTS = ToolDefaults()
