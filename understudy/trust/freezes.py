"""`Freeze`: what begins no more, in a whole store. `Stops`: what may not run at a host now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from understudy._base.json_values import checked_text
from understudy.errors import UsageError

FrozenWhat: TypeAlias = Literal["store", "definition", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredCall:
    """A call that was under way when something was frozen."""

    agent_id: str
    """The id of the outermost agent, whose run is cancelled by `runtime.get(agent_id).cancel()`."""
    path: tuple[str, ...]
    """The names of the definitions, the outermost first."""
    run_id: str
    """The open run of the outermost agent."""
    tool: str
    call_key: str
    since: datetime | None = None
    """When it was started; None where no record says it any more."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "agent_id": self.agent_id,
            "path": list(self.path),
            "run_id": self.run_id,
            "tool": self.tool,
            "call_key": self.call_key,
            "since": None if self.since is None else self.since.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """The whole store, a definition, or a tool begins nothing until `Runtime.thaw`."""

    id: str
    what: FrozenWhat
    name: str = ""
    """The name of the definition, or of the tool; empty for the whole store."""
    why: str
    by: str | None = None
    """The person who has frozen it; None where nobody is named."""
    at: datetime
    number: int = 0
    """The number of its fact in the log of trust."""
    entered: tuple[EnteredCall, ...] = field(default=())
    """The calls under way that it would hold if they began now, as `Runtime.freeze` or
    `Runtime.freezes(id)` has found them: their starts are recorded, and nothing says that they have
    ended."""
    silent_hosts: tuple[str, ...] = ()
    """The names of the hosts that did not answer `Runtime.freeze`, and whose leases have ended. Of
    `Runtime.freezes(id)`: of all hosts that have not answered by then."""
    warning: str = ""
    """Why it may hold nothing: no definition of the host that was asked is called so, or has such a
    tool, say. It holds whatever has the name at any host, now or later."""

    @property
    def about(self) -> str:
        """What is frozen, in words."""
        return "the whole store" if self.what == "store" else f"{self.what} {self.name!r}"

    def is_about(self, path: Iterable[str], tools: Iterable[str]) -> bool:
        """Whether it holds a call.

        Args:
            path: the names of the definitions, the outermost first.
            tools: the names of the tool.

        """
        if self.what == "tool":
            return self.name in tools
        return self.what == "store" or self.name in path

    @property
    def text(self) -> str:
        """That it is frozen, by whom and why."""
        by = "" if self.by is None else f" by {self.by}"
        what = "" if self.what == "store" else f"{self.about} is "
        return f"{what}frozen{by}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "what": self.what,
            "name": self.name,
            "why": self.why,
            "by": self.by,
            "at": self.at.isoformat(),
            "text": self.text,
            "entered": [each.to_dict() for each in self.entered],
            "silent_hosts": list(self.silent_hosts),
            "warning": self.warning,
        }


NO_FREEZES: Mapping[str, Freeze] = MappingProxyType({})


class Stops:
    """What may not run at a host now, and why. There is none where everything may.

    Args:
        held: why no call may start at this host at all; None where calls may.
        freezes: those that stand in the store.

    """

    __slots__ = ("_definitions", "_freezes", "_held", "_store", "tools")

    def __init__(self, held: str | None, freezes: Collection[Freeze] = ()) -> None:
        self._held = held
        self._freezes = frozenset(each.id for each in freezes)
        self._store = next((each for each in freezes if each.what == "store"), None)
        self._definitions = _by_name(freezes, "definition")
        self.tools: Mapping[str, Freeze] = _by_name(freezes, "tool")
        """The tools that are frozen, by the name of each."""

    def of_agent(self, path: Iterable[str]) -> Stop | None:
        """Why an agent may not run.

        Args:
            path: the names of the definitions, the outermost first.

        """
        if self._held is not None:
            return Stop(self._held)
        if self._store is not None:
            return Stop(self._store.text, self._store.id)
        found = next((self._definitions[name] for name in path if name in self._definitions), None)
        return None if found is None else Stop(found.text, found.id)

    def of_tool(self, tools: Iterable[str]) -> Stop | None:
        """Why a call may not start of an agent that may run.

        Args:
            tools: the names of the tool: the one that it has, and those that it had.

        """
        for name in tools:
            frozen = self.tools.get(name)
            if frozen is not None:
                return Stop(frozen.text, frozen.id)
        return None

    def still(self, stop: Stop | None) -> Stop | None:
        """The stop, if it stands; else None."""
        return stop if stop is not None and stop.freeze_id in self._freezes else None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why something may not run."""

    why: str
    freeze_id: str | None = None
    """The freeze that stops it; None where this host may start no call at all."""


def _by_name(freezes: Collection[Freeze], what: FrozenWhat) -> dict[str, Freeze]:
    found: dict[str, Freeze] = {}
    for each in freezes:
        if each.what == what:
            found.setdefault(each.name, each)  # the oldest
    return found


def checked_target(definition: object, tool: object, why: object) -> tuple[FrozenWhat, str, str]:
    """What is to be frozen, its name, and why.

    Raises:
        UsageError: for both, for a name or a reason that is no text, or is empty.

    """
    if definition is not None and tool is not None:
        raise UsageError("freeze(...) takes definition= or tool=, or neither for the whole store")
    reason = checked_text(why, what="freeze(why=...)").strip()
    if not reason:
        raise UsageError("freeze(why=...) must say why: whoever finds it frozen reads that")
    if definition is not None:
        return "definition", checked_text(definition, what="freeze(definition=...)"), reason
    if tool is not None:
        return "tool", checked_text(tool, what="freeze(tool=...)"), reason
    return "store", "", reason
