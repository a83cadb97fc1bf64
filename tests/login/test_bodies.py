"""Bodies of requests: a large one does not hold up the loop."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import client_of, logged_in
from understudy import Agent, Runtime
from understudy.web import ui


async def test_a_large_body_is_read_in_a_thread_and_what_it_brings_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight megabytes take the loop a second; all agents would wait."""
    loads, threads = json.loads, list[tuple[int, bool]]()
    here = threading.get_ident()

    def noted(text: Any, **options: Any) -> Any:
        threads.append((len(text), threading.get_ident() == here))
        return loads(text, **options)

    async with Runtime([Agent("desk", by_turn("done"))]) as runtime:
        ref = runtime.spawn("desk", "ann")
        await soon(ref.run("x" * 300_000))
        export = await soon(runtime.export("ann"))
        async with client_of(ui(runtime, auth=logged_in())) as client:
            monkeypatch.setattr(json, "loads", noted)
            answer = await client.post("/api/import", json={"data": export, "id": "bob"})
            assert answer.status_code == 200, answer.text
            await client.post("/api/recover", json={})
            monkeypatch.undo()
        assert (await soon(runtime.get("bob").state())).messages
    large = [is_here for size, is_here in threads if size > 300_000]
    assert large == [False]
    assert (2, True) in threads, "a small one is read at once"
