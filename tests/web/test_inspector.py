"""The inspector tells the truth, its actions do what the API does, and bad input breaks no page.

Rules: I17.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import (
    Held,
    agent_of_two_sleepers,
    by_turn,
    completed,
    interrupted,
    quarantined,
    told_by_users,
    until_status,
)
from tests.support.loops import soon
from tests.support.places import Place, PostgresPlace, SqlitePlace
from tests.support.web_demo import agents as demo_agents
from tests.support.web_demo import filled
from tests.support.web_site import (
    ALL,
    TABS,
    Done,
    asked,
    client_of,
    desk,
    logged_in,
    refund,
    rest,
    site_of,
)
from understudy import (
    Agent,
    AgentState,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    UnknownAgent,
    approve,
    call,
    tool,
)
from understudy.errors import UnknownMessage
from understudy.journal import DatabaseStore, Loaded, MemoryStore
from understudy.middleware import SubAgent
from understudy.state.now import tree_rows
from understudy.testing import FaultyBackend
from understudy.tools import Tool
from understudy.web import User, ui
from understudy.web.views.outcome import outcome_of


@tool
def note() -> str:
    """Note it."""
    return "noted"


async def test_the_timeline_has_what_ran_side_by_side_what_failed_and_who_was_waited_for() -> None:
    short_ends, long_ends = asyncio.Event(), asyncio.Event()
    begun = asyncio.Barrier(3)

    @tool
    async def short() -> str:
        await begun.wait()
        await short_ends.wait()
        return "short"

    @tool
    async def long() -> str:
        await begun.wait()
        await long_ends.wait()
        raise RuntimeError("it broke")

    done = Done()
    clerk = desk(done, refund(), "clerk is done", name="clerk")
    inner = call("task", {"task_name": "clerk", "instructions": "refund"})
    front = Agent(
        "front",
        by_turn([call("short"), call("long")], inner, "done"),
        tools=[short, long],
        middleware=[SubAgent([clerk])],
    )
    clock = SimulatedClock()
    async with Runtime([front], clock=clock) as runtime:
        ref = runtime.spawn("front", id="a1")
        events, running = ref.events(), ref.run("go")
        await soon(begun.wait())
        await clock.advance(2)
        short_ends.set()
        async for event in events:
            if event.event.kind == "tool_ended":
                break
        await clock.advance(6)
        long_ends.set()
        await soon(running)
        async with site_of(runtime) as client:
            row = (await client.get("/api/pending")).json()["requests"][0]
            assert (row["agent_id"], row["agent_path"]) == ("a1", ["front", "clerk"])
            assert (await client.get(f"/agents/a1/requests/{row['id']}")).status_code == 200
            body = {
                "decisions": {row["id"]: {"type": "approve"}},
                "expect": {row["id"]: row["digest"]},
            }
            answer = await client.post("/api/agents/a1/decisions", json=body)
            assert answer.status_code == 200, answer.text
            await rest(ref)
            found = (await client.get("/api/agents/a1/timeline")).json()["bars"]
            bars = {(bar["kind"], bar["label"]): bar for bar in found}
            assert bars["call", "short"]["seconds"] == 2
            assert bars["call", "long"]["seconds"] == 8
            assert bars["call", "long"]["outcome"] == "failed"
            assert bars["call", "long"]["look"] == "failed"
            assert bars["call", "short"]["look"] == ""
            shown = (await client.get("/agents/a1/timeline")).text
            assert shown.count('bar-call look-failed"') == 2  # its bar, and the legend
            assert bars["call", "long"]["from"] < bars["call", "short"]["to"]  # side by side
            assert bars["run", "clerk"]["depth"] == bars["run", "front"]["depth"] + 2
            assert bars["person", "approval: refund"]["outcome"] == "approve by ann"
            assert all(bar["end"] is not None for bar in found)
            assert all(0 <= bar["from"] <= bar["to"] <= 100 for bar in found)
            usage = (await client.get("/api/agents/a1/usage")).json()
            assert usage["by_agent"]["front"]["replies"] == 3
            assert usage["by_agent"]["front / clerk"]["replies"] == 2
            rows = (await client.get("/api/agents/a1/conversation")).json()["rows"]
            assert [r["text"] for r in rows if r["kind"] == "text"][-1] == "done"
            audit = (await client.get("/api/agents/a1/decisions")).json()["decisions"]
            assert [(d["by"], d["tool_name"]) for d in audit] == [("ann", "refund")]


async def test_the_timeline_tells_agents_of_one_name_apart() -> None:
    clock = SimulatedClock()
    async with Runtime([agent_of_two_sleepers()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="d1")
        running = ref.run("Go.")
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(10))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(10))
        await soon(running)
        async with site_of(runtime) as client:
            bars = (await client.get("/api/agents/d1/timeline")).json()["bars"]
    ended = [(bar["kind"], bar["seconds"], bar["outcome"]) for bar in bars if bar["depth"] >= 2]
    assert ("run", 10, "completed") in ended
    assert ("run", 20, "completed") in ended
    assert [each for each in ended if each[0] == "wait"] == [
        ("wait", 10, "over"),
        ("wait", 20, "over"),
    ]


def payment_that_hangs() -> tuple[Tool, asyncio.Event]:
    """A tool `pay` that never ends, and what is set when it has begun."""
    entered = asyncio.Event()

    @tool
    async def pay() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "paid"

    return pay, entered


async def test_a_call_in_doubt_is_shown_and_settled() -> None:
    pay, entered = payment_that_hangs()
    agent = Agent("payer", by_turn(call("pay"), "ok", "ok"), tools=[pay])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("payer", id="p1")
        running = ref.run("pay")
        await soon(entered.wait())
        async with site_of(runtime) as client:
            assert (
                await client.post("/agents/p1/do/cancel", data={"message": "no"})
            ).status_code == 303
            await soon(running)
            about = (await client.get("/api/agents/p1")).json()
            (doubt,) = about["doubts"]
            bars = (await client.get("/api/agents/p1/timeline")).json()["bars"]
            assert [bar["in_doubt"] for bar in bars if bar["label"] == "pay"] == [True]
            assert "In doubt:" in (await client.get("/agents/p1")).text
            form = {"call_key": doubt["call_key"], "how": "the bank says no", "happened": "false"}
            assert (await client.post("/agents/p1/do/settle", data=form)).status_code == 303
            assert (await client.get("/api/agents/p1")).json()["doubts"] == []
            entries = (await client.get("/api/agents/p1/history")).json()["entries"]
            settled = [e for e in entries if e["what"] == "settled"]
            assert settled[0]["detail"]["how"] == "the bank says no"
            assert settled[0]["who"] == "ann"


async def test_a_doubt_that_is_settled_since_a_request_was_asked_is_shown_so() -> None:
    pay, entered = payment_that_hangs()
    agent = Agent("payer", by_turn(call("pay"), call("pay"), "ok"), tools=[pay])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("payer", id="p1")
        running = ref.run("pay")
        await soon(entered.wait())
        await soon(ref.cancel())
        await soon(running)
        (request,) = interrupted(await soon(ref.run("pay"))).requests
        (doubt,) = request.doubts
        page = f"/agents/p1/requests/{request.id}"
        many = {"chosen": f"p1/{request.id}/{request.digest}"}
        async with site_of(runtime) as client:

            async def told() -> Any:
                return (await client.get(f"/api{page}")).json()["doubts"]

            async def texts() -> list[str]:
                return [(await client.get(page)).text, (await client.post("/bulk", data=many)).text]

            assert [each["settled"] for each in await told()] == [None]
            text, in_bulk = await texts()
            assert "In doubt:" in text
            assert "left out: a call is in doubt" in in_bulk
            for each in (text, in_bulk):
                assert "Settled since" not in each
            await soon(ref.settle(doubt.call_key, how="the bank says no"))
            (after,) = await told()
            assert (after["call_key"], after["settled"]["how"]) == (
                doubt.call_key,
                "the bank says no",
            )
            for text in await texts():
                assert "Settled since: the bank says no." in text
                assert "In doubt:" not in text


async def test_a_run_that_failed_is_continued_by_a_button() -> None:
    """W8: the button names the run, so it is retried once, however often it is pressed."""
    replies: list[Any] = [ConnectionError("down"), "cured"]
    async with Runtime([Agent("desk", ScriptedModel(replies))]) as runtime:
        ref = runtime.spawn("desk", id="a1")
        first = await soon(ref.run("hi"))
        async with site_of(runtime) as client:
            page = (await client.get("/agents/a1")).text
            assert "Continue where it failed" in page
            form = {"run_id": first.run_id}
            assert f'name="run_id" value="{first.run_id}"' in page
            sent = await client.post("/agents/a1/do/retry", data=form)
            assert sent.status_code == 303
            await rest(ref)
            said = (await client.get(sent.headers["location"])).text
            assert "The run continues where it failed." in said
            answer = await client.post("/api/agents/a1/retry", json=form)
            assert answer.json() == {"id": "a1", "done": True}
            assert (await client.post("/api/agents/a1/retry", json={})).status_code == 409
            outcome = (await client.get("/api/agents/a1/outcome?wait=5")).json()
            assert (outcome["outcome"], outcome["text"]) == ("completed", "cured")


async def test_a_message_may_continue_a_run_that_failed() -> None:
    """W8."""
    model = ScriptedModel([ConnectionError("down"), "cured"])
    async with Runtime([Agent("desk", model)]) as runtime:
        ref = runtime.spawn("desk", id="a1")
        first = await soon(ref.run("hi"))
        async with site_of(runtime) as client:
            path, body = "/api/agents/a1/messages", {"text": "and hurry", "go_on": True}
            for wrong in ({"steer": True}, {"at": "2100-01-01T00:00:00+00:00"}):
                assert (await client.post(path, json={**body, **wrong})).status_code == 400
            sent = await client.post(path, json={**body, "message_id": "m"})
            assert sent.json() == {"id": "a1", "message_id": "m"}
            outcome = (await client.get("/api/agents/a1/outcome?wait=5")).json()
            assert (outcome["outcome"], outcome["text"]) == ("completed", "cured")
        state = await soon(ref.state())
        assert state.run is not None
        assert state.run.continues is not None
        assert state.run.continues.run_id == first.run_id
        assert told_by_users(model.requests[-1]) == ["hi", "and hurry"]


async def test_actions_do_what_they_say_and_say_why_they_cannot() -> None:
    done = Done()
    async with Runtime([desk(done, "hello", "again", refund(), "ok")]) as runtime:
        ref = runtime.spawn("desk", id="a1")
        await soon(ref.run("hi"))
        async with site_of(runtime) as client:

            async def reasons() -> dict[str, str | None]:
                about = (await client.get("/api/agents/a1")).json()
                return {action["name"]: action["reason"] for action in about["actions"]}

            now = await reasons()
            assert now["steer"] == "No run is under way that it could steer."
            assert (now["unpause"], now["cancel"]) == ("It is not paused.", "No run is open.")
            assert now["retry"] == "Its last run has not failed."
            assert now["send"] is now["pause"] is now["delete"] is None
            for name in ("unpause", "cancel", "retry"):
                sent = await client.post(f"/agents/a1/do/{name}", data={"x": "1"})
                assert sent.status_code == 409, name
            sent = await client.post("/agents/a1/do/messages", data={"text": "more"})
            assert sent.status_code == 303
            await rest(ref)
            assert (await client.post("/agents/a1/do/pause", data={"x": "1"})).status_code == 303
            sent = await client.post("/api/agents/a1/messages", json={"text": "refund"})
            assert sent.status_code == 200
            await rest(ref, Status.PAUSED)
            assert (await reasons())["pause"] == "It is paused already."
            assert (await client.post("/agents/a1/do/unpause", data={"x": "1"})).status_code == 303
            await rest(ref, Status.INTERRUPTED)
            outcome = (await client.get("/api/agents/a1/outcome?wait=5")).json()
            assert outcome["outcome"] == "interrupted"
            assert (await client.post("/api/agents/a1/cancel", json={})).status_code == 200
            await rest(ref, Status.CANCELLED)
            assert (await client.post("/api/agents/a1/compact", json={})).status_code == 200
            export = await client.get("/agents/a1/export")
            assert "attachment" in export.headers["content-disposition"]
            copy = {"data": export.json(), "id": "a2"}
            assert (await client.post("/api/import", json=copy)).json() == {"id": "a2"}
            wrong = await client.post("/agents/a1/do/delete", data={"confirm": "a"})
            assert wrong.status_code == 400
            gone = await client.post("/agents/a1/do/delete", data={"confirm": "a1"})
            assert gone.status_code == 303
            assert (await client.get("/agents/a1")).status_code == 404
            body = {"confirm": "a2"}
            deleted = await client.request("DELETE", "/api/agents/a2", json=body)
            assert deleted.json() == {"id": "a2", "deleted": True}
            assert (await client.post("/agents/a1/do/fly", data={"x": "1"})).status_code == 404
        with pytest.raises(UnknownAgent):
            await soon(ref.state())


async def test_a_compaction_takes_no_decision_from_the_page_of_decisions() -> None:
    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        return f"paid {order}"

    calls = [[call("pay", {"order": str(n)})] for n in range(3)]
    model = ScriptedModel([*calls, "Done."])
    agent = Agent("desk", model, tools=[pay], interrupt_on={"pay": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome = await soon(ref.run("Pay three orders."))
        for by in ("ann", "bob"):
            outcome = await soon(ref.resume(interrupted(outcome).decide(approve(by=by))))
        async with site_of(runtime, auth=logged_in("ann")) as client:

            async def decided() -> list[tuple[str, str, str]]:
                data = (await client.get("/api/agents/a/decisions")).json()
                assert data["earlier"] is None
                rows = data["decisions"]
                return [(row["by"], row["decision"]["type"], row["tool_name"]) for row in rows]

            before = await decided()
            assert before == [("bob", "approve", "pay"), ("ann", "approve", "pay")]
            assert (await client.post("/api/agents/a/compact", json={})).status_code == 200
            assert await decided() == before
            completed(await soon(ref.resume(interrupted(outcome).decide(approve(by="cem")))))
            assert await decided() == [("cem", "approve", "pay"), *before]


async def test_what_waits_for_a_run_is_listed_and_taken_back() -> None:
    """A2."""
    held = Held("first")
    async with Runtime([Agent("desk", ScriptedModel([held, "second", "third"]))]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = ref.run("First.")
        await soon(held.entered.wait())
        await soon(ref.send("Sent <b>in between</b>."))
        second = ref.run("Second.")
        await soon(ref.send("Hurry.", steer=True))
        async with site_of(runtime, auth=logged_in("ann")) as client:
            page = (await client.get("/api/agents/a")).json()
            assert [(each["what"], each["text"]) for each in page["queue"]] == [
                ("send", "Sent <b>in between</b>."),
                ("run", "Second."),
                ("steer", "Hurry."),
            ]
            text = (await client.get("/agents/a")).text
            assert "3 messages wait" in text
            assert "with the next model call" in text
            assert "Sent &lt;b&gt;in between&lt;/b&gt;." in text
            form = {"message_id": page["queue"][1]["message_id"]}
            answer = await client.post("/agents/a/do/cancel_message", data=form)
            assert answer.status_code == 303
            assert (
                "No run takes the message any more."
                in (await client.get(answer.headers["location"])).text
            )
            with pytest.raises(UnknownMessage, match="is cancelled"):
                await soon(second)
            assert "2 messages wait" in (await client.get("/agents/a")).text
        async with site_of(runtime, auth=logged_in("bob", frozenset({"read"}))) as client:
            text = (await client.get("/agents/a")).text
            assert "2 messages wait" in text
            assert "Take back" not in text
        held.release.set()
        await soon(first)


@pytest.mark.parametrize("feed", [True, None])
async def test_who_waits_for_an_outcome_gets_it_as_soon_as_the_run_is_at_rest(
    feed: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the feed of the store, else by looking."""
    monkeypatch.setattr("understudy.web.views.outcome.SLOWEST", 3600.0)
    monkeypatch.setattr("understudy.web.views.outcome.POLL", 3600.0 if feed else 0.01)
    held, looked = Held("done"), asyncio.Event()

    def look(state: AgentState) -> dict[str, Any]:
        looked.set()
        return outcome_of(state)

    monkeypatch.setattr("understudy.web.views.outcome.outcome_of", look)
    async with Runtime([Agent("holder", ScriptedModel(held))], feed=feed) as runtime:
        running = runtime.spawn("holder", id="h1").run("go")
        await soon(held.entered.wait())
        async with site_of(runtime) as client:
            waiting = asyncio.create_task(client.get("/api/agents/h1/outcome?wait=60"))
            await soon(looked.wait())  # the run is under way
            held.release.set()
            assert (await soon(waiting)).json()["text"] == "done"
        await soon(running)


