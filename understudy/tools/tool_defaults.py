"""Defaults for all tools of an agent, or of a runtime, that do not say something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.tools.effects import CheckedErrors, check_tables, checked_errors
from understudy.tools.tool_errors import ToolErrors, checked_tool_errors

Undeclared = Literal["effects", "read_only"]
"""The effect of calling an undeclared tool again: it may harm, or it never harms."""


def checked_undeclared(given: object, *, what: str) -> Undeclared | None:
    """`given`, if it is an `Undeclared` or None; else raise a `UsageError`."""
    if given not in (None, *get_args(Undeclared)):
        raise UsageError(
            f"{what}: `undeclared` must be 'effects' or 'read_only', got {shown(given)}"
        )
    return cast("Undeclared | None", given)


@dataclass(frozen=True, slots=True)
class ToolDefaults:
    """The defaults of an agent, or of a runtime, for all tools."""

    undeclared: Undeclared | None = None
    """The effect of calling a tool again that does not declare it; None if it is not given."""
    unknown_after: CheckedErrors = ()
    """Errors after which nobody knows what a call did, in addition to those of all tools."""
    errors: ToolErrors | None = None
    """What happens with an error of a tool, in addition to its text for the model."""

    @classmethod
    def given(
        cls, undeclared: object, unknown_after: object, tool_errors: object = None, *, what: str
    ) -> ToolDefaults:
        """The defaults that were given.

        Raises:
            UsageError: for invalid values.

        """
        errors = checked_errors(unknown_after, what=f"{what}: `unknown_after`")
        check_tables((), errors, what=what)
        return cls(
            checked_undeclared(undeclared, what=what),
            errors,
            checked_tool_errors(tool_errors, what=what),
        )


NO_DEFAULTS = ToolDefaults()
