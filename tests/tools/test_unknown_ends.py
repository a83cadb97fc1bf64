"""All ways in which a call can be in doubt, and who is informed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from tenacity import AsyncRetrying, wait_fixed

from tests.support.agents import by_turn, completed, contents, interrupted, reloaded, results
from tests.support.loops import never, soon
from tests.support.raw_mcp_server import Closed, Failing, a_tool
from understudy import (
    Agent,
    Halt,
    Interrupt,
    Interrupted,
    Outcome,
    StopAgent,
    Stopped,
    StopSignal,
    ToolContext,
    call,
    reject,
    respond,
    tool,
)
from understudy.mcp import mcp_tools
from understudy.middleware import Haltable, Middleware
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


class WithinLimit(Middleware):
    """Gives each call a time limit, and says something of its own where it passes."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await next(call)
        except TimeoutError:
            return "it took too long"


class InTask(Middleware):
    """Lets the call continue in a separate task, and does not wait for it."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        self.task = asyncio.ensure_future(next(call))
        await asyncio.wait([self.task], timeout=0.01)
        self.task.cancel()
        return "it goes on"


class StopsAfterLimit(Middleware):
    """Stops the run where a call takes too long."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await next(call)
        except TimeoutError:
            raise stop_agent() from None


class OnceMoreAfterLimit(Middleware):
    """Gives a call a time limit, and asks for it once more where that passes."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await next(call)
        except TimeoutError:
            return await next(call)


def stop_agent() -> StopAgent:
    return StopAgent(StopSignal.stop_requested("enough"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_unknown", ["ask", "tell"])
async def test_who_is_told_of_a_doubt_is_the_same_however_it_came(
    way: str, on_unknown: Literal["ask", "tell"]
) -> None:
    """J4: a person is asked, or the model is informed; in both cases with the reason."""
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


@pytest.mark.parametrize("stack", [WithinLimit, InTask, StopsAfterLimit])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_middleware_that_gives_a_call_up_leaves_it_in_doubt(
    stack: type[Middleware], idempotent: bool
) -> None:
    """J4: what it returns in the place of a body that has not answered is no result."""
    pay = Tool(hangs, name="pay", idempotent=idempotent)
    desk = Agent("desk", by_turn(call("pay")), tools=[pay], middleware=[stack()])
    outcome = await soon(desk.execute("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "interrupted"
    assert "a middleware gave it up before it had answered" in str(part.content)
    assert len(outcome.state.doubts) == 1


async def test_a_middleware_may_give_up_what_only_looks() -> None:
    """T13."""
    look = Tool(hangs, name="look", read_only=True)
    desk = Agent("desk", by_turn(call("look")), tools=[look], middleware=[WithinLimit()])
    end = completed(await soon(desk.execute("go")))
    assert contents(end.state) == [("success", "it took too long")]


@pytest.mark.usefixtures("repeats_at_once")
@pytest.mark.parametrize("fails_then", [False, True])
async def test_a_result_speaks_for_an_attempt_that_a_middleware_gave_up_and_an_error_does_not(
    fails_then: bool,
) -> None:
    """J28: both have one key."""
    attempts: list[str] = []

    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        attempts.append(ctx.call_key)
        if len(attempts) == 1:
            await never()
        if fails_then:
            raise ValueError("no such order")
        return "paid"

    stack = [OnceMoreAfterLimit()]
    desk = Agent("desk", by_turn(call("pay")), tools=[pay], middleware=stack)
    end = completed(await soon(desk.execute("go")))
    assert len(set(attempts[:2])) == 1
    assert len(end.state.doubts) == fails_then
    assert results(end.state)[0].outcome == ("interrupted" if fails_then else "success")


@pytest.mark.parametrize("other", ["stop", "halt", "question"])
async def test_of_a_group_an_error_that_leaves_it_open_counts_beside_what_asks_something(
    other: Literal["stop", "halt", "question"],
) -> None:
    """J4: an answer to the question would enter the body again."""
    payments = []

    @tool
    async def pay() -> str:
        payments.append("17")
        asks = {"stop": stop_agent(), "halt": Halt("fraud"), "question": Interrupt("Sure?")}
        raise ExceptionGroup("both", [ConnectionResetError("reset"), asks[other]])

    stack = [Haltable()]
    desk = Agent("desk", by_turn(call("pay"), call("pay")), tools=[pay], middleware=stack)
    outcome = await soon(desk.execute("go"))
    if other == "stop":
        assert isinstance(outcome, Stopped)
    elif other == "halt":
        assert [request.kind for request in interrupted(outcome).requests] == ["halt"]
    else:  # the equal call is held
        (request,) = interrupted(outcome).requests
        assert [doubt.tool_name for doubt in request.doubts] == ["pay"]
    (doubt,) = outcome.state.doubts.values()
    assert "which leaves open what it did" in doubt.reason
    assert payments == ["17"]


@pytest.mark.usefixtures("repeats_at_once")
@pytest.mark.parametrize("end", ["stops", "halts", "is rejected", "a message", "a sibling stops"])
async def test_an_attempt_that_left_it_open_leaves_a_doubt_however_the_call_ends_after_it(
    end: str,
) -> None:
    """J28: unless an attempt after it brings a result."""
    payments: list[str] = []
    policy = (
        AsyncRetrying(wait=wait_fixed(3600)) if end in ("a message", "a sibling stops") else None
    )

    @tool(idempotent=True, retry=policy)
    async def pay(ctx: ToolContext) -> str:
        payments.append(ctx.call_key)
        if len(payments) == 1:
            raise ConnectionResetError("reset")
        if end == "is rejected":
            raise Interrupt("Sure?")
        raise Halt("fraud") if end == "halts" else stop_agent()

    @tool(sequential=True)
    async def stop() -> str:
        raise stop_agent()

    calls = [call("pay"), call("stop")] if end == "a sibling stops" else [call("pay")]
    desk = Agent("desk", by_turn(calls, call("pay")), tools=[pay, stop], middleware=[Haltable()])
    outcome = await soon(desk.execute("go"))
    if end == "is rejected":
        asked = interrupted(outcome)
        outcome = await soon(desk.resume(asked.state, asked.decide(reject())))
    elif end == "a message":
        outcome = await soon(desk.execute("again", state=outcome.state))
    before = list(payments)
    if not isinstance(outcome, Interrupted) or end == "halts":
        outcome = await soon(desk.execute("again", state=outcome.state))
    (request,) = interrupted(outcome).requests
    assert request.kind == "approval"
    assert len(request.doubts) == len(outcome.state.doubts) == 1
    assert payments == before


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
    """J4: the model is informed; an equal call of the run is refused with the same text."""
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


async def test_of_equal_calls_of_a_reply_none_runs_after_the_one_whose_result_is_lost() -> None:
    """J4: also where they run one after the other."""
    ran: list[int] = []

    @tool(sequential=True)
    async def act() -> Any:
        ran.append(1)
        return object()

    desk = Agent("desk", by_turn([call("act"), call("act")]), tools=[act])
    end = completed(await soon(desk.execute("go")))
    assert ran == [1]
    first, refused = results(end.state)
    assert first.content == refused.content
