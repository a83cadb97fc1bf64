"""Tools: how they run, what they are given and what they may bring.

Rules: T1, T2, T3, T4, T6, T7, T8, T17.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from tests.support.agents import by_turn, completed, results
from tests.support.loops import own_tasks, skip
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Retry,
    Run,
    ScriptedModel,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    reject,
    tool,
)
from understudy.events import ToolEmitted
from understudy.interrupts import Request
from understudy.journal import MemoryJournal
from understudy.middleware import Middleware
from understudy.run.tool_call import ToolCall

WAIT = 60
"""Seconds after which a thread that nobody meets gives up: only a failing test waits so long."""


def text(part: ToolReturnPart) -> str:
    return str(part.content)


def run_once(function: Any, arguments: Any = "{}", **options: Any) -> tuple[Outcome, ScriptedModel]:
    """Let the model call `function` once, and finish."""
    name = getattr(function, "name", None) or function.__name__
    model = ScriptedModel([call(name, arguments), "done"])
    return Agent("a", model, tools=[function]).execute_sync("go", **options), model


# ------------------------------------------------------------------------- T1


async def test_async_tools_of_one_reply_run_beside_each_other_on_the_loop() -> None:
    """T1: each waits until the other is there."""
    arrived: list[str] = []
    both = asyncio.Event()
    threads = set()

    async def meet(name: str) -> str:
        threads.add(threading.get_ident())
        arrived.append(name)
        if len(arrived) == 2:
            both.set()
        async with asyncio.timeout(WAIT):
            await both.wait()
        return name

    model = ScriptedModel([[call("meet", {"name": "a"}), call("meet", {"name": "b"})], "done"])
    outcome = await Agent("a", model, tools=[meet]).execute("go")
    assert [text(part) for part in results(outcome.state)] == ["a", "b"]
    assert threads == {threading.get_ident()}


def test_plain_tools_of_one_reply_run_beside_each_other_in_threads() -> None:
    """T1."""
    barrier = threading.Barrier(3, timeout=WAIT)
    threads = set()

    def meet(name: str) -> str:
        threads.add(threading.get_ident())
        barrier.wait()
        return name

    calls = [call("meet", {"name": name}) for name in "abc"]
    outcome = Agent("a", ScriptedModel([calls, "done"]), tools=[meet]).execute_sync("go")
    assert [text(part) for part in results(outcome.state)] == ["a", "b", "c"]
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_async_and_plain_tools_run_beside_each_other() -> None:
    """T1: the loop stays free while a thread works."""
    loop = asyncio.get_running_loop()
    from_async, from_plain = threading.Event(), asyncio.Event()

    async def answer() -> str:
        from_async.set()
        async with asyncio.timeout(WAIT):
            await from_plain.wait()
        return "answer"

    def ask() -> str:
        assert from_async.wait(WAIT)
        loop.call_soon_threadsafe(from_plain.set)
        return "ask"

    model = ScriptedModel([[call("ask"), call("answer")], "done"])
    outcome = await Agent("a", model, tools=[ask, answer]).execute("go")
    assert [text(part) for part in results(outcome.state)] == ["ask", "answer"]


async def test_a_sequential_tool_runs_alone() -> None:
    """T1: it begins after those before it ended, and those after it wait for it."""
    log: list[str] = []

    async def beside(name: str) -> str:
        log.append(f"{name} begins")
        for _ in range(3):
            await asyncio.sleep(0)
        log.append(f"{name} ends")
        return name

    @tool(sequential=True)
    async def alone(name: str) -> str:
        return await beside(name)

    calls = [
        call("beside", {"name": "a"}),
        call("alone", {"name": "b"}),
        call("alone", {"name": "c"}),
        call("beside", {"name": "d"}),
        call("beside", {"name": "e"}),
    ]
    outcome = await Agent("a", ScriptedModel([calls, "done"]), tools=[beside, alone]).execute("go")
    assert log[:6] == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]
    assert log[6:] == ["d begins", "e begins", "d ends", "e ends"]
    assert [text(part) for part in results(outcome.state)] == list("abcde")


async def test_results_are_recorded_in_call_order_as_one_message() -> None:
    """T1: whichever is done first."""
    second_is_done = asyncio.Event()

    async def slow() -> str:
        await second_is_done.wait()
        return "slow"

    async def quick() -> str:
        second_is_done.set()
        return "quick"

    model = ScriptedModel([[call("slow", id="1"), call("quick", id="2")], "done"])
    outcome = await Agent("a", model, tools=[slow, quick]).execute("go")
    message = outcome.state.messages[2]
    assert isinstance(message, ModelRequest)
    parts = [part for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_call_id, part.content) for part in parts] == [
        ("1", "slow"),
        ("2", "quick"),
    ]
    assert len(outcome.state.messages) == 4
    assert model.requests[1].messages[2] == message


def test_an_inline_tool_runs_on_the_loop() -> None:
    """DESIGN 5."""
    threads = set()

    @tool(inline=True)
    def quick() -> str:
        threads.add(threading.get_ident())
        return "x"

    run_once(quick)
    assert threads == {threading.get_ident()}


def test_a_plain_tool_sees_the_context_variables_of_its_caller() -> None:
    """DESIGN 5."""
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    def who() -> str:
        return user.get()

    token = user.set("ann")
    try:
        outcome, _ = run_once(who)
    finally:
        user.reset(token)
    assert text(results(outcome.state)[0]) == "ann"


# ------------------------------------------------------------------------- T2


def add(a: int, b: int = 2) -> int:
    return a + b


def test_arguments_reach_the_tool_converted_with_defaults_filled_in() -> None:
    """T2."""
    outcome, _ = run_once(add, '{"a": "1"}')
    assert results(outcome.state)[0].content == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"a": "many"}, ["a:", "many"]),
        ({}, ["a:"]),
        ({"a": 1, "c": 3}, ["c:"]),
        ('{"a": 1', ["JSON"]),
        ("[1]", ["add"]),
    ],
)
def test_invalid_arguments_are_an_error_result_and_the_tool_does_not_run(
    arguments: Any, told: list[str]
) -> None:
    """T2: the run continues, and the model learns what to correct."""
    ran: list[int] = []

    def add(a: int, b: int = 2) -> int:
        ran.append(a)
        return a + b

    outcome, model = run_once(add, arguments)
    assert isinstance(outcome, Completed)
    part = results(outcome.state)[0]
    assert part.outcome == "failed"
    assert all(word in text(part) for word in told), part.content
    assert ran == []
    assert len(model.requests) == 2


def test_an_unknown_tool_is_an_error_result_that_names_the_known_ones() -> None:
    """T2."""
    model = ScriptedModel([[call("ad", {"a": 1}), call("add", {"a": 1})], "done"])
    outcome = Agent("a", model, tools=[add]).execute_sync("go")
    assert isinstance(outcome, Completed)
    wrong, right = results(outcome.state)
    assert wrong.outcome == "failed"
    assert "'ad'" in text(wrong)
    assert "add" in text(wrong).replace("'ad'", "")
    assert right.content == 3


def boom(kind: str) -> str:
    raise ValueError("no such order")


async def boom_async(kind: str) -> str:
    raise ValueError("no such order")


@pytest.mark.parametrize("function", [boom, boom_async, tool(inline=True)(boom)])
def test_a_tool_that_raises_is_an_error_result_and_the_run_goes_on(function: Any) -> None:
    """T2, T8."""
    outcome, model = run_once(function, {"kind": "x"})
    assert isinstance(outcome, Completed)
    assert outcome.text == "done"
    part = results(outcome.state)[0]
    assert part.outcome == "failed"
    assert "no such order" in text(part)
    assert "ValueError" in text(part)
    assert len(model.requests) == 2


def test_retry_tells_the_model_why_and_nothing_else() -> None:
    """T2."""

    def lookup(order: str) -> str:
        if order != "17":
            raise Retry("give the number of the order")
        return "found"

    model = ScriptedModel([call("lookup", {"order": "x"}), call("lookup", {"order": "17"}), "done"])
    outcome = Agent("a", model, tools=[lookup]).execute_sync("go")
    assert isinstance(outcome, Completed)
    first, second = results(outcome.state)
    assert (first.outcome, first.content) == ("failed", "give the number of the order")
    assert (second.outcome, second.content) == ("success", "found")


def test_retry_without_a_reason_asks_to_try_again() -> None:
    """T2."""

    def lookup() -> str:
        raise Retry

    model = ScriptedModel([call("lookup"), "done"])
    outcome = Agent("a", model, tools=[lookup]).execute_sync("go")
    assert isinstance(outcome, Completed)
    (part,) = results(outcome.state)
    assert (part.outcome, part.content) == ("failed", "Try again.")


def test_a_tool_that_raises_leaves_its_siblings_alone() -> None:
    """T2."""
    model = ScriptedModel([[call("boom", {"kind": "x"}), call("add", {"a": 1})], "done"])
    outcome = Agent("a", model, tools=[boom, add]).execute_sync("go")
    assert [part.outcome for part in results(outcome.state)] == ["failed", "success"]


class Bomb(BaseException):
    pass


def bomb() -> str:
    raise Bomb


async def bomb_async() -> str:
    raise Bomb


@pytest.mark.parametrize("function", [bomb, bomb_async])
@pytest.mark.parametrize("siblings", [0, 1])
def test_what_is_no_exception_of_the_tools_own_is_not_swallowed(
    function: Any, siblings: int
) -> None:
    """T2: alone, or beside another call."""
    calls = [call(function.__name__), *[call("add", {"a": 1})] * siblings]
    model = ScriptedModel([calls, "never said"])
    with pytest.raises(Bomb):
        Agent("a", model, tools=[function, add]).execute_sync("go")
    assert len(model.requests) == 1


async def test_a_tool_that_swallows_the_cancellation_of_its_execution_does_not_save_it() -> None:
    """T2: its result is kept, and the model is not asked again."""
    entered = asyncio.Event()

    @tool
    async def stubborn() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I held on"
        return "never"

    model = ScriptedModel([call("stubborn"), "never said"])
    journal = MemoryJournal()
    agent = Agent("a", model, tools=[stubborn])
    task = asyncio.ensure_future(agent.execute("go", journal=journal))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(model.requests) == 1
    assert journal.records[-1].kind == "result"


@pytest.mark.parametrize("siblings", [0, 1])
async def test_cancelling_an_execution_cancels_its_tools_and_passes_on(siblings: int) -> None:
    """T2."""
    entered, cancelled = asyncio.Event(), []

    async def wait(n: int) -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return "never"

    calls = [call("wait", {"n": n}) for n in range(1 + siblings)]
    model = ScriptedModel([calls, "never said"])
    task = asyncio.ensure_future(Agent("a", model, tools=[wait]).execute("go"))
    await entered.wait()
    await asyncio.sleep(0)  # the sibling is in, too
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == list(range(1 + siblings))
    assert not own_tasks()


# ------------------------------------------------------------------------- T3


def test_the_context_tells_a_tool_of_its_call_and_is_not_in_the_schema() -> None:
    """T3."""
    seen: list[ToolContext] = []

    def look(here: ToolContext, word: str) -> str:
        seen.append(here)
        return word

    deps = object()
    model = ScriptedModel([call("look", {"word": "x"}, id="c-1"), "done"])
    agent = Agent("boss", model, tools=[look])
    state = AgentState(values={"shop": "Ann's"})
    outcome = agent.execute_sync("go", state=state, deps=deps)
    (context,) = seen
    assert context.state.values["shop"] == "Ann's"
    assert len(context.state.messages) >= 2
    assert context.agent_id == "boss"
    assert context.agent_path == ("boss",)
    assert context.tool_call_id == "c-1"
    assert context.tool_name == "look"
    assert context.run_id == outcome.run_id
    assert context.call_key == f"{outcome.run_id}.0.0"
    assert context.deps is deps
    assert context.resume_value is None
    (offered,) = model.requests[0].parameters.function_tools
    assert list(offered.parameters_json_schema["properties"]) == ["word"]


@pytest.mark.parametrize("error", [ValueError, KeyError, ZeroDivisionError])
def test_whatever_a_validator_of_an_argument_raises_the_arguments_are_invalid(
    error: type[Exception],
) -> None:
    """T2: it fails no run."""

    def check(number: int) -> int:
        raise error("far too odd")

    def order(number: int) -> str:
        raise AssertionError("it runs with invalid arguments")

    order.__annotations__["number"] = Annotated[int, AfterValidator(check)]
    outcome, _ = run_once(order, {"number": 1})
    assert isinstance(outcome, Completed)
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert text(part).startswith("Invalid arguments for 'order':")
    assert "far too odd" in text(part)


def test_a_context_may_name_the_type_of_its_deps() -> None:
    """T3: for type checkers; at run time it is a context as any other."""

    def count(here: ToolContext[list[str]], word: str) -> ToolResult[int]:
        return ToolResult("counted", value=here.deps.count(word))

    model = ScriptedModel([call("count", {"word": "x"}), "done"])
    agent = Agent[list[str], Any]("boss", model, tools=[count])
    outcome = completed(agent.execute_sync("go", deps=["x", "x"], until_tool=count))
    assert outcome.tool_result is not None
    assert outcome.tool_result.value == 2
    (offered,) = model.requests[0].parameters.function_tools
    assert list(offered.parameters_json_schema["properties"]) == ["word"]


def test_the_context_is_optional() -> None:
    """T3."""
    outcome, _ = run_once(add, {"a": 1})
    assert results(outcome.state)[0].outcome == "success"


def test_a_context_that_is_not_the_first_parameter_is_an_error() -> None:
    """T3, R8."""

    def late(word: str, here: ToolContext) -> str:
        return word

    def typed(word: str, here: ToolContext[int]) -> str:
        return word

    with pytest.raises(UsageError, match=r"'late'.*first parameter.*'here'"):
        tool(late)
    with pytest.raises(UsageError, match=r"'typed'.*first parameter.*'here'"):
        tool(typed)


def test_the_model_cannot_shadow_the_context() -> None:
    """T3: not by an argument of its name, not by arguments named as its fields."""
    seen: list[Any] = []

    def look(ctx: ToolContext, deps: str, state: str, tool_call_id: str) -> str:
        seen.append((ctx, deps))
        return "ok"

    told = {"deps": "mine", "state": "mine", "tool_call_id": "mine"}
    model = ScriptedModel(
        [
            [call("look", told, id="c-1"), call("look", {**told, "ctx": "mine"}, id="c-2")],
            "done",
        ]
    )
    real = object()
    outcome = Agent("a", model, tools=[look]).execute_sync("go", deps=real)
    assert isinstance(outcome, Completed)
    assert [part.outcome for part in results(outcome.state)] == ["success", "failed"]
    ((ctx, deps),) = seen
    assert isinstance(ctx, ToolContext)
    assert ctx.deps is real
    assert isinstance(ctx.state, AgentState)
    assert ctx.tool_call_id == "c-1"
    assert deps == "mine"


def set_key(state: AgentState) -> None:
    state.values["k"] = 1  # type: ignore[index]  # what a tool must not be able to do


def change_nested(state: AgentState) -> None:
    state.values["nested"]["list"].append("smuggled")


def replace_messages(state: AgentState) -> None:
    state.messages = state.messages.appending(ModelRequest(parts=[]))


@pytest.mark.parametrize("write", [set_key, change_nested, replace_messages])
def test_a_tool_cannot_write_to_the_state(write: Callable[[AgentState], None]) -> None:
    """T3: state is read-only; only records change it."""

    def meddle(ctx: ToolContext) -> str:
        write(ctx.state)
        return "meddled"

    given = AgentState(values={"nested": {"list": ["a"]}})
    model = ScriptedModel([call("meddle"), "done"])
    outcome = Agent("a", model, tools=[meddle]).execute_sync("go", state=given)
    for state in (outcome.state, given):
        assert dict(state.values) == {"nested": {"list": ["a"]}}
    assert len(outcome.state.messages) == 4


async def test_what_a_tool_emits_reaches_the_subscribers() -> None:
    """T3: from the loop and from a thread."""

    async def loud(ctx: ToolContext) -> str:
        ctx.emit({"n": 1})
        return "a"

    def loud_plain(ctx: ToolContext) -> str:
        ctx.emit({"n": 2})
        return "b"

    model = ScriptedModel([[call("loud", id="1"), call("loud_plain", id="2")], "done"])
    agent = Agent("a", model, tools=[loud, loud_plain])
    emitted = [e async for e in agent.stream("go") if isinstance(e, ToolEmitted)]
    assert sorted((e.tool_name, e.tool_call_id, e.data["n"]) for e in emitted) == [
        ("loud", "1", 1),
        ("loud_plain", "2", 2),
    ]
    assert all(e.agent_path == ("a",) for e in emitted)


def test_emitting_without_subscribers_is_harmless() -> None:
    """T3."""

    def loud(ctx: ToolContext) -> str:
        ctx.emit("x")
        return "a"

    assert results(run_once(loud)[0].state)[0].outcome == "success"


# ------------------------------------------------------------------------- T4


def test_content_is_for_the_model_and_the_value_stays_in_the_process() -> None:
    """T4."""

    def lookup() -> ToolResult[dict[str, str]]:
        return ToolResult("one order found", value={"secret": "pin-47-11"})

    outcome, model = run_once(lookup)
    assert results(outcome.state)[0].content == "one order found"
    assert "pin-47-11" not in str(model.requests[1].messages)


def test_a_returned_value_is_told_to_the_model() -> None:
    """T4."""

    def lookup() -> dict[str, int]:
        return {"found": 1}

    assert results(run_once(lookup)[0].state)[0].content == {"found": 1}


def put(delta: dict[str, Any]) -> ToolResult[str]:
    return ToolResult("put", state=delta)


def values_after(*deltas: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    model = ScriptedModel([[call("put", {"delta": delta}) for delta in deltas], "done"])
    agent = Agent("a", model, tools=[put])
    return dict(agent.execute_sync("go", state=AgentState(values=before)).state.values)


@pytest.mark.parametrize(
    ("before", "delta", "after"),
    [
        ({"a": {"x": 1, "y": {"z": 2}}}, {"a": {"y": {"w": 3}}},
         {"a": {"x": 1, "y": {"z": 2, "w": 3}}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"c": None}}, {"a": None, "b": {"c": None}}),
        ({"a": [1]}, {"a": []}, {"a": []}),
        ({"a": {"x": 1}}, {"a": "text"}, {"a": "text"}),
        ({"a": "text"}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({}, {"new": {"x": [None]}}, {"new": {"x": [None]}}),
        ({"a": 1}, {}, {"a": 1}),
    ],
)  # fmt: skip
def test_a_state_delta_is_merged(
    before: dict[str, Any], delta: dict[str, Any], after: dict[str, Any]
) -> None:
    """T4: mappings deeply, lists replaced, unnamed keys untouched, None and [] kept as said."""
    assert values_after(delta, before=before) == after


async def test_deltas_are_merged_in_call_order_whichever_tool_is_done_first() -> None:
    """T4."""
    second_is_done = asyncio.Event()

    async def slow() -> ToolResult[str]:
        await second_is_done.wait()
        return ToolResult("slow", state={"last": "slow", "slow": 1})

    async def quick() -> ToolResult[str]:
        second_is_done.set()
        return ToolResult("quick", state={"last": "quick", "quick": 1})

    model = ScriptedModel([[call("slow"), call("quick")], "done"])
    outcome = await Agent("a", model, tools=[slow, quick]).execute("go")
    assert outcome.state.values == {"last": "quick", "slow": 1, "quick": 1}


def test_a_delta_is_merged_once_however_often_the_run_is_gone_on_with() -> None:
    """T4: a later change of the same key stands."""
    model = ScriptedModel(
        [
            call("put", {"delta": {"k": "first"}}),
            call("put", {"delta": {"k": "second"}}),
            call("gated"),
            "done",
        ]
    )

    def gated() -> str:
        return "x"

    agent = Agent("a", model, tools=[put, gated], interrupt_on={"gated": True})
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    assert interrupted.state.values == {"k": "second"}
    stored = AgentState.from_dict(interrupted.state.to_dict())
    outcome = agent.resume_sync(stored, interrupted.decide(approve()))
    assert outcome.state.values == {"k": "second"}


def test_a_delta_is_seen_by_the_next_model_call_and_the_given_state_stays_as_it_was() -> None:
    """T4."""
    given = AgentState(values={"k": "old"})
    model = ScriptedModel([call("put", {"delta": {"k": "new"}}), "done"])
    Agent("a", model, "k is {k}", tools=[put]).execute_sync("go", state=given)
    assert [request.instructions for request in model.requests] == ["k is old", "k is new"]
    assert given.values == {"k": "old"}


@pytest.mark.parametrize("delta", [{"k": object()}, {1: "x"}, ["k"]])
def test_a_delta_that_cannot_be_stored_is_an_error_result_and_changes_nothing(delta: Any) -> None:
    """T4, T2."""

    def wrong() -> ToolResult[str]:
        return ToolResult("x", state=delta)

    outcome, _ = run_once(wrong)
    assert isinstance(outcome, Completed)
    assert results(outcome.state)[0].outcome == "failed"
    assert outcome.state.values == {}


# ------------------------------------------------------------------------- T6


def test_a_tool_that_only_looks_and_takes_too_long_gets_an_error_naming_the_limit() -> None:
    """T6."""

    @tool(timeout=0.01, read_only=True)
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    outcome, _ = run_once(hang)
    assert isinstance(outcome, Completed)
    part = results(outcome.state)[0]
    assert part.outcome == "failed"
    assert "0.01" in text(part)
    assert outcome.state.doubts == {}


def test_a_tool_that_begins_its_limit_anew_has_all_of_it_again() -> None:
    """T6."""

    @tool(timeout=0.05)
    async def progress(ctx: ToolContext) -> str:
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.2
        while loop.time() < end:
            ctx.restart_timeout()
            await asyncio.sleep(0)
        return "done"

    outcome, _ = run_once(progress)
    assert isinstance(outcome, Completed)
    assert results(outcome.state)[0].content == "done"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_paused_limit_does_not_count_until_it_begins_anew(restarts: bool) -> None:
    """T6: what comes before the effect is no doubt, and what comes after it may be."""

    @tool(timeout=0.02)
    async def connect(ctx: ToolContext) -> str:
        ctx.pause_timeout()
        await asyncio.sleep(0.1)
        if restarts:
            ctx.restart_timeout()
            await asyncio.Event().wait()
        return "done"

    outcome, _ = run_once(connect)
    assert isinstance(outcome, Completed)
    assert results(outcome.state)[0].outcome == ("interrupted" if restarts else "success")
    assert len(outcome.state.doubts) == restarts


def test_a_limit_that_is_over_or_not_there_is_left_alone() -> None:
    """T6: what a tool has started may call it later."""
    kept: list[ToolContext] = []

    @tool(timeout=0.05)
    async def keep(ctx: ToolContext) -> str:
        kept.append(ctx)
        return "kept"

    @tool
    async def again(ctx: ToolContext) -> str:
        for each in (*kept, ctx):
            each.pause_timeout()
            each.restart_timeout()
        return "done"

    model = ScriptedModel([call("keep"), call("again"), "ok"])
    outcome = Agent("a", model, tools=[keep, again]).execute_sync("go")
    assert [part.content for part in results(outcome.state)] == ["kept", "done"]


def test_a_thread_has_no_limit_that_it_could_begin_anew() -> None:
    """T6."""

    @tool(timeout=10)
    def plain(ctx: ToolContext) -> str:
        ctx.restart_timeout()
        return "never"

    outcome, _ = run_once(plain)
    assert "ctx.restart_timeout is for async tools" in text(results(outcome.state)[0])


@pytest.mark.parametrize(("idempotent", "attempts"), [(False, 1), (True, 3)])
def test_any_other_tool_that_takes_too_long_is_in_doubt(
    idempotent: bool, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T6, T8, J4, J28: not an error; the model learns that the outcome is unknown.

    An idempotent one is tried again before.
    """
    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.SOON", (0, 0))
    entered: list[str] = []

    @tool(timeout=0.01, idempotent=idempotent)
    async def hang(order: str) -> str:
        entered.append(order)
        await asyncio.Event().wait()
        return "never"

    outcome, _ = run_once(hang, {"order": "17"})
    assert isinstance(outcome, Completed)
    assert entered == ["17"] * attempts
    part = results(outcome.state)[0]
    assert part.outcome == "interrupted"
    assert "0.01" in text(part)
    assert "unknown" in text(part)
    assert "not repeat" in text(part)
    (doubt,) = outcome.state.doubts.values()
    assert (doubt.tool_name, doubt.arguments) == ("hang", {"order": "17"})


