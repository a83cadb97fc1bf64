"""What is frozen in tests: an agent that pays, hosts that hear nothing, and attacks on a freeze."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse

from tests.support.agents import Held, completed
from tests.support.hosts import host, opened
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, AgentRef, Completed, ScriptedModel, call, tool
from understudy.actors.agent.runs import starts
from understudy.actors.agent_host import AgentHost
from understudy.actors.trust_watch import TrustWatch
from understudy.journal import MemoryStore
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.middleware import Middleware, ToolCall
from understudy.modes import pipeline
from understudy.modes.steps.tool_call import body
from understudy.state.trust_log import HostBehind
from understudy.trust.freezes import Stops

__all__ = ["ATTACKS", "BROKEN", "Desk", "Suspended", "Waits", "built", "ended", "runs"]


class Desk:
    """An agent that pays, and counts what it did and how often its model was asked."""

    def __init__(self, *amounts: int, name: str = "desk", **options: Any) -> None:
        self.paid: list[int] = []
        self.held = Held()
        self.waits_at: set[int] = set()
        self.asked = 0
        turns = [call("refund", {"amount": amount}) for amount in amounts]

        def reply(request: Any) -> Any:
            self.asked += 1
            turn = sum(isinstance(message, ModelResponse) for message in request.messages)
            return turns[turn] if turn < len(turns) else "done"

        @tool
        async def refund(amount: int) -> str:
            """Refund."""
            self.paid.append(amount)
            if amount in self.waits_at:
                await self.held.wait()
            return "paid"

        self.agent = Agent(name, ScriptedModel(reply), tools=[refund], **options)


class Waits(Middleware):
    """Each call waits in it until it is released."""

    def __init__(self, held: Held) -> None:
        self._held = held

    async def wrap_tool_call(self, run: Any, call: ToolCall, next: Any) -> Any:
        await self._held.wait()
        return await next(call)


async def ended(ref: AgentRef) -> Completed[Any]:
    """The outcome of its run, which is completed."""
    outcome = await soon(ref.outcome())
    assert outcome is not None
    return completed(outcome)


def runs(id: str = "t") -> bool:
    """Whether a run of an agent is under way in this process."""
    return any(task.get_name() == f"agent {id}" for task in asyncio.all_tasks())


class Suspended(DatabaseStore):
    """The store of a host whose heartbeat stands still, and whose loop hears of nothing."""

    def __init__(self, hosts: Hosts, name: str, *, lease: float) -> None:
        super().__init__(hosts.new(name, lease=lease))
        self.stopped = threading.Event()
        self.renewed = threading.Event()
        self.go_on = threading.Event()
        renew = self.backend.renew

        def renewing() -> float:
            if self.stopped.is_set():
                assert self.go_on.wait(60)
            seconds = renew()
            if self.stopped.is_set():
                self.renewed.set()
            return seconds

        self.backend.renew = renewing  # type: ignore[method-assign]

    def _tell_trust(self) -> None:
        if not self.stopped.is_set():
            super()._tell_trust()


class Counting(DatabaseStore):
    """The store of a host that counts how often it looks for hosts that are behind."""

    looks = 0

    async def hosts_behind(  # type: ignore[misc]  # those of a database are final
        self, number: int
    ) -> Sequence[HostBehind]:
        found = await super().hosts_behind(number)
        self.looks += 1
        return found


# ------------------------------------------------------------------------------- attacks


async def nothing_begins(_: Hosts) -> None:
    """What is sent to a frozen store is recorded, and asks no model."""
    desk = Desk(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        await soon(runtime.freeze(why="a leak"))
        await soon(runtime.spawn("desk", "t").send("go"))
        state = await soon(runtime.get("t").state())
        assert (state.run, desk.asked) == (None, 0)


async def no_model_is_asked_behind_a_body(_: Hosts) -> None:
    """A body under way ends, and its run rests."""
    desk = Desk(7)
    desk.waits_at.add(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        runtime.spawn("desk", "t").run("go")
        await soon(desk.held.entered.wait())
        await soon(runtime.freeze(why="a leak"))
        desk.held.release.set()
        await until(lambda: not runs())
        assert desk.asked == 1


async def no_body_is_entered(_: Hosts) -> None:
    """A call whose start is recorded is not entered."""
    held = Held()
    desk = Desk(7, middleware=[Waits(held)])
    async with opened(MemoryStore(), desk.agent) as runtime:
        runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        await soon(runtime.freeze(tool="refund", why="a leak"))
        held.release.set()
        await until(lambda: not runs())
        assert desk.paid == []


async def what_waited_begins(_: Hosts) -> None:
    """After the thaw, by itself."""
    desk = Desk(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        freeze = await soon(runtime.freeze(why="a leak"))
        ref = runtime.spawn("desk", "t")
        await soon(ref.send("go"))
        await soon(runtime.thaw(freeze.id))
        await soon(ref.state())
        assert runs() or desk.asked


async def a_deaf_host_is_waited_for(hosts: Hosts) -> None:
    """As long as its lease lasts: it enters bodies until it has heard."""
    held = Held()
    desk = Desk(7, middleware=[Waits(held)])
    deaf = Suspended(hosts, "deaf", lease=3600.0)
    async with opened(deaf, desk.agent, any_host=False) as other:
        other.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        deaf.stopped.set()
        store = Counting(hosts.new("here"))
        async with opened(store, desk.agent) as here:
            freezing = here.freeze(why="a leak")
            await until(lambda: freezing.done() or store.looks >= 3)
            assert not freezing.done(), "a living host may enter a body"
            deaf.stopped.clear()
            await asyncio.to_thread(deaf.backend.renew)
            deaf._tell_trust()
            freeze = await soon(freezing)
            assert freeze.silent_hosts == ()
            held.release.set()
            await until(lambda: not runs())
            assert desk.paid == []


async def a_host_that_has_not_read_it_is_waited_for(hosts: Hosts) -> None:
    """It says that it judges by a fact once it does, and not when it has heard of it."""
    store, desk = host(hosts, "slow", lease=3600.0), Desk()
    read, may_read = store.trust_after, asyncio.Event()

    async def later(number: int) -> Any:
        await may_read.wait()
        return await read(number)

    async with opened(store, desk.agent):
        store.trust_after = later  # type: ignore[misc, method-assign]
        here_store = Counting(hosts.new("here"))
        async with opened(here_store, desk.agent) as here:
            freezing = here.freeze(why="a leak")
            await until(lambda: here_store.looks >= 1)
            for _ in range(3):  # with the second one it would say what the first has brought
                await asyncio.to_thread(store.backend.renew)
            before = here_store.looks
            await until(lambda: freezing.done() or here_store.looks >= before + 2)
            assert not freezing.done()
            may_read.set()
            await soon(freezing)


async def a_host_that_was_stopped_enters_no_body(hosts: Hosts) -> None:
    """Its heartbeat renews the lease before its loop has heard of anything."""
    held = Held()
    desk = Desk(7, middleware=[Waits(held)])
    stopped = Suspended(hosts, "stopped", lease=1.0)
    async with opened(stopped, desk.agent, any_host=False) as other:
        other.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        stopped.stopped.set()
        async with opened(host(hosts, "here"), desk.agent) as here:
            freeze = await soon(here.freeze(why="a leak"))
            assert freeze.silent_hosts == ("stopped",)
            assert [each.tool for each in freeze.entered] == ["refund"]
            stopped.go_on.set()
            await asyncio.to_thread(stopped.renewed.wait, 60)
            held.release.set()
            await until(lambda: not runs())
            assert desk.paid == []


ATTACKS: dict[str, Callable[[Hosts], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        nothing_begins,
        no_model_is_asked_behind_a_body,
        no_body_is_entered,
        what_waited_begins,
        a_deaf_host_is_waited_for,
        a_host_that_has_not_read_it_is_waited_for,
        a_host_that_was_stopped_enters_no_body,
    )
}
"""The attacks on a freeze, by their names."""

# ------------------------------------------------------------------------- broken builds


def _replace(patch: pytest.MonkeyPatch, owner: Any, name: str, made: Any) -> None:
    assert hasattr(owner, name), f"the library has no {name} any more"
    patch.setattr(owner, name, made)


def _no_gate(patch: pytest.MonkeyPatch) -> None:
    _replace(patch, starts, "kept_back", lambda _: None)


def _no_rest(patch: pytest.MonkeyPatch) -> None:
    _replace(patch, pipeline, "end_if_stopped", lambda _: None)
    _replace(patch, Stops, "of_agent", lambda *_: None)


def _no_look(patch: pytest.MonkeyPatch) -> None:
    _replace(patch, body, "stop_of", lambda _: None)
    _replace(patch, Stops, "of_tool", lambda *_: None)


def _no_wake(patch: pytest.MonkeyPatch) -> None:
    _replace(patch, AgentHost, "go_on", lambda _: None)


def _no_wait(patch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: Any) -> tuple[str, ...]:
        return ()

    _replace(patch, TrustWatch, "all_judge_by", at_once)


def _heard_is_judged(patch: pytest.MonkeyPatch) -> None:
    renew = PostgresBackend.renew

    def renewing(own: Any) -> float:
        seconds = renew(own)
        own._trust_judged = own.trust_seen
        return seconds

    _replace(patch, PostgresBackend, "renew", renewing)


def _late_news(patch: pytest.MonkeyPatch) -> None:
    _replace(patch, DatabaseStore, "_tell_trust_at_once", lambda _: None)


BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "runs begin": ("nothing_begins", _no_gate),
    "the attempt goes on": ("no_model_is_asked_behind_a_body", _no_rest),
    "the last look before a body sees no freeze": ("no_body_is_entered", _no_look),
    "a thaw does not wake": ("what_waited_begins", _no_wake),
    "no host is waited for": ("a_deaf_host_is_waited_for", _no_wait),
    "a host acknowledges what it has only heard of": (
        "a_host_that_has_not_read_it_is_waited_for",
        _heard_is_judged,
    ),
    "a lease counts before its news": ("a_host_that_was_stopped_enters_no_body", _late_news),
}
"""Broken builds, each with the attack that finds it."""


@contextmanager
def built(name: str) -> Iterator[Callable[[Hosts], Awaitable[None]]]:
    """Meanwhile the library is the broken build of that name; the attack that must find it."""
    attack, make = BROKEN[name]
    with pytest.MonkeyPatch.context() as patch:
        make(patch)
        yield ATTACKS[attack]
