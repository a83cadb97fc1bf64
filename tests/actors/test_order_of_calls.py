"""Calls that one caller makes without waiting are done in their order, wherever the agent goes."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.agents import Held, completed, desk
from tests.support.held_commits import turns
from tests.support.hosts import (
    Stopping,
    keep_stale_copies,
    may_be_taken,
    opened,
    posts,
    running,
    stores,
)
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, AgentRef, Failed, NotInterrupted, Runtime, ScriptedModel
from understudy.actors import Future
from understudy.actors.hosts import incoming, outgoing
from understudy.journal.database_store import DatabaseStore
from understudy.journal.shared import Hint

MOST = 200
"""Messages that are sent at a time."""


async def queued(runtime: Runtime) -> list[str]:
    """The ids of all messages that the agent was ever sent, in the order of its records.

    Without those of a `run` that waited for its turn, which have `choices`.
    """
    kept = (await soon(runtime.export("t")))["records"]
    sent = (each for each in kept if each["kind"] == "message_queued" and "choices" not in each)
    return [each["message_id"] for each in sent]


class Sender:
    """Sends message after message and waits for no answer."""

    def __init__(self, ref: AgentRef) -> None:
        self._ref = ref
        self.sent: list[Any] = []

    def send(self) -> Any:
        number = len(self.sent)
        self.sent.append(self._ref.send(f"message {number}", message_id=str(number)))
        return self.sent[-1]

    async def until_done(self, future: Any) -> None:
        """Send one in each turn of the loop, but not thousands, until this future is done."""
        for _ in range(MOST):
            if future.done():
                break
            self.send()
            await asyncio.sleep(0)
        await soon(future)

    async def all_kept(self) -> list[str]:
        return [await soon(each) for each in self.sent]


@pytest.mark.quick
async def test_what_is_taken_back_from_an_owner_that_is_gone_keeps_its_order(hosts: Hosts) -> None:
    """J70: all of it at once: the next owner finds none without those before it."""
    held, again = Held("first"), Held("asked")
    here, there, third = stores(hosts, "here", "there", "third")
    owner, asker = Stopping(here, "posted"), Stopping(there, "withdraw", before=False)
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
        opened(third, Agent("desk", ScriptedModel([again, "more"])), sweep=None) as last,
    ):
        await running(first, held)
        sender = Sender(second.get("t"))
        sender.send()
        sender.send()
        await until(lambda: len(posts(hosts)) == 2)
        hosts.end_lease("here")
        await soon(asker.reached.wait())
        await soon(last.get("t").send("asked", message_id="asked"))
        asker.released.set()
        await sender.all_kept()
        assert [id for id in await queued(last) if id != "asked"] == ["0", "1"]
        again.release.set()
        owner.released.set()


async def test_a_call_does_not_go_before_one_that_is_on_its_way(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: the first one is to be done here, and another host gets the agent just before that."""
    held, again = Held("first"), Held("second")
    here, there, third = stores(hosts, "here", "there", "third")
    assert there.shared is not None
    place, gates = there.shared.place, [asyncio.Event(), asyncio.Event()]
    asked = asyncio.Event()
    looks = iter(gates)

    async def placed(agent_id: str) -> Any:
        asked.set()
        gate = next(looks, None)
        if gate is not None:
            await gate.wait()
        return await place(agent_id)

    monkeypatch.setattr(there.shared, "place", placed)
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
        opened(third, Agent("desk", ScriptedModel([again, "more"])), sweep=None) as last,
    ):
        run = await running(first, held)
        sender = Sender(second.get("t"))
        sender.send()
        await soon(asked.wait())
        sender.send()
        held.release.set()
        completed(await soon(run))
        await soon(first.get("t").stop(block=False))
        claim = Stopping(there, "take")
        gates[0].set()
        await soon(claim.reached.wait())
        run = await running(last, again)
        gates[1].set()
        await turns()
        claim.released.set()
        await sender.all_kept()
        assert await queued(last) == ["0", "1"]
        again.release.set()
        await soon(run)


async def begun_elsewhere(
    hosts: Hosts, claim: Stopping, asked: Future[Any], second: Runtime, held: Held
) -> Any:
    """The run that another host begins while the host that was asked claims the agent, if it does.

    The run is recorded, and the claim goes on then.
    """
    await until(lambda: claim.reached.is_set() or asked.done())
    run = await running(second, held)
    await hosts.found("SELECT 1 FROM agents WHERE status = 'running' AND NOT takeable")
    claim.released.set()
    return run


async def test_a_cancel_of_nothing_cancels_no_run_that_begins_elsewhere(hosts: Hosts) -> None:
    """J70: no run was open when it was made, and its host is slow to claim the agent."""
    held, (here, there) = Held("done"), stores(hosts, "here", "there")
    async with (
        opened(here, desk("done")) as first,
        opened(there, Agent("desk", ScriptedModel([held]))) as second,
    ):
        ref = first.spawn("desk", "t")
        completed(await soon(ref.run("first")))
        await soon(ref.stop(block=False))
        claim = Stopping(here, "take")
        cancelled = ref.cancel()
        later = await begun_elsewhere(hosts, claim, cancelled, second, held)
        assert await soon(cancelled) is None
        held.release.set()
        completed(await soon(later))


