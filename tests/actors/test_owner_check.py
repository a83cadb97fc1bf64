"""The last check before a tool's body: is this runtime still the owner?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.agents import Held, completed
from tests.support.loops import soon
from understudy import Agent, AgentRef, Run, Runtime, ScriptedModel, Stopped, call, tool
from understudy.errors import Fenced
from understudy.journal import JournalledAgent, MemoryStore, Owned, OwnedJournal
from understudy.middleware import Middleware, SubAgent, ToolCall
from understudy.models.scripted_model import ScriptedCall
from understudy.state.records import Record


class Lease:
    """A lease that runs out, is renewed, and is lost when the test says so."""

    def __init__(self) -> None:
        self.ended = False
        self.waited_for = asyncio.Event()
        """Set once somebody waits for its renewal."""
        self.settled = asyncio.Event()
        """Set by the test when it is renewed, or lost."""
        self.ends_behind_check = False
        """Whether it runs out once the next one who waits for it has seen that it holds."""

    def settle(self, *, renewed: bool) -> None:
        self.ended = not renewed
        self.settled.set()


class _LeasedJournal(OwnedJournal):
    """The journal of a memory store whose owner has a lease."""

    def __init__(self, journal: OwnedJournal, lease: Lease) -> None:
        self._journal = journal
        self._lease = lease

    def append(self, records: Sequence[Record]) -> None:
        self._journal.append(records)

    async def durable(self) -> None:
        await self._journal.durable()

    def fence(self, why: str) -> None:
        self._journal.fence(why)

    @property
    def owned(self) -> Owned:
        return self._journal.owned

    @property
    def has_unflushed(self) -> bool:
        return False

    def check_owner(self) -> None:
        if self._lease.ended:
            raise Fenced(agent_id=self.owned.agent_id, why="the test ended the lease")

    async def wait_for_owner(self) -> None:
        if self._lease.ended:
            self._lease.waited_for.set()
            await self._lease.settled.wait()
        self.check_owner()
        self._lease.ended = self._lease.ends_behind_check
        self._lease.ends_behind_check = False


class LeasedStore(MemoryStore):
    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def journal(  # type: ignore[override]  # a wrapper of what it returns
        self, owned: Owned, agent: JournalledAgent
    ) -> _LeasedJournal:
        return _LeasedJournal(super().journal(owned, agent), self._lease)


Script = list[str | Sequence[str | ScriptedCall | BaseException]]


class Ends(Middleware):
    """The lease runs out between the start of a call and its body."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Any) -> Any:
        self._lease.ended = True
        return await next(call)


def cases(lease: Lease, ran: list[str]) -> dict[str, Agent]:
    """Agents that call `first`, during which the lease runs out, and `second`, which is next."""

    @tool
    async def first() -> str:
        lease.ended = True
        return "first"

    @tool(name="first")
    def first_in_thread() -> str:
        lease.ended = True
        return "first"

    @tool
    async def second() -> str:
        ran.append("second")
        return "second"

    @tool(name="second")
    def second_in_thread() -> str:
        ran.append("second")
        return "second"

    @tool(name="second", timeout=60)
    def second_in_time() -> str:
        ran.append("second")
        return "second"

    both: Script = [[call("first"), call("second")], "done"]
    alone: Script = [[call("second")], "done"]
    hook: Any = {"middleware": [Ends(lease)]}
    return {
        "an async tool behind another": Agent("a", ScriptedModel(both), tools=[first, second]),
        "a plain tool that waits for a thread": Agent(
            "a", ScriptedModel(both), tools=[first_in_thread, second_in_thread]
        ),
        "a plain tool with a time limit": Agent(
            "a", ScriptedModel(both), tools=[first_in_thread, second_in_time]
        ),
        "an async tool behind a hook": Agent("a", ScriptedModel(alone), tools=[second], **hook),
        "a plain tool behind a hook": Agent(
            "a", ScriptedModel(alone), tools=[second_in_thread], **hook
        ),
    }


CASES = tuple(cases(Lease(), []))


