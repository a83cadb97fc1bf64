"""Any host answers for an agent: one at rest moves to who is asked, one that runs is posted to."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from pydantic_ai.messages import UserPromptPart

from tests.support.agents import Held, by_turn, completed, desk, interrupted, wake
from tests.support.closing import closing_late
from tests.support.held_commits import held_answers
from tests.support.hosts import (
    Stopping,
    deaf_to,
    host,
    may_be_taken,
    noted_hints,
    opened,
    pay,
    posts,
    recorded,
    running,
)
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Completed,
    Paused,
    ScriptedModel,
    Status,
    Stopped,
    ToolContext,
    approve,
    call,
    reject,
    tool,
)
from understudy.actors.hosts import incoming, outgoing
from understudy.actors.reads import watch
from understudy.errors import NotInterrupted, UnknownAgent, UsageError
from understudy.journal import DatabaseStore
from understudy.journal.shared import Hint, Notified, Taken
from understudy.middleware import Middleware


@pytest.mark.quick
async def test_an_agent_at_rest_answers_at_whichever_host_is_asked(hosts: Hosts) -> None:
    """J6."""
    turns = tuple("abcdef")
    async with (
        opened(host(hosts, "first"), desk(*turns)) as first,
        opened(host(hosts, "second"), desk(*turns)) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        for text, ref in zip("abcdef", [here, there, there, here, there, here], strict=True):
            assert completed(await soon(ref.run("go"))).text == text
            await may_be_taken(hosts)  # else what is asked next elsewhere is posted
        assert posts(hosts) == []


@pytest.mark.quick
async def test_a_request_is_answered_at_a_host_that_did_not_ask(
    hosts: Hosts, ran: list[str]
) -> None:
    agent = {"tools": [pay(ran)], "interrupt_on": {"pay": True}}
    async with (
        opened(host(hosts, "first"), desk(call("pay"), "done", **agent)) as first,
        opened(host(hosts, "second"), desk(call("pay"), "done", **agent)) as second,
    ):
        asked = interrupted(await soon(first.spawn("desk", "t").run("go")))
        outcome = await soon(second.get("t").resume(asked.decide(approve())))
        assert completed(outcome).text == "done"
        again = await soon(first.get("t").resume(asked.decide(approve())))
        assert completed(again).text == "done"
        with pytest.raises(NotInterrupted):
            await soon(first.get("t").resume(asked.decide(reject())))
        assert ran == ["pay"]


def asking(held: Held, requests: int = 1) -> Agent:
    """It works until it is released, and then asks a person."""

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    @tool
    async def pay() -> str:
        return "paid"

    turns = [call("work"), [call("pay")] * requests, "first", "second"]
    return desk(*turns, tools=[work, pay], interrupt_on={"pay": True})


@pytest.mark.parametrize("where", ["here", "there"])
async def test_a_run_that_waits_for_its_turn_goes_where_its_agent_goes(
    hosts: Hosts, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J6: it is recorded, so any host may take the agent. Nothing that is asked is withdrawn."""
    monkeypatch.setattr(outgoing, "PATIENCE", -1.0)
    monkeypatch.setattr(outgoing, "POLL", 0.01)
    held = Held()
    async with (
        opened(host(hosts, "first"), asking(held, requests=2)) as first,
        opened(host(hosts, "second"), asking(held, requests=2)) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        behind = (first if where == "here" else second).get("t").run("more")
        # What is posted is read in order.
        await soon(second.get("t").send("steered", steer=True))
        held.release.set()
        asked = interrupted(await soon(run))
        for request in asked.requests:
            outcome = await soon(second.get("t").resume({request.id: approve()}))
        assert completed(outcome).text == "first"
        assert completed(await soon(behind)).text == "second"
        runs = hosts.sql("SELECT count(*) FROM records WHERE kind = 'run_started'")
        assert runs == [(2,)]


@pytest.mark.quick
async def test_a_decision_whose_answer_is_lost_is_known_after_the_next_run_has_ended(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: the records tell which run went on by it, also where the agent is in a later run."""
    monkeypatch.setattr(outgoing, "PATIENCE", -1.0)
    monkeypatch.setattr(outgoing, "POLL", 0.01)
    held, store = Held(), host(hosts, "first")
    async with (
        opened(store, asking(held)) as first,
        opened(host(hosts, "second"), asking(held)) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        behind = ref.run("more")
        await soon(second.get("t").send("steered", steer=True))
        held.release.set()
        asked = interrupted(await soon(run))
        owner = Stopping(store, "reply")
        try:
            resumed = second.get("t").resume(asked.decide(approve()))
            assert completed(await soon(behind)).text == "second"
            await may_be_taken(hosts)
            assert completed(await soon(resumed)).text == "first"
        finally:
            owner.released.set()


@pytest.mark.parametrize("is_queued", [False, True], ids=["asked for", "sent before"])
async def test_a_run_behind_one_that_asks_withdraws_nothing_where_it_is_asked_for_anew(
    hosts: Hosts, is_queued: bool
) -> None:
    """A2: who sent it has not seen the request."""
    held = Held()
    async with (
        opened(host(hosts, "first"), asking(held, requests=2)) as first,
        opened(host(hosts, "second"), asking(held, requests=2)) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        if is_queued:
            await soon(ref.send("more", message_id="m"))
        behind = ref.run("more", message_id="m")
        held.release.set()
        one, other = interrupted(await soon(run)).requests
        await soon(ref.stop(block=False))
        interrupted(await soon(second.get("t").resume({one.id: approve()})))
        completed(await soon(second.get("t").resume({other.id: approve()})))
        assert completed(await soon(behind)).text == "second"


async def test_a_run_behind_one_that_is_paused_withdraws_nothing_where_it_is_asked_for_anew(
    hosts: Hosts,
) -> None:
    """A2: who sent it has not seen the pause."""
    held = Held()
    async with (
        opened(host(hosts, "first"), asking(held)) as first,
        opened(host(hosts, "second"), asking(held)) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        behind = ref.run("more")
        await soon(ref.pause("lunch"))
        held.release.set()
        asked = await soon(run)
        assert isinstance(asked, Paused)
        await soon(ref.stop(block=False))
        await soon(second.get("t").pause("dinner"))  # it is the second one's now
        await soon(second.get("t").unpause())
        again = await soon(second.get("t").outcome())
        assert again is not None
        (request,) = interrupted(again).requests
        completed(await soon(second.get("t").resume({request.id: approve()})))
        assert completed(await soon(behind)).text == "second"


async def test_a_run_behind_one_that_lacks_its_deps_withdraws_nothing(hosts: Hosts) -> None:
    """A2: its host is drained, and no other one can go on with the run before it."""
    held = Held()
    async with (
        opened(host(hosts, "first"), asking(held), deps_for=lambda _: "deps") as first,
        opened(host(hosts, "second"), asking(held)) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        behind = ref.run("more")
        assert await soon(first.drain(timeout=0.01)) is False
        held.release.set()
        assert await soon(first.drain()) is True
        outcome = await soon(run)
        assert isinstance(outcome, Paused)
        assert outcome.reason == "needs deps"
        await soon(ref.pause("read behind it"))
        assert second.get("t").status() is Status.PAUSED
        await soon(second.get("t").cancel())
        again = interrupted(await soon(behind))
        assert again.run_id != outcome.run_id


async def test_who_waits_for_a_queued_message_has_its_outcome_wherever_the_agent_goes(
    hosts: Hosts,
) -> None:
    """J6, J70: two hosts with such callers take it from each other for what is asked alone."""

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 3600)
        return "slept"

    def naps() -> Agent:
        return desk(call("nap"), "more is done", "still more is done", tools=[nap])

    async with (
        opened(host(hosts, "first"), naps()) as first,
        opened(host(hosts, "second"), naps()) as second,
    ):
        ref = first.spawn("desk", "t")
        await soon(ref.send("go"))
        await may_be_taken(hosts)
        await soon(ref.send("more", message_id="m"))
        here = ref.run("more", message_id="m")
        (more,) = await soon(ref.queue())
        assert more.choices is not None  # else it would be taken into the turn of the next `run`
        await may_be_taken(hosts)
        there = second.get("t").run("still more")
        await soon(second.get("t").queue())
        cancelled = await soon(second.get("t").cancel())
        assert isinstance(cancelled, Stopped)
        assert completed(await soon(here)).text == "more is done"
        assert completed(await soon(there)).text == "still more is done"


@pytest.mark.quick
async def test_an_agent_that_is_taken_as_its_run_goes_on_has_not_crashed(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    """J6, J8: its host hears of that before the run task has begun."""
    store, loop = host(hosts, "first"), asyncio.get_running_loop()
    assert store.shared is not None
    hears: list[Notified] = []
    listen = store.shared.listen

    def listen_to_none(notified: Notified | None) -> None:
        assert notified is not None
        hears.append(notified)
        listen(lambda text: notified(None) if text is None else None)

    store.shared.listen = listen_to_none  # type: ignore[method-assign]

    def deps_for(id: str) -> None:
        """Called right before the run task is made."""
        if hears and hosts.sql("SELECT 1 FROM agents WHERE epoch = 2"):
            loop.call_soon(hears.pop(), str(Hint("taken", 2, id)))

    agent = {"tools": [pay([])], "interrupt_on": {"pay": True}}
    async with (
        opened(store, desk(call("pay"), "done", **agent), deps_for=deps_for) as first,
        opened(host(hosts, "second"), desk(call("pay"), "done", **agent)) as second,
    ):
        asked = interrupted(await soon(first.spawn("desk", "t").run("go")))
        await may_be_taken(hosts)
        await wake(second.get("t"))
        outcome = await soon(first.get("t").resume(asked.decide(approve())))
        assert completed(outcome).text == "done"
        assert first.tree().restarts == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


class Told(Middleware):
    """Notes which runs it is told are completed."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def on_completed(self, actor: object, outcome: Completed) -> None:
        self.texts.append(outcome.text)


@pytest.mark.quick
@pytest.mark.parametrize("where", ["commit", "close"])
async def test_hooks_and_callers_are_told_of_a_run_whose_agent_is_taken_as_it_ends(
    hosts: Hosts, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """J6, J91: by its end in the store the agent is at rest, and another host may take it.

    The host that made the run has not got the answer of the store by then, or its task closes what
    it has opened.
    """
    backend, held, told = hosts.new("first"), Held(), Told()
    may_answer = threading.Event()
    if where == "commit":
        may_answer = held_answers(backend, "run_ended")
        held.release.set()
    store = DatabaseStore(backend)
    hints = noted_hints(store)
    agent = closing_late(held, "one", middleware=[told])
    async with (
        opened(store, agent) as first,
        opened(host(hosts, "second"), desk("one", "two")) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await may_be_taken(hosts)
        assert completed(await soon(second.get("t").run("go"))).text == "two"
        await until(lambda: any(hint.startswith("taken") for hint in hints))
        held.release.set()
        may_answer.set()
        outcome = completed(await soon(run))
        assert (outcome.text, outcome.state.status) == ("one", "idle")
        await until(lambda: told.texts == ["one"])
        await until(lambda: first.get("t").status() is Status.PASSIVE)
        assert first.tree().restarts == 0
        last = await soon(first.get("t").outcome())
        assert last is not None
        assert completed(last).text == "two"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_run_that_goes_on_elsewhere_is_not_begun_again_by_a_later_call(
    hosts: Hosts,
) -> None:
    """J70: who waits for it where it began is not told what that call is refused with."""
    held = {1: Held(), 2: Held()}

    def agent() -> Agent:
        @tool
        async def work(part: int) -> str:
            await held[part].wait()
            return "worked"

        turns = [call("work", {"part": part}) for part in held]
        return desk(*turns, "first", "second", tools=[work])

    async with (
        opened(host(hosts, "first"), agent()) as first,
        opened(host(hosts, "second"), agent()) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held[1].entered.wait())
        stopped = ref.stop(block=False)
        held[1].release.set()
        await soon(stopped)
        await soon(second.recover())
        await soon(held[2].entered.wait())
        await soon(ref.send("more", steer=True))
        held[2].release.set()
        assert completed(await soon(run)).text == "first"
        parts = [part for each in (await soon(ref.state())).messages for part in each.parts]
        said = [part.content for part in parts if isinstance(part, UserPromptPart)]
        assert said == ["go", "more"]


async def test_a_posted_run_that_was_taken_back_is_not_done_again_by_its_owner(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: it waits there for its turn, and that host has not seen who has the agent meanwhile."""
    monkeypatch.setattr(watch, "POLL", 3600.0)
    held = Held()

    def agent() -> Agent:
        @tool
        async def work() -> str:
            await held.wait()
            return "worked"

        return desk(call("work"), "first", "second", "third", tools=[work])

    async with (
        opened(host(hosts, "first"), agent()) as first,
        opened(host(hosts, "second"), agent()) as second,
    ):
        await soon(first.spawn("desk", "t").send("go"))
        await soon(held.entered.wait())
        behind = second.get("t").run("more")
        await soon(second.get("t").pause("read behind it"))
        await soon(second.get("t").unpause())
        stopped = first.get("t").stop(block=False)
        held.release.set()
        await soon(stopped)
        await soon(second.recover())
        assert completed(await soon(behind)).text == "second"
        await may_be_taken(hosts)
        assert completed(await soon(first.get("t").run("third"))).text == "third"
        parts = [
            part for each in (await soon(second.get("t").state())).messages for part in each.parts
        ]
        said = [part.content for part in parts if isinstance(part, UserPromptPart)]
        assert said == ["go", "more", "third"]


async def test_a_run_that_goes_on_here_is_answered_here_though_no_hint_came(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: it was queued at a host that has given up its agent, and nobody told of that."""
    monkeypatch.setattr(watch, "POLL", 3600.0)
    held = Held("first")
    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held]))) as first,
        opened(host(hosts, "second"), desk("never", "second")) as second,
    ):
        await soon(first.spawn("desk", "t").send("go"))
        await soon(held.entered.wait())
        with monkeypatch.context() as lost:
            lost.setattr(watch.Watch, "look_now", lambda _: None)
            behind = second.get("t").run("more")
            await until(lambda: recorded(hosts, "message_queued") == 2)
            await until(lambda: posts(hosts) == [])  # it is answered: its outcome is waited for
            stopped = first.get("t").stop(block=False)
            held.release.set()
            await soon(stopped)
        await soon(second.recover())
        assert completed(await soon(behind)).text == "second"


