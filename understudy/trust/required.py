"""`Requirement`: a feature without which a host of a store does not open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from understudy._base.json_values import shown
from understudy.errors import UsageError

Requirable: TypeAlias = Literal["rules", "budgets", "freeze", "protect"]

_REMEDY: Mapping[str, str] = MappingProxyType(
    {
        "rules": "give it Runtime(rules=...)",
        "budgets": "give it Runtime(budgets=...)",
        "protect": "give it Runtime(protect=...)",
        "freeze": "update understudy there",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A feature that a store may require of every host, and the hosts that lack it."""

    name: str
    """The name of the feature: `"rules"`, `"budgets"`, `"protect"` or `"freeze"`."""
    is_required: bool
    """Whether each host of the store must have the feature."""
    by: str | None = None
    """The person who required it; None if nobody was named."""
    at: datetime | None = None
    """The time since which it is required; None if it is not required."""
    lacking: tuple[str, ...] = ()
    """The names of the living hosts that lack the feature."""

    def to_dict(self) -> dict[str, Any]:
        """Return the requirement as plain data."""
        return {
            "name": self.name,
            "required": self.is_required,
            "by": self.by,
            "at": None if self.at is None else self.at.isoformat(),
            "lacking": list(self.lacking),
        }


NO_REQUIREMENTS: Mapping[str, Requirement] = MappingProxyType({})


def checked_requirable(given: object, *, what: str) -> str:
    """The checked name of a feature that may be required.

    Raises:
        UsageError: for anything else.

    """
    if given not in get_args(Requirable):
        known = ", ".join(get_args(Requirable))
        raise UsageError(f"{what} must be one of {known}, got {shown(given)}")
    return str(given)


def why_not_enough(required: Collection[str], provides: Collection[str]) -> str | None:
    """The required features that a host lacks, in words; None if it lacks none."""
    missing = [name for name in required if name not in provides]
    return None if not missing else f"the store requires {', '.join(missing)}, which it lacks"


def remedy_for(required: Collection[str], provides: Collection[str]) -> str:
    """The remedy for the features that a host lacks, in words."""
    missing = [name for name in required if name not in provides]
    ways = [_REMEDY.get(name, "update understudy there") for name in dict.fromkeys(missing)]
    disable = ", ".join(f"`understudy trust disable {name}`" for name in missing)
    return f"{'; '.join(dict.fromkeys(ways))}. Or require it no longer: {disable}"
