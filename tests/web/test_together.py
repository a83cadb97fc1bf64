"""What people do together on the pages: who has a request, comments, snoozes, who looks at it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.loops import soon, until
from tests.support.web_site import (
    ALL,
    HOSTILE,
    Done,
    asked,
    desk,
    logged_in,
    only_request,
    refund,
    site_of,
)
from tests.support.web_stream import opened
from understudy import Observer, Runtime, approve
from understudy.approvals import Caller
from understudy.login import User
from understudy.web import live, ui

BOB = logged_in("bob")


async def page_of(client: httpx.AsyncClient) -> str:
    """The path of the page of the one request."""
    request = await only_request(client)
    return f"/agents/{request['agent_id']}/requests/{request['id']}"


async def write(client: httpx.AsyncClient, verb: str, **form: str) -> httpx.Response:
    """Write beside the one request by the form of its page."""
    return await client.post(f"{await page_of(client)}/beside/{verb}", data=form or {"": ""})


async def test_two_people_say_by_forms_who_has_it_and_what_they_think() -> None:
    """I30: each learns that the other has it."""
    async with (
        Runtime([desk(Done(), refund())]) as runtime,
        site_of(runtime) as ann,
        site_of(runtime, auth=BOB) as bob,
    ):
        await asked(runtime)
        page = await page_of(ann)
        for client, verb, form in (
            (ann, "take", {"for": "1h"}),
            (ann, "comment", {"text": "Is that <b>Kim</b>?"}),
            (bob, "assign", {"to": "bob"}),
        ):
            done = await write(client, verb, **form)
            assert (done.status_code, done.headers["location"]) == (303, page), done.text
        mine, theirs = (await ann.get(page)).text, (await bob.get(page)).text
        assert "<strong>You have it</strong> until" in mine
        assert "<strong>ann has it</strong> until" in theirs
        assert "bob asks you" in theirs
        assert "Assigned to <strong>bob</strong> by bob" in mine
        for text in (mine, theirs):
            assert "Is that &lt;b&gt;Kim&lt;/b&gt;?" in text
        assert (await write(bob, "take")).status_code == 303
        assert "and has taken it over from you" in (await ann.get(page)).text
        assert "you have taken it over from ann" in (await bob.get(page)).text
        rows = (await ann.get("/")).text
        for mark in ("bob has it until", ">for bob<", ">1 comment<"):
            assert mark in rows
        for verb in ("release", "unassign"):
            assert (await write(bob, verb)).status_code == 303
        assert "Nobody has taken it." in (await bob.get(page)).text


async def test_what_is_snoozed_is_on_the_page_of_all_and_of_nobody_else() -> None:
    async with (
        Runtime([desk(Done(), refund())]) as runtime,
        site_of(runtime) as ann,
        site_of(runtime, auth=BOB) as bob,
    ):
        await asked(runtime)
        page = await page_of(ann)
        assert (await write(ann, "snooze", **{"for": "4h"})).status_code == 303
        assert "Nothing waits for an answer" in (await ann.get("/")).text
        assert page in (await ann.get("/?of=all")).text
        assert "snoozed until" in (await ann.get("/?of=all")).text
        others = (await bob.get("/")).text
        assert page in others
        assert "snoozed" not in others.replace("Also snoozed", "")
        assert (await ann.post(f"{page}/beside/wake", data={"": ""})).status_code == 303
        assert page in (await ann.get("/")).text


async def test_the_inbox_shows_whose_requests_it_is_asked_for_and_keeps_the_other_filters() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime, site_of(runtime) as ann:
        await asked(runtime)
        page = await page_of(ann)
        for of, shown in (("mine", False), ("nobody", True), ("all", True)):
            assert (page in (await ann.get(f"/?of={of}")).text) is shown, of
        assert (await write(ann, "assign", to_me="yes")).status_code == 303
        for of, shown in (("mine", True), ("nobody", False), ("all", True)):
            assert (page in (await ann.get(f"/?of={of}&tool=refund")).text) is shown, of
        text = (await ann.get("/?of=mine&tool=refund&after=")).text
        assert 'href="/?tool=refund&amp;of=nobody"' in text
        assert '<input type="hidden" name="of" value="mine">' in text
        wrong = await ann.get("/?of=everybody")
        assert (wrong.status_code, "`of` must be" in wrong.text) == (400, True)


@pytest.mark.parametrize(
    ("verb", "form", "status", "problem"),
    [
        ("take", {"for": "year"}, 422, "Choose one of the times."),
        ("snooze", {}, 422, "Choose one of the times."),
        ("comment", {"text": "  "}, 422, "Write the comment."),
        ("assign", {"to": " "}, 422, "Name the person"),
        ("assign", {"to": "nobody"}, 400, "the library uses this name itself"),
        ("decide", {}, 404, "There is no such action."),
    ],
)
async def test_a_form_that_is_not_complete_writes_nothing_and_says_what_is_missing(
    verb: str, form: dict[str, str], status: int, problem: str
) -> None:
    async with Runtime([desk(Done(), refund())]) as runtime, site_of(runtime) as client:
        await asked(runtime)
        refused = await write(client, verb, **form)
        assert (refused.status_code, problem in refused.text) == (status, True), refused.text
        [found] = await soon(runtime.pending())
        assert found.notes.count == 0


async def test_nobody_else_writes_beside_a_request_and_nothing_is_written_by_a_get() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            page = await page_of(client)
            path = f"{page}/beside/take"
            cross = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
            assert (await client.post(path, headers=cross)).status_code == 403
            assert (await client.get(path)).status_code == 405
        for options in ({"auth": logged_in("eve", ALL - {"decide"})}, {"read_only": True}):
            async with site_of(runtime, **options) as client:
                shown = (await client.get(page)).text
                assert "Nobody has taken it." in shown
                assert 'method="post"' not in shown
                assert (await client.post(path)).status_code == 403
                refused = await client.post(f"/api{page}/comment", json={"text": "no"})
                assert refused.status_code == 403
        [found] = await soon(runtime.pending())
        assert found.notes.count == 0


async def test_a_hostile_comment_is_text_like_any_other_and_so_is_a_hostile_name() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime, site_of(runtime) as client:
        await asked(runtime)
        page = await page_of(client)
        await write(client, "comment", text=HOSTILE)
        await write(client, "assign", to="<img src=x>")
        for path in (page, "/"):
            text = (await client.get(path)).text
            assert "<img src=x" not in text
            assert "<script>alert(1)" not in text
            assert "\x1b" not in text
        assert "&lt;script&gt;alert(1)" in (await client.get(page)).text


async def test_a_user_from_whom_comments_are_hidden_sees_none_anywhere() -> None:
    def redact(path: tuple[Any, ...], value: Any, user: User) -> Any:
        return "(hidden)" if path[-1:] == ("text",) and user.name == "bob" else value

    async with (
        Runtime([desk(Done(), refund())]) as runtime,
        site_of(runtime, redact=redact) as ann,
        site_of(runtime, redact=redact, auth=BOB) as bob,
    ):
        await asked(runtime)
        page = await page_of(ann)
        await write(ann, "comment", text="Her number is 47-11.")
        assert "47-11" in (await ann.get(page)).text
        for path in (page, f"/api{page}", f"/api{page}/notes", "/", "/api/pending"):
            assert "47-11" not in (await bob.get(path)).text, path
        said = await bob.post(f"/api{page}/comment", json={"text": "Is it?"})
        assert [each["text"] for each in said.json()["comments"]] == ["(hidden)"] * 2


async def test_comments_are_on_the_page_after_the_decision_and_more_may_be_written() -> None:
    async with Runtime([desk(Done(), refund(), "ok")]) as runtime, site_of(runtime) as client:
        ref = await asked(runtime)
        page = await page_of(client)
        await write(client, "comment", text="Fine with me.")
        [found] = await soon(runtime.pending())
        await soon(ref.resume({found.request: approve(by="bob")}))
        text = (await client.get(page)).text
        assert "Fine with me." in text
        assert "bob approved it." in text
        assert "I take it" not in text
        done = await client.post(f"{page}/beside/comment", data={"text": "Thanks."})
        assert done.status_code == 303
        assert "Thanks." in (await client.get(page)).text
        late = await client.post(f"{page}/beside/take", data={"for": "1h"})
        assert (late.status_code, "does not wait for a person" in late.text) == (409, True)


async def test_the_page_of_an_answer_that_came_too_late_has_what_was_typed() -> None:
    """Without script: the text is not lost, also of an edit."""
    async with Runtime([desk(Done(), refund(), "ok")]) as runtime, site_of(runtime) as client:
        ref = await asked(runtime)
        request = await only_request(client)
        page = await page_of(client)
        [found] = await soon(runtime.pending())
        await soon(ref.resume({found.request: approve(by="bob")}))
        form = {"digest": request["digest"], "note": f"a\r\n{HOSTILE}", "message": ""}
        for decision, more, kept in (
            ("reject", {"message": "Too much money."}, "Too much money."),
            ("edit", {"v:/reason": "Half of it arrived."}, "Half of it arrived."),
            ("respond", {"value": "Paid by hand."}, "Paid by hand."),
        ):
            late = await client.post(page, data={**form, "decision": decision, **more})
            assert (late.status_code, "bob approved it." in late.text) == (409, True), late.text
            assert "What you had typed" in late.text
            assert kept in late.text
            assert "&lt;script&gt;alert(1)" in late.text
            assert "<script>alert(1)" not in late.text
            assert request["digest"] not in late.text


async def test_the_api_takes_and_tells_the_same() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime, site_of(runtime) as client:
        await asked(runtime)
        at = f"/api{await page_of(client)}"
        later = datetime.fromisoformat((await client.get("/api")).json()["now"]) + timedelta(
            hours=3
        )
        done = await client.post(f"{at}/take", json={"until": later.isoformat()})
        assert (done.status_code, done.json()["is_yours"]) == (200, True)
        assert datetime.fromisoformat(done.json()["claim"]["until"]) == later
        assert (await client.get(f"{at}/notes")).json() == done.json()
        assert (await client.get(at)).json()["notes"] == done.json()
        for verb, body, status in (
            ("take", {"until": "soon"}, 400),
            ("take", {"until": later.replace(tzinfo=None).isoformat()}, 400),
            ("snooze", {}, 400),
            ("assign", {"to": ["a"]}, 400),
            ("comment", {"text": ""}, 400),
            ("comment", {"text": "x", "by": "bob"}, 400),
        ):
            refused = await client.post(f"{at}/{verb}", json=body)
            assert refused.status_code == status, (verb, body, refused.text)
        gone = await client.post("/api/agents/a1/requests/none/take", json={})
        assert (gone.status_code, gone.json()["error"]) == (409, "NotPending")
        none = await client.post("/api/agents/none/requests/none/take", json={})
        assert none.status_code == 404


@pytest.mark.slow
async def test_an_open_page_shows_at_once_who_looks_and_what_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a feed, too: it does not wait for its next look."""
    monkeypatch.setattr(live, "POLL", 3600.0)
    async with (
        Runtime([desk(Done(), refund())]) as runtime,
        site_of(runtime) as ann,
        site_of(runtime, auth=BOB) as bob,
    ):
        await asked(runtime)
        page = await page_of(ann)
        about = "a1", page.rpartition("/")[2]
        app = ui(runtime, auth=logged_in())
        async with opened(app, f"{page}/live") as shown:
            assert "Nobody has taken it." in (await shown.next())["data"]
            assert runtime.presence.looking(*about) == ["ann"]
            assert "ann looks at this request now" in (await bob.get(page)).text
            assert "looks at this request" not in (await ann.get(page)).text, "not oneself"
            leave = runtime.presence.look(*about, Caller(name="bob"))
            assert "bob looks at this request now" in (await shown.next())["data"]
            leave()
            assert "looks at this request" not in (await shown.next())["data"]
            await write(bob, "comment", text="Who is that?")
            assert "Who is that?" in (await shown.next())["data"]
            [found] = await soon(runtime.pending())
            decided = {"type": "reject"}
            given = {
                "decisions": {found.request.id: decided},
                "expect": {found.request.id: found.request.digest},
            }
            assert (await bob.post("/api/agents/a1/decisions", json=given)).status_code == 200
            assert 'data-decided="bob rejected it."' in (await shown.next())["data"]
        await until(lambda: runtime.presence.looking(*about) == [])