async def test_a_plain_tool_that_takes_too_long_does_not_hold_the_run_up() -> None:
    """T6: its thread is abandoned."""
    release, loop = threading.Event(), asyncio.get_running_loop()

    @tool(timeout=10)
    def hang() -> str:
        skip(loop, 10)
        release.wait(WAIT)
        return "late"

    try:
        outcome = await Agent("a", by_turn(call("hang")), tools=[hang]).execute("go")
    finally:
        release.set()
    assert isinstance(outcome, Completed)
    assert results(outcome.state)[0].outcome == "interrupted"


def test_a_tool_within_its_limit_is_not_disturbed() -> None:
    """T6."""

    @tool(timeout=60)
    async def quick() -> str:
        return "quick"

    assert results(run_once(quick)[0].state)[0].content == "quick"


@pytest.mark.parametrize(
    ("error", "is_doubt"),
    [(TimeoutError, True), (ConnectionResetError, True), (ValueError, False)],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_an_error_of_the_tools_own_is_a_doubt_where_it_leaves_open_what_it_did(
    error: type[Exception], is_doubt: bool, read_only: bool
) -> None:
    """T6, T2: a time limit inside of the tool is as one around it; any other error is an answer."""

    @tool(timeout=60, read_only=read_only)
    async def fetch() -> str:
        raise error("the shop did not answer")

    outcome, _ = run_once(fetch)
    part = results(outcome.state)[0]
    is_doubt = is_doubt and not read_only
    assert part.outcome == ("interrupted" if is_doubt else "failed")
    assert "the shop did not answer" in text(part)
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["fetch"] * is_doubt


# ------------------------------------------------------------------------- T7


def ids_of(outcome: Outcome) -> tuple[list[str], list[str]]:
    calls = [
        part.tool_call_id
        for message in outcome.state.messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    return calls, [part.tool_call_id for part in results(outcome.state)]


@pytest.mark.parametrize("identity", ["", "a/b", "/"])
def test_an_unusable_call_id_is_replaced_before_it_is_recorded(identity: str) -> None:
    """T7: the tool, the history and the next request have the new one."""
    seen: list[str] = []

    def look(ctx: ToolContext) -> str:
        seen.append(ctx.tool_call_id)
        return "x"

    model = ScriptedModel([call("look", id=identity), "done"])
    outcome = Agent("a", model, tools=[look]).execute_sync("go")
    calls, answered = ids_of(outcome)
    assert calls == answered == seen
    assert calls[0]
    assert "/" not in calls[0]
    reply = model.requests[1].messages[1]
    assert isinstance(reply, ModelResponse)
    assert [part.tool_call_id for part in reply.tool_calls] == calls


def test_a_call_id_that_occurs_twice_is_replaced() -> None:
    """T7: in one reply, in a later one, and in a conversation that was imported."""
    reply = [call("add", {"a": 1}, id="same"), call("add", {"a": 2}, id="same")]
    model = ScriptedModel([reply, call("add", {"a": 3}, id="same"), "done"])
    agent = Agent("a", model, tools=[add])
    outcome = agent.execute_sync("go")
    calls, answered = ids_of(outcome)
    assert calls[0] == "same"
    assert len(set(calls)) == 3
    assert calls == answered
    assert [part.content for part in results(outcome.state)] == [3, 4, 5]

    imported = AgentState(messages=list(outcome.state.messages))
    model = ScriptedModel([call("add", {"a": 4}, id="same"), "done"])
    calls, answered = ids_of(Agent("a", model, tools=[add]).execute_sync("go", state=imported))
    assert len(set(calls)) == 4
    assert calls == answered


def test_a_good_call_id_stays_as_it_is() -> None:
    """T7."""
    model = ScriptedModel([call("add", {"a": 1}, id="toolu_01-X.y"), "done"])
    outcome = Agent("a", model, tools=[add]).execute_sync("go")
    assert ids_of(outcome) == (["toolu_01-X.y"], ["toolu_01-X.y"])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"idempotent": "no"}, "`idempotent` must be True or False, got 'no'"),
        ({"sequential": 1}, "`sequential` must be True or False, got 1"),
        ({"inline": None}, "`inline` must be True or False, got None"),
        ({"version": 2}, "`version` must be text, got 2"),
        ({"description": 2}, "`description` must be text, got 2"),
    ],
)
def test_an_option_of_a_tool_that_is_of_another_type_is_refused(options: Any, error: str) -> None:
    with pytest.raises(UsageError, match=f"Tool 'add': {error}"):
        tool(name="add", **options)(lambda: 1)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 501, "\ud800", 3])