async def test_the_address_of_a_page_cannot_make_it_say_what_it_likes() -> None:
    async with Runtime([desk(Done(), "hello", "again")]) as runtime:
        await soon(runtime.spawn("desk", id="a1").run("hi"))
        async with site_of(runtime) as client:
            for path in ("/agents", "/agents/a1"):
                page = await client.get(path, params={"said": "All is paid: approve the rest."})
                assert "All is paid" not in page.text
                assert "note good" not in page.text
            sent = await client.post("/agents/a1/do/messages", data={"text": "more"})
            page = await client.get(sent.headers["location"])
            assert "The message is recorded." in page.text


async def test_a_grant_is_shown_and_revoked() -> None:
    done = Done()
    async with Runtime([desk(done, refund("1"), "ok", refund("2"), "ok")]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = (await client.get("/api/pending")).json()["requests"][0]
            form = {
                "decision": "approve",
                "digest": row["digest"],
                "grant": "no end",
                "scope": "agent",
            }
            page = f"/agents/a1/requests/{row['id']}"
            assert (await client.post(page, data=form)).status_code == 303
            await rest(ref)
            about = (await client.get("/api/agents/a1")).json()
            (grant,) = about["grants"]
            assert (grant["type"], grant["tool_name"], grant["left"]) == ("approve", "refund", None)
            assert "Ask again about refund" in (await client.get("/agents/a1")).text
            sent = await client.post("/agents/a1/do/revoke", data={"grant_id": grant["id"]})
            assert sent.status_code == 303
            assert (await client.get("/api/agents/a1")).json()["grants"] == []


async def test_the_document_of_the_api_has_every_route_and_every_page_has_its_json() -> None:
    from understudy.web.api import ENDPOINTS

    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            document = (await client.get("/api/openapi.json")).json()
            assert document["openapi"].startswith("3.1")
            routes = [(endpoint.method, endpoint.path) for endpoint in ENDPOINTS]
            assert len(set(routes)) == len(routes)
            for endpoint in ENDPOINTS:
                operation = document["paths"][endpoint.path or "/"][endpoint.method.lower()]
                assert operation["summary"]
                if endpoint.body is not None:
                    ref = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                    assert ref.rpartition("/")[2] in document["components"]["schemas"]
            for tab in TABS:
                path = {"": "/conversation"}.get(tab, tab)
                assert (await client.get(f"/api/agents/a1{path}")).status_code == 200
            assert (await client.put("/api/pending")).status_code == 405
            assert (await client.post("/api/pending", json={})).status_code == 405


# ------------------------------------------------------------------------- bad input


async def test_nothing_that_is_asked_for_wrongly_breaks_a_page() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            wrong = {
                "/agents/none": 404,
                "/agents/a1/requests/none": 404,
                "/agents/a1/nothing": 404,
                "/?after=nonsense": 400,
                "/?order=sideways": 400,
                "/?limit=many": 400,
                "/?limit=99999999999": 200,
                "/?kind=none": 200,
                "/?tool=%00": 400,
                "/agents?status=flying": 400,
                "/agents?after=AAAA": 400,
                "/agents?prefix=%F0%9F%A6%8A": 200,
                "/agents/a1/history?after=-1": 400,
                "/agents/a1/history?after=999999": 200,
                "/agents/a1/timeline?before=7": 200,
                "/agents/a1/timeline?before=x": 400,
                "/agents/a1/usage?before=1": 200,
                "/agents/a1/decisions?before=999999": 200,
                "/agents/a1?page=7": 200,
                f"/agents/{'x' * 3000}": 400,
                "/agents/%00": 400,
                "/agents/~": 400,
                "/agents/%ff": 400,
                "/agents/a1/requests/%ff": 400,
                "/agents?prefix=%ff": 400,
            }
            for path, status in wrong.items():
                for prefix in ("", "/api"):
                    found = await client.get(prefix + path)
                    is_page_only = prefix == "/api" and (path.startswith("/?") or "a1?" in path)
                    if not is_page_only:
                        assert found.status_code == status, (prefix + path, found.text[-400:])
            for body in (b"", b"{", b"[]", b"null", b'{"text": 7}', b'{"text": ""}', b"\xff",
                         b'{"text": "\\ud800"}', b'{"text": "a", "more": 1}',
                         b'{"text": "a", "at": "soon"}', b'{"text": NaN}'):  # fmt: skip
                headers = {"content-type": "application/json"}
                sent = await client.post("/api/agents/a1/messages", content=body, headers=headers)
                assert sent.status_code == 400, (body, sent.text)
                assert "codec" not in sent.text
            assert (await client.get("/agents/a1")).status_code == 200
            told = {
                ("GET", "/agents?status=flying"): "'idle', 'running', 'interrupted'",
                ("GET", "/nothing"): "There is nothing at this address",
                ("PUT", "/pending"): '"MethodNotAllowed"',
            }
            for (method, path), text in told.items():
                assert text in (await client.request(method, f"/api{path}")).text


async def test_a_tool_that_no_longer_exists_can_still_be_rejected(place: Place) -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], store=place.store()) as runtime:
        await asked(runtime)
    without = Agent("desk", by_turn(refund(), "ok"))
    async with Runtime([without], store=place.store()) as runtime, site_of(runtime) as client:
        row = (await client.get("/api/pending")).json()["requests"][0]
        page = f"/agents/a1/requests/{row['id']}"
        text = (await client.get(page)).text
        assert "Its definition is not known here." in text
        form = {"decision": "edit", "digest": row["digest"], "v:": '{"order_id": "1"}'}
        assert (await client.post(page, data=form)).status_code == 422
        form = {"decision": "reject", "digest": row["digest"]}
        assert (await client.post(page, data=form)).status_code == 303
        await rest(runtime.get("a1"))
    assert done.calls == []


