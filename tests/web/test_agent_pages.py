"""The tabs of an agent: where their entries lead, what is changed, defined, and done again.

Rules: I17, W8.
"""

from __future__ import annotations

import asyncio
import html
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, quarantined
from tests.support.loops import soon
from tests.support.web_demo import agents as demo_agents
from tests.support.web_demo import filled
from tests.support.web_site import (
    HOSTILE,
    ORDER,
    Done,
    asked,
    desk,
    logged_in,
    only_request,
    refund,
    rest,
    site_of,
)
from understudy import Agent, AgentState, Observer, Runtime, ScriptedModel, call, tool
from understudy.middleware import HumanInTheLoop, SubAgent, TodoList


def plain(text: str) -> str:
    """A page without its elements."""
    return html.unescape(re.sub(r"<[^>]*>", "", text))


# ------------------------------------------------------------------------- conversation


@tool
def note() -> str:
    """Note it."""
    return "noted"


async def test_texts_of_models_are_laid_out_and_of_people_not_and_raw_shows_what_was_written() -> (
    None
):
    agent = Agent("desk", ScriptedModel(["It is **late**, see [here](https://shop.example/x)."]))
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("desk", id="a1").run("Is it **late**?"))
        page = (await client.get("/agents/a1")).text
        assert "Is it **late**?" in page
        assert "It is <strong>late</strong>" in page
        assert 'href="https://shop.example/x" rel="noopener' in page
        assert 'href="?raw=1"' in page
        raw = (await client.get("/agents/a1?raw=1")).text
        assert "It is **late**, see [here](https://shop.example/x)." in raw
        assert "<strong>late</strong>" not in raw


