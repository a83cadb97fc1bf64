"""Tools of an MCP server that is a process: it ends with its owner, and its death is noticed.

Rules: M4.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import raw_mcp_server
from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from tests.support.processes import is_alive, is_running, until
from tests.support.raw_mcp_server import lines
from understudy import Agent, Runtime, approve, call
from understudy.mcp import McpTools, mcp_tools


async def process(log: Path, tool: str, **policy: Any) -> McpTools:
    command = [sys.executable, "-S", "-E", raw_mcp_server.__file__, str(log), tool]
    return await mcp_tools(command, id="raw", policy={tool: {"ask": False, **policy}})


async def test_a_server_that_dies_in_a_call_leaves_a_doubt_and_no_process(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    tools = await process(log, "dies_once")
    agent = Agent("a", by_turn(call("dies_once")), tools=[*tools])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        outcome = interrupted(await ref.run("go"))
        (request,) = outcome.requests
        assert request.kind == "doubt"
        assert len(lines(log)) == 1
        ended = completed(await ref.resume({request.id: approve()}))
        assert results(ended.state)[0].content == "call 2"
        (_, key), (pid, same_key) = lines(log)
        assert key == same_key
        assert is_alive(pid)
    assert not is_alive(pid)


async def test_one_that_may_run_again_does_in_a_new_process(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    tools = await process(log, "dies_once", idempotent=True)
    agent = Agent("a", by_turn(call("dies_once")), tools=[*tools])
    outcome = completed(await agent.execute("go"))
    assert results(outcome.state)[0].content == "call 2"
    (first, key), (second, same_key) = lines(log)
    assert key == same_key
    assert first != second
    assert not is_alive(second)


async def test_a_call_is_settled_by_another_runtime_and_process(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    tools = await process(log, "dies_once")
    outcome = interrupted(
        await Agent("a", by_turn(call("dies_once")), tools=[*tools]).execute("go")
    )
    again = Agent("a", by_turn(call("dies_once")), tools=[*await process(log, "dies_once")])
    ended = await again.resume(reloaded(outcome.state), outcome.decide(approve()))
    assert results(completed(ended).state)[0].content == "call 2"


async def test_what_a_server_prints_beside_the_protocol_is_passed_over(tmp_path: Path) -> None:
    tools = await process(tmp_path / "calls", "html")
    outcome = completed(await Agent("a", by_turn(call("html")), tools=[*tools]).execute("go"))
    assert results(outcome.state)[0].content == "call 1"


async def test_an_answer_of_many_megabytes_is_an_error(tmp_path: Path) -> None:
    tools = await process(tmp_path / "calls", "big")
    outcome = completed(await Agent("a", by_turn(call("big")), tools=[*tools]).execute("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "'big' ran, but the answer" in str(part.content)


async def test_a_line_without_an_end_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.mcp.process.MAX_LINE", 100_000)
    log = tmp_path / "calls"
    tools = await process(log, "endless", timeout=30)
    outcome = interrupted(await Agent("a", by_turn(call("endless")), tools=[*tools]).execute("go"))
    (request,) = outcome.requests
    assert request.kind == "doubt"
    assert "Connection closed" in request.payload["reason"]
    ((pid, _),) = lines(log)
    assert not is_alive(pid)


async def test_an_execution_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    """M5."""
    log = tmp_path / "calls"
    tools = await process(log, "count")
    held = asyncio.Event()
    began = asyncio.Event()

    async def hold() -> str:
        """Hold."""
        began.set()
        await held.wait()
        return "held"

    agent = Agent("a", by_turn(call("count"), call("hold")), tools=[*tools, hold])
    task = asyncio.create_task(agent.execute("go"))
    await began.wait()
    ((pid, _),) = lines(log)
    assert is_alive(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["starts", "leaves"])
async def test_what_a_server_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """M5: also where the server ends by itself, and where what it has started ignores signals."""
    monkeypatch.setattr("understudy.mcp.process.GRACE_SECONDS", 0.1)
    log = tmp_path / "calls"
    tools = await process(log, tool, on_unknown="tell", timeout=30)
    outcome = completed(await Agent("a", by_turn(call(tool)), tools=[*tools]).execute("go"))
    (part,) = results(outcome.state)
    assert part.outcome == ("success" if tool == "starts" else "interrupted")
    (_, _), (child, _) = lines(log)
    until(lambda: not is_running(child))