@pytest.mark.quick
async def test_what_was_asked_before_a_crash_is_answered_after_it(place: Place) -> None:
    done = Done()
    runtime = Runtime([desk(done, refund(), "ok")], store=place.store())
    async with runtime:
        await asked(runtime)
        async with Runtime([desk(done, refund(), "ok")], store=place.after_crash()) as next_one:
            await soon(next_one.recover())
            async with site_of(next_one) as client:
                row = (await client.get("/api/pending")).json()["requests"][0]
                page = f"/agents/a1/requests/{row['id']}"
                form = {"decision": "approve", "digest": row["digest"]}
                assert (await client.post(page, data=form)).status_code == 303
                await rest(next_one.get("a1"))
    assert len(done.calls) == 1


async def test_two_people_who_answer_at_once_after_a_crash_get_one_decision(place: Place) -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], store=place.store()) as runtime:
        await asked(runtime)
        agent = desk(done, refund(), "ok")
        async with Runtime([agent], store=place.after_crash()) as next_one:
            app = ui(next_one, auth=lambda request: User(request.headers["x-user"], may=ALL))
            headers = {"sec-fetch-site": "same-origin"}
            async with (
                client_of(app, headers={**headers, "x-user": "ann"}) as ann,
                client_of(app, headers={**headers, "x-user": "bob"}) as bob,
            ):
                (row,) = (await ann.get("/api/pending")).json()["requests"]
                page = f"/agents/a1/requests/{row['id']}"
                shown = {"digest": row["digest"]}
                answers = await asyncio.gather(
                    ann.post(page, data={**shown, "decision": "approve"}),
                    bob.post(page, data={**shown, "decision": "reject"}),
                )
                await rest(next_one.get("a1"))
                assert sorted(answer.status_code for answer in answers) == [303, 409]
                (decision,) = (await ann.get("/api/agents/a1/decisions")).json()["decisions"]
                by_ann = answers[0].status_code == 303
                assert decision["by"] == ("ann" if by_ann else "bob")
                told = "ann approved it." if by_ann else "bob rejected it."
                assert told in answers[1 if by_ann else 0].text
                assert len(done.calls) == (1 if by_ann else 0)


