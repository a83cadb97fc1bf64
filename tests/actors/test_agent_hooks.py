"""Hooks of an agent under a runtime, and who is present: what its host hears of it (J91)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.loops import soon, until
from tests.support.places import Place
from tests.support.tenants import CODECS, of, tenant
from understudy import Agent, Runtime, Status, UsageError, approve, call, reject, tool
from understudy.middleware import Middleware


class Told(Middleware):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, Any]] = []
        self.changed = asyncio.Event()

    def note(self, what: str, actor: Any, more: Any) -> None:
        self.notes.append((what, actor.id, more))
        self.changed.set()

    async def on_completed(self, actor: Any, outcome: Any) -> None:
        self.note("completed", actor, outcome.text)

    async def on_interrupted(self, actor: Any, outcome: Any) -> None:
        self.note("interrupted", actor, len(outcome.requests))

    async def on_passivated(self, actor: Any, reason: Any) -> None:
        self.note("passivated", actor, reason)

    async def until(self, count: int) -> list[tuple[str, str, Any]]:
        await soon(until(lambda: len(self.notes) >= count))
        return self.notes


@tool(ask=True)
def gated(n: int) -> str:
    """Ask a person first."""
    return f"done {n}"


def desk(told: Middleware, *turns: Any, **options: Any) -> Agent:
    return Agent("desk", by_turn(*turns), tools=[gated], middleware=[told], **options)


GATED = [call("gated", {"n": n}) for n in (1, 2)]


async def test_they_are_told_what_became_of_a_run(place: Place) -> None:
    """J91."""
    told = Told()
    async with Runtime([desk(told, GATED)], store=place.store()) as runtime:
        ref = runtime.spawn("desk", "a")
        asked = interrupted(await soon(ref.run("go")))
        first, second = asked.requests
        asked = interrupted(await soon(ref.resume({first.id: approve()})))
        await soon(ref.stop(block=False))
        completed(await soon(ref.resume({second.id: reject()})))
    assert told.notes == [
        ("interrupted", "a", 2),
        ("interrupted", "a", 1),
        ("passivated", "a", "stopped"),
        ("completed", "a", "done"),
        ("passivated", "a", "closing"),
    ]


async def test_an_agent_that_is_idle_is_passivated_and_told_so() -> None:
    """J91."""
    told = Told()
    async with Runtime([desk(told, idle_timeout=0.001)]) as runtime:
        completed(await soon(runtime.spawn("desk", "a").run("go")))
        assert (await told.until(2))[1] == ("passivated", "a", "idle")


async def test_they_are_told_of_calls_that_passivate() -> None:
    told = Told()
    async with Runtime([desk(told)]) as runtime:
        ref = runtime.spawn("desk", "a")
        await soon(ref.run("go"))
        await soon(ref.compact())
        assert (await told.until(2))[-1] == ("passivated", "a", "compacted")
        await soon(ref.run("go"))
        await soon(runtime.delete("a"))
        assert (await told.until(4))[-1] == ("passivated", "a", "deleted")


async def test_what_a_hook_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Told):
        async def on_completed(self, actor: Any, outcome: Any) -> None:
            raise ValueError("no thanks")

    told = Fails()
    async with Runtime([desk(told)]) as runtime:
        ref = runtime.spawn("desk", "a")
        completed(await soon(ref.run("go")))
        completed(await soon(ref.run("again")))
    assert told.notes == [("passivated", "a", "closing")]
    assert caplog.text.count("no thanks") >= 2


async def test_a_plain_hook_runs_in_a_thread_in_the_context_of_the_run() -> None:
    seen: list[str] = []

    class Plain(Middleware):
        def on_completed(self, actor: Any, outcome: Any) -> None:  # type: ignore[override]
            seen.append(tenant.get())
            if len(seen) < 2:
                actor.send("more")

    async with Runtime([desk(Plain())], **CODECS) as runtime:
        with of("acme"):
            future = runtime.spawn("desk", "a").run("go")
        completed(await soon(future))
        await soon(until(lambda: len(seen) >= 2))
        await soon(runtime.get("a").stop(block=False))
    assert set(seen) == {"acme"}


async def test_a_hook_does_not_hold_the_agent_up() -> None:
    """J91."""
    held = Held()

    class Slow(Told):
        async def on_completed(self, actor: Any, outcome: Any) -> None:
            await held.wait()
            self.note("completed", actor, outcome.text)

    told = Slow()
    async with Runtime([desk(told)]) as runtime:
        ref = runtime.spawn("desk", "a")
        completed(await soon(ref.run("go")))
        await soon(held.entered.wait())
        completed(await soon(ref.run("again")))
        await soon(ref.stop(block=False))
        held.release.set()
    assert [note[0] for note in told.notes].count("completed") == 2


# ---------------------------------------------------------------------------- presence


async def test_an_agent_that_says_so_stays_while_somebody_subscribes() -> None:
    told = Told()
    agent = desk(told, idle_timeout=0.001, stays_for_subscribers=True)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", "a")
        other = runtime.spawn(desk_named("other", told), "b")
        first, second = ref.events(), ref.display_events()
        watching = other.events()
        assert (ref.subscribers(), other.subscribers()) == (2, 1)
        await soon(ref.run("go"))
        await soon(other.run("go"))  # it does not say so, and is passivated
        await soon(until(lambda: ("passivated", "b", "idle") in told.notes))
        # Its own timer was set first, and is as short.
        assert ref.status() is Status.IDLE
        first.close()
        assert ref.subscribers() == 1
        second.close()
        await soon(until(lambda: ("passivated", "a", "idle") in told.notes))
        assert ref.subscribers() == 0
        watching.close()


def desk_named(name: str, told: Middleware) -> Agent:
    return Agent(name, by_turn(), middleware=[told], idle_timeout=0.001)


async def test_it_can_be_stopped_all_the_same() -> None:
    async with Runtime([desk(Told(), stays_for_subscribers=True)]) as runtime:
        ref = runtime.spawn("desk", "a")
        subscription = ref.events()
        await soon(ref.run("go"))
        assert await soon(ref.stop(block=False)) is True
        assert (ref.status(), ref.subscribers()) == (Status.PASSIVE, 1)
        subscription.close()


def test_what_is_no_answer_to_whether_it_stays_is_refused() -> None:
    with pytest.raises(UsageError, match="`stays_for_subscribers` must be True or False"):
        Agent("desk", by_turn(), stays_for_subscribers="yes")  # type: ignore[arg-type]
