"""What a caller is told is the same at every host, whoever goes away in between."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, desk, interrupted, results
from tests.support.held_commits import HeldAppends, HeldCommits, turns
from tests.support.hosts import (
    Stopping,
    host,
    keep_stale_copies,
    may_be_taken,
    opened,
    pay,
    posts,
    recorded,
    running,
    stores,
)
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Completed,
    Interrupt,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    call,
    respond,
    tool,
)
from understudy.actors import Future
from understudy.errors import NotInterrupted, UnknownAgent, UnknownMessage
from understudy.journal import StoredAgent
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Middleware


async def test_an_agent_that_is_stopped_at_another_host_was_in_memory(hosts: Hosts) -> None:
    """J70: it is free before its owner has replied: that is what was asked for."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "reply")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "second"])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        run = await running(first, held)
        stopped = second.get("t").stop(block=False)
        await until(lambda: bool(posts(hosts)))
        held.release.set()
        completed(await soon(run))
        assert await soon(stopped) is True
        owner.released.set()
        assert await soon(second.get("t").stop(block=False)) is False


async def test_an_agent_is_stopped_where_it_is_and_not_at_a_stale_copy(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: nothing is stopped by what leaves memory where the agent is not any more."""
    keep_stale_copies(monkeypatch)
    async with (
        opened(host(hosts, "here"), desk(*["done"] * 5), sweep=None) as first,
        opened(host(hosts, "there"), desk(*["done"] * 5), sweep=None) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        completed(await soon(here.run("go")))
        await may_be_taken(hosts)
        completed(await soon(there.run("go")))
        assert await soon(here.stop(block=False)) is True
        assert there.status() is Status.PASSIVE
        completed(await soon(here.run("go")))
        await may_be_taken(hosts)
        completed(await soon(there.run("go")))
        assert await soon(there.stop(block=False)) is True
        assert here.status() is Status.IDLE
        assert await soon(here.stop(block=False)) is False
        completed(await soon(there.run("go")))


async def test_a_stale_copy_holds_up_neither_a_drain_nor_the_end_of_its_runtime(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J53."""
    keep_stale_copies(monkeypatch)
    async with opened(host(hosts, "there"), desk(*["done"] * 2), sweep=None) as second:
        async with opened(host(hosts, "here"), desk(*["done"] * 2), sweep=None) as first:
            for id in ("drained", "closed"):
                completed(await soon(first.spawn("desk", id).run("go")))
                await may_be_taken(hosts, id)
            completed(await soon(second.get("drained").run("go")))
            assert await soon(first.drain())
        async with opened(host(hosts, "here"), desk("done"), sweep=None) as first:
            completed(await soon(first.spawn("desk", "closed").run("go")))
            await may_be_taken(hosts, "closed")
            completed(await soon(second.get("closed").run("go")))
        assert [info.host for info in await soon(second.agents())] == ["there"] * 2


async def test_a_retry_of_no_quarantine_at_a_stale_copy_is_refused(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J33: it has released nothing, and is not answered by the outcome of the run."""
    keep_stale_copies(monkeypatch)
    held = Held("more")
    async with (
        opened(host(hosts, "here"), Agent("desk", ScriptedModel([held]))) as first,
        opened(host(hosts, "there"), Agent("desk", ScriptedModel(["done"]))) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause())
        held.release.set()
        assert type(await soon(run)) is Paused
        await soon(second.get("t").unpause())
        with pytest.raises(NotInterrupted):
            await soon(ref.retry())


async def test_an_agent_is_imported_at_a_host_that_must_not_run_it(hosts: Hosts) -> None:
    """J51: it is written there, and runs at one that may."""

    def needy() -> Agent:
        return Agent("desk", ScriptedModel(lambda request: "done"), needs={"gpu"})

    async with (
        opened(host(hosts, "here"), needy(), labels={"gpu"}) as first,
        opened(host(hosts, "there"), needy()) as second,
        opened(host(hosts, "drained"), needy(), labels={"gpu"}) as third,
    ):
        completed(await soon(first.spawn("desk", "t").run("go")))
        assert await soon(third.drain())
        data = await soon(first.export("t"))
        for id, at in (("unlabelled", second), ("drained", third)):
            ref = await soon(at.import_(data, id=id))
            assert len((await soon(ref.state())).messages) == 2
            completed(await soon(ref.run("more")))
        assert [info.host for info in await soon(first.agents())] == ["here"] * 3


async def test_runs_that_are_posted_to_one_agent_cost_no_fold_of_all_of_them_each(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: who has posted them reads on where the last look has ended."""
    held, records = Held("first"), 0
    here, there = stores(hosts, "here", "there")

    def counted(name: str) -> None:
        method = getattr(there, name)

        async def read(*given: Any) -> Any:
            nonlocal records
            loaded = await method(*given)
            records += len(loaded.records)
            return loaded

        monkeypatch.setattr(there, name, read)

    async with (
        opened(here, Agent("desk", ScriptedModel([held, *["done"] * 40])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        await running(first, held)
        runs = [second.get("t").run(str(number)) for number in range(40)]
        await until(lambda: len(posts(hosts)) == 40)
        counted("load")
        counted("load_latest")
        held.release.set()
        for run in runs:
            completed(await soon(run))
        loaded = await here.load("t")
        assert loaded is not None
        assert records <= 4 * loaded.agent.last_seq, "and not forty times"


@pytest.mark.slow
@pytest.mark.quick
async def test_a_run_that_waits_for_its_turn_is_known_at_every_host(hosts: Hosts) -> None:
    """J33: it is recorded."""
    held = Held("first")
    here, there, third = stores(hosts, "here", "there", "third")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "second", "third"]))) as first,
        opened(there, desk("never")) as second,
        opened(third, desk("never")) as last,
    ):
        run = await running(first, held)
        queued = first.get("t").run("own", message_id="own")
        posted = second.get("t").run("posted", message_id="posted")
        await hosts.found("SELECT 1 FROM records WHERE kind = 'message_queued' OFFSET 1")
        outcomes = [last.outcome("t", message_id=id) for id in ("own", "posted")]
        with pytest.raises(UnknownMessage):
            await soon(last.outcome("t", message_id="none"))
        assert not any(each.done() for each in outcomes)
        held.release.set()
        await soon(run)
        for asked, outcome in zip((queued, posted), outcomes, strict=True):
            found = await soon(outcome)
            assert found is not None
            assert completed(found).run_id == completed(await soon(asked)).run_id
        with pytest.raises(UnknownMessage):
            await soon(last.outcome("t", message_id="none"))
        await until(lambda: posts(hosts) == [])