@pytest.mark.slow
async def test_a_megabyte_of_arguments_is_shown_in_full_and_goes_through_the_form() -> None:
    done = Done()
    large = "é" * 400_000
    async with Runtime([desk(done, refund(reason=large), "ok")]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = (await client.get("/api/pending")).json()["requests"][0]
            assert len((await client.get("/")).text) < 20_000
            page = f"/agents/a1/requests/{row['id']}"
            assert large in (await client.get(page)).text
            form = {"decision": "edit", "digest": row["digest"], "v:/order_id": "17",
                    "v:/amount": "1", "v:/reason": large + "!"}  # fmt: skip
            assert (await client.post(page, data=form)).status_code == 303
            await rest(ref)
    assert done.calls[0][1]["reason"] == large + "!"


async def test_pages_of_a_runtime_that_has_stopped_say_so() -> None:
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=logged_in())
        async with client_of(app) as client:
            assert (await client.get("/")).status_code == 200
    async with client_of(app) as client:
        for path in ("/", "/agents", "/agents/a1", "/api/pending"):
            assert (await client.get(path)).status_code in (400, 503), path


@pytest.mark.slow
async def test_five_hundred_requests_are_shown_in_pages_and_each_once() -> None:
    done = Done()
    turn = [refund(str(n)) for n in range(50)]
    async with Runtime([desk(done, turn, "ok")]) as runtime:
        for number in range(10):
            await asked(runtime, id=f"a{number}")
        async with site_of(runtime) as client:
            seen: list[str] = []
            after = ""
            while True:
                found = (await client.get("/api/pending", params={"after": after})).json()
                seen += [row["id"] for row in found["requests"]]
                assert all(row["reply_size"] == 50 for row in found["requests"])
                if found["next"] is None:
                    break
                after = found["next"]
            assert len(seen) == len(set(seen)) == 500
            shown = (await client.get("/?limit=500")).text
            assert shown.count('class="ask"') == 500
            assert 'href="?after=' in (await client.get("/")).text


