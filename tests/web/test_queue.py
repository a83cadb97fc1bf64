"""The inbox as a queue: filters that links keep, what comes next, and tables of many requests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.web_queue import fill, queue_agents
from tests.support.web_site import logged_in, site_of
from understudy import Runtime

Done = list[tuple[str, Any]]


async def rows(client: Any, query: str = "") -> list[dict[str, Any]]:
    answer = await client.get(f"/api/pending{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["requests"]
    return found


async def test_the_api_filters_and_counts() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 20)
        answer = (await client.get("/api/pending?tool=refund&within=86400")).json()
        assert answer["filters"] == {
            "tool": "refund",
            "agent": None,
            "kind": None,
            "within": 86400,
            "search": None,
            "order": "oldest",
            "of": None,
        }
        counts = answer["counts"]
        assert counts["all"] == 20
        assert counts["tools"]["send_letter"] == 2
        assert counts["kinds"] == {"approval": 13}
        assert len(answer["requests"]) == counts["total"] == counts["tools"]["refund"] == 13
        titles = {each["title"] for each in answer["requests"]}
        assert "Refund 20.00 EUR to Ada Lovelace" in titles
        assert "order_id=A-1000" in answer["requests"][0]["details"]
        assert [each["agent_id"] for each in await rows(client, "?search=parcel%2013")] == [
            "letters-00013"
        ]
        for wrong in ("within=soon", "order=newest", "within=-1"):
            assert (await client.get(f"/api/pending?{wrong}")).status_code == 400


async def test_the_inbox_says_in_words_for_people_what_kind_a_request_is() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 13)
        text = (await client.get("/")).text
    counted = [
        " ".join(re.sub(r"<[^>]*>", "", each).split())
        for each in re.findall(r'<a class="chip".*?</a>', text)
    ]
    assert counted[:3] == ["11 approval", "1 in doubt", "1 question"]
    assert {"question", "in doubt"} == set(re.findall(r'class="tag kind-\w+">([^<]*)<', text))


@pytest.mark.parametrize(
    ("then", "leads_to"),
    [("next", "/agents/refunds-00001/requests/"), ("", "/agents/refunds-00000/requests/")],
)
async def test_a_decision_leads_to_the_next_request_of_the_filter_or_stays(
    then: str, leads_to: str
) -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 4)
        row = next(each for each in await rows(client) if each["agent_id"] == "refunds-00000")
        page = f"/agents/refunds-00000/requests/{row['id']}?tool=refund"
        form = {"decision": "approve", "digest": row["digest"], "then": then, "seen": "at_once"}
        answer = await client.post(page, data=form)
        assert answer.status_code == 303
        location = answer.headers["location"]
        assert location.startswith(leads_to)
        assert "tool=refund" in location
        assert location.endswith("#top"), "a browser keeps the fragment of the form otherwise"
        text = (await client.get(location)).text
        assert "ann approved it." in text
        (decided,) = await runtime.get("refunds-00000").decisions()
        assert decided.decision.seen == "at_once"


async def test_the_last_request_of_a_queue_leads_back_to_it() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 4)
        (row,) = await rows(client, "?tool=send_letter")
        page = f"/agents/{row['agent_id']}/requests/{row['id']}?tool=send_letter"
        form = {"decision": "reject", "digest": row["digest"], "then": "next", "message": "no"}
        answer = await client.post(page, data=form)
        location = answer.headers["location"]
        assert location.startswith("/?tool=send_letter&last=")
        text = (await client.get(location)).text
        assert "Nothing that fits these filters" in text
        assert "ann rejected it." in text


@pytest.mark.parametrize("last", ["x", "/", "a/b", "refunds-00000/none", "%00/%00", "../x/y"])
async def test_what_a_link_calls_the_last_request_breaks_no_page(last: str) -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 1)
        answer = await client.get(f"/?last={last}")
        assert answer.status_code == 200
        assert 'class="note good last"' not in answer.text


async def test_a_page_says_nothing_of_how_it_was_seen_but_what_pages_say() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 1)
        (row,) = await rows(client)
        page = f"/agents/{row['agent_id']}/requests/{row['id']}"
        form = {"decision": "approve", "digest": row["digest"], "seen": "well"}
        assert (await client.post(page, data=form)).status_code == 400
        assert len(await rows(client)) == 1


def hide(path: tuple[Any, ...], value: Any) -> Any:
    return "•••" if path[-1:] == ("customer",) else value


async def test_a_search_tells_nothing_of_what_is_hidden() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime, redact=hide) as client:
        await fill(runtime, 8)
        assert len(await rows(client, "?search=refund")) == 6
        assert await rows(client, "?search=lovelace") == []
        answer = (await client.get("/api/pending?search=lovelace")).json()
        assert answer["counts"]["total"] is None
        assert answer["counts"]["all"] == 8, "all that wait are counted, whatever is searched"
        assert answer["next"] is None
        page = (await client.get("/?search=lovelace")).text
        assert "Ada" not in page
        (first, *_) = await rows(client, "?search=refund")
        assert first["title"] == "Refund 20.00 EUR to •••"
        path = f"/agents/{first['agent_id']}/requests/{first['id']}"
        shown = (await client.get(f"{path}?search=lovelace")).text
        assert "Lovelace" not in shown.replace('value="lovelace"', "")
        assert 'class="place"' not in shown, "its place would tell how many are found"
        form = {"decision": "approve", "digest": first["digest"], "then": "next"}
        answer = await client.post(f"{path}?search=lovelace", data=form)
        assert answer.headers["location"].startswith("/?")


@pytest.mark.slow
async def test_a_table_of_a_queue_is_bounded_and_says_so() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 260)
        text = (await client.get("/bulk")).text
        assert "These are the first 200 of the list" in text
        chosen = re.findall(r'name="chosen" value="([^"]+)"', text)
        left_out = text.count("a call is in doubt")
        assert len(chosen) + left_out == 200
        assert left_out > 0


async def test_a_table_shows_what_is_the_same_what_differs_and_the_sum() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 60)
        text = (await client.get("/bulk?tool=refund")).text
        start = text.index("The same in all of them")
        assert "currency" in text[start : text.index("</table>", start)]
        refunds = await rows(client, "?tool=refund&limit=500")
        total = sum(each["arguments"]["amount"] for each in refunds)
        assert f">{total:.2f}".rstrip("0") in re.sub(r"\s", "", text).replace("</td", "")
        (odd,) = re.findall(r'<tr class="odd-row">.*?</tr>', text, re.S)
        assert "4900.0" in odd
        assert "checked" not in odd
        chosen = re.findall(r'name="chosen" value="([^"]+)"[^>]* checked', text)
        form = {"decision": "approve", "confirmed": "yes", "chosen": chosen, "seen": "scrolled"}
        done = (await client.post("/bulk?tool=refund", data=form)).text
        assert f"{len(chosen)} recorded, 0 refused" in done
        assert 'href="/?tool=refund"' in done
        (left,) = await rows(client, "?tool=refund")
        assert left["arguments"]["amount"] == 4900.0
        (decided,) = await runtime.get("refunds-00000").decisions()
        assert decided.decision.seen == "scrolled"


async def test_who_may_only_look_gets_no_table_to_decide_in() -> None:
    async with (
        Runtime(queue_agents([])) as runtime,
        site_of(runtime, auth=logged_in("bob", frozenset({"read"}))) as client,
    ):
        await fill(runtime, 2)
        assert (await client.get("/bulk")).status_code == 403
        assert "/bulk" not in (await client.get("/")).text


async def test_who_has_chosen_requests_takes_all_that_still_wait() -> None:
    async with Runtime(queue_agents([])) as runtime, site_of(runtime) as client:
        await fill(runtime, 3)
        first, second, third = await rows(client)
        chosen = [f"{each['agent_id']}/{each['id']}/{each['digest']}" for each in (first, second)]
        answer = await client.post("/bulk/take?tool=refund", data={"chosen": chosen})
        assert answer.headers["location"] == "/?tool=refund&said=taken"
        assert "They are yours for an hour." in (await client.get("/?said=taken")).text
        mine = {each["agent_id"] for each in await rows(client, "?of=mine")}
        assert mine == {first["agent_id"], second["agent_id"]}
        await runtime.get(third["agent_id"]).cancel()
        gone = f"{third['agent_id']}/{third['id']}/{third['digest']}"
        answer = await client.post("/bulk/take", data={"chosen": [chosen[0], gone]})
        assert answer.headers["location"] == "/?said=taken-some"
        assert (await client.post("/bulk/take", data={"do": ""})).status_code == 400