async def test_what_became_of_a_request_is_told_in_a_sentence() -> None:
    async with Runtime([desk(Done(), refund(), "ok")]) as runtime, site_of(runtime) as client:
        ref = await asked(runtime)
        page = await page_of(client)
        assert (await client.get(f"{page}/told")).json() == {"told": None}
        [found] = await soon(runtime.pending())
        await soon(ref.resume({found.request: approve(by="bob")}))
        assert (await client.get(f"{page}/told")).json() == {"told": "bob approved it."}


async def test_beside_a_store_without_a_runtime_it_is_only_shown(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with (
        Runtime([desk(Done(), refund())], store=url) as runtime,
        Observer(url) as observer,
        site_of(observer) as client,
    ):
        await asked(runtime)
        [found] = await soon(runtime.pending())
        await soon(runtime.comment("a1", found.request.id, "Who is that?", by="bob"))
        page = await page_of(client)
        text = (await client.get(page)).text
        assert "Who is that?" in text
        assert 'method="post"' not in text
        assert (await client.post(f"{page}/beside/take")).status_code == 403


async def test_no_model_and_no_client_of_a_model_reads_it() -> None:
    """I31."""
    from understudy.display import Row

    done = Done()
    async with Runtime([desk(done, refund(), "ok")]) as runtime, site_of(runtime) as client:
        ref = await asked(runtime)
        await write(client, "comment", text="secret of the desk")
        [found] = await soon(runtime.pending())
        outcome = await soon(ref.resume({found.request: approve(by="bob")}))
        assert "secret of the desk" not in json.dumps(outcome.state.to_dict())
        rows = (await soon(ref.display())).rows
        assert rows
        assert all(isinstance(each, Row) and "secret" not in repr(each) for each in rows)