@pytest.mark.slow
async def test_every_page_of_a_full_desk_opens() -> None:
    done = Done()
    async with Runtime(demo_agents(done), feed=True) as runtime:
        await filled(runtime, more=3)
        async with site_of(runtime) as client:
            found = (await client.get("/api/agents?limit=100")).json()["agents"]
            assert len(found) == 16
            for row in found:
                for tab in TABS:
                    answer = await client.get(f"/agents/{row['id']}{tab}")
                    assert answer.status_code == 200, (row, tab)
            rows: list[dict[str, Any]] = (await client.get("/api/pending")).json()["requests"]
            for row in rows:
                path = f"/agents/{row['agent_id']}/requests/{row['id']}"
                assert (await client.get(path)).status_code == 200, row
            only = (await client.get("/api/pending?kind=interrupt")).json()["requests"]
            assert [row["kind"] for row in only] == ["interrupt"] * 3
            assert json.dumps(rows)


async def test_a_run_that_was_cut_off_has_a_mark_and_what_was_under_way_is_told(
    place: Place,
) -> None:
    entered, goes_on = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        entered.set()
        await goes_on.wait()
        return "paid"

    def agent() -> Agent:
        return Agent("payer", by_turn(call("pay"), "ok"), tools=[pay], interrupt_on={"pay": True})

    async with Runtime([agent()], store=place.store()) as runtime:
        ref = await asked(runtime, "payer", "p1")
        await soon(ref.decide({(await ref.state()).requests[0].id: {"type": "approve"}}))
        await soon(entered.wait())
        async with Runtime([agent()], store=place.after_crash()) as next_one:
            await soon(next_one.recover())
            await rest(next_one.get("p1"), Status.INTERRUPTED)
            async with site_of(next_one) as client:
                found = (await client.get("/api/agents/p1/timeline")).json()
                kinds = [mark["kind"] for mark in found["marks"]]
                if isinstance(place, PostgresPlace):
                    assert kinds == ["crash", "takeover"]
                    told = "attempt 3: continued by host2; before, by host1"
                    assert found["marks"][1]["label"] == told
                else:
                    assert kinds == ["crash"]
                calls = [bar for bar in found["bars"] if bar["kind"] == "call"]
                assert [bar["in_doubt"] for bar in calls] == [True]
                row = (await client.get("/api/pending")).json()["requests"][0]
                assert row["kind"] == "doubt"
                text = (await client.get(f"/agents/p1/requests/{row['id']}")).text
                assert "It is not known what this call did" in text
        goes_on.set()


