"""`output_mode`: by which means a model is asked for a value of the output type (R10)."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.agents import (
    assert_valid_history,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from tests.support.places import Place
from understudy import (
    Agent,
    Failed,
    Runtime,
    ScriptedModel,
    UntilToolNotCalled,
    UsageError,
    approve,
    call,
    edit,
    tool,
)
from understudy.middleware import Limits, SubAgent
from understudy.models.requirements import OutputMode
from understudy.modes import AgentExecution, Loop, Sequential

MODES: tuple[OutputMode, ...] = get_args(OutputMode)


class Review(BaseModel):
    """What to think of it."""

    stars: int
    why: str = ""


class Tree(BaseModel):
    name: str
    inner: list[Tree] = []


@tool
def look(x: int) -> str:
    return f"looked {x}"


def answer(mode: OutputMode, value: Any) -> Any:
    """The reply that gives this value in this mode."""
    whole = value if isinstance(value, dict) else {"response": value}
    return call("final_result", whole) if mode == "tool" else json.dumps(whole)


# -------------------------------------------------------------------------- the value

VALUES: list[tuple[Any, Any, Any]] = [
    (Review, {"stars": 4, "why": "x"}, Review(stars=4, why="x")),
    (Tree, {"name": "a", "inner": [{"name": "b"}]}, Tree(name="a", inner=[Tree(name="b")])),
    (list[Review], [{"stars": 1}], [Review(stars=1)]),
    (int, 7, 7),
    (Review | None, None, None),
    (dict[str, int], {"response": {"a": 1}}, {"a": 1}),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("of", "given", "value"), VALUES, ids=lambda v: str(v)[:20])
def test_the_answer_is_a_value_of_the_type_in_each_mode(
    mode: OutputMode, of: Any, given: Any, value: Any
) -> None:
    """R10: here, under its key, and in another process."""
    model = ScriptedModel([call("look", {"x": 1}), answer(mode, given)])
    agent = Agent("a", model, tools=[look], output_type=of, output_mode=mode, output_key="it")
    outcome = completed(agent.execute_sync("go"))
    assert outcome.output == value
    assert outcome.tool_result is None
    state = reloaded(outcome.state)
    assert state == outcome.state
    assert_valid_history(state)
    assert json.loads(outcome.text) in (given, {"response": given}, state.values["it"])
    again = Agent("a", ScriptedModel([]), tools=[look], output_type=of, output_mode=mode)
    assert completed(again.runner.ended(state)).output == value


@pytest.mark.parametrize("mode", MODES)
def test_the_model_is_asked_by_its_api_and_not_by_our_instructions(mode: OutputMode) -> None:
    """R10: as Pydantic AI's models take it."""
    model = ScriptedModel([answer(mode, {"stars": 4})])
    Agent("a", model, "Review.", output_type=Review, output_mode=mode).execute_sync("go")
    request = model.requests[0]
    parameters = request.parameters
    assert request.instructions == "Review."
    assert parameters.output_mode == mode
    if mode == "tool":
        (output_tool,) = parameters.output_tools
        assert (output_tool.name, output_tool.kind) == ("final_result", "output")
        schema = output_tool.parameters_json_schema
        assert str(output_tool.description).endswith("What to think of it.")
        assert not parameters.allow_text_output
        assert request.tools == ("final_result",)
        assert parameters.function_tools == []
    else:
        assert parameters.output_object is not None
        schema = parameters.output_object.json_schema
        assert parameters.allow_text_output
        assert parameters.output_object.name == "Review"
        assert parameters.output_object.description == "What to think of it."
    assert schema["type"] == "object"
    assert set(schema["properties"]) == {"stars", "why"}


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_that_does_not_fit_goes_back_to_the_model(mode: OutputMode) -> None:
    model = ScriptedModel([answer(mode, {"stars": "many"}), answer(mode, {"stars": 4})])
    agent = Agent("a", model, output_type=Review, output_mode=mode)
    outcome = completed(agent.execute_sync("go"))
    assert outcome.output == Review(stars=4)
    assert "stars" in str(model.requests[1].messages[-1])
    assert_valid_history(outcome.state)


def test_a_text_where_a_call_is_wanted_is_read_if_it_fits_and_else_refused() -> None:
    model = ScriptedModel(["It is fine.", '{"stars": 3}'])
    agent = Agent("a", model, output_type=Review, output_mode="tool")
    outcome = completed(agent.execute_sync("go"))
    assert outcome.output == Review(stars=3)
    assert "'final_result'" in model.requests[1].prompt


# ----------------------------------------------------------- with what a run does besides


