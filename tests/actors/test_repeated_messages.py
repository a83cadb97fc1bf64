"""A message id that is asked for again brings the outcome of its run as it stands now."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import Held, completed, desk, interrupted
from tests.support.hosts import host, keep_stale_copies, may_be_taken, opened, pay
from tests.support.loops import soon
from tests.support.places import Place
from tests.support.postgres import Hosts
from understudy import Agent, Runtime, ScriptedModel, SimulatedClock, Stopped, approve, call
from understudy.errors import UnknownAgent


def paying() -> Agent:
    return desk(call("pay"), "done", "later", tools=[pay([])], interrupt_on={"pay": True})


async def test_a_message_id_sent_again_brings_the_outcome_of_its_run_as_it_stands_now() -> None:
    """J14: it was interrupted, and has gone on since, by `decide` or by `resume`."""
    async with Runtime([paying()]) as runtime:
        for by in ("decide", "resume"):
            ref = runtime.spawn("desk", by)
            asked = interrupted(await soon(ref.run("go", message_id="m")))
            assert interrupted(await soon(ref.run("go", message_id="m"))).requests == asked.requests
            await soon(getattr(ref, by)(asked.decide(approve())))
            again = completed(await soon(ref.run("go", message_id="m")))
            assert (again.text, again.run_id) == ("done", asked.run_id)
            assert completed(await soon(ref.run("more"))).text == "later"
            again = completed(await soon(ref.run("go", message_id="m")))
            assert (again.text, again.run_id) == ("done", asked.run_id)


async def test_the_outcome_of_a_message_whose_run_was_withdrawn_says_so(place: Place) -> None:
    """J14: in memory, and in the next runtime."""
    async with Runtime([paying()], store=place.store()) as runtime:
        ref = runtime.spawn("desk", "t")
        interrupted(await soon(ref.run("go", message_id="m")))
        completed(await soon(ref.run("no, wait", message_id="n")))
        outcomes = [
            await soon(ref.outcome(message_id="m")),
            await soon(ref.run("go", message_id="m")),
        ]
    async with Runtime([paying()], store=place.store()) as runtime:
        outcomes.append(await soon(runtime.outcome("t", message_id="m")))
    for outcome in outcomes:
        assert isinstance(outcome, Stopped)
        assert outcome.signals.highest is not None
        assert outcome.signals.highest.source == "withdrawn"
        assert "a new message took the place of the run" in outcome.explain()


@pytest.mark.parametrize("how", ["run", "send"])
async def test_a_message_withdraws_what_was_asked_before_the_clock_was_set_back(
    place: Place, how: str
) -> None:
    """A2: who sends it here has seen the request, whatever the times of both are."""
    now = SimulatedClock()
    ahead = SimulatedClock(now.now() + timedelta(hours=1))
    async with Runtime([paying()], store=place.store(), clock=ahead) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t").run("go")))
    async with Runtime([paying()], store=place.store(), clock=now) as runtime:
        ref = runtime.get("t")
        sent = await soon(ref.send("no, wait")) if how == "send" else None
        outcome = ref.run("no, wait") if sent is None else ref.outcome(message_id=sent)
        answer = await soon(outcome)
        assert answer is not None
        assert completed(answer).run_id != asked.run_id


@pytest.mark.quick
async def test_a_message_id_sent_again_is_not_answered_from_a_stale_copy(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J14, J33: the host that has lost the agent has not heard of that."""
    # No hint arrives that another host has taken the agent.
    keep_stale_copies(monkeypatch)
    async with (
        opened(host(hosts, "first"), paying()) as first,
        opened(host(hosts, "second"), paying()) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        asked = interrupted(await soon(here.run("go", message_id="m")))
        await may_be_taken(hosts)
        completed(await soon(there.resume(asked.decide(approve()))))
        again = completed(await soon(here.run("go", message_id="m")))
        assert (again.text, again.run_id) == ("done", asked.run_id)


async def test_a_message_id_sent_again_while_the_next_run_begins_brings_its_own_outcome() -> None:
    held = Held("second")
    async with Runtime([Agent("desk", ScriptedModel(["first", held]))]) as runtime:
        ref = runtime.spawn("desk", "t")
        completed(await soon(ref.run("one", message_id="m")))
        more = ref.run("two")
        asked, waited = ref.run("one", message_id="m"), ref.outcome(message_id="m")
        assert completed(await soon(asked)).text == "first"
        found = await soon(waited)
        assert found is not None
        assert completed(found).text == "first"
        held.release.set()
        assert completed(await soon(more)).text == "second"


async def test_who_waits_for_a_run_of_a_deleted_agent_is_not_told_of_the_next_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J7, J33: between two looks of the host that waits, another agent got the id."""
    held = Held("never")
    looks, release = host(hosts, "second"), asyncio.Event()
    load = looks.load

    async def later(agent_id: str, after: int = 0) -> Any:
        if after:
            await release.wait()
        return await load(agent_id, after)

    monkeypatch.setattr(looks, "load", later)
    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held, "anew"]))) as first,
        opened(looks, desk("never")) as second,
    ):
        run = first.spawn("desk", "t").run("go", message_id="m")
        await soon(held.entered.wait())
        waiting = [second.get("t").outcome(), second.outcome("t", message_id="m")]
        await soon(second.get("t").state())  # read behind what the two have read
        await soon(first.delete("t"))
        deleted = await soon(run)
        assert isinstance(deleted, Stopped)
        held.release.set()
        completed(await soon(first.spawn("desk", "t").run("go")))
        release.set()
        for outcome in waiting:
            # A look that came between the end of the run and the deletion has found its own run.
            with suppress(UnknownAgent):
                found = await soon(outcome)
                assert isinstance(found, Stopped)
                assert found.run_id == deleted.run_id
