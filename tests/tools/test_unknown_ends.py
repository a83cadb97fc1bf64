"""All ways in which a call can be in doubt, and who is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from tests.support.loops import never, soon
from tests.support.raw_mcp_server import Closed, Failing, a_tool
from understudy import Agent, Outcome, ToolContext, call, respond, tool
from understudy.mcp import mcp_tools
from understudy.middleware import Middleware
from understudy.tools import OutcomeUnknown, Tool


async def hangs() -> str:
    await never()
    return "never"


async def takes_too_long_inside() -> str:
    async with asyncio.timeout(0.001):
        return await hangs()


async def is_cancelled_inside() -> str:
    task = asyncio.ensure_future(hangs())
    task.cancel()
    return await task


async def does_not_know() -> str:
    raise OutcomeUnknown("no answer")


async def fails_together() -> str:
    raise ExceptionGroup("both", [ValueError("one"), ConnectionResetError("other")])


async def fails_around_a_cancellation() -> str:
    raise BaseExceptionGroup("both", [ValueError("one"), asyncio.CancelledError()])


async def fails() -> str:
    raise ValueError("no such order")


async def pays_and_fails(ctx: ToolContext) -> str:
    await ctx.once("charge", lambda: "charged")
    raise ValueError("no receipt")


async def fails_in_sentences() -> str:
    raise ConnectionError("The server is busy.\nSee its handbook.")


async def succeeds() -> str:
    return "paid"


class Twice(Middleware):
    """Calls each tool once more: if it fails, or anyway."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            await next(call)
        except ValueError:
            return await next(call)
        return await next(call)


Body = Callable[..., Awaitable[str]]
WAYS: dict[str, tuple[Body, dict[str, Any], list[Middleware], str]] = {
    "its limit": (hangs, {"timeout": 0.001}, [], "within its limit of 0.001 seconds"),
    "a limit inside": (takes_too_long_inside, {}, [], "it raised TimeoutError"),
    "cancelled inside": (is_cancelled_inside, {}, [], "it was cancelled from within"),
    "it says so": (does_not_know, {}, [], "no answer"),
    "sentences": (
        fails_in_sentences,
        {},
        [],
        "ConnectionError: The server is busy. See its handbook, which leaves open what it did",
    ),
    "a group": (fails_together, {}, [], "leaves open what it did"),
    "a group with a cancellation": (fails_around_a_cancellation, {}, [], "leaves open what it did"),
    "unknown_after": (fails, {"unknown_after": Exception}, [], "ValueError: no such order"),
    "after ctx.once": (pays_and_fails, {}, [], "after it had done this: 'charge' once"),
    "a wrapper after a failure": (fails, {}, [Twice()], "a middleware asked for it once more"),
    "a wrapper after a success": (succeeds, {}, [Twice()], "a middleware asked for it once more"),
}
"""The body, the options of the tool, the middleware, and what is said of the doubt."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_unknown", ["ask", "tell"])
async def test_who_is_told_of_a_doubt_is_the_same_however_it_came(
    way: str, on_unknown: Literal["ask", "tell"]
) -> None:
    """J4: a person is asked, or the model is told; in both cases why."""
    body, options, stack, reason = WAYS[way]
    act = Tool(body, name="act", on_unknown=on_unknown, **options)
    desk = Agent("desk", by_turn(call("act")), tools=[act], middleware=stack)
    outcome = await soon(desk.execute("go"))
    if on_unknown == "ask":
        asked = interrupted(outcome)
        (request,) = asked.requests
        assert request.kind == "doubt"
        assert reason in request.payload["reason"]
        state = reloaded(asked.state)
        end = completed(await soon(desk.resume(state, asked.decide(respond("it is paid")))))
        assert [part.content for part in results(end.state)] == ["it is paid"]
        assert end.state.doubts == {}
    else:
        end = completed(outcome)
        (part,) = results(end.state)
        assert part.outcome == "interrupted"
        assert reason in str(part.content)
        assert "Do not repeat it" in str(part.content)
        (doubt,) = end.state.doubts.values()
        assert reason in doubt.reason


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("unknown_after")])
async def test_nothing_that_only_looks_is_in_doubt_however_it_ends(way: str) -> None:
    """T13, J4."""
    body, options, stack, _ = WAYS[way]
    act = Tool(body, name="act", read_only=True, on_unknown="ask", **options)
    end = completed(
        await soon(Agent("desk", by_turn(call("act")), tools=[act], middleware=stack).execute("go"))
    )
    assert end.state.doubts == {}
    assert "unknown" not in str(results(end.state)[0].content)


@pytest.mark.parametrize("on_unknown", ["ask", "tell"])
async def test_a_lost_connection_to_an_mcp_server_is_a_doubt_like_any_other(
    on_unknown: Literal["ask", "tell"],
) -> None:
    """M4, J4."""
    server = Failing(Closed, tool=a_tool("buy"))
    policy: Any = {"buy": {"ask": False, "on_unknown": on_unknown}}
    tools = await mcp_tools(server.transport, id="shop", policy=policy)
    outcome: Outcome = await soon(Agent("desk", by_turn(call("buy")), tools=[*tools]).execute("go"))
    if on_unknown == "ask":
        assert [request.kind for request in interrupted(outcome).requests] == ["doubt"]
    else:
        assert len(completed(outcome).state.doubts) == 1


# ------------------------------------------------------------------- ran, and the result is lost


@pytest.mark.parametrize("lost", [float("nan"), object()], ids=["NaN", "no JSON"])
async def test_a_call_that_ran_and_whose_result_is_lost_is_not_made_again(lost: Any) -> None:
    """J4: the model is told so; an equal call of the run is refused with the same text."""
    ran: list[int] = []

    @tool
    async def act(n: int) -> Any:
        ran.append(n)
        return lost

    turns = [call("act", {"n": 1}), [call("act", {"n": 1}), call("act", {"n": 2})]]
    end = completed(await soon(Agent("desk", by_turn(*turns), tools=[act]).execute("go")))
    assert ran == [1, 2]
    first, refused, other = results(end.state)
    assert first.content == refused.content == other.content
    assert str(first.content).startswith("'act' ran, but ")
    assert "Do not call it again" in str(first.content)
    assert end.state.doubts == {}