async def test_of_two_calls_of_one_tool_the_one_in_doubt_is_shown_so(sqlite: SqlitePlace) -> None:
    entered, goes_on = asyncio.Event(), asyncio.Event()

    @tool(on_unknown="ask")
    async def pay(amount: int) -> str:
        if amount == 1:
            entered.set()
            await goes_on.wait()
        return "paid"

    def agent() -> Agent:
        calls = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
        return Agent("payer", by_turn(calls, "ok"), tools=[pay])

    async with Runtime([agent()], store=sqlite.store()) as runtime:
        ref = runtime.spawn("payer", id="p1")
        events = ref.events()
        await ref.send("go")
        await soon(entered.wait())
        async for found in events:
            if found.event.kind == "tool_ended":
                break
        async with Runtime([agent()], store=sqlite.after_crash()) as next_one:
            await soon(next_one.recover())
            await rest(next_one.get("p1"), Status.INTERRUPTED)
            async with site_of(next_one) as client:
                found = (await client.get("/api/agents/p1/timeline")).json()
        goes_on.set()
    calls = [bar for bar in found["bars"] if bar["kind"] == "call"]
    assert [(bar["in_doubt"], bar["outcome"]) for bar in calls] == [
        (True, "in doubt"),
        (False, "success"),
    ]


