"""A search over HTTP finds what its user may see, and tells nothing of the rest (I17)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import HOSTILE, Done, asked, desk, logged_in, refund, site_of
from understudy import Agent, Runtime, approve
from understudy.web.views.conversation import PAGE

SECRET = "4711-0815"


async def found(client: Any, text: str, **query: Any) -> dict[str, Any]:
    answer = await client.get("/api/search", params={"text": text, **query})
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()
    return data


async def test_a_hit_leads_to_its_request_or_to_its_row() -> None:
    done = Done()
    async with Runtime([desk(done, refund(reason="broken kettle"), "ok")], search=True) as runtime:
        await asked(runtime, text="my kettle is broken")
        async with site_of(runtime) as client:
            hits = (await found(client, "kettle broken"))["hits"]
            assert {hit["kind"] for hit in hits} == {"request", "call", "user"}
            page = (await client.get("/search", params={"text": "kettle broken"})).text
            assert "<mark>kettle</mark>" in page
            links = re.findall(r'class="hit-text"><a href="([^"]+)"', page)
            assert len(links) == 3
            for link in links:
                target = await client.get(link.replace("&amp;", "&"))
                if "/found" not in link:
                    assert target.status_code == 200
                    continue
                assert target.status_code == 303
                path, _, row = target.headers["location"].partition("#")
                shown = (await client.get(path)).text
                assert f'id="{row}"' in shown
                text = shown.partition(f'id="{row}"')[2].partition("</li>")[0]
                assert "kettle" in text


async def test_a_hit_far_back_leads_to_its_page() -> None:
    turns = [f"answer{number}" for number in range(PAGE)]
    async with Runtime([Agent("desk", by_turn(*turns))], search=True) as runtime:
        ref = runtime.spawn("desk", "a1")
        for number in range(PAGE):
            await soon(ref.run(f"question{number}"))
        async with site_of(runtime) as client:
            (hit,) = (await found(client, "question3"))["hits"]
            query = {"seq": hit["seq"], "row": hit["row"]}
            target = (await client.get("/agents/a1/found", params=query)).headers["location"]
            assert "page=1" in target
            path, _, row = target.partition("#")
            shown = (await client.get(path)).text
            assert "question3" in shown.partition(f'id="{row}"')[2].partition("</li>")[0]
            gone = await client.get("/agents/a1/found", params={"seq": 99_999, "row": 0})
            assert gone.headers["location"].endswith("/agents/a1")


def by_name(path: tuple[str | int, ...], value: Any) -> Any:
    return "hidden" if path[-1:] == ("reason",) else value


def in_the_inbox(path: tuple[str | int, ...], value: Any) -> Any:
    """It hides by place, as it knows the requests of the inbox, and the rows of conversations."""
    inbox = path[:1] == ("requests",) and path[2:] == ("arguments", "reason")
    row = path[:1] == ("rows",) and path[2:] == ("detail", "arguments", "reason")
    return "hidden" if inbox or row else value


def the_whole_row(path: tuple[str | int, ...], value: Any) -> Any:
    return "hidden" if path[:1] in (("rows",), ("requests",)) and len(path) == 2 else value


@pytest.mark.parametrize("hide", [by_name, in_the_inbox, the_whole_row])
async def test_a_search_finds_nothing_that_is_hidden(hide: Any) -> None:
    """I17: neither a hit, nor how many there are, nor a place in the list tells of it."""
    done = Done()
    async with Runtime([desk(done, refund(reason=SECRET), "ok")], search=True) as runtime:
        refs = [await asked(runtime, id=f"a{number}") for number in range(5)]
        await asked(runtime, id="visible", text="go 4711")
        async with site_of(runtime, redact=hide) as client, site_of(runtime) as admin:
            assert len((await found(admin, "4711"))["hits"]) == 13
            for guess in (SECRET, "4711", "471*", "4711 0815", "refund 4711", "reason 4711"):
                for limit in (1, 2, 500):
                    data = await found(client, guess, limit=limit)
                    kinds = [(hit["agent_id"], hit["kind"]) for hit in data["hits"]]
                    sees = guess in ("4711", "471*") and hide is not the_whole_row
                    assert kinds == ([("visible", "user")] if sees else []), guess
                    assert data["next"] is None, "no page tells that there was more"
                page = (await client.get("/search", params={"text": guess})).text
                assert SECRET not in page.partition("</form>")[2], "but as it was typed"
            nothing = await found(client, "47119999")
            other = await found(client, "0815")
            assert {**nothing, "filters": 0} == {**other, "filters": 0}
            if hide is not the_whole_row:
                seen = await found(client, "refund")
                assert len(seen["hits"]) == 12, "what is not hidden is found"
                assert SECRET not in str(seen)
                assert "hidden" in str(seen)
                first = await found(client, "refund", limit=5)
                rest = await found(client, "refund", limit=50, after=first["next"])
                assert [*first["hits"], *rest["hits"]] == seen["hits"]
            for ref in refs:
                (request,) = [r for r in await soon(runtime.pending()) if r.agent_id == ref.id]
                await soon(ref.resume(request.decide(approve())))
            assert (await found(client, "0815"))["hits"] == []


async def test_what_depends_on_the_user_is_found_by_who_may_see_it() -> None:
    def hide(path: tuple[str | int, ...], value: Any, user: Any) -> Any:
        return "hidden" if user.name != "boss" and path[-1:] == ("reason",) else value

    done = Done()
    async with Runtime([desk(done, refund(reason=SECRET), "ok")], search=True) as runtime:
        await asked(runtime)
        for name, count in (("ann", 0), ("boss", 2)):
            async with site_of(runtime, redact=hide, auth=logged_in(name)) as client:
                assert len((await found(client, SECRET))["hits"]) == count


async def test_a_search_needs_the_right_to_read() -> None:
    async with Runtime([desk(Done())], search=True) as runtime:
        nobody = logged_in("eve", frozenset({"decide", "act", "admin"}))
        async with site_of(runtime, auth=nobody) as client:
            for path in ("/search", "/api/search", "/agents/a/found"):
                answer = await client.get(path, params={"text": "go"})
                assert answer.status_code == 403, path


async def test_where_it_is_off_the_page_says_how_to_turn_it_on() -> None:
    async with Runtime([desk(Done())]) as runtime, site_of(runtime) as client:
        answer = await client.get("/api/search", params={"text": "go"})
        assert (answer.status_code, answer.json()["error"]) == (409, "SearchOff")
        page = await client.get("/search", params={"text": "go"})
        assert page.status_code == 200
        assert "Runtime(search=True)" in page.text
        assert ">Search</a>" not in (await client.get("/")).text
    async with Runtime([desk(Done())], search=True) as runtime, site_of(runtime) as client:
        assert ">Search</a>" in (await client.get("/")).text


async def test_a_wrong_search_is_told_beside_its_form() -> None:
    async with Runtime([desk(Done())], search=True) as runtime, site_of(runtime) as client:
        for text, told in (("***", "a word of letters"), ("a " * 300, "at most 500 characters")):
            page = await client.get("/search", params={"text": text})
            assert page.status_code == 200
            assert told in page.text
            answer = await client.get("/api/search", params={"text": text})
            assert (answer.status_code, answer.json()["error"]) == (400, "UsageError")
        assert (await client.get("/api/search")).status_code == 400
        assert (await client.get("/search")).status_code == 200


async def test_what_was_said_cannot_write_into_the_page() -> None:
    async with Runtime([Agent("desk", by_turn(HOSTILE))], search=True) as runtime:
        await soon(runtime.spawn("desk", "a1").run(f"needle {HOSTILE}"))
        async with site_of(runtime) as client:
            for text in ("needle", f"alert {HOSTILE}"[:400], '"><script>alert(1)</script>'):
                page = (await client.get("/search", params={"text": text})).text
                assert "<script>alert" not in page
                assert "<img src=//evil" not in page
                shown = page.partition("</form>")[2].partition("</main>")[0]  # beside its form
                assert "\x1b" not in shown
                assert "\u202e" not in shown