def test_the_other_calls_of_the_reply_are_executed_too() -> None:
    """U4: the whole reply first."""
    model = ScriptedModel([[call("final_result", {"stars": 4}), call("look", {"x": 1})]])
    agent = Agent("a", model, tools=[look], output_type=Review, output_mode="tool")
    outcome = completed(agent.execute_sync("go"))
    assert outcome.output == Review(stars=4)
    assert [part.content for part in results(outcome.state)] == [
        "The answer is accepted.",
        "looked 1",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_until_a_tool_has_no_other_output(mode: OutputMode) -> None:
    """U5: the model is not asked for one."""
    model = ScriptedModel([call("look", {"x": 1})])
    agent = Agent("a", model, tools=[look], output_type=Review, output_mode=mode)
    outcome = completed(agent.execute_sync("go", until_tool="look"))
    assert outcome.output is None
    assert outcome.tool_result is not None
    assert model.requests[0].parameters.output_mode == "text"
    failed = Agent("a", ScriptedModel(["no"]), tools=[look], output_type=Review, output_mode=mode)
    ended = failed.execute_sync("go", until_tool="look")
    assert isinstance(ended, Failed)
    assert isinstance(ended.error, UntilToolNotCalled)


@pytest.mark.parametrize("mode", MODES)
def test_the_last_answer_at_a_limit_is_a_value_too(mode: OutputMode) -> None:
    """R1: the model may call no other tool, and it answers by the output tool."""
    model = ScriptedModel([call("look", {"x": 1}), [answer(mode, {"stars": 2})]])
    agent = Agent(
        "a",
        model,
        tools=[look],
        output_type=Review,
        output_mode=mode,
        output_key="it",
        max_runs=1,
        early_stopping="generate",
    )
    outcome = completed(agent.execute_sync("go"))
    assert (outcome.early_stopped, outcome.output) == (True, Review(stars=2))
    assert outcome.state.values == {"it": {"stars": 2, "why": ""}}
    assert model.requests[1].tools == (("final_result",) if mode == "tool" else ())
    assert_valid_history(outcome.state)


@pytest.mark.parametrize(
    "last", [call("look", {"x": 1}), call("final_result", {"stars": "many"}), ["", call("look")]]
)
def test_a_last_answer_that_is_none_is_a_sentence_that_says_so(last: Any) -> None:
    """R1: the model is not asked again."""
    model = ScriptedModel([call("look", {"x": 1}), last])
    agent = Agent(
        "a",
        model,
        tools=[look],
        output_type=Review,
        output_mode="tool",
        middleware=[Limits(max_steps=1, on_limit="generate")],
    )
    outcome = completed(agent.execute_sync("go"))
    assert (outcome.early_stopped, outcome.output) == (True, None)
    assert outcome.text == "I reached the limit of what I may do here before I had an answer."
    assert_valid_history(outcome.state)


def test_a_person_may_approve_or_edit_the_answer() -> None:
    """I6: the output tool is a tool of the agent."""

    def desk() -> Agent:
        return Agent(
            "a",
            ScriptedModel([call("final_result", {"stars": 4})]),
            output_type=Review,
            output_mode="tool",
            interrupt_on={"final_result": True},
        )

    waiting = interrupted(desk().execute_sync("go"))
    state = reloaded(waiting.state)
    assert completed(desk().resume_sync(state, waiting.decide(approve()))).output == Review(stars=4)
    edited = desk().resume_sync(state, waiting.decide(edit({"stars": 1})))
    assert completed(edited).output == Review(stars=1)


def test_the_answer_of_a_sub_agent_is_its_parents_result() -> None:
    """S4."""
    child = Agent(
        "child",
        ScriptedModel([call("final_result", {"stars": 4})]),
        output_type=Review,
        output_mode="tool",
    )
    task = call("task", {"task_name": "child", "instructions": "x"})
    model = ScriptedModel([task, "done"])
    parent = Agent("p", model, middleware=[SubAgent([child], general_purpose=False)])
    outcome = completed(parent.execute_sync("go"))
    assert json.loads(str(results(outcome.state)[0].content)) == {"stars": 4, "why": ""}


def test_the_general_purpose_agent_answers_in_words() -> None:
    """S1: it has the parent's tools, not its way to answer."""
    model = ScriptedModel(
        [call("task", {"task_name": "general-purpose", "instructions": "x"}), "in words",
         call("final_result", {"stars": 4})]
    )  # fmt: skip
    parent = Agent("p", model, middleware=[SubAgent()], output_type=Review, output_mode="tool")
    assert completed(parent.execute_sync("go")).output == Review(stars=4)
    assert model.requests[1].tools == ()


def test_agents_of_a_workflow_answer_in_their_own_modes() -> None:
    """W4, R10."""
    first = Agent(
        "first",
        ScriptedModel([call("final_result", {"stars": 4})]),
        output_type=Review,
        output_mode="tool",
        output_key="review",
    )
    second = Agent("second", ScriptedModel(["ok"]), "It has {review}.")
    outcome = completed(Agent("w", mode=Sequential([first, second])).execute_sync("go"))
    assert outcome.state.values["review"] == {"stars": 4, "why": ""}


# ------------------------------------------------------------------------ kept, cut off


@pytest.mark.parametrize("mode", MODES)
def test_a_run_cut_off_anywhere_has_the_same_output(mode: OutputMode) -> None:
    """R10: after any record."""

    def agent() -> Agent:
        def reply(request: Any) -> Any:
            if len(request.messages) < 3:
                return call("look", {"x": 1}, id="one")
            return answer(mode, {"stars": 4})

        safe = tool(idempotent=True, name="look")(look.function)
        return Agent("a", ScriptedModel(reply), tools=[safe], output_type=Review, output_mode=mode)

    disk = Disk()
    whole = completed(agent().execute_sync("go", journal=disk))
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            agent().execute_sync("go", journal=cut)
        again = completed(agent().resume_sync(cut.load()))
        assert (again.output, again.text) == (whole.output, whole.text)
        assert len(again.state.messages) == len(whole.state.messages)


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_of_a_store_answers_in_each_mode(mode: OutputMode, place: Place) -> None:
    def agent(*replies: Any) -> Agent:
        return Agent("a", ScriptedModel(replies), output_type=Review, output_mode=mode)

    async with Runtime([agent(answer(mode, {"stars": 4}))], store=place.store()) as runtime:
        assert completed(await soon(runtime.spawn("a", "1").run("go"))).output == Review(stars=4)
    async with Runtime([agent(answer(mode, {"stars": 5}))], store=place.store()) as runtime:
        ref = runtime.spawn("a", "1")
        assert completed(await soon(ref.run("more"))).output == Review(stars=5)
        state = await soon(ref.state())
    assert_valid_history(state)


# ----------------------------------------------------------------------------- mistakes


def chat(**profile: Any) -> Model:
    given: Any = profile
    kept: ModelProfile = given
    provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="test")
    return OpenAIChatModel("gpt-5-mini", provider=provider, profile=kept)