async def test_each_page_of_the_timeline_has_the_bars_and_marks_of_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.views.timeline.PAGE", 20)
    turns = 12
    agent = Agent("noter", by_turn(*[call("note"), "ok"] * turns), tools=[note])
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("noter", id="n1")

        async def paused() -> None:
            await soon(ref.pause("look"))
            await soon(ref.run("go"))
            await soon(ref.unpause())
            await rest(ref)

        await paused()
        for _ in range(turns - 2):
            await soon(ref.run("go"))
        await paused()
        pages = [(await client.get("/api/agents/n1/timeline")).json()]
        while (before := pages[0]["earlier"]) is not None:
            shown = (await client.get(f"/agents/n1/timeline?before={before}")).text
            assert 'href="?">Newest</a>' in shown
            pages.insert(0, (await client.get(f"/api/agents/n1/timeline?before={before}")).json())
        assert len(pages) > 3
        assert [page["is_newest"] for page in pages] == [False] * (len(pages) - 1) + [True]
        monkeypatch.setattr("understudy.web.views.timeline.PAGE", 1000)
        whole = (await client.get("/api/agents/n1/timeline")).json()
    found = [bar for page in pages for bar in page["bars"]]
    same = ("kind", "label", "start", "end", "seconds", "outcome", "depth")
    assert [[bar[name] for name in same] for bar in found] == [
        [bar[name] for name in same] for bar in whole["bars"]
    ]
    marks = [mark for page in pages for mark in page["marks"]]
    assert [mark["kind"] for mark in marks] == ["paused", "unpaused"] * 2
    assert marks == whole["marks"]
    assert [mark["kind"] for mark in pages[-1]["marks"]] == ["paused", "unpaused"]


async def test_a_bar_that_ends_long_after_its_page_does_not_seem_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.views.timeline.PAGE", 4)
    agent = Agent("noter", by_turn(*[call("note")] * 6, "ok"), tools=[note])
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("noter", id="n1").run("go"))
        page: dict[str, Any] = {"earlier": 1 << 40, "bars": []}
        while not any(bar["kind"] == "run" for bar in page["bars"]):
            before = page["earlier"]
            page = (await client.get(f"/api/agents/n1/timeline?before={before}")).json()
        (run,) = (bar for bar in page["bars"] if bar["kind"] == "run")
        assert (run["end"], run["outcome"]) == (None, "ends later")
        shown = (await client.get(f"/agents/n1/timeline?before={before}")).text
        assert "ends later" in shown
        assert "not over" not in shown


