"""The requests of an adopted agent to a model: instructions, prompts, settings, tools (M9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, RunContext, Tool, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    Hooks,
    NativeTool,
    PrefixTools,
    PrepareTools,
    ProcessHistory,
    Thinking,
    Toolset,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.native_tools import MCPServerTool
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import UsageLimits

from tests.support.agents import by_turn, completed, contents, interrupted
from understudy import Agent, AgentState, Failed, approve, call


def recording(*replies: str) -> tuple[FunctionModel, list[tuple[list[ModelMessage], AgentInfo]]]:
    asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append((list(messages), info))
        return ModelResponse(parts=[TextPart(replies[min(len(asked), len(replies)) - 1])])

    return FunctionModel(reply), asked


def test_instructions_and_system_prompts_are_made_of_the_context() -> None:
    model, asked = recording("fine")
    calls = []
    agent: PydanticAgent[str, str] = PydanticAgent(
        model, name="support", deps_type=str, instructions="Be kind.", system_prompt="You sell tea."
    )

    @agent.instructions
    def who(ctx: RunContext[str]) -> str:
        return f"The user is {ctx.deps}."

    @agent.system_prompt
    async def season(ctx: RunContext[str]) -> str:
        calls.append(1)
        return f"It is winter for {ctx.deps}."

    adopted = Agent.from_pydantic_ai(agent)
    outcome = completed(adopted.execute_sync("go", deps="Ann"))
    messages, info = asked[0]
    assert info.instructions == "Be kind.\n\nThe user is Ann."
    system = [part.content for part in messages[0].parts if isinstance(part, SystemPromptPart)]
    assert system == ["You sell tea.", "It is winter for Ann."]
    completed(adopted.execute_sync("more", state=outcome.state, deps="Ann"))
    assert len(asked[1][0]) == 3
    assert not any(isinstance(part, SystemPromptPart) for part in outcome.state.messages[0].parts)


def test_a_system_prompt_is_made_once_in_a_run() -> None:
    calls = []
    agent = PydanticAgent(by_turn(call("look", {}), call("look", {})), name="support")

    @agent.system_prompt
    def season() -> str:
        calls.append(1)
        return "Winter."

    @agent.tool_plain
    def look() -> int:
        """Look."""
        return 1

    completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert len(calls) == 1


def test_settings_are_made_in_each_step() -> None:
    model, asked = recording("fine")

    def settings(ctx: RunContext[int]) -> ModelSettings:
        return {"temperature": ctx.deps / 10}

    agent: PydanticAgent[int, str] = PydanticAgent(
        model, name="support", deps_type=int, model_settings=settings
    )
    completed(Agent.from_pydantic_ai(agent).execute_sync("go", deps=5))
    assert (asked[0][1].model_settings or {}).get("temperature") == 0.5


def test_a_processed_history_is_sent_and_kept() -> None:
    model, asked = recording("one", "two", "three")

    def last(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-1:]

    agent = PydanticAgent(model, name="support", capabilities=[ProcessHistory(last)])
    adopted = Agent.from_pydantic_ai(agent)
    state: AgentState | None = None
    for n in range(3):
        outcome = completed(adopted.execute_sync(f"question {n}", state=state))
        state = AgentState.from_dict(outcome.state.to_dict())
    assert [len(messages) for messages, _ in asked] == [1, 1, 1]
    assert state is not None
    assert len(state.messages) == 2


class Watching(AbstractCapability[Any]):
    """Notes which of its hooks are called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def before_run(self, ctx: RunContext[Any]) -> None:
        self.called.append("before_run")

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        self.called.append("before_model_request")
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: Any
    ) -> Any:
        self.called.append("after_model_request")
        return response

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any
    ) -> Any:
        self.called.append(f"before {call.tool_name}")
        return {**args, "n": args["n"] + 1}

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any, result: Any
    ) -> Any:
        return result * 10

    def get_instructions(self) -> Any:
        return "Watch out."


