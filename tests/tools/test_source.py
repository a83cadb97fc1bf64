"""`ctx.shared(source)`: what tools open once and share; and `OutcomeUnknown` (M5, T13).

Rules: J28, M4, T16.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tenacity import AsyncRetrying, stop_after_attempt, wait_none

from tests.support.agents import by_turn, completed, interrupted, results
from understudy import Agent, Runtime, Tool, ToolContext, approve, call
from understudy.tools import OutcomeUnknown


class Line:
    """A source that says what was opened and closed."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.opened = 0
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.fails: list[Exception] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        if self.fails:
            raise self.fails.pop()
        self.opened += 1
        mine = self.opened
        self.told.append(f"open {mine}")
        try:
            yield mine
            await self.may_close.wait()
        finally:
            self.told.append(f"closed {mine}")


def calling(line: Line) -> Agent:
    async def dial(ctx: ToolContext, lost: int = 0) -> str:
        """Dial."""
        return f"on {await ctx.shared(line, instead_of=lost or None)}"

    return Agent("desk", by_turn([call("dial"), call("dial")], call("dial")), tools=[dial])


def calling_once(line: Line, *turns: Any) -> Agent:
    """An agent that dials, and does what the turns say."""
    tools = list(calling(line).definition.tools.values())
    return Agent("desk", by_turn(call("dial"), *turns), tools=tools)


def contents(state: Any) -> list[Any]:
    return [part.content for part in results(state)]


async def test_all_calls_of_an_execution_share_it_and_its_end_closes_it() -> None:
    line = Line()
    outcome = completed(await calling(line).execute("go"))
    assert contents(outcome.state) == ["on 1"] * 3
    assert line.told == ["open 1", "closed 1"]


async def test_all_agents_of_a_runtime_share_it_until_the_runtime_stops() -> None:
    """M5."""
    line = Line()
    async with Runtime([calling(line)]) as runtime:
        for name in ("a", "b"):
            completed(await runtime.spawn("desk", id=name).run("go"))
        assert line.told == ["open 1"]
    assert line.told == ["open 1", "closed 1"]


async def test_each_runtime_has_its_own() -> None:
    line = Line()
    async with Runtime([calling(line)]) as one, Runtime([calling(line)]) as two:
        await asyncio.gather(one.spawn("desk").run("go"), two.spawn("desk").run("go"))
        assert sorted(line.told) == ["open 1", "open 2"]
    assert sorted(line.told) == ["closed 1", "closed 2", "open 1", "open 2"]


async def test_one_that_is_lost_is_opened_anew_once_for_all() -> None:
    line = Line()

    async def dial(ctx: ToolContext) -> str:
        """Dial."""
        first = await ctx.shared(line)
        again = [ctx.shared(line, instead_of=first) for _ in range(3)]
        return f"{first} {await asyncio.gather(*again)}"

    agent = Agent("desk", by_turn(call("dial")), tools=[dial])
    outcome = completed(await agent.execute("go"))
    assert contents(outcome.state) == ["1 [2, 2, 2]"]
    assert sorted(line.told) == ["closed 1", "closed 2", "open 1", "open 2"]


async def test_one_that_cannot_be_opened_is_tried_again_by_the_next_call() -> None:
    line = Line()
    line.fails = [ConnectionRefusedError("busy")]
    outcome = completed(await calling_once(line, call("dial")).execute("go"))
    assert contents(outcome.state) == ["ConnectionRefusedError: busy", "on 1"]


async def test_one_that_is_lost_while_it_is_opened_leaves_a_doubt() -> None:
    """Nobody knows what the tool had done before, or the source."""
    line = Line()
    line.fails = [ConnectionResetError("gone")]
    (part,) = results(completed(await calling_once(line).execute("go")).state)
    assert part.outcome == "interrupted"
    assert "ConnectionResetError: gone" in str(part.content)


