"""`Freeze`: a stop for a whole store. `Stops`: everything that may not run at a host now."""

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
    """A call that was already running when something was frozen."""

    agent_id: str
    """The id of the outermost agent. `runtime.get(agent_id).cancel()` cancels its run."""
    path: tuple[str, ...]
    """The names of the definitions, the outermost first."""
    run_id: str
    """The id of the open run of the outermost agent."""
    tool: str
    """The name of the tool."""
    call_key: str
    """The key of the call."""
    since: datetime | None = None
    """The time at which the call started; None if no record says it any more."""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as plain data."""
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
    """A freeze: the whole store, a definition or a tool begins nothing until `Runtime.thaw`."""

    id: str
    """The id of the freeze, for `Runtime.thaw`."""
    what: FrozenWhat
    """What is frozen: the whole store, a definition or a tool."""
    name: str = ""
    """The name of the definition or of the tool; empty for the whole store."""
    why: str
    """The reason, for people who find the freeze."""
    by: str | None = None
    """The person who froze it; None if nobody was named."""
    at: datetime
    """The time of the freeze."""
    number: int = 0
    """The number of its fact in the log of trust."""
    entered: tuple[EnteredCall, ...] = field(default=())
    """The calls under way that the freeze would hold if they began now.

    `Runtime.freeze` and `Runtime.freezes(id)` find them: calls whose start is recorded, and whose
    end is not.
    """
    silent_hosts: tuple[str, ...] = ()
    """The names of the hosts that did not answer.

    From `Runtime.freeze`: the hosts whose leases ended without an answer. From
    `Runtime.freezes(id)`: all hosts that have not answered yet.
    """
    warning: str = ""
    """The reason why the freeze may hold nothing; empty if there is none.

    For example, the host that was asked has no definition or tool of this name. The freeze still
    holds everything with this name at any host, now or later.
    """

    @property
    def about(self) -> str:
        """What is frozen, in words."""
        return "the whole store" if self.what == "store" else f"{self.what} {self.name!r}"

    def is_about(self, path: Iterable[str], tools: Iterable[str]) -> bool:
        """Return whether the freeze holds a call.

        Args:
            path: the names of the definitions, the outermost first.
            tools: the names of the tool.

        """
        if self.what == "tool":
            return self.name in tools
        return self.what == "store" or self.name in path

    @property
    def text(self) -> str:
        """A sentence for people: what is frozen, by whom and why."""
        by = "" if self.by is None else f" by {self.by}"
        what = "" if self.what == "store" else f"{self.about} is "
        return f"{what}frozen{by}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        """Return the freeze as plain data."""
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
    """Everything that may not run at a host now, with the reasons. There is no `Stops` if
    everything may.

    Args:
        held: why no call may start at this host at all; None if calls may start.
        freezes: the freezes that stand in the store.

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
        """The stop of an agent; None if it may run.

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
        """The stop of a call of an agent that may run; None if the call may start.

        Args:
            tools: the name of the tool, and its earlier names.

        """
        for name in tools:
            frozen = self.tools.get(name)
            if frozen is not None:
                return Stop(frozen.text, frozen.id)
        return None

    def still(self, stop: Stop | None) -> Stop | None:
        """The stop, if it still stands; else None."""
        return stop if stop is not None and stop.freeze_id in self._freezes else None


@dataclass(frozen=True, slots=True)
class Stop:
    """The reason why something may not run."""

    why: str
    freeze_id: str | None = None
    """The id of the freeze that stops it; None if this host may start no call at all."""


def _by_name(freezes: Collection[Freeze], what: FrozenWhat) -> dict[str, Freeze]:
    found: dict[str, Freeze] = {}
    for each in freezes:
        if each.what == what:
            found.setdefault(each.name, each)  # the oldest freeze wins
    return found


def checked_target(definition: object, tool: object, why: object) -> tuple[FrozenWhat, str, str]:
    """The kind and the name of what is to be frozen, and the reason.

    Raises:
        UsageError: for both, for a name or a reason that is no text, or is empty.

    """
    if definition is not None and tool is not None:
        raise UsageError("freeze(...) takes definition= or tool=, or neither for the whole store")
    reason = checked_text(why, what="freeze(why=...)").strip()
    if not reason:
        raise UsageError("freeze(why=...) must say why, for people who find the freeze")
    if definition is not None:
        return "definition", checked_text(definition, what="freeze(definition=...)"), reason
    if tool is not None:
        return "tool", checked_text(tool, what="freeze(tool=...)"), reason
    return "store", "", reason
