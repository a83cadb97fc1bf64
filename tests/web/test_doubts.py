"""The list of what is in doubt, on the pages and in the API (I7) (J4) (I2)."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn, interrupted, until_status
from tests.support.loops import never, soon
from tests.support.web_site import HOSTILE, logged_in, site_of
from understudy import (
    Agent,
    Observer,
    Runtime,
    SimulatedClock,
    Status,
    Tool,
    approve,
    call,
    reject,
    tool,
)
from understudy._base.request_summary import why_alone
from understudy.cli.show import request_text
from understudy.journal import MemoryStore
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.tools import Unknown

WEEK = 7 * 24 * 3600.0
SETTLE = "Settle: it happened"


@tool
def pay(amount: int, note: str = "") -> str:
    """Pay an amount."""
    raise ConnectionError("the line is dead")


def payer(name: str = "payer", *, gated: bool = False, note: str = "") -> Agent:
    """It tries to pay in each run, and nobody knows whether it has."""
    turns = [call("pay", {"amount": 5, "note": note}), "I do not know."] * 9
    middleware = [HumanInTheLoop({"pay": True})] if gated else []
    return Agent(name, by_turn(*turns), tools=[pay], middleware=middleware)


async def told(runtime: Runtime, *ids: str, agent: str = "payer") -> None:
    """Agents whose models were informed of a doubt."""
    for id in ids:
        await soon(runtime.spawn(agent, id).run("Pay."))


async def asked(runtime: Runtime, id: str) -> str:
    """An agent that asks a person about a doubt; the request's id."""
    ref = runtime.spawn("gated", id)
    outcome = interrupted(await soon(ref.run("Pay.")))
    return interrupted(await soon(ref.resume(outcome.decide(approve())))).requests[0].id