class Reads(MemoryStore):
    """Counts the records that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        self.most = 1 << 40
        return await super().load(agent_id, after)

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        most = max(self.most, limit)
        loaded = await super().load_part(agent_id, after, limit)
        self.most = most  # in memory a part is cut from what `load` brings
        return loaded


async def test_the_tabs_read_a_page_of_the_history_and_link_to_what_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.views.timeline.PAGE", 10)
    monkeypatch.setattr("understudy.web.views.agents.DECISIONS", 2)
    monkeypatch.setattr("understudy.web.views.newest_first.STEP", 10)
    store = Reads()
    turns = [turn for number in range(6) for turn in (refund(str(number)), "ok")]
    async with Runtime([desk(Done(), *turns)], store=store) as runtime:
        ref = runtime.spawn("desk", id="a1")
        asked_ids = []
        for _ in range(6):
            await soon(ref.run("go"))
            (request,) = (await ref.state()).requests
            asked_ids.append(request.id)
            await soon(ref.resume({request.id: {"type": "approve", "by": "ann"}}))
        replies = 0
        decided: list[dict[str, Any]] = []
        async with site_of(runtime) as client:
            for tab in ("decisions", "usage", "timeline"):
                found = (await client.get(f"/api/agents/a1/{tab}")).json()
                assert found["is_newest"], tab
                count = 0
                while True:
                    decided += found.get("decisions", [])
                    replies += sum(row["replies"] for row in found.get("by_model", {}).values())
                    before = found["earlier"]
                    if before is None:
                        break
                    shown = (await client.get(f"/agents/a1/{tab}")).text
                    assert '<a href="?before=' in shown
                    found = (await client.get(f"/api/agents/a1/{tab}?before={before}")).json()
                    assert not found["is_newest"], tab
                    count += 1
                assert count >= 2, tab
            assert store.most <= 60  # three pages of a tab, and as many records before them
            for id, status in ((asked_ids[0], 200), ("none", 404)):
                assert (await client.get(f"/agents/a1/requests/{id}")).status_code == status
    assert [row["request_id"] for row in decided] == asked_ids[::-1]
    assert {(row["by"], row["tool_name"]) for row in decided} == {("ann", "refund")}
    assert replies == 12


async def test_an_action_is_for_the_run_that_was_shown() -> None:
    async with Runtime([desk(Done(), refund("1"), refund("2"), "ok")]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            shown = (await client.get("/api/agents/a1")).json()["run_id"]
            await soon(ref.run("another"))
            form = {"message": "no", "run_id": shown}
            late = await client.post("/agents/a1/do/cancel", data=form)
            assert late.status_code == 409
        assert ref.status() is Status.INTERRUPTED


async def test_a_page_says_that_the_store_does_not_answer_and_looks_again(tmp_path: Path) -> None:
    backend = FaultyBackend(SqlitePlace(tmp_path).backend())
    done = Done()
    store = DatabaseStore(backend, patience=0.01)
    async with Runtime([desk(done, refund())], store=store) as runtime, site_of(runtime) as client:
        await asked(runtime)
        backend.fail("list_asks", times=1 << 30)
        answer = await client.get("/")
        assert (answer.status_code, '<meta http-equiv="refresh"' in answer.text) == (503, True)
        assert "The store does not answer now" in answer.text
        assert (await client.get("/api/pending")).json()["error"] == "StoreUnavailable"
        assert backend.mend()
        assert (await client.get("/")).status_code == 200


async def test_schedules_are_paused_triggered_and_removed_by_the_api() -> None:
    agent = Agent("desk", by_turn("ok", "ok"))
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", id="a1")
        await soon(runtime.schedules(ref).set("daily", cron="0 6 * * *", input="go"))

        async def change(action: str, schedule: str = "daily") -> httpx.Response:
            body = {"schedule": schedule, "action": action}
            return await client.post("/api/agents/a1/schedules", json=body)

        async def is_paused() -> bool:
            (found,) = (await client.get("/api/agents/a1/schedules")).json()["schedules"]
            return bool(found["paused"])

        assert (await change("pause")).status_code == 200
        assert await is_paused()
        assert (await change("unpause")).status_code == 200
        assert not await is_paused()
        assert (await change("trigger")).json()["result"]["schedule_id"] == "daily"
        assert (await change("trigger", "none")).status_code == 400
        assert (await change("explode")).status_code in (400, 422)
        assert (await change("remove")).status_code == 200
        assert (await client.get("/api/agents/a1/schedules")).json()["schedules"] == []


async def test_schedules_are_listed_on_a_page_with_what_can_be_done_and_why_not() -> None:
    agent = Agent("desk", by_turn("ok", "ok"))
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", id="a1")
        assert "It has no schedules" in (await client.get("/agents/a1/schedules")).text
        text = "What is <new>?"
        await soon(runtime.schedules(ref).set("daily", cron="0 6 * * *", input=text))
        page = (await client.get("/agents/a1/schedules")).text
        assert "What is &lt;new&gt;?" in page
        assert 'value="pause"' in page
        assert 'value="unpause"' not in page

        async def do(change: str, schedule: str = "daily") -> httpx.Response:
            form = {"schedule": schedule, "change": change}
            return await client.post("/agents/a1/do/schedules", data=form)

        async def reasons() -> dict[str, str | None]:
            (row,) = (await client.get("/api/agents/a1/schedules")).json()["schedules"]
            return {action["name"]: action["reason"] for action in row["actions"]}

        assert (await reasons())["unpause"] == "It is not paused."
        refused = await do("unpause")
        assert (refused.status_code, "It is not paused." in refused.text) == (409, True)
        sent = await do("pause")
        assert "The schedule is paused." in (await client.get(sent.headers["location"])).text
        assert (await reasons())["pause"] == "It is paused already."
        assert (await do("unpause")).status_code == 303
        assert (await do("trigger")).status_code == 303
        await rest(ref)
        assert (await do("fly")).status_code == 404
        assert (await do("pause", "none")).status_code == 409
        async with site_of(runtime, read_only=True) as reader:
            shown = (await reader.get("/agents/a1/schedules")).text
            assert "These pages are read-only." in shown
            assert 'name="change"' not in shown
            form = {"schedule": "daily", "change": "remove"}
            assert (await reader.post("/agents/a1/do/schedules", data=form)).status_code == 403
        assert (await do("remove")).status_code == 303
        assert (await soon(runtime.schedules(ref).list())) == []


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_run_in_quarantine_is_nowhere_drawn_as_running(compacted: bool) -> None:
    """Its bar continued for ever, and its calls ran, on each page and in `tree`."""
    illness = ["ill"]

    def reply(_: object) -> Any:
        return SystemExit("bang") if illness else "cured"

    child = Agent("child", ScriptedModel(reply), description="Does it.")
    asks = call("task", {"task_name": "child", "instructions": "do it"})
    boss = Agent("boss", by_turn(asks, "Done."), middleware=[SubAgent([child])])
    async with Runtime([boss]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("boss", id="a1")
        quarantined(await soon(ref.run("go")))
        if compacted:
            await soon(ref.compact())
        about = (await client.get("/api/agents/a1")).json()
        assert (about["status"], "quarantine" in about["why"]) == ("failed", True)
        rows = (await client.get("/api/agents/a1/conversation")).json()["rows"]
        assert [row["state"] for row in rows if row["kind"] == "call"] == ["interrupted"]
        state = await soon(ref.state())
        assert [row["state"] for row in tree_rows(state, "boss")] == [
            "quarantined",
            "interrupted",
            "quarantined",
        ]
        bars = (await client.get("/api/agents/a1/timeline")).json()["bars"]
        assert all(bar["end"] is not None for bar in bars)
        if compacted:
            return
        assert [bar["outcome"] for bar in bars if bar["kind"] == "run"] == ["in quarantine"] * 2
        assert "not over" not in (await client.get("/agents/a1/timeline")).text

        illness.clear()
        completed(await soon(ref.retry()))
        bars = (await client.get("/api/agents/a1/timeline")).json()["bars"]
        assert {bar["outcome"] for bar in bars if bar["kind"] == "run"} == {"completed"}


async def test_what_cannot_be_undone_is_asked_for_twice() -> None:
    """A schedule was removed, and records were compacted, by the first press of a button."""
    async with Runtime([desk(Done(), "ok")]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", id="a1")
        await soon(ref.run("go"))
        await soon(runtime.schedules("a1").set("daily", cron="0 6 * * *", input="go"))
        for page, label in (
            ("/agents/a1", "Compact the records"),
            ("/agents/a1/schedules", "Remove it"),
            ("/agents/a1", "Delete it"),
        ):
            text = (await client.get(page)).text
            before = text[: text.index(f">{label}</button>")]
            assert before.rfind("<details") > before.rfind("</details>"), (
                "a summary is opened first"
            )