def test_a_name_of_a_tool_that_no_store_can_find_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="A tool's `name` must be text of 1 to 500 characters"):
        tool(name=name)(lambda: 1)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a.b", "a\n", "x" * 501, None, 3])
def test_an_agents_name_that_does_not_fit_is_refused(name: Any) -> None:
    """T7."""
    with pytest.raises(UsageError, match=r"letters, digits, _ and -"):
        Agent(name, ScriptedModel([]))


@pytest.mark.parametrize("name", ["a", "Support-Desk_2", "0", "-", "x" * 500])
def test_an_agents_name_that_fits_is_kept(name: str) -> None:
    """T7."""
    assert Agent(name, ScriptedModel([])).name == name


# ------------------------------------------------------------------------- T8


def test_a_rejected_call_is_denied_and_no_error() -> None:
    """T8."""
    model = ScriptedModel([call("add", {"a": 1}), "done"])
    agent = Agent("a", model, tools=[add], interrupt_on={"add": True})
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    outcome = agent.resume_sync(interrupted.state, interrupted.decide(reject("too dear")))
    assert results(outcome.state)[0].outcome == "denied"


def test_a_withdrawn_call_is_denied() -> None:
    """T8: a new message withdraws what the run waited for."""
    model = ScriptedModel([call("add", {"a": 1}), "as you like"])
    agent = Agent("a", model, tools=[add], interrupt_on={"add": True})
    interrupted = agent.execute_sync("go")
    outcome = agent.execute_sync("never mind", state=interrupted.state)
    assert isinstance(outcome, Completed)
    assert results(outcome.state)[0].outcome == "denied"
    assert "moved on" in text(results(outcome.state)[0])


