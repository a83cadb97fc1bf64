"""Tools that the provider runs: offered, shown, kept; never approved, and never run here (R11)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.native_tools import (
    CodeExecutionTool,
    MCPServerTool,
    MemoryTool,
    WebFetchTool,
    WebSearchTool,
)
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.agents import completed, interrupted, reloaded, results
from tests.support.loops import soon
from tests.support.places import Place
from understudy import (
    Agent,
    Interrupted,
    Run,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.events import (
    Event,
    NativeToolCalled,
    NativeToolReturned,
    ReplyEnded,
    ToolEnded,
    ToolStarted,
)
from understudy.middleware import HumanInTheLoop, Middleware, ModelInput, SubAgent
from understudy.modes import Sequential

SEARCH = WebSearchTool()
CALL = NativeToolCallPart(
    "web_search",
    {"query": "kettle"},
    tool_call_id="ws_1",
    provider_name="anthropic",
    provider_details={"caller": {"type": "direct"}},
)
RETURN = NativeToolReturnPart(
    "web_search",
    [{"type": "web_search_result", "encrypted_content": "EqgfCioIARgBIiQ3YTAw==", "title": "K"}],
    tool_call_id="ws_1",
    provider_name="anthropic",
)


@tool
def pay(amount: int) -> str:
    """Pay it."""
    return f"paid {amount}"


def searched(*more: Any) -> ModelResponse:
    return ModelResponse(parts=[CALL, RETURN, *more])


def chat() -> Model:
    provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="test")
    return OpenAIChatModel("gpt-5-mini", provider=provider)


# --------------------------------------------------------------------- offered and shown


def test_native_tools_are_offered_beside_the_agents_own() -> None:
    """R11."""
    model = ScriptedModel(["done"])
    Agent("a", model, tools=[pay], native_tools=[SEARCH]).execute_sync("go")
    assert model.requests[0].parameters.native_tools == [SEARCH]
    assert model.requests[0].tools == ("pay",)


def test_a_hook_sees_them_and_may_leave_them_out() -> None:
    seen = []

    class Offline(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            seen.append(request.native_tools)
            return request.replace(native_tools=())

    model = ScriptedModel(["done"])
    Agent("a", model, native_tools=[SEARCH], middleware=[Offline()]).execute_sync("go")
    assert seen == [(SEARCH,)]
    assert model.requests[0].parameters.native_tools == []


async def test_a_native_call_is_shown_in_events_and_history_and_is_not_run() -> None:
    """R11."""
    events: list[Event] = []
    model = ScriptedModel([searched(TextPart("A red one."))])
    agent = Agent("a", model, tools=[pay], native_tools=[SEARCH])
    outcome = completed(await agent.execute("go", on_event=events.append))
    assert outcome.text == "A red one."
    called, returned = [e for e in events if isinstance(e, (NativeToolCalled, NativeToolReturned))]
    assert isinstance(called, NativeToolCalled)
    assert isinstance(returned, NativeToolReturned)
    assert (called.tool_name, called.tool_call_id, called.turn) == ("web_search", "ws_1", 0)
    assert called.arguments == {"query": "kettle"}
    assert (returned.outcome, returned.content) == ("success", RETURN.content)
    assert not any(isinstance(e, (ToolStarted, ToolEnded)) for e in events)
    kinds = [type(event) for event in events]
    assert kinds.index(NativeToolCalled) < kinds.index(NativeToolReturned) < kinds.index(ReplyEnded)
    reply = outcome.state.messages[1]
    assert reply.parts[:2] == [CALL, RETURN]
    assert results(outcome.state) == []
    assert outcome.usage.tool_calls == 0


def test_nobody_is_asked_about_a_native_call() -> None:
    """R11: a call of our own in the same reply is asked about, and runs once it is approved."""
    asked = searched(ToolCallPart("pay", {"amount": 3}, tool_call_id="c1"))
    options: dict[str, Any] = {"native_tools": [SEARCH], "interrupt_on": {"pay": True}}
    first = Agent("a", ScriptedModel([asked]), tools=[pay], **options)
    waiting = interrupted(first.execute_sync("go"))
    (request,) = waiting.requests
    assert request.tool_name == "pay"
    model = ScriptedModel(["done"])
    agent = Agent("a", model, tools=[pay], **options)
    outcome = completed(agent.resume_sync(reloaded(waiting.state), waiting.decide(approve())))
    assert [part.content for part in results(outcome.state)] == ["paid 3"]
    assert model.requests[0].messages[1].parts[:2] == [CALL, RETURN], "as it came"


async def test_native_calls_come_back_from_every_store(place: Place) -> None:
    """R11: and their events do."""

    def agent(*replies: Any) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(replies)
        return Agent("a", model, native_tools=[SEARCH]), model

    first, _ = agent(searched(TextPart("A red one.")))
    async with Runtime([first], store=place.store()) as runtime:
        before = completed(await soon(runtime.spawn("a", "1").run("go"))).state
    second, model = agent("more")
    async with Runtime([second], store=place.store()) as runtime:
        ref = runtime.spawn("a", "1")
        completed(await soon(ref.run("more")))
        subscription = ref.events()
        seen = []
        async for event in subscription:
            seen.append(event.event)
            if isinstance(event.event, ReplyEnded) and event.event.response.text == "more":
                break
    assert list(model.requests[0].messages[:2]) == list(before.messages)
    (called,) = [event for event in seen if isinstance(event, NativeToolCalled)]
    assert called.arguments == {"query": "kettle"}


def test_the_last_answer_keeps_them_for_the_providers_cache() -> None:
    """R1."""
    model = ScriptedModel([call("pay", {"amount": 1}), "done"])
    agent = Agent(
        "a", model, tools=[pay], native_tools=[SEARCH], max_runs=1, early_stopping="generate"
    )
    completed(agent.execute_sync("go"))
    assert [request.parameters.native_tools for request in model.requests] == [[SEARCH]] * 2


def test_the_general_purpose_agent_has_them_and_a_child_may_have_its_own() -> None:
    """S1, S2."""
    tasks = [
        call("task", {"task_name": "general-purpose", "instructions": "x"}),
        call("task", {"task_name": "coder", "instructions": "x"}),
    ]
    model = ScriptedModel([tasks[0], "one", tasks[1], "two", "done"])
    coder = {"name": "coder", "description": "", "native_tools": [CodeExecutionTool()]}
    parent = Agent("p", model, native_tools=[SEARCH], middleware=[SubAgent([coder])])
    completed(parent.execute_sync("go"))
    offered = [request.parameters.native_tools for request in model.requests]
    assert offered == [[SEARCH], [SEARCH], [SEARCH], [CodeExecutionTool()], [SEARCH]]


def test_the_fingerprint_is_of_them_too() -> None:
    def of(*natives: Any) -> str:
        return Agent("a", ScriptedModel([]), native_tools=natives).definition.fingerprint

    prints = {of(), of(SEARCH), of(CodeExecutionTool()), of(SEARCH, CodeExecutionTool())}
    assert len(prints) == 4
    assert of(WebSearchTool()) == of(SEARCH)


# ------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (SEARCH, "must be a list"),
        ("web_search", "must be a list"),
        (["web_search"], "WebSearchTool"),
        ([WebSearchTool], "WebSearchTool"),
        ([SEARCH, WebSearchTool(max_uses=3)], "'web_search' twice"),
    ],
)
def test_what_is_no_list_of_native_tools_is_refused(given: Any, named: str) -> None:
    """R8."""
    with pytest.raises(UsageError, match=f"native_tools.*{named}"):
        Agent("a", ScriptedModel([]), native_tools=given)


def test_two_servers_are_two_tools() -> None:
    servers = [MCPServerTool(id=id, url=f"https://example.com/{id}") for id in ("one", "two")]
    agent = Agent("a", ScriptedModel([]), native_tools=servers)
    assert agent.definition.native_tools == tuple(servers)


def test_a_tool_of_a_native_tools_name_is_refused_but_the_one_that_it_calls() -> None:
    named = tool(name="web_search")(pay.function)
    with pytest.raises(UsageError, match=r"native tool named 'web_search'.*rename"):
        Agent("a", ScriptedModel([]), tools=[named], native_tools=[SEARCH])
    memory = tool(name="memory")(pay.function)
    Agent("a", ScriptedModel([]), tools=[memory], native_tools=[MemoryTool()])


def test_a_model_without_a_native_tool_is_refused_when_the_agent_is_made() -> None:
    """R11, R8."""
    for model in (chat(), FallbackModel(ScriptedModel([]), chat())):
        with pytest.raises(UsageError, match=r"'gpt-5-mini' has no native tool WebFetchTool"):
            Agent("a", model, native_tools=[WebFetchTool()])
    with pytest.raises(UsageError, match="has no native tool WebFetchTool"):
        Agent("a", ScriptedModel([]), fallback_models=[chat()], native_tools=[WebFetchTool()])
    Agent("a", chat(), native_tools=[WebFetchTool(optional=True)])


def test_a_setting_that_a_model_would_ignore_is_refused() -> None:
    class Lax(ScriptedModel):
        def unsupported_native_tool_settings(self, native_tool: Any) -> frozenset[str]:
            restricting: frozenset[str] = native_tool.restricting_settings
            return restricting

    search = WebSearchTool(allowed_domains=["example.com"])
    with pytest.raises(UsageError, match=r"would ignore allowed_domains of WebSearchTool"):
        Agent("a", Lax([]), native_tools=[search])
    Agent("a", Lax([]), native_tools=[SEARCH])


def test_a_named_model_without_one_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R11: its profile is known when its name is looked up."""
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    agent = Agent("a", "openai-chat:gpt-5-mini", native_tools=[CodeExecutionTool()])
    with pytest.raises(UsageError, match=r"'gpt-5-mini' has no native tool CodeExecutionTool"):
        agent.execute_sync("go")


