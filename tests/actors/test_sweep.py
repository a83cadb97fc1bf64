"""A runtime looks every now and then for runs without an owner, and `recover()` is not needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, completed
from tests.support.hosts import may_be_taken, unheard
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, Run, Runtime, ScriptedModel, UsageError
from understudy.actors import sweep
from understudy.errors import OwnedElsewhere
from understudy.journal import IndexStatus, MemoryStore, StoredAgent
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres import sql
from understudy.journal.shared import Taken
from understudy.middleware import Middleware


class Swept(MemoryStore):
    """Counts how often its index was looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        self.looks += 1
        async for agent in super().agents(index_statuses):
            yield agent


def clerk(answer: Any = "done", **options: Any) -> Agent:
    return Agent("clerk", ScriptedModel(lambda request: answer), **options)


async def cut_off(store: Any, *ids: str, **options: Any) -> None:
    """Leave agents behind, each in the middle of its first model call."""
    asked = asyncio.Semaphore(0)

    async def never(request: object) -> str:
        asked.release()
        return await asyncio.Future()

    agent = Agent("clerk", ScriptedModel(never), **options)
    async with Runtime([agent], store=store, stop_timeout=0, sweep=None) as runtime:
        runs = [runtime.spawn("clerk", id=id).run("go") for id in ids]
        for _ in ids:
            await soon(asked.acquire())
    for run in runs:
        with pytest.raises(Exception, match="its runtime has stopped"):
            await run


class Ended(Middleware):
    """Says when a run has ended here, though nobody asks for it."""

    def __init__(self) -> None:
        self._ended = asyncio.Semaphore(0)

    async def on_run_end(self, run: Run, outcome: object) -> None:
        self._ended.release()

    async def next(self) -> None:
        await soon(self._ended.acquire())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_run_that_was_cut_off_is_continued_without_a_call_of_recover(
    kind: str, tmp_path: Path
) -> None:
    """J10."""
    store: Any = MemoryStore() if kind == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    await cut_off(store, "a", "b")
    ended = Ended()
    async with Runtime([clerk(middleware=[ended])], store=store, sweep=0.05) as runtime:
        for _ in range(2):
            await ended.next()
        for id in ("a", "b"):
            outcome = await soon(runtime.get(id).outcome())
            assert outcome is not None
            assert completed(outcome).text == "done"


async def test_without_a_sweep_nothing_is_continued_by_itself() -> None:
    store = Swept()
    await cut_off(store, "a")
    store.looks = 0
    async with Runtime([clerk()], store=store, sweep=None):
        await asyncio.sleep(0)
        assert store.looks == 0
    async with Runtime([clerk()], store=store, sweep=0.01):
        await until(lambda: store.looks > 0)


async def test_an_agent_whose_definition_is_not_known_here_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Swept()
    await cut_off(store, "a")
    async with Runtime([Agent("other", ScriptedModel([]))], store=store, sweep=0.01) as runtime:
        looks = store.looks
        await until(lambda: store.looks > looks + 3)
        (info,) = await runtime.agents()
        assert info.index_status is IndexStatus.OPEN
    assert caplog.text == ""


async def test_what_cannot_be_continued_is_tried_less_and_less_often() -> None:
    tried: list[str] = []

    class Broken(Middleware):
        async def on_start(self, actor: Any) -> None:
            tried.append(actor.id)
            raise RuntimeError("no")

    store = Swept()
    await cut_off(store, "a")
    async with Runtime([clerk(middleware=[Broken()])], store=store, sweep=0.01):
        looks = store.looks
        await until(lambda: store.looks > looks + 5)
    assert tried == ["a"]


async def test_a_sweep_and_a_recover_at_once_continue_each_agent_once() -> None:
    store = Swept()
    await cut_off(store, "a")
    calls: list[object] = []
    going, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: object) -> str:
        calls.append(request)
        going.set()
        await go_on.wait()
        return "done"

    agent = Agent("clerk", ScriptedModel(slow))
    async with Runtime([agent], store=store, sweep=0.01) as runtime:
        await soon(going.wait())
        looks = store.looks
        await runtime.recover()
        ref = runtime.get("a")
        await until(lambda: store.looks > looks + 3)
        go_on.set()
        outcome = await soon(ref.outcome())
        assert outcome is not None
        completed(outcome)
    assert len(calls) == 1


