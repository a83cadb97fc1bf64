"""What the run of an inner agent gets in addition: instructions, and the conversation before.

Rules: S8.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)

from tests.support.agents import by_turn, completed, interrupted, reloaded, results, told_by_users
from tests.support.cut_off import Crash, Disk
from understudy import Agent, ScriptedModel, ToolContext, UsageError, approve, call, tool
from understudy.middleware import SubAgent
from understudy.models import ScriptedRequest
from understudy.modes.workflows.sequential import Sequential

BEFORE: list[ModelMessage] = [
    ModelRequest(parts=[UserPromptPart("Who is Ann?")]),
    ModelResponse(parts=[TextPart("A customer.")]),
]


class Clerk:
    """An agent that notes what its model is sent."""

    def __init__(self, *turns: Any) -> None:
        self.seen: list[tuple[str, list[Any]]] = []
        self.turns = turns

    def agent(self, **options: Any) -> Agent:
        def reply(request: ScriptedRequest) -> Any:
            self.seen.append((request.instructions or "", told_by_users(request)))
            own = request.messages[len(BEFORE) :] if self.has_before else request.messages
            turn = sum(isinstance(message, ModelResponse) for message in own)
            return self.turns[turn] if turn < len(self.turns) else "done"

        return Agent("clerk", ScriptedModel(reply), "You are a clerk.", **options)

    has_before = True


def boss(clerk: Agent, **told: Any) -> Agent:
    @tool(idempotent=True)
    async def delegate(ctx: ToolContext) -> str:
        """Delegate."""
        return (await ctx.run_agent(clerk, "And Bob?", **told)).explain()

    return Agent("boss", by_turn(call("delegate", {})), tools=[delegate])


@tool(ask=True)
def gated() -> str:
    """Ask a person first."""
    return "done"


def test_a_child_begins_with_the_conversation_and_the_instructions_of_its_call() -> None:
    """S8."""
    clerk = Clerk(call("gated", {}))
    agent = boss(clerk.agent(tools=[gated]), instructions="Be {brief}.", initial_messages=BEFORE)
    asked = interrupted(agent.execute_sync("go"))
    elsewhere = boss(clerk.agent(tools=[gated]), instructions="Ignored", initial_messages=[])
    completed(elsewhere.resume_sync(reloaded(asked.state), asked.decide(approve())))
    assert clerk.seen == [("You are a clerk.\n\nBe {brief}.", ["Who is Ann?", "And Bob?"])] * 2


def test_a_child_that_is_cut_off_anywhere_is_told_the_same() -> None:
    """S8."""

    def run(journal: Disk, clerk: Clerk, state: Any = None) -> None:
        agent = boss(clerk.agent(), instructions="Be brief.", initial_messages=BEFORE)
        if state is None:
            agent.execute_sync("go", journal=journal)
        else:
            agent.resume_sync(state, None, journal=journal)

    whole = Disk()
    run(whole, Clerk())
    for limit in range(1, len(whole.lines)):
        disk, clerk = Disk(limit), Clerk()
        with pytest.raises(Crash):
            run(disk, clerk)
        disk.limit = None
        run(disk, clerk, disk.load())
        expected = ("You are a clerk.\n\nBe brief.", ["Who is Ann?", "And Bob?"])
        assert set(map(str, clerk.seen)) == {str(expected)}


def test_each_task_of_a_sub_agent_begins_with_its_conversation() -> None:
    """S8."""
    clerk = Clerk()
    given = clerk.agent().definition
    task = call("task", {"task_name": "clerk", "instructions": "And Bob?"})
    parent = Agent(
        "boss",
        by_turn(task),
        middleware=[
            SubAgent(
                agents=[
                    {
                        "name": "clerk",
                        "model": given.model,
                        "instructions": "You are a clerk.",
                        "initial_messages": BEFORE,
                    }
                ]
            )
        ],
    )
    completed(parent.execute_sync("go"))
    assert clerk.seen == [("You are a clerk.", ["Who is Ann?", "And Bob?"])]


def lawyers(clerk: Clerk, *, tools: Any = (), **options: Any) -> Agent:
    """Gives one task to `clerk`."""
    task = call("task", {"task_name": "clerk", "instructions": "And Bob?"})
    sub_agent = SubAgent(agents=[clerk.agent(tools=tools)], general_purpose=False, **options)
    return Agent("boss", by_turn(task), middleware=[sub_agent])


def of_the_tenant(ctx: ToolContext, name: str) -> str:
    return f"{name} is for {ctx.state.values['shop']}"


async def asked_for(ctx: ToolContext, name: str) -> str:
    return of_the_tenant(ctx, name)


@pytest.mark.parametrize("told", ["clerk is for Acme", of_the_tenant, asked_for])
def test_the_agent_of_each_task_is_told_what_this_task_needs(told: Any) -> None:
    clerk = Clerk(call("gated", {}))
    clerk.has_before = False
    agent = lawyers(clerk, tools=[gated], task_instructions=told)
    asked = interrupted(agent.execute_sync("go", state=_with_shop()))
    elsewhere = lawyers(clerk, tools=[gated], task_instructions="Ignored")
    completed(elsewhere.resume_sync(reloaded(asked.state), asked.decide(approve())))
    assert clerk.seen == [("You are a clerk.\n\nclerk is for Acme", ["And Bob?"])] * 2


def _fails(ctx: ToolContext, name: str) -> str:
    raise ConnectionError("no book of laws")


@pytest.mark.parametrize(
    ("told", "why"),
    [(lambda ctx, name: 5, "returned 5"), (_fails, "no book of laws")],
)
def test_a_task_that_cannot_be_told_anything_is_an_error_result(told: Any, why: str) -> None:
    clerk = Clerk()
    agent = lawyers(clerk, task_instructions=told)
    (part,) = results(completed(agent.execute_sync("go")).state)
    assert part.outcome == "failed"
    assert why in str(part.content)
    assert clerk.seen == []


def test_what_cannot_be_told_with_each_task_is_refused_when_the_agent_is_made() -> None:
    for wrong in (5, None, "\ud800"):
        with pytest.raises(UsageError, match="`task_instructions`"):
            SubAgent([Clerk().agent()], task_instructions=wrong)  # type: ignore[arg-type]
    flow = Agent("flow", None, mode=Sequential([Clerk().agent()]))
    with pytest.raises(UsageError, match="'flow' calls no model"):
        Agent("a", by_turn(), middleware=[SubAgent([flow], task_instructions="x")])


def test_a_conversation_that_was_cut_is_made_valid() -> None:
    cut: list[ModelMessage] = [
        *BEFORE,
        ModelRequest(parts=[UserPromptPart("Look her up.")]),
        ModelResponse(parts=[ToolCallPart("look", {}, "c1")]),
    ]
    clerk = Clerk()
    clerk.has_before = False
    completed(boss(clerk.agent(), initial_messages=cut).execute_sync("go"))
    assert clerk.seen[0][1] == ["Who is Ann?", "Look her up.", "And Bob?"]


def test_the_general_purpose_agent_has_instructions_of_its_own() -> None:
    seen: list[str] = []

    def reply(request: ScriptedRequest) -> Any:
        seen.append(request.instructions or "")
        if len(seen) == 1:
            return call("task", {"task_name": "general-purpose", "instructions": "go"})
        return "done"

    told = SubAgent(general_purpose="You know {shop}, and nothing else.")
    agent = Agent("boss", ScriptedModel(reply), middleware=[told])
    completed(agent.execute_sync("go", state=_with_shop()))
    assert seen[1] == "You know Acme, and nothing else."


def _with_shop() -> Any:
    from understudy import AgentState

    return AgentState(values={"shop": "Acme"})


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"instructions": 5}, "`instructions` must be text"),
        ({"instructions": "\ud800"}, "not valid Unicode"),
        ({"initial_messages": 5}, "`initial_messages` must be a list"),
        ({"initial_messages": "hello"}, "`initial_messages` must be a list"),
        ({"initial_messages": ["hello"]}, "must be a message of Pydantic AI"),
    ],
)
def test_what_a_child_cannot_be_told_is_an_error_of_the_call(told: Any, why: str) -> None:
    clerk = Clerk()
    (part,) = results(completed(boss(clerk.agent(), **told).execute_sync("go")).state)
    assert part.outcome == "failed"
    assert why in str(part.content)
    assert clerk.seen == []


def test_a_workflow_inside_takes_no_instructions() -> None:
    flow = Agent("flow", None, mode=Sequential([Clerk().agent()]))
    (part,) = results(completed(boss(flow, instructions="x").execute_sync("go")).state)
    assert "calls no model" in str(part.content)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"general_purpose": ""}, "`general_purpose`"),
        ({"general_purpose": 1}, "`general_purpose`"),
        ({"general_purpose": "a lone {"}, "a lone '{'"),
    ],
)
def test_instructions_that_are_none_are_refused_at_once(options: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SubAgent(**options)


def test_a_conversation_that_is_none_is_refused_when_the_parent_is_made() -> None:
    child = {"name": "clerk", "initial_messages": "hello"}
    with pytest.raises(UsageError, match="`initial_messages` must be a list"):
        Agent("boss", by_turn(), middleware=[SubAgent(agents=[child])])
