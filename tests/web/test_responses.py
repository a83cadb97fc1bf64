"""Streams of rows and events for the pages of an application: whole, resumed, redacted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import client_of, logged_in
from tests.support.web_stream import Stream, opened
from understudy import Agent, Runtime, ScriptedModel, UsageError, call, tool
from understudy.display import DisplayUpdate
from understudy.web import (
    User,
    add_error_handlers,
    events_response,
    rows_response,
    ui,
)


@tool
async def look(part: int) -> str:
    """Look."""
    return f"seen {part}"


def desk() -> Agent:
    turns = [call("look", {"part": part}) for part in range(12)]
    return Agent("desk", by_turn(*turns, "My secret is 47-11."), tools=[look])


def hide(path: tuple[str | int, ...], value: Any) -> Any:
    return "hidden" if isinstance(value, str) and "47-11" in value else value


def hide_from(path: tuple[str | int, ...], value: Any, user: User) -> Any:
    return value if user.name == "boss" else hide(path, value)


def app_of(runtime: Runtime, **options: Any) -> Starlette:
    def after(request: Request) -> int:
        return int(request.query_params.get("after", 0))

    async def rows(request: Request) -> Response:
        ref = runtime.get(request.path_params["id"])
        return rows_response(ref, after=after(request), **options)

    async def events(request: Request) -> Response:
        ref = runtime.get(request.path_params["id"])
        return events_response(ref, after=after(request), **options)

    app = Starlette(routes=[Route("/rows/{id}", rows), Route("/events/{id}", events)])
    add_error_handlers(app)
    return app


async def events_until(stream: Stream, kind: str) -> list[dict[str, str]]:
    seen = [await stream.next()]
    while seen[-1]["event"] != kind:
        seen.append(await stream.next())
    return seen


async def test_rows_come_as_updates_and_go_on_behind_what_a_browser_has() -> None:
    """U11."""
    async with Runtime([desk()]) as runtime:
        ref = runtime.spawn("desk", "ann")
        await soon(ref.run("go"))
        whole = await soon(ref.display())
        app = app_of(runtime)
        async with opened(app, "/rows/ann") as stream:
            first = await stream.next()
        assert first["event"] == "rows"
        assert first["id"] == str(whole.seq)
        assert json.loads(first["data"]) == whole.to_dict()
        middle = whole.rows[5].seq
        assert middle is not None
        since = (await soon(ref.display(after=middle))).to_dict()
        assert 0 < len(since["rows"]) < len(whole.rows)
        for path, headers in (
            (f"/rows/ann?after={middle}", {}),
            ("/rows/ann", {"last_event_id": str(middle)}),
            ("/rows/ann?after=1", {"last_event_id": str(middle)}),
            (f"/rows/ann?after={middle}", {"last_event_id": "no number"}),
        ):
            async with opened(app, path, **headers) as stream:
                assert json.loads((await stream.next())["data"]) == since, path


async def test_rows_that_change_come_while_the_page_is_open() -> None:
    async with Runtime([Agent("desk", ScriptedModel(["first", "second"]))]) as runtime:
        ref = runtime.spawn("desk", "ann")
        await soon(ref.run("go"))
        async with opened(app_of(runtime), "/rows/ann") as stream:
            first = json.loads((await stream.next())["data"])
            assert [row["text"] for row in first["rows"]] == ["go", "first"]
            await soon(ref.run("on"))
            texts: set[str] = set()
            while not {"on", "second"} <= texts:
                update = json.loads((await stream.next())["data"])
                texts |= {row["text"] for row in update["rows"] if row["state"] == "done"}


async def test_events_come_under_their_kinds_and_go_on_behind_the_last_one() -> None:
    async with Runtime([desk()]) as runtime:
        await soon(runtime.spawn("desk", "ann").run("go"))
        app = app_of(runtime)
        async with opened(app, "/events/ann") as stream:
            whole = await events_until(stream, "run_finished")
        ids = [event["id"] for event in whole if "id" in event]
        assert ids == sorted(ids)
        last = ids[len(ids) // 2]
        async with opened(app, "/events/ann", last_event_id=last) as stream:
            rest = await events_until(stream, "run_finished")
        assert rest == [event for event in whole if event["id"] > last]


async def test_a_stream_that_is_cut_between_two_events_of_a_record_goes_on_with_the_second() -> (
    None
):
    @tool(ask=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    two = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    async with Runtime([Agent("desk", by_turn(two), tools=[pay])]) as runtime:
        await soon(runtime.spawn("desk", "ann").run("go"))
        api = ui(runtime, auth=logged_in())
        for app, path in ((app_of(runtime), "/events/ann"), (api, "/api/agents/ann/events")):
            async with opened(app, path) as stream:
                await events_until(stream, "request_made")
                second = await stream.next()
            assert second["event"] == "request_made"
            async with opened(app, path) as stream:
                seen = await events_until(stream, "request_made")
            async with opened(app, path, last_event_id=seen[-1]["id"]) as stream:
                assert await stream.next() == second
            async with opened(api, f"/api/agents/ann/events?after={seen[-1]['id']}") as stream:
                assert await stream.next() == second


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        ({}, False),
        ({"redact": hide}, True),
        ({"redact": hide_from, "user": User("ann")}, True),
        ({"redact": hide_from, "user": User("boss")}, False),
    ],
)
@pytest.mark.parametrize("page", ["/rows/ann", "/events/ann"])
async def test_what_is_hidden_is_hidden_in_both_by_who_reads(
    page: str, options: dict[str, Any], hides: bool
) -> None:
    async with Runtime([desk()]) as runtime:
        await soon(runtime.spawn("desk", "ann").run("go"))
        async with opened(app_of(runtime, **options), page) as stream:
            if page == "/rows/ann":
                said = (await stream.next())["data"]
            else:
                said = "".join(e["data"] for e in await events_until(stream, "run_finished"))
    assert ("47-11" in said) is not hides
    assert ("hidden" in said) is hides


async def test_an_agent_that_there_is_not_is_a_404_before_the_stream_begins() -> None:
    async with Runtime([desk()]) as runtime:
        app = app_of(runtime)
        fast = FastAPI()
        add_error_handlers(fast)

        @fast.get("/rows/{id}")
        async def rows(id: str) -> Any:
            return rows_response(runtime.get(id))

        async with client_of(app) as client, client_of(fast) as fast_client:
            for answer in (
                await soon(client.get("/rows/nobody")),
                await soon(client.get("/events/nobody")),
                await soon(fast_client.get("/rows/nobody")),
            ):
                assert (answer.status_code, answer.json()["error"]) == (404, "UnknownAgent")
        await soon(runtime.spawn("desk", "ann").run("go"))
        async with opened(fast, "/rows/ann") as stream:
            assert (await stream.next())["event"] == "rows"


async def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    async with Runtime([desk()]) as runtime:
        ref = runtime.spawn("desk", "ann")
        for make in (rows_response, events_response):
            name = make.__name__
            wrong: Any
            for wrong in (None, "ann", runtime):
                with pytest.raises(UsageError, match=rf"{name}\(ref\) takes an agent"):
                    make(wrong)
            for wrong in (-1, "x", None, True):
                with pytest.raises(UsageError, match="`after` must be an integer from 0"):
                    make(ref, after=wrong)
            with pytest.raises(UsageError, match=rf"{name}\(redact=...\) takes a function"):
                make(ref, redact="all")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="give `user=` as well"):
                make(ref, redact=hide_from)
            with pytest.raises(UsageError, match=r"\(user=...\) takes a User, got 'ann'"):
                make(ref, user="ann")  # type: ignore[arg-type]


async def test_positions_sort_as_text_wherever_rows_are_json() -> None:
    """More than nine records: numbers without zeros would not."""
    async with Runtime([desk()]) as runtime:
        ref = runtime.spawn("desk", "ann")
        await soon(ref.run("go"))
        whole = await soon(ref.display())
        assert isinstance(whole, DisplayUpdate)
        app = ui(runtime, auth=logged_in())
        async with client_of(app) as client:
            found = (await soon(client.get("/api/agents/ann/conversation"))).json()["rows"]
    assert whole.rows[-1].position[0] > 9
    assert [row["position"] for row in found] == [row.place for row in whole.rows]
    assert sorted(found, key=lambda row: str(row["position"])) == found
    by_number = sorted(whole.rows, key=lambda row: row.position)
    assert sorted(whole.rows, key=lambda row: row.place) == by_number


async def test_the_module_for_pages_is_served_without_a_login() -> None:
    async with Runtime([desk()]) as runtime:
        app = ui(runtime, auth=lambda request: None)
        async with client_of(app) as client:
            answer = await soon(client.get("/static/understudy.js"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "export function followRows" in answer.text