async def queued_in_a_passive_agent(runtime: Runtime, held: Held) -> Future[Outcome]:
    """The future of a run behind one that is paused, of an agent that has left the memory."""
    run = await running(runtime, held)
    queued = runtime.get("t").run("queued", message_id="queued")
    await soon(runtime.get("t").pause())
    held.release.set()
    assert type(await soon(run)) is Paused
    assert await soon(runtime.get("t").stop(block=False)) is True
    return queued


async def test_a_run_that_is_queued_in_a_passive_agent_is_followed_where_that_goes(
    hosts: Hosts,
) -> None:
    """J70: the host that has it next knows nothing of the run, and is asked for it."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "here"])), sweep=None) as first,
        opened(there, Agent("desk", ScriptedModel(lambda request: "there")), sweep=None) as second,
    ):
        queued = await queued_in_a_passive_agent(first, held)
        completed(await soon(second.get("t").run("taken")))
        assert completed(await soon(queued)).text in ("here", "there")


async def test_a_run_that_is_queued_in_an_agent_that_is_deleted_is_not_run_by_the_next_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J7, J70: its host does not see that there was no agent in between."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "here"])), sweep=None) as first,
        opened(there, Agent("desk", ScriptedModel(lambda request: "there")), sweep=None) as second,
    ):
        queued = await queued_in_a_passive_agent(first, held)
        find, is_made = here.find_agents, asyncio.Event()

        async def find_later(agent_ids: Collection[str]) -> Sequence[StoredAgent]:
            await is_made.wait()
            return await find(agent_ids)

        monkeypatch.setattr(here, "find_agents", find_later)
        assert await soon(second.delete("t"))
        completed(await soon(second.spawn("desk", "t").run("anew")))
        is_made.set()
        with pytest.raises(UnknownAgent):
            await soon(queued)
        assert len((await soon(second.get("t").state())).messages) == 2


class Hangs(Middleware):
    """Does not return from `on_start`, once it is said so."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.is_on = False

    async def on_start(self, ref: Any) -> None:
        if self.is_on:
            await self.held.wait()


