"""`Directory`: which agents a runtime knows, by name and by id. Thread-safe, without waiting."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from understudy.actors.activation import Awake
from understudy.actors.agent_ref import AgentRef
from understudy.actors.agent_slot import AgentCell
from understudy.actors.services import Home
from understudy.agent.agent import Agent
from understudy.errors import OtherAgent, UsageError
from understudy.loop_actors.monitor import Lifetime
from understudy.state.agent_state import AgentState


class Directory:
    """The definitions of a runtime by name, and its agents by id.

    Args:
        agents: definitions that can be spawned by name.
        alive: of the runtime: its refs say by it whether they can be spoken to.

    """

    home: Home[AgentCell, Awake]
    """Set when the runtime begins."""

    def __init__(self, agents: Iterable[Agent], alive: Lifetime) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            self._define(agent)
        self._alive = alive
        self._lock = threading.RLock()
        self._cells: dict[str, AgentCell] = {}
        """Those that must be kept: awake, or with something that is in no store."""
        self._known: weakref.WeakValueDictionary[str, AgentCell] = weakref.WeakValueDictionary()
        """Those that somebody holds, by a ref or a subscription: there is one for each id."""
        self._refs: weakref.WeakValueDictionary[str, AgentRef] = weakref.WeakValueDictionary()

    def spawn(
        self,
        agent: str | Agent,
        id: str | None,
        *,
        deps: Any,
        values: Mapping[str, Any] | None,
    ) -> AgentRef:
        """As `Runtime.spawn`."""
        id = self.home.new_id() if id is None else checked_id(id)
        if values:
            AgentState(values=values)  # they are checked before anything begins
        with self._lock:
            definition = agent if isinstance(agent, Agent) else self.named(agent)
            cell = self.find(id)
            if cell is None:
                self._define(definition)
                cell = self._known[id] = AgentCell(
                    id, definition, self.home, deps=deps, values=values
                )
            elif cell.agent is None:
                cell.agent, cell.values = self._define(definition), values
            elif cell.agent is not definition:
                raise OtherAgent(agent_id=id, agent=cell.agent.name, wanted=definition.name)
            if deps is not None:
                cell.deps = deps
            self._cells[id] = cell  # until the store has it; deps are in no store
            return self.ref_of(cell)

    def get(self, id: str) -> AgentRef:
        """As `Runtime.get`."""
        id = checked_id(id)
        with self._lock:
            cell = self.find(id)
            if cell is None:
                cell = self._known[id] = AgentCell(id, None, self.home)
            return self.ref_of(cell)

    def find(self, id: str) -> AgentCell | None:
        """The one cell of this id, if anybody knows it."""
        with self._lock:
            cell = self._cells.get(id)
            return cell if cell is not None else self._known.get(id)

    def ref_of(self, cell: AgentCell) -> AgentRef:
        """The ref of an agent: there is one at a time."""
        with self._lock:
            ref = self._refs.get(cell.id)
            if ref is None or ref._cell is not cell:
                ref = self._refs[cell.id] = AgentRef(cell, self._alive)
            return ref

    def is_awake(self, id: str) -> bool:
        """Whether the agent is in this runtime's memory."""
        cell = self._cells.get(id)
        return cell is not None and cell.awake is not None

    def cells(self) -> list[AgentCell]:
        """Those that are in memory."""
        with self._lock:
            return list(self._cells.values())

    def _define(self, agent: Agent) -> Agent:
        if not isinstance(agent, Agent):
            raise UsageError(f"Runtime(agents=[...]) takes agents, not {agent!r}")
        before = self._agents.setdefault(agent.name, agent)
        if before is not agent:
            raise UsageError(f"Two different agents are named {agent.name!r}: rename one")
        return agent

    def named(self, name: str) -> Agent:
        """The definition of this name; a `UsageError` names those that there are."""
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(map(repr, self._agents)) or "none"
            raise UsageError(
                f"No agent is named {name!r}; there are: {known}. Give it to "
                "Runtime(agents=[...]); a stored agent of that name stays untouched till then"
            )
        return agent

    def hold(self, cell: AgentCell) -> None:
        """Keep it in memory: its ref may be gone by now, and the next `get` must find this one."""
        with self._lock:
            self._cells.setdefault(cell.id, cell)

    def drop(self, cell: AgentCell) -> None:
        """Keep it no longer."""
        with self._lock:
            if self._cells.get(cell.id) is cell:
                del self._cells[cell.id]

    def drop_unless_needed(self, cell: AgentCell) -> None:
        """Keep it no longer, if all that it was is in the store.

        What comes meanwhile is in its inbox, or holds it after this; a subscriber holds it himself.
        """
        with self._lock:
            if not cell.inbox and cell.deps is None and cell.waiting is None:
                self.drop(cell)

    def everybody(self) -> set[AgentCell]:
        """All that are in memory, for whatever reason."""
        with self._lock:
            return {*self._cells.values(), *self._known.values()}


_ID = re.compile(r"[^/\0\ud800-\udfff]+")
_LONGEST_ID = 500
"""Characters: a database has them in an index."""


def checked_id(id: object) -> str:
    """The id of an agent, which any store can keep; else a `UsageError`."""
    if not isinstance(id, str) or not _ID.fullmatch(id) or len(id) > _LONGEST_ID:
        shown = repr(id) if len(repr(id)) < 2 * _LONGEST_ID else f"{repr(id)[:50]}..."
        raise UsageError(
            f"An agent's id is text without '/', at most {_LONGEST_ID} characters of Unicode and "
            f"none of them NUL, not {shown}"
        )
    return id
