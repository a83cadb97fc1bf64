"""What holds for the tools of an agent, or of a runtime, that do not say what their effects are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.tools.effects import CheckedErrors, check_tables, checked_errors

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
class EffectDefaults:
    """What an agent, or a runtime, says of all tools that do not say it themselves."""

    undeclared: Undeclared | None = None
    """What holds for tools that do not say what it does to call them again."""
    unknown_after: CheckedErrors = ()
    """Errors after which nobody knows what a call did, besides those that all tools have."""

    @classmethod
    def given(cls, undeclared: object, unknown_after: object, *, what: str) -> EffectDefaults:
        """Those that were given.

        Raises:
            UsageError: for what they cannot be.

        """
        errors = checked_errors(unknown_after, what=f"{what}: `unknown_after`")
        check_tables((), errors, what=what)
        return cls(checked_undeclared(undeclared, what=what), errors)


NO_DEFAULTS = EffectDefaults()