async def test_a_deletion_from_another_host_does_not_wait_for_a_start_hook_that_hangs(
    hosts: Hosts,
) -> None:
    """As a deletion that is asked for at the owner. Nobody else may take the agent."""
    held = Held()
    hook = Hangs(held)
    here, there = stores(hosts, "here", "there")
    agent = Agent("desk", ScriptedModel(["first"]), middleware=[hook], movable=False)
    async with (
        opened(here, agent, sweep=None) as first,
        opened(there, agent, sweep=None) as second,
    ):
        ref = first.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        await soon(asyncio.to_thread(ref.stop))
        hook.is_on = True
        ref.run("again")
        await soon(held.entered.wait())
        assert await soon(second.delete("t", by="ann"))
        held.release.set()
        for runtime in (first, second):
            with pytest.raises(UnknownAgent, match=r"deleted at .* by ann"):
                await soon(runtime.get("t").state())


@pytest.mark.slow
async def test_a_cancel_behind_a_call_is_for_the_run_of_that_call(hosts: Hosts) -> None:
    """J70: its owner goes away before it has replied; the next one has another run by then."""
    first_held, second_held = Held("first"), Held("second")
    here, there, third = stores(hosts, "here", "there", "third")
    noted = Held()

    def waiting(*replies: Any) -> Agent:
        return Agent("desk", ScriptedModel(replies), middleware=[Waits(noted)])

    async with (
        opened(here, waiting("zero", first_held), sweep=None) as first,
        opened(there, waiting("never"), sweep=None) as second,
        opened(third, waiting(second_held), sweep=None) as last,
    ):
        completed(await soon(first.spawn("desk", "t").run("go")))
        told = first.get("t").notify("Waits", "keeps it here")
        await soon(noted.entered.wait())
        # What is posted is read when both are there.
        collected = Stopping(here, "posted")
        ran, cancelled = second.get("t").run("one"), second.get("t").cancel()
        await until(lambda: [kind for kind, _ in posts(hosts)] == ["run", "cancel"])
        replies = Stopping(here, "reply")
        collected.released.set()
        await soon(replies.reached.wait())
        noted.release.set()
        await soon(told)
        await until(lambda: recorded(hosts, "run_ended") == 2)
        asker = Stopping(there, "place")
        hosts.end_lease("here")
        await soon(asker.reached.wait())
        run = last.get("t").run("two")
        await soon(second_held.entered.wait())
        asker.released.set()
        stopped = await soon(ran)
        assert type(stopped) is Stopped
        found = await soon(cancelled)
        assert found is not None
        assert found.run_id == stopped.run_id
        second_held.release.set()
        assert type(await soon(run)) is Completed
        replies.released.set()


class Waits(Middleware):
    """Holds each message until it is released."""

    def __init__(self, held: Held) -> None:
        self._held = held

    async def on_message(self, run: Any, message: object) -> dict[str, Any]:
        self._held.entered.set()
        await self._held.release.wait()
        return {}


async def test_a_message_that_comes_while_its_agent_is_deleted_keeps_its_place(
    hosts: Hosts,
) -> None:
    """It is for the next agent of this id, which is in memory then like any other."""
    here, there = stores(hosts, "here", "there")
    delete, reached, released = here.delete, asyncio.Event(), asyncio.Event()

    async def held_delete(agent_id: str, by: str | None = None) -> bool:
        existed = await delete(agent_id, by)
        reached.set()
        await released.wait()
        return existed

    async with opened(here, desk("done")) as first, opened(there, desk("done")) as second:
        completed(await soon(first.spawn("desk", "t").run("go")))
        await soon(first.get("t").stop(block=False))
        here.delete = held_delete  # type: ignore[method-assign]
        deleted = first.delete("t")
        await soon(reached.wait())
        sent = first.get("t").send("more", at=datetime.now(UTC) + timedelta(days=1))
        completed(await soon(second.spawn("desk", "t").run("go")))
        await soon(second.get("t").stop(block=False))
        released.set()
        assert await soon(deleted) is True
        await soon(sent)
        assert first.status().agents == 1


def asking(then: Held) -> Agent:
    model = ScriptedModel([call("pay"), then])
    return Agent("desk", model, tools=[pay([])], interrupt_on={"pay": True}, movable=False)