def test_hooks_of_capabilities_are_called_around_requests_and_tools() -> None:
    """M9."""
    watching = Watching()
    agent = PydanticAgent(
        by_turn(call("double", {"n": 1})), name="support", capabilities=[watching]
    )

    @agent.tool_plain
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert contents(outcome.state) == [("success", 40)]
    request = ["before_model_request", "after_model_request"]
    assert watching.called == ["before_run", *request, "before double", *request]


def test_a_capability_may_complete_arguments_before_they_are_validated() -> None:
    hooks: Hooks[Any] = Hooks()

    @hooks.on.before_tool_validate
    async def complete(ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        return {"b": 2, **args}

    turn = call("add", {"a": 1})
    agent = PydanticAgent(by_turn(turn), name="support", tools=[add], capabilities=[hooks])
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert contents(outcome.state) == [("success", 3)]


def test_a_hook_may_have_the_model_asked_again() -> None:
    model, asked = recording("no", "yes")
    hooks: Hooks[Any] = Hooks()

    @hooks.on.after_model_request
    async def polite(ctx: RunContext[Any], *, request_context: Any, response: Any) -> Any:
        if response.text == "no":
            raise ModelRetry("Be polite.")
        return response

    agent = PydanticAgent(model, name="support", capabilities=[hooks])
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert (outcome.text, len(asked)) == ("yes", 2)


def test_tools_are_prepared_in_each_step() -> None:
    async def only_once(
        ctx: RunContext[Any], definitions: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        return [
            replace(each, description=f"Step {ctx.run_step}.")
            for each in definitions
            if each.name != "hidden"
        ]

    model, asked = recording("fine")
    agent = PydanticAgent(model, name="support", capabilities=[PrepareTools(only_once), Thinking()])

    @agent.tool_plain
    def shown() -> int:
        """Be shown."""
        return 1

    @agent.tool_plain
    def hidden() -> int:
        """Be hidden."""
        return 2

    completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    tools = asked[0][1].function_tools
    assert [(tool.name, tool.description) for tool in tools] == [("shown", "Step 1.")]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_a_capability_may_bring_tools_and_prefix_them() -> None:
    inner: Any = Toolset(FunctionToolset([add]))
    agent = PydanticAgent(
        by_turn(call("math_add", {"a": 1, "b": 2})),
        name="support",
        capabilities=[PrefixTools(wrapped=inner, prefix="math")],
    )
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert contents(outcome.state) == [("success", 3)]


class Loud(WrapperToolset[Any]):
    """A toolset of the application, which does something around each call."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return f"{await super().call_tool(name, tool_args, ctx, tool)}!"


def test_a_toolset_of_the_application_does_what_it_does() -> None:
    toolset: AbstractToolset[Any] = Loud(FunctionToolset([add]))
    turn = call("add", {"a": 1, "b": 2})
    agent = PydanticAgent(by_turn(turn), name="support", toolsets=[toolset])
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert contents(outcome.state) == [("success", "3!")]


def test_a_toolset_may_depend_on_the_deps() -> None:
    agent: PydanticAgent[dict[str, Any], str] = PydanticAgent(
        by_turn(call("add", {"a": 1, "b": 2})), name="support", deps_type=dict
    )

    @agent.toolset
    def chosen(ctx: RunContext[dict[str, Any]]) -> AbstractToolset[Any]:
        return ctx.deps["tools"]  # type: ignore[no-any-return]

    deps = {"tools": FunctionToolset([add])}
    adopted = Agent.from_pydantic_ai(agent, listed_with=deps)
    outcome = completed(adopted.execute_sync("go", deps=deps))
    assert contents(outcome.state) == [("success", 3)]


def test_a_toolset_with_approval_asks_about_the_calls_that_it_names() -> None:
    def large(ctx: RunContext[int], definition: ToolDefinition, arguments: dict[str, Any]) -> bool:
        return bool(arguments["a"] > ctx.deps)

    toolset: Any = FunctionToolset([add])
    turn = [call("add", {"a": 1, "b": 2}), call("add", {"a": 9, "b": 2})]
    agent: PydanticAgent[int, str] = PydanticAgent(
        by_turn(turn), name="support", deps_type=int, toolsets=[toolset.approval_required(large)]
    )
    adopted = Agent.from_pydantic_ai(agent)
    first = interrupted(adopted.execute_sync("go", deps=5))
    assert [request.arguments for request in first.requests] == [{"a": 9, "b": 2}]
    outcome = completed(adopted.resume_sync(first.state, approve(), deps=5))
    assert contents(outcome.state) == [("success", 3), ("success", 11)]


def test_a_tool_that_needs_approval_in_this_step_alone_asks_in_it() -> None:
    async def strict(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition:
        needs_person = ctx.deps is not None and ctx.run_step == 1
        return replace(definition, kind="unapproved") if needs_person else definition

    called = []

    def drop(table: str) -> str:
        """Drop a table."""
        called.append(table)
        return "dropped"

    agent: PydanticAgent[int, str] = PydanticAgent(
        by_turn(call("drop", {"table": "orders"})),
        name="support",
        deps_type=int,
        tools=[Tool(drop, prepare=strict)],
    )
    adopted = Agent.from_pydantic_ai(agent)
    first = interrupted(adopted.execute_sync("go", deps=1))
    assert called == []
    completed(adopted.resume_sync(first.state, approve(), deps=1))
    assert called == ["orders"]


def test_usage_limits_end_a_run_before_it_uses_more() -> None:
    agent = PydanticAgent(by_turn(*[call("look", {})] * 9), name="support")

    @agent.tool_plain
    def look() -> int:
        """Look."""
        return 1

    for limits, error in (
        (UsageLimits(request_limit=2), "request_limit of 2"),
        (UsageLimits(tool_calls_limit=1), "tool_calls_limit of 1"),
    ):
        outcome = Agent.from_pydantic_ai(agent, usage_limits=limits).execute_sync("go")
        assert isinstance(outcome, Failed)
        assert error in str(outcome.error)


class Order(BaseModel):
    """An order of those that the validation context knows."""

    id: str

    @field_validator("id")
    @classmethod
    def known(cls, value: str, info: ValidationInfo) -> str:
        if info.context is None or value not in info.context:
            raise ValueError(f"no order {value}")
        return value


def test_validation_gets_the_context_of_the_agent() -> None:
    agent = PydanticAgent(
        by_turn(call("look", {"id": "1"}), call("look", {"id": "17"})),
        name="support",
        validation_context={"17"},
    )

    @agent.tool_plain
    def look(order: Order) -> str:
        """Look."""
        return order.id

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert [how for how, _ in contents(outcome.state)] == ["failed", "success"]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_adopted_agent_streams_like_any_other(streamed: bool) -> None:
    agent = PydanticAgent(by_turn("fine"), name="support")
    events: list[Any] = []
    listen = events.append if streamed else None
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go", on_event=listen))
    assert outcome.text == "fine"
    assert any(type(event).__name__ == "TextDelta" for event in events) is streamed


def searching(*tools: MCPServerTool) -> tuple[Agent[Any, Any], list[AgentInfo]]:
    asked: list[AgentInfo] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(info)
        return ModelResponse(parts=[TextPart("done")])

    def made(tool: MCPServerTool) -> NativeTool[Any]:
        return NativeTool(lambda ctx: tool)

    profile = ModelProfile(supported_native_tools=frozenset({MCPServerTool}))
    model = FunctionModel(reply, profile=profile)
    given = [made(tool) for tool in tools]
    agent = PydanticAgent(model, name="support", capabilities=given)
    return Agent.from_pydantic_ai(agent), asked


def server(url: str) -> MCPServerTool:
    return MCPServerTool(id="orders", url=url)


def test_the_same_native_tool_of_two_capabilities_is_sent_once() -> None:
    agent, asked = searching(server("https://a.example"), server("https://a.example"))
    completed(agent.execute_sync("go"))
    assert asked[0].model_request_parameters.native_tools == [server("https://a.example")]


def test_two_native_tools_of_one_id_fail_the_run_before_a_model_is_asked() -> None:
    agent, asked = searching(server("https://a.example"), server("https://b.example"))
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Failed)
    assert "Two native tools have the id 'mcp_server:orders'" in str(outcome.error)
    assert asked == []
