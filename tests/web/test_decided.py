"""The decisions of all agents, what needs a person, and what models used: pages, API, commands."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.loops import soon
from tests.support.web_site import HOSTILE, Done, asked, desk, logged_in, refund, rest, site_of
from understudy import (
    Agent,
    Observer,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    approve,
    call,
    reject,
    tool,
)


async def decided(runtime: Runtime, id: str, decision: Any) -> None:
    """An agent that has asked, and was answered."""
    ref = runtime.spawn("desk", id)
    outcome = interrupted(await soon(ref.run("go")))
    await soon(ref.resume(outcome.decide(decision)))


async def listed(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    found = await client.get("/api/decisions", params=query)
    assert found.status_code == 200, found.text
    rows: list[dict[str, Any]] = found.json()["decisions"]
    return rows


async def test_the_page_and_the_api_list_the_decisions_of_all_agents_with_filters() -> None:
    """J36: what the list has, who may look finds by person, tool, kind of decision and day."""
    agent = desk(Done(), refund(amount=5), "Done.")
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await decided(runtime, "a", approve(by="ann", note="checked"))
        await decided(runtime, "b", reject("No.", by="bob"))
        assert [(row["agent_id"], row["by"]) for row in await listed(client)] == [
            ("b", "bob"),
            ("a", "ann"),
        ]
        (row,) = await listed(client, person="ann", tool="refund", type="approve", origin="person")
        assert row["summary"] == "order_id=17, amount=5.0"
        assert row["decision"]["note"] == "checked"
        assert row["waited"] >= 0
        today = row["at"][:10]
        assert len(await listed(client, **{"from": today, "to": today})) == 2
        assert await listed(client, to="2020-01-01") == []
        text = (await client.get("/decisions?person=ann")).text
        assert f'href="/agents/a/requests/{row["request_id"]}"' in text
        assert "Note: checked" in text
        assert "bob" not in text
        assert 'value="ann"' in text
        page = (await client.get("/api/decisions", params={"limit": 1})).json()
        assert len(page["decisions"]) == 1
        rest_of = (await client.get("/api/decisions", params={"after": page["next"]})).json()
        assert [each["agent_id"] for each in rest_of["decisions"]] == ["a"]
        assert rest_of["next"] is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"type": "maybe"}, "`type` must be one of"),
        ({"origin": "me"}, "`origin` must be one of"),
        ({"from": "yesterday"}, "`from` must be a day or a time, such as 2030-01-31"),
        ({"after": "x"}, "`after` must be a cursor"),
    ],
)
async def test_a_wrong_filter_is_refused_by_its_name(query: dict[str, str], said: str) -> None:
    async with Runtime([desk(Done(), "Done.")]) as runtime, site_of(runtime) as client:
        for path in ("/api/decisions", "/api/decisions.jsonl"):
            found = await client.get(path, params=query)
            assert found.status_code == 400
            assert said in found.json()["detail"]


async def test_all_decisions_come_as_json_lines() -> None:
    agent = desk(Done(), refund(amount=5), "Done.")
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        for number in range(3):
            await decided(runtime, f"a{number}", approve(by="ann"))
        found = await client.get("/api/decisions.jsonl", params={"person": "ann"})
        assert found.headers["content-type"].startswith("application/jsonl")
        rows = [json.loads(line) for line in found.text.splitlines()]
        assert [row["agent_id"] for row in rows] == ["a2", "a1", "a0"]
        assert rows == await listed(client)


async def test_what_is_hidden_from_a_user_is_hidden_in_the_decisions_too() -> None:
    def redact(path: Any, value: Any) -> Any:
        return "•••" if path[-1:] == ("order_id",) or path[-1:] == ("note",) else value

    agent = desk(Done(), refund(order_id="secret-17"), "Done.")
    async with Runtime([agent]) as runtime, site_of(runtime, redact=redact) as client:
        await decided(runtime, "a", approve(by="ann", note="secret-note"))
        for path in ("/decisions", "/api/decisions", "/api/decisions.jsonl", "/attention"):
            text = (await client.get(path)).text
            assert "secret" not in text, path
        assert "order_id=•••" in (await client.get("/decisions")).text


async def test_hostile_text_in_a_decision_is_text() -> None:
    agent = desk(Done(), refund(reason=HOSTILE), "Done.")
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await decided(runtime, "a", reject(HOSTILE, by="ann", note=HOSTILE))
        text = (await client.get("/decisions")).text
        assert "<script>alert" not in text
        assert (
            "onmouseover=alert(2) x=" not in text.replace("&#34;", "") or "&lt;script&gt;" in text
        )


async def test_of_a_deleted_agent_the_page_says_who_decided_and_links_nowhere() -> None:
    agent = desk(Done(), refund(amount=5), "Done.")
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await decided(runtime, "a", approve(by="ann", note="checked"))
        await soon(runtime.delete("a"))
        (row,) = await listed(client)
        assert (row["by"], row["request"], row["decision"], row["summary"]) == (
            "ann",
            None,
            None,
            "",
        )
        text = (await client.get("/decisions")).text
        assert "its agent was deleted" in text
        assert "/agents/a" not in text
        assert "checked" not in text


# ------------------------------------------------------------------ what needs a person


async def test_what_needs_a_person_is_on_one_page_with_its_next_action() -> None:
    """J38: the counts of the page are those of the index."""
    clock = SimulatedClock()

    @tool
    def pay(amount: int) -> str:
        raise ConnectionError("the line is dead")

    agents = [
        desk(Done(), refund(), "Done.", gate={"remind_after": [60.0], "expires_after": 7200.0}),
        desk(Done(), refund(), "Done.", name="late", gate={"expires_after": 30.0}),
        desk(Done(), RuntimeError("the provider is down"), name="flaky"),
        Agent("payer", by_turn(call("pay", {"amount": 5}), "Who knows."), tools=[pay]),
    ]
    async with Runtime(agents, clock=clock) as runtime, site_of(runtime) as client:
        assert (await client.get("/api/attention")).json()["count"] == 0
        assert "Nothing needs you" in (await client.get("/attention")).text
        await asked(runtime, "desk", "a")
        late = await asked(runtime, "late", "b")
        await soon(runtime.spawn("flaky", "c").run("go"))
        await soon(runtime.spawn("payer", "d").run("go"))
        await clock.advance(61.0)
        await rest(late)
        found = (await client.get("/api/attention")).json()
        counts = {name: each["count"] for name, each in found.items() if isinstance(each, dict)}
        assert counts == {
            "frozen": 0,
            "quarantined": 0,
            "doubts": 1,
            "overdue": 1,
            "failed": 1,
            "expired": 1,
            "hosts": 0,
            "notices": 0,
        }
        assert found["expired_in_week"] == 1
        assert found["overdue"]["rows"][0]["agent_id"] == "a"
        page = await client.get("/attention")
        assert "<title>(4) Attention" in page.text
        assert "Attention <span" in page.text.replace("\n", " ")
        request = found["overdue"]["rows"][0]["id"]
        assert f'class="button" href="/agents/a/requests/{request}"' in page.text
        assert 'action="/agents/c/do/retry"' in page.text
        assert "/doubts#d-" in page.text
        again = await client.post("/agents/c/do/retry", data={"back": "attention"})
        assert again.headers["location"] == "/attention?said=retry"
        await clock.advance(7200.0)
        for within_a_day in (2, 0):
            later = (await client.get("/api/attention")).json()
            assert (later["expired"]["count"], later["expired_in_week"]) == (within_a_day, 2)
            await clock.advance(2 * 86_400.0)


async def test_each_kind_shows_the_first_rows_and_how_many_there_are() -> None:
    """J38."""
    gate = {"expires_after": 60.0}
    agent = desk(Done(), [refund(order_id=str(n)) for n in range(25)], "Done.", gate=gate)
    async with Runtime([agent]) as runtime, site_of(runtime) as client:
        await asked(runtime)
        found = (await client.get("/api/attention")).json()["overdue"]
        assert (found["count"], len(found["rows"])) == (25, 20)
        text = (await client.get("/attention")).text
        assert "These are the first 20 of 25." in text


async def test_who_may_only_look_gets_no_buttons_and_cannot_recover() -> None:
    agents = [desk(Done(), RuntimeError("down"), name="flaky")]
    looks: Any = frozenset({"read"})
    async with Runtime(agents) as runtime:
        await soon(runtime.spawn("flaky", "c").run("go"))
        async with site_of(runtime, auth=logged_in("cy", looks)) as client:
            text = (await client.get("/attention")).text
            assert "/agents/c" in text
            assert "<form" not in text.partition("<main")[2]
            assert (await client.post("/attention/recover", data={})).status_code == 403
        async with site_of(runtime) as client:
            done = await client.post("/attention/recover", data={"sure": "yes"})
            assert done.headers["location"] == "/attention?said=recover"


async def test_the_frozen_store_is_the_first_that_needs_a_person() -> None:
    async with Runtime([desk(Done(), "Done.")]) as runtime, site_of(runtime) as client:
        await soon(runtime.freeze(why="a leak", by="ann"))
        found = (await client.get("/api/attention")).json()
        assert (found["count"], found["frozen"]["rows"][0]["why"]) == (1, "a leak")
        assert "a leak" in (await client.get("/attention")).text


async def test_an_observer_tells_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    agents = [
        desk(Done(), refund(), "Done.", gate={"expires_after": 60.0}),
        desk(Done(), RuntimeError("down"), name="flaky"),
    ]
    async with Runtime(agents, store=url, usage=True) as runtime:
        await asked(runtime)
        await soon(runtime.spawn("flaky", "c").run("go"))
        async with Observer(url) as observer:
            here, beside = await soon(runtime.attention()), await soon(observer.attention())
            assert (here.overdue.count, here.failed.count) == (1, 1)
            assert beside.overdue == here.overdue or beside.overdue.count == 1
            assert beside.count == here.count
            assert await soon(observer.usage()) == await soon(runtime.usage())


async def test_the_counts_alone_are_told_without_rows() -> None:
    async with Runtime([desk(Done(), refund(), "Done.", gate={"expires_after": 9.0})]) as runtime:
        await asked(runtime)
        found = await soon(runtime.attention(limit=0))
        assert (found.count, found.overdue.count, found.overdue.rows) == (1, 1, ())


# ----------------------------------------------------------------------- what is used


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'store.db'}"


def speaking(name: str = "desk") -> Agent:
    return Agent(name, ScriptedModel(lambda request: "Hello there."))


async def test_requests_are_counted_by_day_definition_and_model(store: str) -> None:
    """J37: in the commit of the reply, once, also of agents that are deleted since."""
    clock = SimulatedClock()
    async with Runtime(
        [speaking(), speaking("other")], store=store, clock=clock, usage=True
    ) as runtime:
        await soon(runtime.spawn("desk", "a").run("go"))
        await soon(runtime.spawn("other", "b").run("go"))
        await clock.advance(86_400.0)
        await soon(runtime.get("a").run("again"))
        await soon(runtime.delete("a"))
        found = await soon(runtime.usage())
        assert [(each.agent, each.requests) for each in found] == [
            ("desk", 1),
            ("other", 1),
            ("desk", 1),
        ]
        first, _, last = found
        assert last.day - first.day == timedelta(days=1)
        assert first.output_tokens > 0
        assert first.unknown == 1
        only = await soon(runtime.usage(since=clock.now(), until=clock.now()))
        assert only == [last]


async def test_nothing_is_counted_unless_a_runtime_is_asked_to(store: str) -> None:
    """J37."""
    async with Runtime([speaking()], store=store) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("desk", "a").run("go"))
        assert await soon(runtime.usage()) == []
        text = (await client.get("/usage")).text
        assert "Runtime(usage=True)" in text
        assert 'href="/usage"' not in text.partition("<main")[0]


async def test_the_page_of_usage_has_sums_and_bars_that_need_no_style() -> None:
    async with Runtime([speaking()], usage=True) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("desk", "a").run("go"))
        found = (await client.get("/api/usage")).json()
        assert (found["total"]["requests"], found["is_counted"]) == (1, True)
        assert [row["name"] for row in found["by_agent"]] == ["desk"]
        (day,) = found["days"]
        assert day["lines"][0]["agent"] == "desk"
        text = (await client.get("/usage")).text
        assert 'class="spent" width="100.0%"' in text
        assert "style=" not in text
        assert (await client.get("/api/usage?agent=none")).json()["days"] == []
        wrong = await client.get("/api/usage?from=2020-01-01&to=2024-01-01")
        assert wrong.status_code == 400
        assert "at most 400 days" in wrong.json()["detail"]