async def test_a_cancel_behind_a_run_that_withdraws_another_is_for_that_run(hosts: Hosts) -> None:
    """J70: as where the agent is: the one that asks is over by then."""
    held = Held()
    here, there = stores(hosts, "here", "there")
    # What was sent before the agent asked withdraws nothing, and that is judged by two clocks.
    clock = SimulatedClock()
    async with (
        opened(here, asking(held), clock=clock) as first,
        opened(there, asking(held), clock=clock) as second,
    ):
        asked = interrupted(await soon(first.spawn("desk", "t").run("go")))
        ran, cancelled = second.get("t").run("instead"), second.get("t").cancel()
        stopped, found = await soon(ran), await soon(cancelled)
        assert type(stopped) is Stopped
        assert found is not None
        assert found.run_id == stopped.run_id != asked.run_id


async def test_a_cancel_behind_a_run_that_withdraws_one_that_asks_just_now(
    hosts: Hosts,
) -> None:
    """J70: its outcome is there before it is recorded that its agent has come to rest."""
    held = Held()
    commits, clock = HeldCommits(hosts.new("here")), SimulatedClock()
    (there,) = stores(hosts, "there")
    async with (
        opened(DatabaseStore(commits), asking(held), clock=clock) as first,
        opened(there, asking(held), clock=clock) as second,
    ):
        await soon(first.spawn("desk", "t").compact())
        with commits.held():
            run = first.get("t").run("go")
            await commits.reached()
            while not run.done():
                commits.let_one_pass()
                await commits.reached()
            asked = interrupted(await soon(run))
            ran, cancelled = second.get("t").run("instead"), second.get("t").cancel()
            await until(lambda: {kind for kind, _ in posts(hosts)} == {"run", "cancel"})
        stopped, found = await soon(ran), await soon(cancelled)
        assert type(stopped) is Stopped
        assert found is not None
        assert found.run_id == stopped.run_id != asked.run_id


async def test_a_request_is_answered_at_another_host_while_its_run_goes_on(hosts: Hosts) -> None:
    """J70: the answer waits until the run has come to rest, as one at the run's own host does."""
    held, tokens = Held(), list[str]()

    @tool
    async def delivery(ctx: ToolContext) -> str:
        tokens.append(await ctx.token("shipped"))
        await ctx.wait_for("shipped", timeout=60)
        await held.wait()
        return "delivered"

    @tool
    async def ask(ctx: ToolContext) -> str:
        if ctx.resume_value is None:
            raise Interrupt("Which?")
        return str(ctx.resume_value)

    agent = Agent("desk", by_turn([call("delivery"), call("ask")], "done"), tools=[delivery, ask])
    async with (
        opened(host(hosts, "here"), agent) as first,
        opened(host(hosts, "there"), agent) as second,
    ):
        ref = first.spawn("desk", "t")
        (request,) = interrupted(await soon(ref.run("go"))).requests
        assert await soon(first.resolve(tokens[0], "here"))
        await soon(held.entered.wait())
        answer = second.get("t").resume({request.id: respond("this")})
        await until(lambda: bool(posts(hosts)))
        await soon(second.get("t").cancel_message("none"))  # the owner has read what was before it
        held.release.set()
        told = [part.content for part in results(completed(await soon(answer)).state)]
        assert told == ["delivered", "this"]


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_a_cancel_of_a_run_that_was_never_recorded_is_for_the_run_of_its_message(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    """J70: another host has taken the agent, and has begun the message itself."""
    keep_stale_copies(monkeypatch)
    held = Held("never told")
    appends = HeldAppends(hosts.new("here"))
    async with (
        opened(DatabaseStore(appends), Agent("desk", ScriptedModel(["done"] * 2))) as first,
        opened(host(hosts, "there"), Agent("desk", ScriptedModel([held, "more"]))) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        completed(await soon(here.run("before")))
        if is_compacted:
            await soon(here.compact())
        await may_be_taken(hosts)
        with appends.held():
            lost = here.run("go", message_id="m")
            await appends.reached()
            run = there.run("go", message_id="m")
            await soon(held.entered.wait())
            cancel = here.cancel()
            await turns()
        stopped = await soon(cancel)
        assert stopped is not None
        for told in (cancel, run, lost):
            outcome = await soon(told)
            assert type(outcome) is Stopped
            assert outcome.run_id == stopped.run_id
