"""Runs under middleware that asks models: cut off after any record, they end the same elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart

from tests.support.cut_off import Crash, Disk, finished_calls, ids, told
from understudy import (
    Agent,
    Interrupted,
    Outcome,
    Run,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.errors import ModelFailed
from understudy.middleware import (
    Fallback,
    HumanInTheLoop,
    Limits,
    Middleware,
    ModelInput,
    RateLimit,
    SubAgent,
    Summarization,
)
from understudy.models import ScriptedRequest

PAGES = 4
STACK = ("by_model", "by_function", "rate_limit", "asks", "fails", "gate", "limits", "fallback")


class Asks(Middleware):
    """Asks before each model call, and puts the answer into what is sent."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
        turn = run.current.turns
        answer = await run.ask_model(f"hint {turn}", f"hint {turn}", self.model)
        return request.replace(instructions=f"{request.instructions} {answer}")


class Fails(Middleware):
    """Asks a model that never answers, and goes on without."""

    async def after_step(self, run: Run) -> None:
        try:
            await run.ask_model("never", "go", ScriptedModel([ConnectionError("down")] * 2))
        except ModelFailed:
            return


def small_model() -> ScriptedModel:
    return ScriptedModel(lambda request: f"{len(request.prompt)} letters")


def shorter(older: Sequence[ModelMessage]) -> str:
    return f"{len(older)} messages"


def part(name: str) -> Middleware:
    match name:
        case "by_model":
            return Summarization(40, keep_turns=1, model=small_model())
        case "by_function":
            return Summarization(40, keep_turns=2, summarize=shorter)
        case "rate_limit":
            return RateLimit(1_000_000, 1_000_000_000)
        case "asks":
            return Asks(small_model())
        case "fails":
            return Fails()
        case "gate":
            return HumanInTheLoop({"read": True})
        case "limits":
            return Limits(max_tokens=100_000)
        case _:
            return Fallback([ScriptedModel([])])


def page_of(messages: Sequence[ModelMessage]) -> int:
    """The number of the last page that was read, from the conversation alone."""
    return max(
        (
            int(str(each.content).split()[1])
            for message in messages
            for each in message.parts
            if isinstance(each, ToolReturnPart)
        ),
        default=0,
    )


def make_agent(stack: Sequence[str], ran: list[str], *, nested: bool) -> Agent:
    """The agent as each process builds it: nothing of it is shared but the records."""

    @tool(idempotent=True)
    async def read(ctx: ToolContext, page: int) -> str:
        verdict = await ctx.ask_model("verdict", f"page {page}", small_model())
        ran.append(ctx.call_key)
        return f"page {page} is long: {'word ' * 30} ({verdict})"

    def reply(request: ScriptedRequest) -> Any:
        page = page_of(request.messages) + 1
        if page > PAGES:
            return "the end"
        part = ToolCallPart("read", {"page": page}, tool_call_id=f"c{page}")
        return ModelResponse(parts=[part])  # without a count of tokens: they are estimated

    reader = Agent("reader", ScriptedModel(reply), tools=[read], middleware=[*map(part, stack)])
    if not nested:
        return reader

    def hand_on(request: ScriptedRequest) -> Any:
        done = any(isinstance(message, ModelResponse) for message in request.messages)
        task = call("task", {"task_name": "reader", "instructions": "Read."}, id="t")
        return "done" if done else task

    return Agent("chief", ScriptedModel(hand_on), middleware=[SubAgent([reader])])


def to_the_end(agent: Agent, outcome: Outcome, disk: Disk | None = None) -> Outcome:
    while isinstance(outcome, Interrupted):
        decisions = {request.id: approve() for request in outcome.requests}
        outcome = agent.resume_sync(outcome.state, decisions, new_id=ids(), journal=disk)
    return outcome


def live(agent: Agent, disk: Disk) -> Outcome:
    return to_the_end(agent, agent.execute_sync("go", journal=disk, new_id=ids()), disk)


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(st.sampled_from(STACK), unique=True, min_size=1, max_size=5)
    .filter(lambda stack: not {"by_model", "by_function"} <= set(stack))
    .map(tuple),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_a_run_under_any_stack_that_is_cut_off_ends_the_same_way_elsewhere(
    stack: tuple[str, ...], nested: bool, number: int
) -> None:
    disk, ran = Disk(), list[str]()
    whole = told(live(make_agent(stack, ran, nested=nested), disk))
    assert len(ran) == len(set(ran)) == PAGES
    # Anywhere; and between each summary and what follows from it.
    places = {n for n, line in enumerate(disk.lines, 1) if '"summarization' in line}
    for limit in {1 + number % (len(disk.lines) - 1)} | places:
        cut, after = Disk(limit), list[str]()
        with pytest.raises(Crash):
            live(make_agent(stack, [], nested=nested), cut)
        agent = make_agent(stack, after, nested=nested)
        outcome = agent.resume_sync(cut.load(), new_id=ids())
        assert told(to_the_end(agent, outcome)) == whole, f"cut after record {limit}"
        assert not finished_calls(cut) & set(after)
