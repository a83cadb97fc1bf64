"""What several test modules share: a scripted agent that can be carried to another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import pytest
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.support.loops import soon
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Completed,
    Decision,
    Failed,
    Interrupted,
    Outcome,
    Quarantined,
    ScriptedModel,
    Status,
    ToolContext,
    call,
    tool,
)
from understudy.models import ScriptedRequest

T = TypeVar("T")
Answers = Mapping[str, Decision | Mapping[str, Any]]


def by_turn(*turns: Any) -> ScriptedModel:
    """A model whose n-th reply of the conversation is the n-th turn; then it says "done".

    It keeps no count, so a new one continues where another one stopped.
    """

    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        return turns[turn] if turn < len(turns) else "done"

    return ScriptedModel(reply)


def desk(*turns: Any, **options: Any) -> Agent:
    """An agent "desk" that replies these turns."""
    return Agent("desk", by_turn(*turns), **options)


def reloaded(state: AgentState) -> AgentState:
    """The state as another process reads it: nothing crosses but JSON text."""
    return AgentState.from_dict(json.loads(json.dumps(state.to_dict())))


def agent_of_two_sleepers() -> Agent:
    """An agent that runs two of one name at once: one sleeps for 10 seconds, one for 20."""

    @tool
    async def nap(ctx: ToolContext, seconds: int) -> str:
        await ctx.sleep("nap", seconds)
        return "slept"

    def reply(request: ScriptedRequest) -> Any:
        asked = any(isinstance(message, ModelResponse) for message in request.messages)
        return "done" if asked else call("nap", {"seconds": int(request.prompt)})

    sleeper = Agent("sleeper", ScriptedModel(reply), tools=[nap])

    @tool
    async def wait(ctx: ToolContext, seconds: int) -> str:
        return completed(await ctx.run_agent(sleeper, str(seconds))).text

    calls = [call("wait", {"seconds": seconds}) for seconds in (10, 20)]
    return Agent("desk", by_turn(calls), tools=[wait])


class Stage:
    """One agent that is run and resumed; elsewhere, each resume is another process's."""

    def __init__(self, *, elsewhere: bool) -> None:
        self.elsewhere = elsewhere
        self.build: Callable[[], Agent] = lambda: Agent("support", by_turn())
        self.model = by_turn()
        """The model of the agent that was built last, with what it was asked."""

    def cast(self, *turns: Any, tools: Sequence[Any], **options: Any) -> None:
        """Set the agent: what its model replies in each turn, its tools, its other options."""
        middleware = options.pop("middleware", lambda: ())

        def build() -> Agent:
            model = by_turn(*turns)
            self.model = model
            return Agent("support", model, tools=tools, middleware=middleware(), **options)

        self.build = build

    def start(self, input: str = "go", **options: Any) -> Outcome:
        """Run a newly built agent."""
        self.agent = self.build()
        return self.agent.execute_sync(input, **options)

    def carried(self, state: AgentState) -> AgentState:
        """The state where it is resumed."""
        return reloaded(state) if self.elsewhere else state

    def resume(
        self, outcome: Outcome | AgentState, answers: Answers | None = None, **options: Any
    ) -> Outcome:
        """Continue, here with the same agent or elsewhere with a new one."""
        state = outcome if isinstance(outcome, AgentState) else outcome.state
        if self.elsewhere:
            self.agent = self.build()
        return self.agent.resume_sync(self.carried(state), answers, **options)


@pytest.fixture(params=["here", "elsewhere"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(elsewhere=request.param == "elsewhere")


class FakeClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def interrupted(outcome: Outcome) -> Interrupted:
    """The outcome, which must be an interrupt."""
    assert isinstance(outcome, Interrupted), outcome
    return outcome


def completed(outcome: Outcome) -> Completed:
    """The outcome, which must be a completed run."""
    assert isinstance(outcome, Completed), outcome
    return outcome


def quarantined(outcome: Outcome | None) -> Quarantined:
    """The error of the outcome, whose agent must be in quarantine."""
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, Quarantined)
    return outcome.error


def results(state: AgentState) -> list[ToolReturnPart]:
    """Every tool result in the conversation, in order."""
    return [
        part
        for message in state.messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def contents(state: AgentState) -> list[tuple[str, Any]]:
    """The end of every tool call, and the text that the model got."""
    return [(part.outcome, part.content) for part in results(state)]


def calls_made(state: AgentState) -> list[ToolCallPart]:
    """Every tool call in the conversation, in order."""
    return [
        part
        for message in state.messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]


def assert_valid_history(state: AgentState) -> None:
    """Each reply's calls have exactly one result each, in call order, in the next message."""
    messages = list(state.messages)
    for position, message in enumerate(messages):
        if not isinstance(message, ModelResponse):
            continue
        asked = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        if not asked:
            continue
        assert position + 1 < len(messages), f"the calls {asked} of the last reply have no result"
        following = messages[position + 1]
        assert isinstance(following, ModelRequest)
        got = [part.tool_call_id for part in following.parts if isinstance(part, ToolReturnPart)]
        assert got == asked
    assert len(results(state)) == len(calls_made(state))


# ------------------------------------------------------------------ agents on a loop


async def until_status(ref: AgentRef, *statuses: Status) -> Status:
    """Return when the agent stands so."""
    subscription = ref.events()
    try:
        async with asyncio.timeout(60):
            if ref.status() in statuses:
                return ref.status()
            async for _ in subscription:
                if ref.status() in statuses:
                    return ref.status()
    finally:
        subscription.close()
    raise AssertionError(f"{ref!r} is {ref.status()}, and tells no more")


async def works_again(ref: AgentRef) -> None:
    """It takes another run, and its conversation is whole."""
    assert isinstance(await soon(ref.run("again")), Completed)
    assert_valid_history(await soon(ref.state()))


async def wake(ref: AgentRef) -> None:
    """Activate the agent by a message that changes nothing: a look does not."""
    async with asyncio.timeout(60):
        assert await ref.cancel_message("no such message") is False


class Held:
    """A place in a tool or a model that says when it is reached and waits there to be released."""

    def __init__(self, reply: Any = "held") -> None:
        self.reply = reply
        self.entered = asyncio.Event()
        self.release = asyncio.Event()

    async def wait(self) -> None:
        self.entered.set()
        await self.release.wait()

    async def __call__(self, _request: ScriptedRequest) -> Any:
        """As a reply of a `ScriptedModel`."""
        await self.wait()
        return self.reply


def told_by_users(request: ScriptedRequest) -> list[Any]:
    """The user prompts that the model got, in order; in a workflow, turns of others are such
    prompts (W5).
    """
    return [
        part.content
        for message in request.messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def authors(state: AgentState) -> list[str | None]:
    """Whose each message of the conversation is; None for the user's."""
    return [(message.metadata or {}).get("author") for message in state.messages]