async def test_the_copy_of_a_host_that_lost_an_agent_leaves_its_memory(hosts: Hosts) -> None:
    async with (
        opened(host(hosts, "first"), desk("a", "b")) as first,
        opened(host(hosts, "second"), desk("a", "b")) as second,
    ):
        here = first.spawn("desk", "t")
        await soon(here.run("go"))
        assert here.status() is Status.IDLE
        # Else the other one posts to it, and takes nothing: its status may not be durable yet.
        takeable = "SELECT takeable FROM agents"
        await until(lambda: hosts.sql(takeable) == [(True,)])
        await soon(second.get("t").run("go"))
        await until(lambda: here.status() is Status.PASSIVE)
        (info,) = await soon(first.agents())
        assert info.host == "second"


@pytest.mark.quick
async def test_a_call_to_an_agent_that_runs_elsewhere_is_done_by_its_owner(
    hosts: Hosts, ran: list[str]
) -> None:
    """J70."""
    held = Held("held")
    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held, "next"]))) as first,
        opened(host(hosts, "second"), Agent("desk", ScriptedModel(["next"]))) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        there = second.get("t")
        assert await soon(there.send("more", message_id="m")) == "m"
        assert await soon(there.cancel_message("m")) is True
        assert await soon(there.cancel_message("m")) is False
        behind = there.run("behind")
        await until(lambda: bool(posts(hosts)))
        held.release.set()
        assert completed(await soon(run)).text == "held"
        # The owner does it, unless its agent is seen at rest, and taken, before it has read it.
        assert completed(await soon(behind)).text == "next"
        await until(lambda: posts(hosts) == [])


