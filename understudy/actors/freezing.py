"""`Freezing`: freezes the whole store, a definition or a tool, at all hosts, and thaws them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime

from understudy._base.clock import new_random_id
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.stored_agents import latest_state
from understudy.actors.trust_watch import TrustWatch
from understudy.agent.rule_checks import reachable_tools
from understudy.errors import UsageError
from understudy.journal import IndexStatus
from understudy.journal.parts import read_in_parts
from understudy.run.definition import BACKGROUND_SUFFIX
from understudy.state.agent_state import AgentState
from understudy.state.records import Record, Started
from understudy.state.trust_facts import Frozen, Thawed
from understudy.trust.fold import TrustState
from understudy.trust.freezes import EnteredCall, Freeze, FrozenWhat

GOES_ON = (IndexStatus.OPEN, IndexStatus.SUSPECT)
"""The status of agents that may have a call under way."""
MOST = 1000
"""The number of freezes that may stand at once."""


class Freezing:
    """Freezes and thaws. On the runtime's loop.

    Args:
        directory: of the agents of the runtime.
        watch: of its store.

    """

    def __init__(self, directory: Directory, watch: TrustWatch) -> None:
        self._directory = directory
        self._watch = watch
        self._trust = watch.trust
        self._store = watch.services.store

    async def freeze(self, what: FrozenWhat, name: str, why: str, by: str | None) -> Freeze:
        """Freeze the store or a part of it; see `Runtime.freeze`."""
        said = Frozen(id=new_random_id(), what=what, name=name, why=why)

        def to_freeze(state: TrustState) -> Frozen | None:
            if _same(state, said, by) is not None:
                return None
            if len(state.freezes) >= MOST:
                raise UsageError(f"{MOST} freezes stand already: thaw those that are over")
            return said

        await self._watch.add(to_freeze, by)
        freeze = _same(self._trust.state, said, by)
        if freeze is None:  # somebody has thawed it already
            raise UsageError(f"freeze(...) of {said.name or 'the store'!r} was thawed at once")
        return await self._seen(freeze, await self._watch.all_judge_by(freeze.number))

    async def thaw(self, id: str, by: str | None) -> bool:
        """End a freeze; see `Runtime.thaw`."""

        def to_thaw(state: TrustState) -> Thawed | None:
            return Thawed(id=id) if id in state.freezes else None

        return await self._watch.add(to_thaw, by) is not None

    async def freezes(self, id: str | None = None) -> list[Freeze]:
        """The freezes that stand now; see `Runtime.freezes`."""
        await self._trust.look()
        if id is None:
            return list(self._trust.state.freezes.values())
        freeze = self._trust.state.freezes.get(id)
        if freeze is None:
            return []
        behind = await self._store.hosts_behind(freeze.number)
        return [await self._seen(freeze, tuple(each.name for each in behind))]

    # ------------------------------------------------------------- what is under way

    async def _seen(self, freeze: Freeze, silent: tuple[str, ...]) -> Freeze:
        """The freeze with what is under way now, and with the hosts that are silent."""
        return replace(
            freeze,
            silent_hosts=silent,
            entered=tuple(await self._entered(freeze)),
            warning=self._warning(freeze),
        )

    async def _entered(self, freeze: Freeze) -> list[EnteredCall]:
        """The calls under way that a freeze is about, according to the records."""
        found: list[EnteredCall] = []
        names = self._names(freeze)
        async for stored in self._store.agents(GOES_ON):
            slot = self._directory.find(stored.agent_id)
            here = None if slot is None else slot.activation
            state = here.state if here else await latest_state(self._store, stored.agent_id)
            if state is None:
                continue
            calls = list(_under_way(state, stored.agent_id, freeze, names))
            if calls:
                found += await self._with_times(stored.agent_id, calls)
        return found

    async def _with_times(self, agent_id: str, calls: Collection[EnteredCall]) -> list[EnteredCall]:
        """The calls of an agent, with the times at which they were started."""
        read = await read_in_parts(self._store, agent_id, lambda _: _Starts())
        times = {} if read is None else read[1].times
        return [replace(each, since=times.get(each.call_key)) for each in calls]

    # ------------------------------------------------------------------- what is known

    def _names(self, freeze: Freeze) -> frozenset[str]:
        """The names that the frozen tool has, and had, in the definitions of this host."""
        if freeze.what != "tool":
            return frozenset()
        tools = reachable_tools(self._directory.definitions())
        return frozenset(name for tool in tools if freeze.name in tool.names for name in tool.names)

    def _warning(self, freeze: Freeze) -> str:
        """Why a freeze may hold nothing; empty if this host knows what it holds."""
        if freeze.what == "store":
            return ""
        tools = list(reachable_tools(self._directory.definitions()))
        if freeze.what == "definition":
            names = {agent.name for agent in self._directory.definitions()}
            names.update(name for tool in tools for name in tool.agent_path)
            if freeze.name in names:
                return ""
            return f"no definition of host {self._watch.host!r} has the name {freeze.name!r}"
        meant = [tool for tool in tools if freeze.name in tool.names]
        if not meant:
            return f"no definition of host {self._watch.host!r} has a tool {freeze.name!r}"
        return next((tool.unseen for tool in meant if tool.unseen), "")


def _same(state: TrustState, said: Frozen, by: str | None) -> Freeze | None:
    """A freeze that stands, of the same thing, by the same person, for the same reason."""
    wanted = (said.what, said.name, said.why, by)
    for each in state.freezes.values():
        if (each.what, each.name, each.why, each.by) == wanted:
            return each
    return None


def _under_way(
    state: AgentState,
    agent_id: str,
    freeze: Freeze,
    names: Collection[str],
    above: tuple[str, ...] = (),
    run_id: str = "",
) -> Iterator[EnteredCall]:
    """The frozen calls of an agent, and of the agents that it runs, that are running."""
    run = state.run
    if run is None or run.over:
        return
    path, run_id = (*above, run.agent.removesuffix(BACKGROUND_SUFFIX)), run_id or run.run_id
    for call in run.turn.calls.values() if run.turn is not None else ():
        tool = call.part.tool_name
        of_tool = names if tool in names else (tool,)
        if call.running and freeze.is_about(path, of_tool):
            yield EnteredCall(
                agent_id=agent_id, path=path, run_id=run_id, tool=tool, call_key=call.key
            )
    for child in state.children.values():
        yield from _under_way(child, agent_id, freeze, names, path, run_id)


class _Starts:
    """Collects the times at which calls were started, by call key."""

    def __init__(self) -> None:
        self.times: dict[str, datetime | None] = {}

    def add(self, seq: int, record: Record) -> None:
        if isinstance(record, Started):
            self.times[record.call_key] = record.at