async def test_a_row_is_found_by_its_call_request_run_and_record_on_whatever_page_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.views.conversation.PAGE", 3)
    turns = [turn for number in range(5) for turn in (refund(str(number)), f"done {number}")]
    async with Runtime([desk(Done(), *turns)]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", id="a1")
        for _ in range(5):
            await soon(ref.run("go"))
            (request,) = (await ref.state()).requests
            await soon(ref.resume({request.id: {"type": "approve", "by": "ann"}}))
        bars = (await client.get("/api/agents/a1/timeline")).json()["bars"]
        first = {bar["kind"]: bar for bar in reversed(bars)}
        for query, kind in (
            (f"call={first['call']['call_key']}", "call"),
            (f"request={first['person']['request_id']}", "request"),
            (f"run={first['run']['run_id']}", "user"),
            (f"at={first['reply']['seq']}", "call"),
        ):
            found = (await client.get(f"/api/agents/a1/conversation?{query}")).json()
            row = next(row for row in found["rows"] if row["id"] == found["found"])
            assert (row["kind"], found["is_missing"]) == (kind, False), query
            assert found["page"] > 2
            page = (await client.get(f"/agents/a1?{query}")).text
            assert page.count('id="here"') == 1
            assert "Later" in page
        page = (await client.get("/agents/a1?call=none")).text
        assert "is not in the conversation" in page
        assert "done 4" in page


@pytest.mark.slow
async def test_every_entry_of_the_timeline_leads_to_something_that_is_there() -> None:
    async with Runtime(demo_agents(Done()), feed=True) as runtime, site_of(runtime) as client:
        await filled(runtime, 3)
        links = set()
        for agent in ("ticket-2041", "ticket-2046", "ticket-2049", "ticket-1900"):
            page = (await client.get(f"/agents/{agent}/timeline")).text
            links |= set(re.findall(rf'href="(/agents/{agent}(?:\?|/history\?)[^"]*)"', page))
            for target in re.findall(r'href="#(run-\w+)"', page):
                assert f'id="{target}"' in page
        assert len(links) > 20
        for link in links:
            path, _, fragment = html.unescape(link).partition("#")
            shown = (await client.get(path)).text
            assert f'id="{fragment}"' in shown, link


async def test_the_timeline_has_a_tree_of_agents_and_a_row_of_each_run() -> None:
    done = Done()
    clerk = desk(done, refund(), "clerk is done", name="clerk")
    inner = call("task", {"task_name": "clerk", "instructions": "refund"})
    front = Agent(
        "front", by_turn("hello", inner, "done"), tools=[note], middleware=[SubAgent([clerk])]
    )
    async with Runtime([front]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("front", id="a1")
        await soon(ref.run("first"))
        await soon(ref.run("second"))
        found = (await client.get("/api/agents/a1/timeline")).json()
        first, second = found["runs"]
        assert (first["outcome"], first["replies"], first["calls"]) == ("completed", 1, 0)
        assert (second["outcome"], second["replies"], second["calls"]) == ("", 2, 1)
        front_row, clerk_row = found["agents"]
        assert (front_row["name"], front_row["waits_inside"], front_row["runs"]) == (
            "front",
            True,
            2,
        )
        assert clerk_row["agent_path"] == ["front", "clerk"]
        assert clerk_row["waits_for"] == ["approval: refund"]
        inside = [bar for bar in found["bars"] if bar["inside"] == clerk_row["run_id"]]
        assert [bar["kind"] for bar in inside] == ["reply", "person"]
        (run,) = [bar for bar in found["bars"] if bar["run_id"] == clerk_row["run_id"]][:1]
        assert (run["inside"], run["root"]) == (second["run_id"], second["run_id"])
        page = (await client.get("/agents/a1/timeline")).text
        assert "waits for an agent inside" in page
        assert page.index("sleeps, or waits for the outside") < page.index("Runs</h2>")
        # The newest run is on top, and open; the one before is a folded row.
        runs = re.findall(r'<details class="card run"[^>]*>', page)
        assert [each.endswith("open>") for each in runs] == [True, False]


async def test_a_page_that_begins_in_the_middle_of_a_run_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.views.timeline.PAGE", 4)
    agent = Agent("noter", by_turn(*[call("note")] * 9, "ok"), tools=[note])
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("noter", id="n1").run("go"))
        page = (await client.get("/agents/n1/timeline")).text
        found = (await client.get("/api/agents/n1/timeline")).json()
        (run,) = found["runs"]
        assert (run["began_before"], run["is_whole"]) == (True, False)
        assert "It began before these records." in page
        assert "at least" in page
        assert all(bar["inside"] == run["run_id"] for bar in found["bars"])


# ------------------------------------------------------------------------- failed runs


async def test_where_a_failure_is_told_it_says_what_again_repeats_and_what_not() -> None:
    """W8."""
    entered = asyncio.Event()

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        entered.set()
        await asyncio.Event().wait()
        return "paid"

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        await asyncio.Event().wait()
        return "seen"

    @tool
    async def fail() -> str:
        """Fail."""
        await entered.wait()
        raise SystemError("it broke")

    class Strict(HumanInTheLoop):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            try:
                return await next(call)
            except SystemError:
                raise ValueError("the desk is closed") from None

    calls = [call("pay", {"amount": 5}), call("look"), call("fail")]
    agent = Agent(
        "desk",
        by_turn(call("note"), calls, "ok"),
        tools=[pay, look, fail, note],
        middleware=[Strict({"pay": False})],
    )
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", id="a1")
        outcome = await soon(ref.run("go"))
        assert type(outcome).__name__ == "Failed", outcome
        again = (await client.get("/api/agents/a1")).json()["again"]
        assert again["run_id"] == outcome.run_id
        assert "no call that has a result is repeated" in again["text"]
        told = "“pay” and “fail” were cut off, and are not repeated by themselves"
        assert told in again["text"]
        assert "“look” was cut off, and is repeated" in again["text"]
        for tab in ("", "/timeline"):
            page = (await client.get(f"/agents/a1{tab}")).text
            assert "Again from here:" in page
            assert told in html.unescape(page)
            box = page[page.index('class="note again"') :]
            assert f'name="run_id" value="{outcome.run_id}"' in box[: box.index("</form>")]
        doubt = next(each for each in (await ref.state()).doubts.values() if "pay" in str(each))
        await soon(ref.settle(doubt.call_key, how="It is paid."))
        again = (await client.get("/api/agents/a1")).json()["again"]
        assert "“fail” was cut off, and is not repeated by itself" in again["text"]
        assert "“pay” was cut off, and somebody has said since what it did" in again["text"]

        def hide(path: tuple[str | int, ...], value: Any) -> Any:
            return "•••" if path[-1:] == ("tool_name",) else value

        async with site_of(runtime, redact=hide) as reader:
            again = (await reader.get("/api/agents/a1")).json()["again"]
            assert "“•••” was cut off" in again["text"]
            assert "pay" not in again["text"]
        async with site_of(runtime, auth=logged_in("eve", frozenset({"read"}))) as reader:
            page = (await reader.get("/agents/a1")).text
            box = page[page.index('class="note again"') :]
            assert "<form" not in box[: box.index("</div>")]


async def test_a_run_in_quarantine_is_released_where_it_is_told() -> None:
    def ill(_: object) -> Any:
        return SystemExit("bang")

    async with Runtime([Agent("desk", ScriptedModel(ill))]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", id="a1")
        quarantined(await soon(ref.run("go")))
        page = (await client.get("/agents/a1")).text
        assert "Release from quarantine:" in page
        assert "The same run continues from its last record." in page


async def test_a_run_that_is_well_is_not_done_again() -> None:
    async with Runtime([Agent("desk", ScriptedModel(["ok"]))]) as runtime:
        await soon(runtime.spawn("desk", id="a1").run("go"))
        async with site_of(runtime) as client:
            assert (await client.get("/api/agents/a1")).json()["again"] is None
            assert "again-conversation" not in (await client.get("/agents/a1")).text


# ------------------------------------------------------------------------- changes


async def test_what_an_edit_changes_is_shown_before_it_is_sent_and_nothing_is_decided() -> None:
    done = Done()
    async with Runtime([desk(done, call("order", ORDER), "ok")]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            request = await only_request(client)
            page = f"/agents/a1/requests/{request['id']}"
            form = {
                "digest": request["digest"], "decision": "edit", "v:/count": "7", "n:/lines": "1",
                "v:/lines/0/sku": "AB-1", "v:/lines/0/count": "2", "v:/to/street": "Short Road 1",
                "v:/to/zip": "", "n:/tags": "1", "v:/tags/0": "red", "v:/tree": "",
                "v:/price": "9.5", "is:/tree": "none",
            }  # fmt: skip
            shown = await client.post(page, data={**form, "do": "changes"})
            assert shown.status_code == 200
            changes = shown.text[shown.text.index('<div id="changes"') :]
            changes = changes[: changes.index("</form>")]
            rows = re.findall(r'<th role="rowheader" scope="row">([^<]*)</th>', changes)
            assert rows == ["to › street", "count"]
            assert "<del>3</del>" in changes
            assert "<ins>7</ins>" in changes
            assert "<del>Long</del>" in changes
            assert '<details id="edit" open>' in shown.text
            assert 'value="7"' in shown.text
            wrong = await client.post(page, data={**form, "v:/count": "99", "do": "changes"})
            assert "less than or equal to 10" in plain(wrong.text)
            assert "compared when what does not fit is corrected" in wrong.text
            same = await client.post(
                page, data={**form, "v:/count": "3", "v:/to/street": "Long Road 1", "do": "changes"}
            )
            assert "Nothing that is shown here is different." in same.text
            assert (await only_request(client))["id"] == request["id"]
            assert done.calls == []
            await client.post(page, data=form)
            await rest(runtime.get("a1"))
            for path in (page, "/agents/a1", "/agents/a1/decisions"):
                text = (await client.get(path)).text
                assert "<del>3</del>" in text, path
                assert "<ins>7</ins>" in text, path
            (row,) = (await client.get("/api/agents/a1/decisions")).json()["decisions"]
            assert row["proposed"]["arguments"]["count"] == 3


async def test_who_may_not_decide_gets_no_changes_and_no_fields() -> None:
    async with Runtime([desk(Done(), refund(), "ok")]) as runtime:
        await asked(runtime)
        async with site_of(runtime, auth=logged_in("eve", frozenset({"read"}))) as client:
            request = await only_request(client)
            page = f"/agents/a1/requests/{request['id']}"
            assert 'id="edit"' not in (await client.get(page)).text
            form = {"digest": request["digest"], "decision": "edit", "do": "changes"}
            assert (await client.post(page, data=form)).status_code == 403


def hides_iban(path: tuple[str | int, ...], value: Any) -> Any:
    """Hides what is in the arguments below this name."""
    return "•••" if "arguments" in path and path[-1] == "order_id" else value


async def test_what_is_hidden_is_in_no_change() -> None:
    async with Runtime([desk(Done(), refund("secret-17"), "ok")]) as runtime:
        ref = await asked(runtime)
        (request,) = (await ref.state()).requests
        edited = {"order_id": "secret-18", "amount": 5.0}
        await soon(ref.resume({request.id: {"type": "edit", "arguments": edited, "by": "bob"}}))
        async with site_of(runtime, redact=hides_iban) as client:
            for path in ("", "/decisions", f"/requests/{request.id}"):
                text = (await client.get(f"/agents/a1{path}")).text
                (table,) = re.findall('<table class="changes".*?</table>', text, re.DOTALL)
                assert "secret" not in table, path
                assert "<ins>5.0</ins>" in table, path


async def test_hostile_changes_are_text() -> None:
    async with Runtime([desk(Done(), refund(reason="fine"), "ok")]) as runtime:
        ref = await asked(runtime)
        (request,) = (await ref.state()).requests
        edited = {"order_id": "17", "amount": 5.0, "reason": HOSTILE}
        await soon(ref.resume({request.id: {"type": "edit", "arguments": edited, "by": "bob"}}))
        async with site_of(runtime) as client:
            for path in ("", "/decisions", f"/requests/{request.id}"):
                text = (await client.get(f"/agents/a1{path}")).text
                assert "<script>alert" not in text
                assert "\u202e" not in text


# ------------------------------------------------------------------------- definition


def a_greeting(state: AgentState) -> str:
    """Instructions that are made anew."""
    return "Greet."


async def test_the_definition_tells_the_prompt_the_tools_with_their_gates_and_the_middleware() -> (
    None
):
    @tool(read_only=True, timeout=30)
    def look(order: str) -> str:
        """Look an order up."""
        return order

    @tool(ask=["approve", "reject"])
    def refund(order: str) -> str:
        """Pay money back."""
        return order

    @tool(idempotent=True, ask=True)
    def mail(to: str) -> str:
        return to

    @tool
    def ship(order: str) -> str:
        """Ship it."""
        return order

    inner = Agent("inner", ScriptedModel([]), a_greeting, description="Ships.", tools=[ship])
    agent = Agent(
        "desk",
        ScriptedModel(["ok"]),
        f"You help {{customer?}}. {HOSTILE.replace('{', '').replace('}', '')}",
        tools=[look, refund, mail],
        middleware=[TodoList(), SubAgent([inner]), HumanInTheLoop({"mail": False, "ship": True})],
        max_runs=7,
        version=3,
    )
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("desk", id="a1").run("go"))
        found = (await client.get("/api/agents/a1/definition")).json()
        assert found["why_unknown"] is None
        of = {each["name"]: each for each in found["agents"]}
        own = of["desk"]
        assert (own["max_runs"], own["version"], own["model"]) == (7, 3, "scripted")
        assert own["instructions"][0]["text"].startswith("You help {customer?}.")
        tools = {each["name"]: each for each in own["tools"]}
        assert tools["look"]["effect"] == "read_only"
        assert tools["look"]["parameters"]["properties"]["order"]["type"] == "string"
        assert tools["look"]["gate"] is None
        assert tools["refund"]["gate"]["allowed"] == ["approve", "reject"]
        assert (tools["refund"]["effect"], tools["refund"]["is_declared"]) == ("effects", False)
        assert tools["mail"]["gate"] is None  # the middleware says that it needs nobody
        assert tools["mail"]["effect"] == "idempotent"
        names = [each["name"] for each in own["middleware"]]
        assert names == ["TodoList", "SubAgent", "HumanInTheLoop"]
        assert own["middleware"][2]["hooks"] == ["check_tool_calls"]
        (ships,) = of["inner"]["tools"]
        assert "approve" in ships["gate"]["allowed"]  # a gate also holds below
        assert of["inner"]["instructions"][0] == {
            "text": None,
            "function": f"{__name__}.a_greeting",
        }
        page = (await client.get("/agents/a1/definition")).text
        assert f"The function <code>{__name__}.a_greeting</code> makes it" in page
        assert "<script>alert" not in page
        assert "A call that was cut off is repeated: it only looks" in page


async def test_what_is_not_known_of_a_definition_is_said(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/agents.db"
    async with Runtime([Agent("desk", ScriptedModel(["ok"]))], store=store) as runtime:
        await soon(runtime.spawn("desk", id="a1").run("go"))
    async with Runtime([], store=store) as runtime, site_of(runtime) as client:
        assert "is not known here" in (await client.get("/agents/a1/definition")).text
    async with Observer(store) as observer, site_of(observer) as client:
        page = (await client.get("/agents/a1/definition")).text
        assert "beside the runtimes" in page
        found = (await client.get("/api/agents/a1/definition")).json()
        assert found["agents"] == []


async def test_a_definition_is_redacted() -> None:
    agent = Agent("desk", ScriptedModel(["ok"]), "The password is 12-34.", tools=[note])

    def hide(path: tuple[str | int, ...], value: Any) -> Any:
        return "•••" if path[-1:] == ("text",) else value

    async with Runtime([agent]) as runtime, site_of(runtime, redact=hide) as client:
        await soon(runtime.spawn("desk", id="a1").run("go"))
        page = (await client.get("/agents/a1/definition")).text
        assert "12-34" not in page
        assert "•••" in page


# ------------------------------------------------------------------------- times


async def test_without_a_script_times_say_that_they_are_utc_and_a_schedule_has_its_zone_too() -> (
    None
):
    async with Runtime([Agent("desk", ScriptedModel(["ok"]))]) as runtime:
        await soon(runtime.spawn("desk", id="a1").run("go"))
        await runtime.schedule(
            "a1", "report", cron="30 9 * * *", timezone="Asia/Kolkata", input="Go."
        )
        async with site_of(runtime) as client:
            page = (await client.get("/agents/a1/schedules")).text
            shown = plain(page)
            assert re.search(r"\w{3} \d{4}-\d\d-\d\d 09:30 in Asia/Kolkata", shown)
            assert re.search(r"here \d{4}-\d\d-\d\d 04:00:00 UTC", shown)
            for tab in ("", "/timeline", "/history", "/schedules"):
                page = (await client.get(f"/agents/a1{tab}")).text
                for time in re.findall(r"<time [^>]*>[^<]*</time>", page):
                    assert "UTC" in time
                    assert re.search('data-as="(full|minute|relative)"', time)