async def listed(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/api/doubts", params=query)).json()
    return found


async def test_the_api_lists_what_is_in_doubt_in_pages() -> None:
    async with Runtime([payer(), payer("gated", gated=True)]) as runtime:
        await told(runtime, "a", "b")
        request_id = await asked(runtime, "c")
        async with site_of(runtime) as client:
            first = await listed(client, limit=2)
            rest = await listed(client, limit=2, after=first["next"])
            rows = [*first["doubts"], *rest["doubts"]]
            assert rest["next"] is None
            assert [(row["agent_id"], row["request_id"]) for row in rows] == [
                ("a", None),
                ("b", None),
                ("c", request_id),
            ]
            assert rows[0]["arguments"] == {"amount": 5, "note": ""}
            assert rows[0]["summary"].startswith("amount=5 (it raised ConnectionError: the line")
            only = await listed(client, agent="gated", order="expiring", tool="pay")
            assert [row["agent_id"] for row in only["doubts"]] == ["c"]
            assert only["filters"] == {"tool": "pay", "agent": "gated", "order": "expiring"}
            wrong = await client.get("/api/doubts", params={"order": "newest"})
            assert (wrong.status_code, wrong.json()["error"]) == (400, "UsageError")
            inbox = (await client.get("/api/pending")).json()["requests"]
            assert [row["id"] for row in inbox] == [request_id]


async def test_a_call_in_doubt_does_not_wait_for_the_approval_by_which_it_ran() -> None:
    @tool
    def send(to: str) -> str:
        if to == "ann":
            return "sent"
        raise ConnectionError("the line is dead")

    turn = [call("send", {"to": to}) for to in ("ann", "bob", "eve")]
    gate = HumanInTheLoop({"send": True})
    agents = [
        payer("gated", gated=True),
        Agent("sender", by_turn(turn, "Done."), tools=[send], middleware=[gate]),
    ]
    async with Runtime(agents) as runtime, site_of(runtime) as client:
        await asked(runtime, "alone")
        (row,) = (await client.get("/api/pending")).json()["requests"]
        assert (row["reply_answered"], row["reply_size"]) == (0, 1)
        assert "nothing starts until all are" not in (await client.get("/")).text
        request_page = (await client.get(f"/agents/alone/requests/{row['id']}")).text
        assert "nothing starts until all are" not in request_page

        ref = runtime.spawn("sender", "three")
        outcome = interrupted(await soon(ref.run("Send.")))
        await soon(ref.resume(outcome.decide(*[approve()] * 3)))
        rows = (await client.get("/api/pending", params={"tool": "send"})).json()["requests"]
        assert [(row["kind"], row["reply_answered"], row["reply_size"]) for row in rows] == [
            ("doubt", 0, 2),
            ("doubt", 0, 2),
        ]


async def test_the_page_lists_them_and_says_who_settles_which() -> None:
    agents = [payer(), payer("gated", gated=True)]
    async with Runtime(agents) as runtime, site_of(runtime) as client:
        assert "Nothing is in doubt." in (await client.get("/doubts")).text
        await told(runtime, "a")
        request_id = await asked(runtime, "c")
        text = (await client.get("/doubts")).text
        assert "2 calls are in doubt." in text
        assert f'href="/agents/c/requests/{request_id}"' in text
        assert text.count("only the model knows") == text.count("a person is asked") == 1
        assert text.count(f">{SETTLE}</button>") == 1
        only = (await client.get("/doubts", params={"agent": "gated"})).text
        assert "1 call is in doubt." in only
        none = (await client.get("/doubts", params={"tool": "play"})).text
        assert "Nothing that fits these filters is in doubt." in none


async def test_a_call_whose_check_is_asked_is_listed_with_the_time_of_the_next_question() -> None:
    @tool(check=lambda ctx, arguments: Unknown())
    def buy(what: str) -> str:
        raise ConnectionError("the line is dead")

    clock = SimulatedClock()
    agent = Agent("buyer", by_turn(call("buy", {"what": "a kettle"}), "Done."), tools=[buy])
    async with Runtime([agent], clock=clock) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("buyer", "a")
        ref.run("Buy.")
        await until_status(ref, Status.WAITING)
        (row,) = (await listed(client))["doubts"]
        assert (row["state"], row["request_id"], row["ends_at"]) == ("checked", None, None)
        assert datetime.fromisoformat(row["checks_at"]) - clock.now() == timedelta(minutes=1)
        text = (await client.get("/doubts")).text
        assert "its check is asked" in text
        assert f">{SETTLE}</button>" in text
        await clock.advance(60)
        await until_status(ref, Status.WAITING)
        (later,) = (await listed(client))["doubts"]
        assert later["since"] == row["since"]
        assert datetime.fromisoformat(later["checks_at"]) - clock.now() == timedelta(minutes=1)


async def test_a_doubt_is_settled_as_not_happened_so_that_an_equal_call_may_run() -> None:
    async with Runtime([payer()]) as runtime:
        await told(runtime, "a")
        async with site_of(runtime) as client:
            row = (await listed(client))["doubts"][0]
            assert (
                '<button name="happened" value="false">Settle: it did not happen</button>'
                in (await client.get("/doubts")).text
            )
            form = {"call_key": row["call_key"], "how": "not paid", "happened": "false"}
            answer = await client.post("/agents/a/do/settle", data={**form, "back": "doubts"})
            assert answer.status_code == 303
            assert (await listed(client))["doubts"] == []


async def test_a_doubt_of_another_agent_that_is_settled_since_is_shown_so() -> None:
    @tool(key=lambda arguments: "rent")
    def pay_rent() -> str:
        raise ConnectionError("the line is dead")

    agent = Agent("tenant", by_turn(call("pay_rent"), "Done."), tools=[pay_rent])
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        first = runtime.spawn("tenant", "a")
        await soon(first.run("Pay."))
        (request,) = interrupted(await soon(runtime.spawn("tenant", "b").run("Pay."))).requests
        assert request.doubts[0].agent_id == "a"
        where = f"/agents/b/requests/{request.id}"
        (doubt,) = (await client.get(f"/api{where}")).json()["doubts"]
        assert doubt["settled"] is None
        await soon(first.settle(doubt["call_key"], how="the landlord has it"))
        (doubt,) = (await client.get(f"/api{where}")).json()["doubts"]
        assert doubt["settled"]["how"] == "the landlord has it"
        text = (await client.get(where)).text
        assert "the landlord has it" in text
        await soon(runtime.delete("a"))
        (doubt,) = (await client.get(f"/api{where}")).json()["doubts"]
        assert doubt["settled"] is None


async def test_a_request_shows_the_equal_calls_that_were_made_before() -> None:
    bought = []

    @tool
    def buy(what: str) -> str:
        bought.append(what)
        return f"bought {what} {HOSTILE}"

    kettle = call("buy", {"what": "a kettle"})
    model = by_turn(kettle, kettle, kettle, "Done.")
    agent = Agent("buyer", model, tools=[buy], interrupt_on={"buy": True})
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("buyer", "a")
        first = interrupted(await soon(ref.run("Buy.")))
        text = (await client.get(f"/agents/a/requests/{first.requests[0].id}")).text
        assert "The same call before" not in text
        second = interrupted(await soon(ref.resume(first.decide(approve()))))
        third = interrupted(await soon(ref.resume(second.decide(reject("too much")))))
        request = third.requests[0]
        assert [each.outcome for each in request.earlier] == ["denied", "success"]
        text = (await client.get(f"/agents/a/requests/{request.id}")).text
        assert "The same call before" in text
        assert text.index("too much") < text.index("bought a kettle")
        assert "<script>alert" not in text
        found = (await client.get("/api/pending")).json()["requests"][0]
        assert [each["outcome"] for each in found["earlier"]] == ["denied", "success"]
        lines = request_text(found)
        assert "the same call before\n  denied, " in lines
        assert "\n  done, " in lines
        many = (await client.get("/bulk")).text
        assert many.index("The same call before") < many.index("too much") < many.index("</table>")
        assert "<script>alert" not in many
        assert "1 stands out" in many
        assert "checked" not in many, "it is chosen by nobody but a person"
        assert bought == ["a kettle"]


async def test_a_request_says_why_it_is_asked_once_more() -> None:
    async with Runtime([payer("gated", gated=True)]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("gated", "a")
        request = interrupted(await soon(ref.run("Pay."))).requests[0]
        again = replace(request, asked_again="Its gate has changed.")
        assert "again     Its gate has changed." in request_text(again.to_dict())
        page = await client.get(f"/agents/a/requests/{request.id}")
        assert "Asked once more" not in page.text


async def test_a_request_whose_tool_was_renamed_says_that_it_is_impossible_and_the_remedy() -> None:
    store = MemoryStore()
    async with Runtime([payer("gated", gated=True)], store=store) as runtime:
        ref = runtime.spawn("gated", "a")
        request = interrupted(await soon(ref.run("Pay."))).requests[0]
        assert runtime.why_impossible(request) is None
    path = f"/agents/a/requests/{request.id}"
    names: list[list[str]] = [[], ["pay"]]
    for aliases in names:
        renamed = Tool(pay.function, name="charge", aliases=aliases)
        today = Agent("gated", by_turn(), tools=[renamed])
        async with Runtime([today], store=store) as runtime, site_of(runtime) as client:
            shown = (await client.get(f"/api{path}")).json()["impossible"]
            text = (await client.get(path)).text
            assert shown == runtime.why_impossible(request)
            assert ("aliases=['pay']" in (shown or "")) is (not aliases)
            assert ("It cannot be approved" in text) is (not aliases)
            assert ("cannot be approved" in (await client.get("/")).text) is (not aliases)
            (row,) = (await client.get("/api/pending")).json()["requests"]
            assert row["impossible"] == shown
            assert ("\nno approval: " in request_text(row)) is (not aliases)


async def test_its_form_settles_a_doubt_and_comes_back_to_the_list() -> None:
    async with Runtime([payer()]) as runtime:
        await told(runtime, "a", "b")
        async with site_of(runtime, auth=logged_in("ann")) as client:
            row = (await listed(client))["doubts"][0]
            form = {
                "call_key": row["call_key"],
                "how": "it was paid",
                "back": "doubts",
                "happened": "true",
            }
            answer = await client.post("/agents/a/do/settle", data=form)
            assert (answer.status_code, answer.headers["location"]) == (303, "/doubts?said=settle")
            text = (await client.get(answer.headers["location"])).text
            assert "The doubt is settled." in text
            assert "1 call is in doubt." in text
            entries = (await client.get("/api/agents/a/history")).json()["entries"]
            assert entries[-1]["what"] == "settled"
            assert entries[-1]["detail"] == {"how": "it was paid"}


async def test_who_may_not_act_sees_them_and_cannot_settle_them() -> None:
    async with Runtime([payer()]) as runtime:
        await told(runtime, "a")
        for options in ({"auth": logged_in("bob", frozenset({"read"}))}, {"read_only": True}):
            async with site_of(runtime, **options) as client:
                text = (await client.get("/doubts")).text
                assert "1 call is in doubt." in text
                assert SETTLE not in text


async def test_pages_beside_the_runtimes_list_them(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([payer()], store=store) as runtime:
        await told(runtime, "a")
        async with Observer(store) as observer, site_of(observer) as client:
            assert [row["agent_id"] for row in (await listed(client))["doubts"]] == ["a"]
            text = (await client.get("/doubts")).text
            assert "1 call is in doubt." in text
            assert SETTLE not in text


async def test_what_a_model_wrote_is_text_in_the_list() -> None:
    async with Runtime([payer(note=HOSTILE)]) as runtime:
        await told(runtime, "a")
        async with site_of(runtime) as client:
            text = (await client.get("/doubts")).text
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("hidden", ["amount", "arguments"])
async def test_what_a_host_hides_is_hidden_in_the_list_too(hidden: str) -> None:
    def hide(path: tuple[str | int, ...], value: Any) -> Any:
        is_there = path[:1] == ("doubts",) and path[-1] == hidden
        return "not for you" if is_there else value

    async with Runtime([payer(note="for Kim")]) as runtime:
        await told(runtime, "a")
        async with site_of(runtime, redact=hide) as client:
            for path in ("/doubts", "/api/doubts"):
                text = (await client.get(path)).text
                assert "not for you" in text
                assert "amount=5" not in text


async def test_a_request_shows_that_its_doubt_has_ended_and_nobody_has_settled_it() -> None:
    clock = SimulatedClock()
    async with Runtime([payer()], clock=clock) as runtime:
        await told(runtime, "a")
        ref = runtime.get("a")
        outcome = interrupted(await soon(ref.run("Pay again.")))
        (request,) = outcome.requests
        page = f"/agents/a/requests/{request.id}"
        async with site_of(runtime) as client:
            assert "In doubt:" in (await client.get(page)).text
            await soon(clock.advance(WEEK))
            (doubt,) = (await client.get(f"/api{page}")).json()["doubts"]
            assert doubt["settled"]["how"] is None
            text = (await client.get(page)).text
            assert "Nobody settled it, and its doubt has ended." in text
            assert "In doubt:" not in text
            assert "its doubt has ended" in (await client.get("/agents/a")).text
            assert "doubt ended" in (await client.get("/agents/a/history")).text
        await soon(ref.resume(outcome.decide(reject())))


async def test_no_doubt_is_decided_with_others_at_once() -> None:
    """“Approve all of these” ran calls again of which nobody knew what they had done."""
    async with Runtime([payer("gated", gated=True)]) as runtime, site_of(runtime) as client:
        doubt = await asked(runtime, "c")
        ref = runtime.spawn("gated", "d")
        approval = interrupted(await soon(ref.run("Pay."))).requests[0].id
        rows = {row["id"]: row for row in (await client.get("/api/pending")).json()["requests"]}
        assert (rows[doubt]["kind"], rows[approval]["kind"]) == ("doubt", "approval")
        items = [
            {"agent_id": row["agent_id"], "request_id": id, "digest": row["digest"]}
            for id, row in rows.items()
        ]
        inbox = (await client.get("/")).text
        assert inbox.count('name="chosen"') == 1, "a doubt cannot be chosen"
        chosen = [f"{each['agent_id']}/{each['request_id']}/{each['digest']}" for each in items]
        shown = (await client.post("/bulk", data={"chosen": chosen})).text
        assert "Decide on 1 request" in shown
        assert "left out: a call is in doubt" in shown
        assert shown.count('name="chosen"') == 1
        form = {"chosen": chosen, "decision": "reject", "confirmed": "yes"}
        assert "1 recorded, 1 refused" in (await client.post("/bulk", data=form)).text
        for kind in ("approve", "reject"):
            body = {"decision": {"type": kind}, "requests": items[:1]}
            (result,) = (await client.post("/api/bulk", json=body)).json()["results"]
            assert (result["ok"], result["status"], result["error"]) == (False, 409, "InDoubt")
        assert [each.request.id for each in await soon(runtime.pending())] == [doubt]


async def test_a_call_that_is_in_doubt_since_an_equal_one_was_asked_keeps_it_from_the_others() -> (
    None
):
    """I29: its own page asks once more, and the table of many let it run without a word."""
    ran: list[int] = []

    @tool(timeout=0.05, on_unknown="tell")
    async def send(amount: int) -> str:
        ran.append(amount)
        await never()
        return "sent"

    @tool
    def look() -> str:
        return "seen"

    sends = call("send", {"amount": 5})
    one = Agent(
        "one",
        by_turn(sends, call("look"), "Done."),
        tools=[send, look],
        description="It sends.",
        middleware=[HumanInTheLoop({"look": True})],
    )
    two = Agent(
        "two",
        by_turn(sends, "Done."),
        tools=[send],
        description="It asks.",
        middleware=[HumanInTheLoop({"send": True})],
    )
    tasks = [call("task", {"task_name": name, "instructions": "Go."}) for name in ("one", "two")]
    inside = SubAgent([one, two], general_purpose=False)
    top = Agent("top", by_turn(tasks, "Done."), middleware=[inside])
    async with Runtime([top]) as runtime, site_of(runtime) as client:
        outcome = interrupted(await soon(runtime.spawn("top", "t").run("Go.")))
        (request,) = (each for each in outcome.requests if each.tool_name == "send")
        assert request.doubts == ()
        form = {"decision": "approve", "digest": request.digest}
        page = await client.post(f"/agents/t/requests/{request.id}", data=form)
        assert page.status_code == 409
        chosen = f"t/{request.id}/{request.digest}"
        many = (await client.get("/bulk")).text
        assert chosen not in many
        assert "left out: a call is in doubt" in many
        form = {"chosen": chosen, "decision": "approve", "confirmed": "yes"}
        assert "0 recorded, 1 refused" in (await client.post("/bulk", data=form)).text
    assert ran == [5]


async def test_an_approval_of_a_call_equal_to_one_in_doubt_is_decided_by_itself() -> None:
    agents = [payer("gated", gated=True)]
    async with Runtime(agents) as runtime, site_of(runtime) as client:
        await asked(runtime, "c")
        ref = runtime.get("c")
        (pending,) = await soon(runtime.pending())
        doubt = pending.request.to_dict()
        assert why_alone(doubt)
        await soon(ref.decide({pending.request.id: reject()}))
        equal = {**doubt, "kind": "approval", "doubts": [{"status": "in_doubt"}]}
        assert why_alone(equal)
        assert not why_alone({**equal, "doubts": [{"status": "done"}]})
        assert not why_alone({**equal, "doubts": [{"status": "in_doubt", "settled": {}}]})
        assert (await client.get("/")).status_code == 200


async def test_a_doubt_has_three_choices_and_none_of_them_is_the_usual_one() -> None:
    async with Runtime([payer("gated", gated=True)]) as runtime, site_of(runtime) as client:
        request_id = await asked(runtime, "c")
        page = (await client.get(f"/agents/c/requests/{request_id}")).text
        start = page.index('class="choices equal"')
        choices = page[start : page.index('class="decision"', start)]
        for title in ("It happened", "It did not happen: run it", "It did not happen: leave it"):
            assert f">{title}</h3>" in choices
        buttons = re.findall(r"<button ([^>]*)>", choices)
        assert [re.findall(r'value="(\w+)"', button) for button in buttons] == [
            ["respond"],
            ["approve"],
            ["reject"],
        ]
        assert not any("class=" in button for button in buttons)


async def test_whether_a_call_happened_is_said_by_who_settles_its_doubt() -> None:
    async with Runtime([payer()]) as runtime, site_of(runtime) as client:
        await told(runtime, "a")
        (doubt,) = await soon(runtime.doubts())
        assert '<option value="">— choose —</option>' in (await client.get("/agents/a")).text
        form = {"call_key": doubt.call_key, "how": "I looked."}
        refused = await client.post("/agents/a/do/settle", data=form)
        assert (refused.status_code, len(await soon(runtime.doubts()))) == (422, 1)
        done = await client.post("/agents/a/do/settle", data={**form, "happened": "false"})
        assert (done.status_code, await soon(runtime.doubts())) == (303, [])


# --------------------------------------------- the evidence, and the choices in the list


async def test_the_list_shows_what_was_sent_and_when_and_what_came_of_equal_calls() -> None:
    sent: list[int] = []

    @tool
    def send(amount: int) -> str:
        sent.append(amount)
        if len(sent) == 2:
            raise ConnectionError("the line is dead")
        return f"sent {amount} {HOSTILE}"

    model = by_turn(*[call("send", {"amount": 5})] * 2, "I do not know.")
    async with Runtime([Agent("sender", model, tools=[send])]) as runtime:
        await soon(runtime.spawn("sender", "a").run("Send."))
        async with site_of(runtime) as client:
            text = (await client.get("/doubts")).text
    assert "<dt>Started</dt>" in text
    assert "<dt>Equal, before</dt>" in text
    assert "sent 5" in text
    assert "<script>alert" not in text
    assert '<th scope="row">amount</th>' in text


async def test_a_doubt_is_answered_in_its_row_and_the_list_comes_again() -> None:
    """I29."""
    async with Runtime([payer("gated", gated=True)]) as runtime, site_of(runtime) as client:
        request_id = await asked(runtime, "c")
        text = (await client.get("/doubts")).text
        for choice in ("Record this result", "Run it", "Leave it"):
            assert f">{choice}</button>" in text
        (row,) = (await client.get("/api/pending")).json()["requests"]
        assert f'name="digest" value="{row["digest"]}"' in text
        page = f"/agents/c/requests/{request_id}"
        form = {"back": "doubts", "decision": "respond", "value": "it was paid"}
        old = await client.post(page, data={**form, "digest": "another"})
        assert old.status_code == 409
        done = await client.post(page, data={**form, "digest": row["digest"]})
        assert (done.status_code, done.headers["location"]) == (303, "/doubts?said=decided")
        assert "The decision is recorded." in (await client.get("/doubts?said=decided")).text
        (found,) = await soon(runtime.decided(limit=1))
        assert (found.kind, found.type, found.by) == ("doubt", "respond", "ann")


async def test_who_may_not_decide_sees_the_evidence_and_no_choices() -> None:
    looks: Any = frozenset({"read"})
    async with Runtime([payer("gated", gated=True)]) as runtime:
        await asked(runtime, "c")
        async with site_of(runtime, auth=logged_in("cy", looks)) as client:
            text = (await client.get("/doubts")).text
            assert "<dt>Started</dt>" in text
            assert "Run it" not in text


async def test_an_approval_beside_an_equal_call_in_doubt_is_asked_once_more() -> None:
    """I29: nothing is decided before the person has said that they know of the doubt."""
    runs: list[int] = []

    @tool
    def send(amount: int) -> str:
        runs.append(amount)
        if len(runs) == 1:
            raise ConnectionError("the line is dead")
        return "sent"

    turns = [call("send", {"amount": 5}), "I do not know.", call("send", {"amount": 5}), "Done."]
    first = HumanInTheLoop({"send": {"when": lambda arguments, context: len(runs) > 0}})
    agent = Agent("sender", by_turn(*turns), tools=[send], middleware=[first])
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("sender", "a")
        await soon(ref.run("Send."))
        (request,) = interrupted(await soon(ref.run("Again."))).requests
        page = f"/agents/a/requests/{request.id}"
        text = (await client.get(page)).text
        assert "An equal call is in doubt" in text
        assert text.index("An equal call is in doubt") < text.index('value="approve"')
        form = {"decision": "approve", "digest": request.digest, "note": "I called them."}
        asked_again = await client.post(page, data=form)
        assert asked_again.status_code == 409
        assert "Nothing is decided yet" in asked_again.text
        assert 'name="note" value="I called them."' in asked_again.text
        assert await soon(runtime.decided()) == []
        found = re.search(r'name="despite" value="(\w+)"', asked_again.text)
        assert found is not None
        wrong = await client.post(page, data={**form, "despite": "yes"})
        assert wrong.status_code == 409
        same = {**form, "decision": "edit", "v:/amount": "5", "k:/amount": "integer"}
        as_edited = await client.post(page, data=same)
        assert as_edited.status_code == 409, "an edit that changes nothing is an approval"
        assert 'name="decision" value="edit"' in as_edited.text
        assert 'name="v:/amount" value="5"' in as_edited.text
        assert await soon(runtime.decided()) == []
        done = await client.post(page, data={**form, "despite": found[1]})
        assert done.status_code == 303
        await until_status(ref, Status.IDLE)
        (decided,) = await soon(runtime.decided())
        assert decided.decision is not None
        assert decided.decision.note == "I called them."
    assert runs == [5, 5]


async def test_an_approval_beside_a_doubt_about_another_call_is_not_asked_twice() -> None:
    """I29."""
    turns = [call("pay", {"amount": 5}), "I do not know.", call("pay", {"amount": 6}), "Done."]
    gate = HumanInTheLoop({"pay": {"when": lambda arguments, context: arguments["amount"] == 6}})
    agent = Agent("sender", by_turn(*turns), tools=[pay], middleware=[gate])
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("sender", "a")
        await soon(ref.run("Send."))
        (request,) = interrupted(await soon(ref.run("Again."))).requests
        page = f"/agents/a/requests/{request.id}"
        text = (await client.get(page)).text
        assert "An equal call is in doubt" not in text
        form = {"decision": "approve", "digest": request.digest}
        assert (await client.post(page, data=form)).status_code == 303


async def test_a_hidden_result_of_an_equal_call_is_hidden_in_the_evidence() -> None:
    sent: list[int] = []

    @tool
    def send(amount: int) -> str:
        sent.append(amount)
        if len(sent) == 2:
            raise ConnectionError("the line is dead")
        return "secret result"

    def redact(path: Any, value: Any) -> Any:
        return "•••" if path[-1:] == ("content",) else value

    model = by_turn(*[call("send", {"amount": 5})] * 2, "I do not know.")
    async with Runtime([Agent("sender", model, tools=[send])]) as runtime:
        await soon(runtime.spawn("sender", "a").run("Send."))
        async with site_of(runtime, redact=redact) as client:
            text = (await client.get("/doubts")).text
    assert "secret" not in text
    assert "•••" in text


async def test_the_evidence_says_when_a_process_was_cut_off_and_when_the_run_went_on(
    tmp_path: Path,
) -> None:
    entered, hold = asyncio.Event(), asyncio.Event()

    @tool
    async def send(amount: int) -> str:
        entered.set()
        await hold.wait()
        return "sent"

    def sender() -> Agent:
        turns = [call("send", {"amount": 5}), "I do not know."]
        gate = HumanInTheLoop({"send": True})
        return Agent("sender", by_turn(*turns), tools=[send], middleware=[gate])

    left = tmp_path / "left.db"
    path = tmp_path / "agents.db"
    async with Runtime([sender()], store=f"sqlite:///{path}") as runtime:
        outcome = interrupted(await soon(runtime.spawn("sender", "a").run("Send.")))
        await soon(runtime.get("a").decide(outcome.decide(approve())))
        await soon(entered.wait())
        with closing(sqlite3.connect(path)) as there, closing(sqlite3.connect(left)) as to:
            there.backup(to)  # what a crash would leave
        hold.set()
    async with Runtime([sender()], store=f"sqlite:///{left}") as runtime:
        await soon(runtime.recover())
        await soon(runtime.get("a").outcome())
        async with site_of(runtime) as client:
            (row,) = (await listed(client))["doubts"]
            page = f"/api/agents/a/requests/{row['request_id']}"
            found = (await client.get(page)).json()["evidence"]
            text = (await client.get("/doubts")).text
    assert found["attempt"] == 1
    assert found["started_at"] <= found["last_sign_at"] <= found["went_on_at"]
    assert "<dt>Cut off</dt>" in text
