"""A client of the endpoints of `understudy.ag_ui`, in this process. It checks all that it gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from ag_ui.core import Event
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.types import ASGIApp

from tests.support.agents import Held
from understudy import Tool, tool
from understudy.ag_ui import User

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
ALL: frozenset[Any] = frozenset({"read", "decide", "act", "admin"})


def by_header(request: Request) -> User | None:
    """The user, and what they may do, as the headers say."""
    name = request.headers.get("x-user")
    may = request.headers.get("x-may")
    return None if not name else User(name, ALL if may is None else frozenset(may.split()))  # type: ignore[arg-type]


def said(text: str, id: str = "m1") -> dict[str, Any]:
    """A user's message."""
    return {"id": id, "role": "user", "content": text}


def answer(interrupt: Mapping[str, Any], payload: Any = None, **more: Any) -> dict[str, Any]:
    """An answer to an interrupt; without a payload it is cancelled."""
    status = "cancelled" if payload is None else "resolved"
    given = {} if payload is None else {"payload": payload}
    return {"interruptId": interrupt["id"], "status": status, **given, **more}


def working(held: Held) -> Tool[Any]:
    """A tool `work` that is held in its middle."""

    @tool
    async def work() -> str:
        """Work."""
        await held.wait()
        return "worked"

    return work


class Client:
    """One user's client.

    Args:
        app: the endpoint.
        user: who is logged in.
        thread: the id of the conversation.

    """

    def __init__(self, app: ASGIApp, user: str | None = "ann", thread: str = "t1") -> None:
        transport = httpx.ASGITransport(app)
        headers = {} if user is None else {"x-user": user}
        self.http = httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        )
        self.thread = thread
        self._runs = 0

    async def post(self, body: Any, path: str = "/", **options: Any) -> httpx.Response:
        """Post a body as it is."""
        try:
            async with asyncio.timeout(60):
                return await self.http.post(path, json=body, **options)
        finally:
            end_watchers()

    def body(
        self,
        *messages: Mapping[str, Any],
        resume: Sequence[Mapping[str, Any]] | None = None,
        version: str | None = "1.0",
        **more: Any,
    ) -> dict[str, Any]:
        """What an AG-UI client sends."""
        self._runs += 1
        return {
            "threadId": self.thread,
            "runId": f"r{self._runs}",
            "messages": list(messages),
            **({} if version is None else {"protocolVersion": version}),
            **({} if resume is None else {"resume": list(resume)}),
            **more,
        }

    async def events(self, *messages: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
        """The events of one request, each of them valid."""
        response = await self.post(self.body(*messages, **options))
        assert response.status_code == 200, response.text
        found = events_in(response.text)
        for event in found:
            EVENTS.validate_python(event)
        check_order(found)
        return found

    async def interrupts(self, *messages: Mapping[str, Any], **options: Any) -> list[Any]:
        """What a person is asked at the end of a request."""
        last = (await self.events(*messages, **options))[-1]
        assert last["outcome"]["type"] == "interrupt", last
        found: list[Any] = last["outcome"]["interrupts"]
        return found


def end_watchers() -> None:
    """End what sse-starlette starts once for each loop, to see the end of a server."""
    for task in asyncio.all_tasks():
        if getattr(task.get_coro(), "__name__", "") == "_shutdown_watcher":
            task.cancel()


def events_in(text: str) -> list[dict[str, Any]]:
    """The data of a stream of server-sent events."""
    return [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"
    ]


def types(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The types of events, those of text and arguments that follow each other once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event["type"]:
            found.append(event["type"])
    return found


def of_type(events: Sequence[Mapping[str, Any]], type: str) -> list[Mapping[str, Any]]:
    """The events of this type."""
    return [event for event in events if event["type"] == type]


def text_of(events: Sequence[Mapping[str, Any]]) -> str:
    """All the text of the root agent."""
    return "".join(
        event["delta"]
        for event in of_type(events, "TEXT_MESSAGE_CONTENT")
        if "subagentRunId" not in event
    )


def check_order(events: Sequence[Mapping[str, Any]]) -> None:
    """What holds for every stream: it begins and ends once, and closes what it opens."""
    assert events[0]["type"] == "RUN_STARTED"
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    assert sum(e["type"] in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR") for e in events) == 2
    open_parts: dict[str, set[str]] = {"TEXT_MESSAGE": set(), "TOOL_CALL": set(), "SUBAGENT": set()}
    names = {"TEXT_MESSAGE": "messageId", "TOOL_CALL": "toolCallId", "SUBAGENT": "subagentRunId"}
    for event in events:
        kind, _, what = event["type"].rpartition("_")
        if kind not in open_parts:
            continue
        id = event[names[kind]]
        if what in ("START", "STARTED"):
            assert id not in open_parts[kind], event
            open_parts[kind].add(id)
        elif what in ("CONTENT", "ARGS"):
            assert id in open_parts[kind], event
        elif what in ("END", "FINISHED", "ERROR"):
            open_parts[kind].remove(id)
    if events[-1]["type"] == "RUN_FINISHED":
        assert not any(open_parts.values()), open_parts