async def test_a_run_is_cancelled_from_a_host_that_does_not_run_it(hosts: Hosts) -> None:
    held = Held("never")
    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held]))) as first,
        opened(host(hosts, "second"), Agent("desk", ScriptedModel([held]))) as second,
    ):
        run = await running(first, held)
        outcome = await soon(second.get("t").cancel("enough"))
        assert outcome is not None
        assert outcome.run_id == (await soon(run)).run_id
        assert type(outcome).__name__ == "Stopped"
        await until(lambda: posts(hosts) == [])


@pytest.mark.quick
async def test_a_run_future_resolves_though_another_host_ends_the_run(hosts: Hosts) -> None:
    """The run waits; then it is answered elsewhere, and goes on there."""

    @tool
    async def ask(context: Any) -> str:
        return str(await context.wait_for("answer"))

    tokens: list[str] = []

    @tool
    async def wait(context: ToolContext) -> str:
        tokens.append(await context.token("answer"))
        return str(await context.wait_for("answer"))

    def agent() -> Agent:
        return desk(call("wait"), "done", tools=[wait])

    async with (
        opened(host(hosts, "first"), agent()) as first,
        opened(host(hosts, "second"), agent()) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await until(lambda: ref.status() is Status.WAITING)
        assert await soon(second.resolve(tokens[0], 42)) is True
        assert completed(await soon(second.get("t").outcome())).text == "done"  # type: ignore[arg-type]
        assert completed(await soon(run)).text == "done"


async def test_a_refusal_of_the_owner_is_raised_with_its_own_type(hosts: Hosts) -> None:
    held = Held("done")
    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held]))) as first,
        opened(host(hosts, "second"), Agent("desk", ScriptedModel([held]))) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        there = second.get("t")
        with pytest.raises(NotInterrupted):
            await soon(there.retry())
        with pytest.raises(UsageError, match="no grant 'none'"):
            await soon(there.revoke("none"))
        held.release.set()
        await soon(run)


