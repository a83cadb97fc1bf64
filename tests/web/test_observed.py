"""Pages that only look beside a runtime, and pages of which a host hides something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.loops import soon
from tests.support.places import SqlitePlace
from tests.support.web_site import TABS, Done, asked, desk, logged_in, refund, site_of
from tests.support.web_stream import opened
from understudy import Observer, Runtime, UsageError, approve
from understudy.login.redaction import Redact
from understudy.web import ui


@pytest.mark.slow
async def test_an_observer_shows_every_page_beside_the_runtime_and_changes_nothing(
    sqlite: SqlitePlace,
) -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], store=sqlite.store(), feed=True) as runtime:
        ref = await asked(runtime)
        await soon(runtime.schedules(ref).set("daily", cron="0 6 * * *", input="go"))
        async with Observer(f"sqlite:///{sqlite.path}") as observer, site_of(observer) as client:
            (row,) = (await client.get("/api/pending")).json()["requests"]
            page = f"/agents/a1/requests/{row['id']}"
            for path in ("/", "/agents", "/runtime", page, *(f"/agents/a1{tab}" for tab in TABS)):
                shown = await client.get(path)
                assert shown.status_code == 200, (path, shown.text)
                assert 'method="post"' not in shown.text, path
            assert "These pages are read-only." in (await client.get(page)).text
            for name in ("", "/conversation", "/messages", "/export", "/outcome"):
                answer = await client.get(f"/api/agents/a1{name}")
                assert answer.status_code == 200, (path, answer.text)
            overview = (await client.get("/api")).json()
            assert (overview["read_only"], overview["tree"]) == (True, None)
            assert (await client.get("/api/agents/none")).status_code == 404

            form = {"decision": "approve", "digest": row["digest"]}
            attempts: list[tuple[str, dict[str, Any]]] = [
                (page, {"data": form}),
                ("/agents/a1/do/cancel", {"data": {"message": "no"}}),
                ("/agents/a1/do/schedules", {"data": {"schedule": "daily", "change": "remove"}}),
                ("/api/agents/a1/messages", {"json": {"text": "hi"}}),
                ("/api/agents/a1/decisions", {"json": {
                    "decisions": {row["id"]: {"type": "approve"}},
                    "expect": {row["id"]: row["digest"]}}}),
                ("/api/recover", {"json": {}}),
                ("/api/import", {"json": {"data": {}}}),
            ]  # fmt: skip
            for path, sent in attempts:
                assert (await client.post(path, **sent)).status_code == 403, path
            delete = await client.request("DELETE", "/api/agents/a1", json={"confirm": "a1"})
            assert delete.status_code == 403
        assert len(await soon(runtime.pending())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/live", "/api/agents/a1/events", "/api/events?start=oldest"])
async def test_what_an_observer_shows_is_live(sqlite: SqlitePlace, path: str) -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], store=sqlite.store(), feed=True) as runtime:
        ref = await asked(runtime)
        async with Observer(f"sqlite:///{sqlite.path}") as observer:
            app = ui(observer, auth=logged_in())
            async with opened(app, path) as stream:
                (one,) = (await ref.state()).requests
                await soon(ref.resume({one.id: approve()}))
                said = ""
                while "Nothing waits" not in said and "run_finished" not in said:
                    said = (await stream.next())["data"]


@pytest.mark.slow
async def test_the_rows_that_an_observer_shows_are_live(sqlite: SqlitePlace) -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], store=sqlite.store(), feed=True) as runtime:
        ref = await asked(runtime)
        async with Observer(f"sqlite:///{sqlite.path}") as observer:
            app = ui(observer, auth=logged_in())
            async with opened(app, "/api/agents/a1/conversation/events") as stream:
                first = json.loads((await stream.next())["data"])
                assert {row["kind"] for row in first["rows"]} >= {"user", "request"}
                (one,) = (await ref.state()).requests
                await soon(ref.resume({one.id: approve()}))
                said: list[Any] = []
                while not any(row["kind"] == "text" and row["text"] == "ok" for row in said):
                    said = json.loads((await stream.next())["data"])["rows"]
                assert not any(row["kind"] == "user" for row in said), "only what has changed"


SECRET = "4711-0815"


def by_name(path: tuple[str | int, ...], value: Any) -> Any:
    return "hidden" if path[-1:] == ("reason",) else value


def by_place(path: tuple[str | int, ...], value: Any) -> Any:
    """It knows where the requests stand in an answer, and hides nothing elsewhere."""
    at = path[1:] if path[:1] == ("request",) else path[2:] if path[:1] == ("requests",) else ()
    return "hidden" if at == ("arguments", "reason") else value


@pytest.mark.parametrize("hide", [by_name, by_place])
async def test_a_request_is_hidden_by_the_place_that_it_has_in_the_answer(hide: Redact) -> None:
    done = Done()
    two = [refund(reason=SECRET), refund(reason=SECRET)]
    async with Runtime([desk(done, two, "ok")], feed=True) as runtime:
        await asked(runtime)
        async with site_of(runtime, redact=hide) as client:
            rows = (await client.get("/api/pending")).json()["requests"]
            assert [row["arguments"]["reason"] for row in rows] == ["hidden", "hidden"]
            page = f"/agents/a1/requests/{rows[0]['id']}"
            for path in ("/", "/api/pending", page, f"/api{page}", "/api/agents/a1"):
                assert SECRET not in (await client.get(path)).text, path
            chosen = {"chosen": [f"a1/{row['id']}/{row['digest']}" for row in rows]}
            bulk = await client.post("/bulk", data=chosen)
            assert (SECRET in bulk.text, "hidden" in bulk.text) == (False, True)
            assert 'id="edit"' not in (await client.get(page)).text
            form = {"decision": "edit", "digest": rows[0]["digest"], "v:/reason": "hidden"}
            edited: httpx.Response = await client.post(page, data=form)
            assert edited.status_code == 403
    assert done.calls == []


@pytest.mark.slow
async def test_what_a_host_hides_is_in_no_page_and_in_no_answer() -> None:
    done = Done()
    async with Runtime([desk(done, refund(reason=SECRET), "ok")], feed=True) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime, redact=by_name) as client:
            (row,) = (await client.get("/api/pending")).json()["requests"]
            assert row["arguments"]["reason"] == "hidden"
            page = f"/agents/a1/requests/{row['id']}"

            async def seen() -> None:
                paths = ["/", page, *(f"/agents/a1{tab}" for tab in TABS)]
                paths += [f"/api/agents/a1{tab}" for tab in TABS]
                more = ("", "/conversation", "/messages", "/outcome")
                paths += [f"/api/agents/a1{name}" for name in more]
                paths += ["/api/pending", f"/api{page}"]
                for path in paths:
                    shown = await client.get(path)
                    assert shown.status_code == 200, path
                    assert SECRET not in shown.text, path

            await seen()
            chosen = {"chosen": f"a1/{row['id']}/{row['digest']}"}
            bulk = await client.post("/bulk", data=chosen)
            assert (SECRET in bulk.text, "hidden" in bulk.text) == (False, True)
            text = (await client.get(page)).text
            assert "it cannot be edited" in text
            assert 'id="edit"' not in text
            form = {"decision": "edit", "digest": row["digest"], "v:/reason": "hidden"}
            edited: httpx.Response = await client.post(page, data=form)
            assert edited.status_code == 403
            approved = {"decision": "approve", "digest": row["digest"]}
            assert (await client.post(page, data=approved)).status_code == 303
            await soon(ref.outcome())
            await seen()
            for path in ("/api/agents/a1/events", "/api/events?start=oldest"):
                app = ui(runtime, auth=logged_in(), redact=by_name)
                async with opened(app, path) as stream:
                    said = ""
                    while "run_finished" not in said:
                        said = (await stream.next())["data"]
                        assert SECRET not in said
            # An export is whole: it is to be imported.
            for path in ("/api/agents/a1/export", "/agents/a1/export"):
                refused = await client.get(path)
                assert (refused.status_code, SECRET in refused.text) == (403, False)
    assert done.calls[0][1]["reason"] == SECRET


@pytest.mark.parametrize("given", ["no", 0, None])
def test_whether_a_page_is_for_reading_only_is_a_bool(given: Any) -> None:
    with pytest.raises(UsageError, match="read_only"):
        ui(Runtime([]), auth=logged_in(), read_only=given)


def test_what_is_no_function_cannot_hide_anything(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="redact"):
        ui(Runtime([]), auth=logged_in(), redact="reason")  # type: ignore[arg-type]