async def test_a_runtime_that_stops_during_a_call_closes_it_after_the_call() -> None:
    line = Line()
    began = asyncio.Event()

    async def dial(ctx: ToolContext) -> str:
        """Dial."""
        await ctx.shared(line)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            line.told.append("call ended")
        return "never"

    agent = Agent("desk", by_turn(call("dial")), tools=[dial])
    async with Runtime([agent], stop_timeout=0) as runtime:
        running = runtime.spawn("desk").run("go")
        await began.wait()
    assert line.told == ["open 1", "call ended", "closed 1"]
    with pytest.raises(Exception, match="stopped"):
        await running


async def test_an_execution_that_is_cancelled_closes_it() -> None:
    line = Line()
    began = asyncio.Event()

    async def dial(ctx: ToolContext) -> str:
        """Dial."""
        await ctx.shared(line)
        began.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(Agent("desk", by_turn(call("dial")), tools=[dial]).execute("go"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.told == ["open 1", "closed 1"]


async def test_a_runtime_that_stops_does_not_wait_for_one_that_is_still_being_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It took ten seconds: a server that starts was waited for, as one that closes is."""
    line, opening = Line(), asyncio.Event()

    class Slow:
        @asynccontextmanager
        async def open(self) -> AsyncIterator[int]:
            opening.set()
            try:
                await asyncio.Event().wait()
                yield 1
            finally:
                line.told.append("given up")

    slow = Slow()

    async def dial(ctx: ToolContext) -> str:
        """Dial."""
        return f"on {await ctx.shared(slow)}"

    agent = Agent("desk", by_turn(call("dial")), tools=[dial])
    async with Runtime([agent], stop_timeout=0) as runtime:
        running = runtime.spawn("desk").run("go")
        await opening.wait()
    assert line.told == ["given up"]
    assert "takes too long to close" not in caplog.text
    with pytest.raises(Exception, match="stopped"):
        await running


# ------------------------------------------------------------------- an unknown outcome


def paying(did: list[int], **options: Any) -> Agent:
    async def pay() -> str:
        """Pay."""
        did.append(1)
        if len(did) < 2:
            raise OutcomeUnknown("the bank did not answer")
        return "paid"

    return Agent("desk", by_turn(call("pay")), tools=[Tool(pay, **options)])


def test_a_call_whose_tool_cannot_know_its_outcome_is_in_doubt() -> None:
    did: list[int] = []
    outcome = completed(paying(did).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "interrupted"
    assert "the bank did not answer" in str(part.content)
    assert list(outcome.state.doubts.values()) != []


def test_a_person_settles_it_where_the_tool_says_so() -> None:
    did: list[int] = []
    agent = paying(did, on_unknown="ask")
    outcome = interrupted(agent.execute_sync("go"))
    (request,) = outcome.requests
    assert (request.kind, request.payload["reason"]) == ("doubt", "the bank did not answer")
    assert did == [1]
    ended = completed(agent.resume_sync(outcome.state, {request.id: approve()}))
    assert [part.content for part in results(ended.state)] == ["paid"]


@pytest.mark.usefixtures("repeats_at_once")
def test_an_idempotent_tool_is_tried_again_by_itself_or_by_its_policy() -> None:
    did: list[int] = []
    ended = completed(paying(did, idempotent=True).execute_sync("go"))
    assert [part.content for part in results(ended.state)] == ["paid"]
    assert len(did) == 2
    did.clear()
    retry = AsyncRetrying(stop=stop_after_attempt(2), wait=wait_none())
    ended = completed(paying(did, idempotent=True, retry=retry).execute_sync("go"))
    assert [part.content for part in results(ended.state)] == ["paid"]
    assert len(did) == 2


def test_for_a_tool_that_only_looks_it_is_an_error() -> None:
    did: list[int] = []
    failed = completed(paying(did, read_only=True).execute_sync("go"))
    assert [(p.outcome, p.content) for p in results(failed.state)] == [
        ("failed", "the bank did not answer")
    ]
    assert len(did) == 1
