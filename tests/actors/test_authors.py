"""Each act has an author, who is recorded with it or told to the security log (A12)."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, desk, interrupted
from tests.support.loops import soon
from tests.support.places import MemoryPlace, Place
from tests.support.web_site import asked, site_of
from understudy import (
    Agent,
    AgentRef,
    DecisionError,
    Runtime,
    ScriptedModel,
    UnknownAgent,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.actors import Schedules
from understudy.actors.verbs import VERBS, Verb, arguments_of
from understudy.cluster import Cluster, ClusterRef, ClusterSchedules
from understudy.login import User
from understudy.middleware import HumanInTheLoop

SIGNED = [verb for verb in VERBS.values() if verb.is_signed]
BY = "ann"
ODD = [
    "",
    " ann",
    "ann\n",
    "an\x00n",
    "an\u200bn",
    "\u0430nn",
    "understudy",
    "Nobody",
    "a" * 201,
    7,
]


def classes_of(verb: Verb) -> list[type[Any]]:
    if verb.name.startswith("schedules."):
        return [Schedules, ClusterSchedules]
    return [each for each in (AgentRef, ClusterRef, Runtime, Cluster) if hasattr(each, verb.method)]


def test_what_changes_something_takes_its_author_or_says_why_not() -> None:
    for verb in VERBS.values():
        assert verb.is_signed or verb.right == "read" or verb.unsigned, verb.name


@pytest.mark.parametrize("verb", SIGNED, ids=lambda verb: verb.name)
def test_an_author_is_an_argument_here_and_of_a_cluster_and_no_body_names_it(verb: Verb) -> None:
    assert classes_of(verb)
    for each in classes_of(verb):
        method = getattr(each, verb.method)
        assert "by" in inspect.signature(method).parameters, each
        assert "by" not in arguments_of(method).model_fields


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    raise ConnectionError("the line is dead")


def agents() -> list[Agent]:
    gated = Agent(
        "gated",
        by_turn(call("pay", {"amount": 5})),
        tools=[pay],
        middleware=[HumanInTheLoop({"pay": True})],
    )
    doubting = Agent("doubting", by_turn(call("pay", {"amount": 5})), tools=[pay])
    return [desk("hello"), gated, doubting]


async def scheduled(runtime: Runtime, ref: AgentRef) -> Schedules:
    schedules = runtime.schedules(ref)
    await soon(schedules.set("daily", cron="0 9 * * *", input="go"))
    return schedules


async def waiting(runtime: Runtime) -> AgentRef:
    return await asked(runtime, "gated", "g")


async def _cancel_message(runtime: Runtime, ref: AgentRef) -> None:
    at = (await soon(runtime.now())).replace(year=2999)
    await soon(ref.send("later", at=at, message_id="m"))
    assert await soon(ref.cancel_message("m", by=BY))


async def _cancel(runtime: Runtime, _: AgentRef) -> None:
    await soon((await waiting(runtime)).cancel(by=BY))


async def _retry(runtime: Runtime, _: AgentRef) -> None:
    def broken(_request: Any) -> Any:
        raise RuntimeError("no model today")

    ref = runtime.spawn(Agent("broken", ScriptedModel(broken)), id="b")
    await soon(ref.run("go"))
    await soon(ref.retry(by=BY))


async def _settle(runtime: Runtime, _: AgentRef) -> None:
    ref = runtime.spawn("doubting", id="d")
    completed(await soon(ref.run("pay")))
    (doubt,) = await soon(runtime.doubts())
    await soon(ref.settle(doubt.call_key, how="it was paid", by=BY))


async def _revoke(runtime: Runtime, _: AgentRef) -> None:
    ref = runtime.spawn("gated", id="g")
    outcome = interrupted(await soon(ref.run("go")))
    await soon(ref.resume(outcome.decide(approve(always=True))))
    await soon(ref.revoke(outcome.requests[0].id, by=BY))


async def _schedules(runtime: Runtime, ref: AgentRef, *names: str) -> None:
    schedules = await scheduled(runtime, ref)
    for name in names[:-1]:
        await soon(getattr(schedules, name)("daily"))
    await soon(getattr(schedules, names[-1])("daily", by=BY))


async def _import(runtime: Runtime, ref: AgentRef) -> None:
    await soon(runtime.import_(await soon(runtime.export(ref.id)), "copy", by=BY))


ACTS: dict[str, Callable[[Runtime, AgentRef], Awaitable[Any]]] = {
    "run": lambda _, ref: soon(ref.run("go", by=BY)),
    "send": lambda _, ref: soon(ref.send("go", by=BY)),
    "cancel_message": _cancel_message,
    "cancel": _cancel,
    "pause": lambda _, ref: soon(ref.pause(by=BY)),
    "unpause": lambda _, ref: _unpaused(ref),
    "retry": _retry,
    "settle": _settle,
    "revoke": _revoke,
    "compact": lambda _, ref: soon(ref.compact(by=BY)),
    "delete": lambda runtime, ref: soon(runtime.delete(ref.id, by=BY)),
    "schedules.set": lambda runtime, ref: soon(
        runtime.schedule(ref, "daily", cron="0 9 * * *", input="go", by=BY)
    ),
    "schedules.trigger": lambda runtime, ref: _schedules(runtime, ref, "trigger"),
    "schedules.pause": lambda runtime, ref: _schedules(runtime, ref, "pause"),
    "schedules.resume": lambda runtime, ref: _schedules(runtime, ref, "pause", "resume"),
    "schedules.remove": lambda runtime, ref: _schedules(runtime, ref, "remove"),
    "export": lambda runtime, ref: soon(runtime.export(ref.id, by=BY)),
    "import_": _import,
    "recover": lambda runtime, _: soon(runtime.recover(by=BY)),
}


async def _unpaused(ref: AgentRef) -> None:
    await soon(ref.pause())
    await soon(ref.unpause(by=BY))


@pytest.mark.parametrize("verb", SIGNED, ids=lambda verb: verb.name)
async def test_an_act_is_recorded_or_logged_with_its_author(
    verb: Verb, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "understudy.security")
    async with Runtime(agents()) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("first"))
        await ACTS[verb.name](runtime, ref)
        stored = [
            json.dumps((await soon(runtime.export(info.id)))["records"])
            for info in await soon(runtime.agents())
        ]
    logged = [entry for entry in caplog.records if entry.__dict__.get("who") == BY]
    is_recorded = any(f'"{BY}"' in records for records in stored)
    assert is_recorded or [entry.__dict__["what"] for entry in logged] == [verb.name]
    is_administration = verb.right == "admin" or verb.name.startswith(("schedules.", "revoke"))
    assert bool(logged) is is_administration


async def test_the_author_of_a_message_is_in_the_queue_and_after_a_crash(place: Place) -> None:
    async with Runtime([desk("hello")], store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        at = (await soon(runtime.now())).replace(year=2999)
        await soon(ref.send("later", at=at, by="ann"))
        await soon(ref.pause(by="bob"))
        after = place.after_crash()
    async with Runtime([desk("hello")], store=after) as runtime:
        state = await soon(runtime.get("a").state())
        assert state.plans is not None
        assert [each.by for each in state.plans.timed.values()] == ["ann"]
        assert state.plans.pause_by == "bob"
        page = await soon(runtime.get("a").history())
        told = {entry.what: entry.who for entry in page}
    assert (told["message_queued"], told["pause_requested"]) == ("ann", "bob")


async def test_a_deletion_leaves_when_and_by_whom(place: Place) -> None:
    async with Runtime([desk("hello")], store=place.store()) as runtime:
        await soon(runtime.spawn("desk", id="a").run("go"))
        assert await soon(runtime.delete("a", by="ann"))
        with pytest.raises(UnknownAgent, match=r"was deleted at .* by ann") as raised:
            await soon(runtime.get("a").state())
        assert raised.value.deleted_by == "ann"
        with pytest.raises(UnknownAgent, match="by ann"):
            await soon(runtime.get("a").send("go"))
    if not isinstance(place, MemoryPlace):
        async with Runtime([desk("hello")], store=place.store()) as runtime:
            with pytest.raises(UnknownAgent, match="by ann"):
                await soon(runtime.get("a").history())
            await soon(runtime.spawn("desk", id="a").run("again"))
            assert (await soon(runtime.get("a").state())).messages


@pytest.mark.parametrize("name", ODD)
async def test_a_name_that_looks_like_another_or_is_the_library_s_is_refused(name: Any) -> None:
    async with Runtime(agents()) as runtime:
        ref = runtime.spawn("desk", id="a")
        for act in (ref.send, ref.run, ref.pause, ref.revoke):
            with pytest.raises(UsageError, match="by"):
                act("text", by=name)
        with pytest.raises(UsageError):
            runtime.delete("a", by=name)
        with pytest.raises(UsageError):
            User(name)
        asking = await waiting(runtime)
        (request,) = (await soon(asking.state())).requests
        with pytest.raises(DecisionError):
            await soon(asking.decide({request.id: approve(by=name)}))


async def test_the_author_over_http_is_who_is_logged_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "understudy.security")
    async with Runtime(agents()) as runtime, site_of(runtime) as client:
        at = "2999-01-01T00:00:00Z"
        path = "/api/agents/a"
        sent = await client.post(f"{path}/messages", json={"text": "hi", "agent": "desk", "at": at})
        assert sent.status_code == 200
        forged = await client.post(f"{path}/messages", json={"text": "hi", "by": "bob"})
        assert forged.status_code == 400
        assert (await client.post(f"{path}/pause", json={})).status_code == 200
        assert (await client.post(f"{path}/pause", json={"by": "bob"})).status_code == 400
        entries = (await client.get(f"{path}/history")).json()["entries"]
        assert {
            e["who"] for e in entries if e["what"] in ("message_queued", "pause_requested")
        } == {"ann"}
        gone = await client.request("DELETE", path, json={"confirm": "a"})
        assert gone.status_code == 200
        assert "by ann" in (await client.get(path)).json()["detail"]
    told = [entry.__dict__ for entry in caplog.records if entry.name == "understudy.security"]
    assert {("read", "a"), ("act", "a")} <= {(each["event"], each["agent_id"]) for each in told}
    assert all(each["address"] for each in told)


async def test_who_is_refused_is_told_to_the_security_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "understudy.security")
    auth = lambda _: User("ann", frozenset({"read"}))  # noqa: E731
    async with Runtime(agents()) as runtime, site_of(runtime, auth=auth) as client:
        await client.post("/api/agents/a/pause", json={})
    async with Runtime(agents()) as runtime, site_of(runtime, auth=lambda _: None) as client:
        assert (await client.get("/api")).status_code == 401
    told = [(e.__dict__["event"], e.__dict__["what"], e.__dict__["who"]) for e in caplog.records]
    assert ("refused", "act", "ann") in told
    assert ("login", "refused", None) in told