async def test_a_retry_of_a_run_that_others_follow_retries_nothing(hosts: Hosts) -> None:
    """J70: it names no run, and the run that had failed is not the last one any more."""
    held, (here, there) = Held("done"), stores(hosts, "here", "there")
    async with (
        opened(here, desk(ConnectionError("no answer"))) as first,
        opened(there, Agent("desk", ScriptedModel([held]))) as second,
    ):
        ref = first.spawn("desk", "t")
        assert isinstance(await soon(ref.run("first")), Failed)
        await soon(ref.stop(block=False))
        claim = Stopping(here, "take")
        retried = ref.retry()
        later = await begun_elsewhere(hosts, claim, retried, second, held)
        with pytest.raises(NotInterrupted, match="is not the last run any more"):
            await soon(retried)
        held.release.set()
        completed(await soon(later))


async def test_calls_at_a_copy_that_is_lost_are_done_again_in_their_order(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: one is recorded there in vain, the other waits in its inbox when that is told."""
    keep_stale_copies(monkeypatch)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    backend = hosts.new("here")
    commit, reached, may_commit = backend.commit, threading.Event(), threading.Event()

    def held_commit() -> None:
        reached.set()
        assert may_commit.wait(60)
        commit()

    here, (there,) = DatabaseStore(backend), stores(hosts, "there")
    agents = [Agent("desk", ScriptedModel(lambda request: "done")) for _ in "ab"]
    async with (
        opened(here, agents[0], sweep=None) as first,
        opened(there, agents[1], sweep=None) as second,
    ):
        ref = first.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        await may_be_taken(hosts)
        completed(await soon(second.get("t").run("go")))
        told, asked = outgoing.Outgoing.notified, list[Any]()

        def tell(office: outgoing.Outgoing, hint: Hint | None) -> None:
            if hint is not None and hint.kind == "taken" and len(asked) == 1:
                asked.append(ref.send("second", at=tomorrow, message_id="1"))
            told(office, hint)

        monkeypatch.setattr(outgoing.Outgoing, "notified", tell)
        monkeypatch.setattr(backend, "commit", held_commit)
        try:
            asked.append(ref.send("first", at=tomorrow, message_id="0"))
            assert await soon(asyncio.to_thread(reached.wait, 60))
            taken = str(Hint("taken", 99, "t"))
            async with asyncio.timeout(60):
                while len(asked) == 1:  # a host that begins to listen again may miss a hint
                    hosts.sql("SELECT pg_notify(channel, %s) FROM hosts WHERE name = 'here'", taken)
                    await turns()
            await turns()
        finally:
            may_commit.set()
        for each in asked:
            await soon(each)
        assert await queued(second) == ["0", "1"]


@pytest.mark.slow
async def test_calls_keep_their_order_while_the_agent_goes_from_host_to_host(hosts: Hosts) -> None:
    """J70: here, posted, taken and posted again."""
    here, there, third = stores(hosts, "here", "there", "third")
    agents = [Agent("desk", ScriptedModel(lambda request: "done")) for _ in "abc"]
    async with (
        opened(here, agents[0]) as first,
        opened(there, agents[1]) as second,
        opened(third, agents[2]) as last,
    ):
        completed(await soon(first.spawn("desk", "t").run("go")))
        sender = Sender(second.get("t"))
        for owner in (last, first, last):
            await sender.until_done(owner.get("t").run("go"))
            await sender.until_done(owner.get("t").stop(block=False))
        kept = await sender.all_kept()
        assert await queued(second) == kept


async def test_calls_of_other_agents_do_not_wait_behind_a_thousand_of_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent is read for itself; and of each no more is read at a time than its share."""
    monkeypatch.setattr(incoming, "PAGE", 4)
    monkeypatch.setattr(incoming, "BEAT", 1000.0)
    held, other = Held("first"), Held("other")
    here, there = stores(hosts, "here", "there")
    assert here.shared is not None
    posted, reads, may_read = here.shared.posted, list[list[str]](), asyncio.Event()

    async def noted(*given: Any) -> Any:
        await may_read.wait()
        rows = await posted(*given)
        reads.append([row.agent_id for row in rows])
        return rows

    monkeypatch.setattr(here.shared, "posted", noted)
    model = ScriptedModel([held, other, *["done"] * 40])
    async with (
        opened(here, Agent("desk", model), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        may_read.set()
        runs = [await running(first, held, "t")]
        runs.append(first.spawn("desk", "other").run("go"))
        await soon(other.entered.wait())
        may_read.clear()
        reads.clear()
        behind = [second.get("t").run(f"run {n}") for n in range(20)]
        await until(lambda: len(posts(hosts)) == 20)
        more = second.get("other").send("more", message_id="m")
        await until(lambda: len(posts(hosts)) == 21)
        may_read.set()
        assert await soon(more) == "m"
        assert max(map(len, reads)) == 4
        assert "other" in [id for read in reads[:2] for id in read]
        held.release.set()
        other.release.set()
        for run in [*runs, *behind]:
            completed(await soon(run))
        await until(lambda: posts(hosts) == [])