@pytest.mark.parametrize("case", CASES)
async def test_a_call_whose_lease_has_run_out_waits_until_it_is_renewed(case: str) -> None:
    """J8: a lease that is renewed was never another host's, so nothing is in doubt."""
    lease, ran = Lease(), list[str]()
    agent = cases(lease, ran)[case]
    async with Runtime([agent], store=LeasedStore(lease), max_threads=1) as runtime:
        run = runtime.spawn("a").run("go")
        await soon(lease.waited_for.wait())
        assert ran == []
        lease.settle(renewed=True)
        outcome = completed(await soon(run))
    assert ran == ["second"]
    assert outcome.text == "done"
    assert outcome.state.doubts == {}


@pytest.mark.parametrize("case", CASES)
async def test_a_call_whose_lease_has_run_out_is_not_run_when_it_is_lost(case: str) -> None:
    """J8: the check is the last thing before the body, for a plain tool in the thread itself."""
    lease, ran = Lease(), list[str]()
    agent = cases(lease, ran)[case]
    async with Runtime([agent], store=LeasedStore(lease), max_threads=1) as runtime:
        run = runtime.spawn("a").run("go")
        await soon(lease.waited_for.wait())
        lease.settle(renewed=False)
        with pytest.raises(Fenced):
            await soon(run)
        lease.ended = False
    assert ran == []


class Starts(Middleware):
    """The lease runs out while the agent is activated."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def on_start(self, agent: AgentRef) -> None:
        self._lease.ended = True


async def test_an_agent_whose_lease_runs_out_while_it_is_activated_waits_as_well() -> None:
    """J8: its callers are not refused because of a lease that is renewed."""
    lease = Lease()
    agent = Agent("a", ScriptedModel(["done"]), middleware=[Starts(lease)])
    async with Runtime([agent], store=LeasedStore(lease)) as runtime:
        run = runtime.spawn("a").run("go")
        await soon(lease.waited_for.wait())
        lease.settle(renewed=True)
        assert completed(await soon(run)).text == "done"


async def test_an_agent_whose_lease_runs_out_right_after_it_is_activated_waits_as_well() -> None:
    """J8: as where its process is suspended between the last check and the first run."""
    lease = Lease()
    lease.ends_behind_check = True
    async with Runtime([Agent("a", ScriptedModel(["done"]))], store=LeasedStore(lease)) as runtime:
        run = runtime.spawn("a").run("go")
        await soon(lease.waited_for.wait())
        lease.settle(renewed=True)
        assert completed(await soon(run)).text == "done"


async def test_a_cancel_while_the_lease_has_run_out_waits_as_well() -> None:
    """J8: whoever cancelled gets no error because of a lease that is renewed."""
    lease, held = Lease(), Held("never said")
    async with Runtime([Agent("a", ScriptedModel(held))], store=LeasedStore(lease)) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        lease.ended = True
        cancelled = ref.cancel()
        await soon(lease.waited_for.wait())
        lease.settle(renewed=True)
        assert isinstance(await soon(run), Stopped)
        assert isinstance(await soon(cancelled), Stopped)


async def test_a_tool_of_a_sub_agent_is_not_run_when_the_lease_has_ended() -> None:
    """J8: one epoch covers an agent and all agents inside it."""
    lease = Lease()
    ran: list[str] = []

    @tool
    async def act() -> str:
        ran.append("act")
        return "acted"

    def ended(_: object) -> object:
        lease.ended = True
        return call("act")

    helper = Agent("helper", ScriptedModel([ended, "done"]), tools=[act])
    task = call("task", {"task_name": "helper", "instructions": "act"})
    sub_agents = SubAgent(agents=[helper], general_purpose=False)
    agent = Agent("a", ScriptedModel([task, "done"]), middleware=[sub_agents])
    async with Runtime([agent], store=LeasedStore(lease)) as runtime:
        run = runtime.spawn("a").run("go")
        await soon(lease.waited_for.wait())
        lease.settle(renewed=False)
        with pytest.raises(Fenced):
            await soon(run)
        lease.ended = False
    assert ran == []


async def test_a_message_to_a_run_whose_lease_is_about_to_be_renewed_does_not_end_it() -> None:
    """J8: a lease that has run out is not lost yet; what is idle is read anew, what runs waits."""
    lease, held = Lease(), Held("done")
    agent = Agent("a", ScriptedModel([held]))
    async with Runtime([agent], store=LeasedStore(lease)) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        lease.ended = True
        assert (await soon(ref.state())).run is not None
        lease.ended = False
        held.release.set()
        assert completed(await soon(run)).text == "done"