def test_calls_that_the_end_of_the_run_overtook_are_interrupted() -> None:
    """T8: not run."""

    class Faulty(Middleware):
        async def check_tool_calls(self, run: Run, calls: Any) -> list[Request]:
            raise RuntimeError("faulty")

    model = ScriptedModel([[call("add", {"a": 1}), call("add", {"a": 2})], "done"])
    outcome = Agent("a", model, tools=[add], middleware=[Faulty()]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert [part.outcome for part in results(outcome.state)] == ["interrupted", "interrupted"]


async def test_a_call_that_was_started_when_the_run_ended_is_in_doubt() -> None:
    """T8, J4: its sibling's failure ends the run while it is in the middle."""
    entered = asyncio.Event()

    async def pay() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    class Faulty(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Any) -> Any:
            if call.tool_name == "add":
                await entered.wait()
                raise RuntimeError("faulty")
            return await next(call)

    model = ScriptedModel([[call("add", {"a": 1}), call("pay")], "done"])
    outcome = await Agent("a", model, tools=[add, pay], middleware=[Faulty()]).execute("go")
    assert isinstance(outcome, Failed)
    pay_part = results(outcome.state)[1]
    assert pay_part.outcome == "interrupted"
    assert "unknown" in text(pay_part)
    assert "pay" in [doubt.tool_name for doubt in outcome.state.doubts.values()]


def test_a_task_group_that_fails_while_it_closes_is_an_error_like_any_other() -> None:
    """T2: before Python 3.13 such a group leaves its task's cancel count raised."""

    async def raising() -> None:
        await asyncio.sleep(0)
        raise ValueError("inside")

    @tool
    async def grouped() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(raising())
        return "never"

    agent = Agent("a", ScriptedModel([call("grouped"), "mended"]), tools=[grouped])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "mended"
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "inside" in str(part.content)