@pytest.mark.parametrize("seconds", [0, -1, True, "5", float("nan"), float("inf")])
def test_a_sweep_that_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(UsageError, match="`sweep`"):
        Runtime(sweep=seconds)


@pytest.mark.slow
@pytest.mark.quick
async def test_another_host_continues_what_a_host_has_left_behind(hosts: Hosts) -> None:
    ended, there = Ended(), DatabaseStore(hosts.new("there"))
    async with Runtime([clerk(middleware=[ended])], store=there, sweep=0.05):
        await cut_off(DatabaseStore(hosts.new("here")), "a", middleware=[Ended()])
        await ended.next()


async def test_a_run_that_another_host_was_first_to_go_on_with_is_gone_on_with_behind_it(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J10: that one leaves at once. What is to be waited for after a failure is not waited for."""
    await cut_off(DatabaseStore(hosts.new("gone")), "a", middleware=[Ended()])
    monkeypatch.setattr(sweep, "DUES_SECONDS", 1000.0)
    held, ended = Held("never"), Ended()
    store = DatabaseStore(hosts.new("later"))
    assert store.shared is not None
    take, begun, later, lost = store.shared.take, *(asyncio.Event() for _ in range(3))

    async def take_later(*args: Any, **options: Any) -> Taken | None:
        begun.set()
        await later.wait()
        try:
            return await take(*args, **options)
        except OwnedElsewhere:
            lost.set()
            raise

    monkeypatch.setattr(store.shared, "take", take_later)
    agent = Agent("clerk", ScriptedModel(held), middleware=[Ended()])
    options: dict[str, Any] = {"sweep": 1000.0}
    async with Runtime([clerk(middleware=[ended])], store=store, **options):
        await soon(begun.wait())
        first = DatabaseStore(hosts.new("first"))
        async with Runtime([agent], store=first, stop_timeout=0, **options):
            await soon(held.entered.wait())
            later.set()
            await soon(lost.wait())
        await ended.next()


async def test_a_look_that_fails_is_not_the_last_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """J10: a host goes on to look for what others have left, whatever its store raised once."""
    ended, store = Ended(), DatabaseStore(hosts.new("stays"))
    agents, failed = store.agents, asyncio.Event()

    def fail_once(index_statuses: Collection[IndexStatus] | None = None) -> Any:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("no")
        return agents(index_statuses)

    monkeypatch.setattr(store, "agents", fail_once)
    async with Runtime([clerk(middleware=[ended])], store=store, sweep=1000.0):
        await soon(failed.wait())  # as soon as it listens
        await cut_off(DatabaseStore(hosts.new("leaves")), "a", middleware=[Ended()])
        await ended.next()
    assert "which runs have no owner is not known" in caplog.text


async def test_an_agent_that_hosts_leave_one_after_the_other_is_gone_on_with_each_time(
    hosts: Hosts,
) -> None:
    """J10: as in a rolling deploy. Only what gets no further is tried less and less often."""
    ended = Ended()
    options: dict[str, Any] = {"store": DatabaseStore(hosts.new("stays")), "sweep": 1000.0}
    async with Runtime([clerk(middleware=[ended])], **options):
        for name in ("first", "second"):
            await cut_off(DatabaseStore(hosts.new(name)), "a", middleware=[Ended()])
            await ended.next()
            await may_be_taken(hosts, "a")


async def test_a_stale_copy_does_not_keep_a_sweep_from_going_on_with_the_run(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody is heard, the one that is left has a copy of what the other one has run."""
    monkeypatch.setattr(sql, "CLAIM", unheard(sql.CLAIM))
    held, ended = Held("never"), Ended()
    first, second = (DatabaseStore(hosts.new(name)) for name in ("here", "there"))
    async with Runtime([clerk(middleware=[ended])], store=first, sweep=0.05) as here:
        assert completed(await soon(here.spawn("clerk", "a").run("go"))).text == "done"
        await ended.next()
        agent = Agent("clerk", ScriptedModel(held), middleware=[Ended()])
        async with Runtime([agent], store=second, sweep=None) as there:
            await soon(there.get("a").send("more"))
            await soon(held.entered.wait())
            hosts.end_lease("there")
            await ended.next()
            held.release.set()