@pytest.mark.parametrize("rule", [True, False])
def test_a_gate_that_names_a_native_tool_is_refused(rule: bool) -> None:
    """R11, I1."""
    with pytest.raises(UsageError, match=r"'web_search', a native tool: its provider runs it"):
        Agent("a", ScriptedModel([]), native_tools=[SEARCH], interrupt_on={"web_search": rule})
    child = Agent("child", ScriptedModel([]), native_tools=[SEARCH])
    gate = HumanInTheLoop({"web_search": rule})
    with pytest.raises(UsageError, match=r"'web_search', a native tool"):
        Agent("p", ScriptedModel([]), middleware=[gate, SubAgent([child])])
    with pytest.raises(UsageError, match=r"'web_search', a native tool"):
        Agent("w", mode=Sequential([child]), middleware=[gate])


def test_a_gate_above_an_agent_that_a_tool_runs_holds_there_too() -> None:
    """R11, S5: the agent is not run without the approval that the gate promises."""
    child = Agent("child", ScriptedModel(["never"]), native_tools=[SEARCH])

    @tool
    async def web_search(ctx: ToolContext) -> Any:
        """Search by an agent."""
        return await ctx.run_agent(child, "x")

    model = ScriptedModel([call("web_search"), "done"])
    agent = Agent("a", model, tools=[web_search], interrupt_on={"web_search": True})
    waiting = agent.execute_sync("go")
    assert isinstance(waiting, Interrupted)
    outcome = completed(agent.resume_sync(waiting.state, waiting.decide(approve())))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "nobody can approve it" in str(part.content)


def test_a_workflow_has_no_native_tools() -> None:
    inner = Agent("b", ScriptedModel([]))
    with pytest.raises(UsageError, match="native_tools"):
        Agent("a", mode=Sequential([inner]), native_tools=[SEARCH])


def test_the_parts_of_a_native_call_are_the_same_after_they_were_stored() -> None:
    """R11: byte for byte, as data of the provider's own is in them."""
    model = ScriptedModel([searched(TextPart("A red one."))])
    state = completed(Agent("a", model, native_tools=[SEARCH]).execute_sync("go")).state
    again = reloaded(state)
    assert list(again.messages) == list(state.messages)
    assert json.dumps(again.to_dict()) == json.dumps(state.to_dict())