@pytest.mark.parametrize("mode", ["text", "json", "", 3])
def test_a_mode_that_there_is_not_is_refused(mode: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match=r"output_mode.*'tool', 'native' or 'prompted'"):
        Agent("a", ScriptedModel([]), output_type=Review, output_mode=mode)


@pytest.mark.parametrize("of", [None, str])
def test_a_mode_without_a_type_is_refused(of: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match=r"output_mode='tool'.*output_type"):
        Agent("a", ScriptedModel([]), output_type=of, output_mode="tool")


def test_a_tool_of_the_output_tools_name_is_refused() -> None:
    named = tool(name="final_result")(look.function)
    with pytest.raises(UsageError, match=r"two tools named 'final_result'.*output_mode='tool'"):
        Agent("a", ScriptedModel([]), tools=[named], output_type=Review, output_mode="tool")


def test_a_mode_without_the_step_that_ends_runs_by_tools_is_refused() -> None:
    mode = AgentExecution().without("check_until_tool")
    with pytest.raises(UsageError, match="check_until_tool"):
        Agent("a", ScriptedModel([]), output_type=Review, output_mode="tool", mode=mode)


def test_a_workflow_has_no_output_mode() -> None:
    inner = Agent("b", ScriptedModel([]))
    with pytest.raises(UsageError, match="output_type"):
        Agent("a", mode=Loop([inner], 1), output_type=Review, output_mode="tool")


UNABLE: list[tuple[OutputMode, dict[str, Any]]] = [
    ("native", {"supports_json_schema_output": False}),
    ("tool", {"supports_tools": False}),
]


@pytest.mark.parametrize(("mode", "profile"), UNABLE)
@pytest.mark.parametrize("place_of", ["model", "fallback", "inside"])
def test_a_model_that_cannot_is_refused_when_the_agent_is_made(
    mode: OutputMode, profile: dict[str, Any], place_of: str
) -> None:
    """R10, R8."""
    able, unable = chat(), chat(**profile)
    places: dict[str, list[Model]] = {
        "model": [unable],
        "fallback": [able, unable],
        "inside": [FallbackModel(able, unable)],
    }
    models = places[place_of]
    with pytest.raises(UsageError, match=rf"'gpt-5-mini'.*output_mode='{mode}'.*'prompted'"):
        Agent("a", models[0], fallback_models=models[1:], output_type=Review, output_mode=mode)
    Agent("a", models[0], fallback_models=models[1:], output_type=Review, output_mode="prompted")


def test_a_named_model_that_cannot_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R10: its profile is known when the name is looked up."""
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    agent = Agent("a", "openai-chat:gpt-3.5-turbo", output_type=Review, output_mode="tool")
    assert agent.definition.requirements.output_mode == "tool"
    from understudy.agent import nested_runs

    monkeypatch.setattr(nested_runs, "resolve_model", lambda name: chat(supports_tools=False))
    with pytest.raises(UsageError, match="calls no tools"):
        agent.execute_sync("go")


def test_the_fingerprint_is_of_the_mode_too() -> None:
    def of(**options: Any) -> str:
        return Agent("a", ScriptedModel([]), output_type=Review, **options).definition.fingerprint

    assert len({of(), *(of(output_mode=mode) for mode in MODES)}) == 4


def test_the_result_of_the_output_tool_is_in_the_conversation() -> None:
    model = ScriptedModel([call("final_result", {"stars": 4}), "more"])
    agent = Agent("a", model, output_type=Review, output_mode="tool")
    outcome = completed(agent.execute_sync("go"))
    last = outcome.state.messages[-1]
    assert isinstance(last, ModelRequest)
    (part,) = last.parts
    assert isinstance(part, ToolReturnPart)
    assert part.outcome == "success"
