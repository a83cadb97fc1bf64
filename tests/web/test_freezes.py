"""The page of freezes: who freezes and thaws, what is under way, and what each page says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn
from tests.support.freezes import Desk, ended, runs
from tests.support.hosts import opened
from tests.support.loops import soon, until
from tests.support.places import SqlitePlace
from tests.support.web_site import ALL, HOSTILE, TABS, logged_in, site_of
from understudy import Agent, Observer, Runtime, call
from understudy.journal import MemoryStore
from understudy.middleware import SubAgent
from understudy.outcomes import Stopped
from understudy.state.trust_log import HostBehind
from understudy.trust import Person, approval

READER = logged_in("eve", ALL - {"freeze", "act"})
FORM = {"what": "store", "name": "", "why": "a leak", "confirm": "yes"}


async def freeze(client: httpx.AsyncClient, **changed: str) -> str:
    """Freeze by the form; the address of the page that comes then."""
    sent = await client.post("/freezes/freeze", data={**FORM, **changed})
    assert sent.status_code == 303, sent.text
    return sent.headers["location"]


async def test_who_may_freezes_and_thaws_and_the_page_says_who_and_why() -> None:
    """V54."""
    desk = Desk(7)
    async with opened(MemoryStore(), desk.agent) as runtime, site_of(runtime) as client:
        page = (await client.get("/freezes")).text
        assert "Nothing is frozen." in page
        for known in ('value="desk" label="definition desk"', 'value="refund" label="tool refund"'):
            assert known in page
        at = await freeze(client)
        [made] = await soon(runtime.freezes())
        assert (made.what, made.why, made.by) == ("store", "a leak", "ann")
        assert at.endswith(f"/freezes/of/{made.id}?said=freeze")
        page = (await client.get(at)).text
        assert "It is frozen, at each living host." in page
        assert "None. What is recorded has ended." in page
        page = (await client.get("/freezes")).text
        assert "By ann: a leak" in page
        await soon(runtime.spawn("desk", "a").send("go"))
        thaw = {"id": made.id, "confirm": ""}
        refused = await client.post("/freezes/thaw", data=thaw)
        assert (refused.status_code, "Confirm that what waits" in refused.text) == (400, True)
        assert (desk.asked, len(await soon(runtime.freezes()))) == (0, 1)
        for said in ("thaw", "thaw-over"):
            done = await client.post("/freezes/thaw", data={**thaw, "confirm": "yes"})
            assert done.headers["location"].endswith(f"/freezes?said={said}")
        await ended(runtime.get("a"))
        assert desk.paid == [7]
        gone = await client.get(f"/freezes/of/{made.id}")
        assert (gone.status_code, "It is not frozen any more." in gone.text) == (404, True)


async def test_a_form_that_is_not_complete_freezes_nothing_and_says_what_is_missing() -> None:
    """V54."""
    async with Runtime([Desk().agent]) as runtime, site_of(runtime) as client:
        for changed, problem in (
            ({"confirm": ""}, "Confirm that nothing of it begins any more."),
            ({"what": ""}, "Choose what is frozen"),
            ({"what": "agent"}, "Choose what is frozen"),
            ({"name": "desk"}, "The whole store has no name"),
            ({"what": "tool"}, "Name the tool that is frozen."),
            ({"what": "definition", "name": " "}, "Name the definition that is frozen."),
            ({"why": " "}, "Say why it is frozen."),
        ):
            sent = await client.post("/freezes/freeze", data={**FORM, **changed})
            assert (sent.status_code, problem in sent.text) == (400, True), (changed, sent.text)
        assert await soon(runtime.freezes()) == []


async def test_nobody_else_freezes_thaws_or_cancels() -> None:
    """V54: not without the rights, not from another site, and not where the pages only show."""
    async with Runtime([Desk().agent]) as runtime:
        made = await soon(runtime.freeze(why="a leak"))
        posts = {
            "/freezes/freeze": {**FORM, "why": "more"},
            "/freezes/thaw": {"id": made.id, "confirm": "yes"},
            f"/freezes/of/{made.id}/cancel": {"run": "a/r"},
        }
        for options in ({"auth": READER}, {"read_only": True}):
            async with site_of(runtime, **options) as client:
                for path in ("/freezes", f"/freezes/of/{made.id}"):
                    page = await client.get(path)
                    assert (page.status_code, 'method="post"' in page.text) == (200, False)
                for path, data in posts.items():
                    assert (await client.post(path, data=data)).status_code == 403, path
        headers = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
        async with site_of(runtime) as client:
            for path, data in posts.items():
                refused = await client.post(path, data=data, headers=headers)
                assert refused.status_code == 403, path
        [stands] = await soon(runtime.freezes())
        assert stands.id == made.id


async def test_the_calls_under_way_are_listed_and_their_runs_cancelled_by_the_users_name() -> None:
    """V54."""
    desk = Desk(7)
    desk.waits_at.add(7)
    async with opened(MemoryStore(), desk.agent) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk", "a")
        running = ref.run("go")
        await soon(desk.held.entered.wait())
        at = await freeze(client)
        page = (await client.get(at)).text
        for text in ('<a href="/agents/a">a</a>', ">refund</td>", "ago</time>", "just now</time>"):
            assert (text in page) is (text != "ago</time>"), text
        run = (await soon(ref.state())).run
        assert run is not None
        assert f'name="run" value="a/{run.run_id}"' in page
        async with site_of(runtime, auth=logged_in("eve", ALL - {"act"})) as other:
            assert "Cancel these runs" not in (await other.get(at)).text
        path = at.split("?")[0]
        for wrong in ({"run": "a"}, {"run": "/r"}, {"other": "a/r"}):
            assert (await client.post(f"{path}/cancel", data=wrong)).status_code == 400
        sent = await client.post(f"{path}/cancel", data={"run": f"a/{run.run_id}"})
        assert sent.headers["location"].endswith("?said=cancel_frozen")
        outcome = await soon(running)
        assert isinstance(outcome, Stopped)
        [signal] = outcome.signals.signals
        assert (signal.context["by"], signal.message) == ("ann", "frozen by ann: a leak")
        page = (await client.get(sent.headers["location"])).text
        assert "The runs are cancelled." in page
        assert "None. What is recorded has ended." in page


async def test_a_run_that_is_not_the_shown_one_is_not_cancelled_and_the_page_says_why() -> None:
    """V54."""
    desk = Desk(7)
    desk.waits_at.add(7)
    async with opened(MemoryStore(), desk.agent) as runtime, site_of(runtime) as client:
        runtime.spawn("desk", "a").run("go")
        await soon(desk.held.entered.wait())
        path = (await freeze(client)).split("?")[0]
        sent = await client.post(f"{path}/cancel", data={"run": ["a/another", "none/r"]})
        assert sent.status_code == 200
        assert "was not cancelled: Another run is open now" in sent.text
        assert "was not cancelled: There is no agent" in sent.text
        assert "Cancel these runs" in sent.text
        desk.held.release.set()
        await until(lambda: not runs("a"))


async def test_where_a_thaw_is_protected_the_page_says_who_must_agree() -> None:
    """V54."""
    protect: Any = {"thaw": approval({"ops": 2})}
    people = {name: Person(id=name, roles=frozenset({"ops"})) for name in ("ann", "bob")}
    async with (
        Runtime([Desk().agent], people=people, protect=protect) as runtime,
        site_of(runtime) as client,
    ):
        await freeze(client, what="tool", name="refund")
        [made] = await soon(runtime.freezes())
        data = {"id": made.id, "confirm": "yes"}
        asked = await client.post("/freezes/thaw", data=data)
        assert (asked.status_code, "2 more of ops is missing" in asked.text) == (409, True), (
            asked.text
        )
        assert '<a href="/freezes">Look at it again</a>' in asked.text
        page = (await client.get("/administration")).text
        assert "thaw tool &#39;refund&#39; (tool &#39;refund&#39; is frozen by ann: a leak)" in page
        [request] = await soon(runtime.administration())
        for name in ("ann", "bob"):
            async with site_of(runtime, auth=logged_in(name)) as voter:
                form = {"id": request.id, "type": "approve"}
                await voter.post("/administration/do/vote", data=form)
        done = await client.post("/freezes/thaw", data=data)
        assert done.headers["location"].endswith("?said=thaw")
        assert await soon(runtime.freezes()) == []


async def test_a_name_that_nothing_has_is_frozen_and_the_page_says_so() -> None:
    """V54."""
    async with Runtime([Desk().agent]) as runtime, site_of(runtime) as client:
        page = (await client.get(await freeze(client, what="tool", name="refunds"))).text
        assert "It may hold nothing:" in page
        assert "has a tool &#39;refunds&#39;" in page


async def test_a_frozen_store_is_said_on_each_page_until_the_thaw() -> None:
    """V54."""
    desk = Desk()
    async with (
        opened(MemoryStore(), desk.agent) as runtime,
        site_of(runtime, auth=READER) as client,
    ):
        await soon(runtime.spawn("desk", "a").run("go"))
        paths = ["/", "/agents", "/runtime", "/doubts", *(f"/agents/a{tab}" for tab in TABS)]
        for path in paths:
            assert "rozen" not in (await client.get(path)).text, path
        assert 'href="/freezes"' not in (await client.get("/")).text, "it is for the right `freeze`"
        made = await soon(runtime.freeze(why=HOSTILE, by="ann"))
        for path in [*paths, "/freezes", f"/freezes/of/{made.id}"]:
            page = (await client.get(path)).text
            assert "<strong>Frozen</strong></a> by ann: " in page, path
            assert '<span class="tag bad">1 frozen</span>' in page, path
            assert "<script>alert" not in page, path
        await soon(runtime.thaw(made.id))
        for path in paths:
            assert "rozen" not in (await client.get(path)).text, path


async def test_an_agent_that_a_freeze_holds_says_so_on_its_page_and_in_the_list() -> None:
    """V53."""
    held, free, clerk = Desk(7), Desk(name="free"), Desk(name="clerk")
    boss = Agent(
        "boss",
        by_turn(call("task", {"task_name": "clerk", "instructions": "go"})),
        middleware=[SubAgent([clerk.agent])],
    )
    agents = [held.agent, free.agent, clerk.agent, boss]
    async with Runtime(agents) as runtime, site_of(runtime) as client:
        for name in ("free", "clerk"):
            await soon(runtime.spawn(name, name).run("go"))
        await freeze(client, what="tool", name="refund", why="fraud")
        await freeze(client, what="definition", name="clerk", why="wrong")
        for name in ("desk", "boss"):
            runtime.spawn(name, name).run("go")
        await until(lambda: held.asked == 1 and not runs("desk"))
        boss_ref = runtime.get("boss")
        while not ((run := (await soon(boss_ref.state())).run) and run.calls):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await until(lambda: not runs("boss"))
        texts = {
            "desk": "tool 'refund' is frozen by ann: fraud",
            "clerk": "definition 'clerk' is frozen by ann: wrong",
            "boss": "definition 'clerk' is frozen by ann: wrong",
            "free": None,
        }
        rows = (await client.get("/api/agents")).json()["agents"]
        assert {row["id"]: row["frozen"] for row in rows} == texts
        listed = (await client.get("/agents")).text
        assert listed.count('<span class="tag bad">frozen</span>') == 3
        assert '<span class="tag warn">2 frozen</span>' in listed
        for id, text in texts.items():
            assert (await client.get(f"/api/agents/{id}")).json()["frozen"] == text
            page = (await client.get(f"/agents/{id}")).text
            assert ("Held by a freeze:" in page) is (text is not None), id
        assert held.paid == []


async def test_an_observer_says_what_is_frozen(sqlite: SqlitePlace) -> None:
    """V54."""
    async with Runtime([Desk().agent], store=sqlite.store()) as runtime:
        await soon(runtime.spawn("desk", "a").run("go"))
        made = await soon(runtime.freeze(why="a leak", by="ann"))
        async with Observer(f"sqlite:///{sqlite.path}") as observer, site_of(observer) as client:
            for path in ("/", "/agents", "/agents/a", "/freezes", f"/freezes/of/{made.id}"):
                page = (await client.get(path)).text
                assert "<strong>Frozen</strong></a> by ann: a leak" in page, path
                assert 'method="post"' not in page
            [row] = (await client.get("/api/agents")).json()["agents"]
            assert row["frozen"] == "frozen by ann: a leak"


class Deaf(MemoryStore):
    """A store with another host, which lives and does not answer."""

    async def hosts_behind(self, number: int) -> Sequence[HostBehind]:
        return [HostBehind(id=2, name="deaf", is_living=True)]


@pytest.mark.slow
async def test_where_a_host_has_not_answered_yet_the_page_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V51: it is frozen, and the page does not say more than that."""
    monkeypatch.setattr("understudy.web.visit.SECONDS", 1.0)
    async with opened(Deaf(), Desk().agent) as runtime, site_of(runtime) as client:
        at = await freeze(client)
        assert at.endswith("?said=freeze-begun")
        page = (await client.get(at)).text
        assert "It is frozen. Not every host has said yet that it knows." in page
        assert "<strong>No answer of this host:</strong> deaf." in page
        [made] = (await client.get("/api/freezes")).json()["freezes"]
        [seen] = (await client.get(f"/api/freezes?id={made['id']}")).json()["freezes"]
        assert (made["silent_hosts"], seen["silent_hosts"]) == ([], ["deaf"])
