"""Any host answers for an agent: one at rest moves to who is asked, one that runs is posted to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.test_agent_hosts import desk, host, opened, pay
from tests.actors.test_posted_calls import running
from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, ScriptedModel, Status, ToolContext, approve, call, reject, tool
from understudy.errors import NotInterrupted, UsageError
from understudy.journal.contracts import Owned


def inbox(hosts: Hosts) -> list[tuple[object, ...]]:
    return hosts.sql("SELECT kind, reply FROM inbox")


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
        assert inbox(hosts) == []


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


async def test_the_copy_of_a_host_that_lost_an_agent_leaves_its_memory(hosts: Hosts) -> None:
    async with (
        opened(host(hosts, "first"), desk("a", "b")) as first,
        opened(host(hosts, "second"), desk("a", "b")) as second,
    ):
        here = first.spawn("desk", "t")
        await soon(here.run("go"))
        assert here.status() is Status.IDLE
        # Else the other one posts to it, and takes nothing: its status may not be durable yet.
        takeable = "SELECT takeable AND indexed_seq = last_seq FROM agents"
        await until(lambda: hosts.sql(takeable) == [(True,)])
        await soon(second.get("t").run("go"))
        await until(lambda: here.status() is Status.PASSIVE)
        (info,) = await soon(first.agents())
        assert info.host == "second"


async def test_a_call_to_an_agent_that_runs_elsewhere_is_done_by_its_owner(
    hosts: Hosts, ran: list[str]
) -> None:
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
        await until(lambda: bool(inbox(hosts)))
        held.release.set()
        assert completed(await soon(run)).text == "held"
        # The owner does it, unless its agent is seen at rest, and taken, before it has read it.
        assert completed(await soon(behind)).text == "next"
        await until(lambda: inbox(hosts) == [])


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
        await until(lambda: inbox(hosts) == [])


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
        with pytest.raises(UsageError, match="no sticky decision"):
            await soon(there.revoke("pay"))
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

        async def take_another(agent_id: str, agent: str | None) -> Owned | None:
            monkeypatch.setattr(shared, "take", take)
            await soon(second.delete("t"))
            await make(name, "the new one")
            return await take(agent_id, agent)

        await make("desk", "the old one")
        monkeypatch.setattr(shared, "take", take_another)
        ref = first.get("t")
        outcome = completed(await soon(ref.run("go")))
        assert outcome.text == {"desk": "b", "clerk": "d"}[name]
        state = await soon(ref.state())
        assert "the new one" in repr(state.messages[0])
