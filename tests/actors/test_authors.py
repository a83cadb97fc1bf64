"""Each act has an author, who is recorded with it or told to the security log (A12)."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from tests.support.acts import SIGNED, agents
from tests.support.agents import desk
from tests.support.loops import soon
from tests.support.places import MemoryPlace, Place
from tests.support.web_site import asked, site_of
from understudy import (
    AgentRef,
    DecisionError,
    Runtime,
    UnknownAgent,
    UsageError,
    approve,
)
from understudy.actors import Schedules
from understudy.actors.verbs import VERBS, Verb, arguments_of
from understudy.cluster import Cluster, ClusterRef, ClusterSchedules
from understudy.login import User

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


async def test_the_authors_of_messages_stay_over_a_compaction(place: Place) -> None:
    """A row of a message had no `by` any more once its record was gone; no model is told it."""
    async with Runtime([desk("hello")], store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("first", by="ann"))
        await soon(ref.run("second"))
        await soon(ref.send("third", by="bob"))
        await soon(ref.run("fourth", by="ann"))
        before = (await soon(ref.display())).rows
        await soon(ref.compact())
        await soon(ref.run("last", by="cy"))
        after = (await soon(ref.display())).rows
    authors = [
        [row.detail.get("by") for row in rows if row.kind == "user"] for rows in (before, after)
    ]
    assert authors[0] == ["ann", None, "bob", "ann"]
    assert authors[1] == [*authors[0], "cy"]


async def test_a_deletion_leaves_when_and_by_whom(place: Place) -> None:
    """A12."""
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
        asking = await asked(runtime, "gated", "g")
        (request,) = (await soon(asking.state())).requests
        with pytest.raises(DecisionError):
            await soon(asking.decide({request.id: approve(by=name)}))


async def test_the_author_over_http_is_who_is_logged_in(caplog: pytest.LogCaptureFixture) -> None:
    """A12."""
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