@pytest.mark.parametrize("name", ["desk", "clerk"])
async def test_an_agent_that_is_made_anew_before_it_is_claimed_is_not_taken_for_the_old_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It has as many records as the one that was read, and perhaps another definition."""
    store = host(hosts, "first")
    agents = [desk("a", "b"), Agent("clerk", by_turn("c", "d"))]
    async with (
        opened(store, *agents) as first,
        opened(host(hosts, "second"), *agents) as second,
    ):
        shared = store.shared
        assert shared is not None
        take = shared.take

        async def make(name: str, text: str) -> None:
            ref = second.spawn(name, "t")
            completed(await soon(ref.run(text)))
            await soon(ref.stop(block=False))

        async def take_another(*args: Any, **options: Any) -> Taken | None:
            monkeypatch.setattr(shared, "take", take)
            await soon(second.delete("t"))
            await make(name, "the new one")
            return await take(*args, **options)

        await make("desk", "the old one")
        monkeypatch.setattr(shared, "take", take_another)
        ref = first.get("t")
        outcome = completed(await soon(ref.run("go")))
        assert outcome.text == {"desk": "b", "clerk": "d"}[name]
        state = await soon(ref.state())
        assert "the new one" in repr(state.messages[0])


async def test_an_agent_that_is_deleted_before_it_is_claimed_is_not_made_anew(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = host(hosts, "first")
    async with (
        opened(store, desk("a", "b")) as first,
        opened(host(hosts, "second"), desk("a", "b")) as second,
    ):
        shared = store.shared
        assert shared is not None
        take = shared.take

        async def take_what_is_deleted(*args: Any, **options: Any) -> Taken | None:
            await soon(second.delete("t"))
            return await take(*args, **options)

        there = second.spawn("desk", "t")
        completed(await soon(there.run("go")))
        await soon(there.stop(block=False))
        monkeypatch.setattr(shared, "take", take_what_is_deleted)
        with pytest.raises(UnknownAgent):
            await soon(first.get("t").run("go"))
        assert await soon(second.agents()) == []


async def test_an_agent_that_another_host_has_deleted_is_not_made_anew(hosts: Hosts) -> None:
    """J7: also not by a host that has it in memory still, and knows its definition."""
    async with (
        opened(host(hosts, "first"), desk("a", "b")) as first,
        opened(host(hosts, "second"), desk("a", "b")) as second,
    ):
        ref = first.spawn("desk", "t", values={"of": "the old one"})
        completed(await soon(ref.run("go")))
        await may_be_taken(hosts)
        assert await soon(second.delete("t")) is True
        for call_it in (lambda: ref.run("go"), lambda: ref.send("go"), lambda: ref.pause()):
            with pytest.raises(UnknownAgent):
                await soon(call_it())
        assert await soon(second.agents()) == []
        again = first.spawn("desk", "t", values={"of": "the new one"})
        assert completed(await soon(again.run("go"))).state.values == {"of": "the new one"}


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_a_run_of_an_agent_that_another_host_has_deleted_is_not_begun_again(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, is_made_anew: bool
) -> None:
    """J7: not by this host, and not by the next agent of the same id."""

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 3600)
        return "slept"

    monkeypatch.setattr(incoming, "BEAT", 1000.0)
    store = host(hosts, "first")
    deaf_to(store, "taken")
    async with (
        opened(store, desk(call("nap"), tools=[nap])) as first,
        opened(host(hosts, "second"), desk("another")) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await hosts.found("SELECT 1 FROM agents WHERE status = 'waiting' AND takeable")
        assert await soon(second.delete("t")) is True
        if is_made_anew:
            completed(await soon(second.spawn("desk", "t").run("another one")))
            await may_be_taken(hosts)
        with contextlib.suppress(UnknownAgent):  # the first host finds out
            await soon(first.get("t").cancel_message("none"))
        with pytest.raises(UnknownAgent):
            await soon(run)
        told = [
            len((await soon(second.get(info.id).state())).messages)
            for info in await soon(second.agents())
        ]
        assert told == ([2] if is_made_anew else [])
