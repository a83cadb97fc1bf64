"""W4: `output_key`, `output_type`, `{key}`; W5: `include_contents`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, create_model
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)

from tests.support.agents import completed, reloaded, told_by_users
from understudy import (
    Agent,
    AgentState,
    Failed,
    Interrupted,
    Run,
    RunLimitExceeded,
    ScriptedModel,
    StopSignal,
    ToolResult,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.errors import MissingValue, UntilToolNotCalled
from understudy.middleware import Limits, Middleware
from understudy.models import ScriptedRequest


class Review(BaseModel):
    verdict: str
    score: int = 0


OPEN: Any = {"x": ("Missing", ...)}
"""A field of a type that there is not."""


@tool
async def look(x: int) -> str:
    return f"saw {x}"


# ------------------------------------------------------------------------ output_key


def test_the_final_text_is_put_under_the_output_key() -> None:
    """W4."""
    agent = Agent("writer", ScriptedModel(["A kettle."]), output_key="doc")
    outcome = completed(agent.execute_sync("write"))
    assert outcome.state.values == {"doc": "A kettle."}
    assert outcome.output == "A kettle."
    assert reloaded(outcome.state).values == {"doc": "A kettle."}


def test_a_turn_with_tool_calls_is_not_final_and_puts_nothing() -> None:
    """W4: only the last reply, the one without calls, does."""
    seen: list[dict[str, Any]] = []

    def reply(request: ScriptedRequest) -> Any:
        seen.append(dict(agent_state()))
        return ["let me look", call("look", {"x": len(seen)})] if len(seen) < 3 else "done"

    agent = Agent(
        "writer", ScriptedModel(reply), tools=[look], middleware=[Spy()], output_key="doc"
    )
    outcome = completed(agent.execute_sync("write"))
    assert seen == [{}, {}, {}]
    assert outcome.state.values == {"doc": "done"}


class Spy(Middleware):
    values: dict[str, Any] = {}  # noqa: RUF012  # one test at a time looks at it

    async def before_model(self, run: Any, request: Any) -> None:
        Spy.values = dict(run.state.values)


def agent_state() -> dict[str, Any]:
    return Spy.values


def test_a_run_that_a_tool_ends_puts_no_text_under_the_output_key() -> None:
    """W3, W4: text beside the call is chatter, and must not overwrite what was written before."""

    @tool
    async def enough() -> ToolResult[str]:
        return ToolResult("", skip_summarization=True)

    def agent() -> Agent:
        model = ScriptedModel([["I stop.", call("enough")]])
        return Agent("writer", model, tools=[enough], output_key="doc")

    state = AgentState(values={"doc": "good"})
    by_skip = completed(agent().execute_sync("write", state=state))
    by_until = completed(agent().execute_sync("write", state=state, until_tool="enough"))
    assert by_skip.state.values == by_until.state.values == {"doc": "good"}
    assert by_skip.usage.requests == 1


def test_a_tool_that_skips_the_summary_before_the_until_tool_fails_the_run() -> None:
    """U5: the model has stopped without it."""

    @tool
    async def enough() -> ToolResult[str]:
        return ToolResult("", skip_summarization=True)

    agent = Agent("writer", ScriptedModel([call("enough")]), tools=[enough, look])
    outcome = agent.execute_sync("write", until_tool="look")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UntilToolNotCalled)


def test_an_empty_final_text_puts_nothing() -> None:
    picture = FilePart(BinaryContent(b"\x89PNG", media_type="image/png"))
    model = ScriptedModel([ModelResponse(parts=[picture])])
    agent = Agent("writer", model, output_key="doc")
    outcome = completed(agent.execute_sync("write", state=AgentState(values={"doc": "good"})))
    assert outcome.state.values == {"doc": "good"}


def test_an_output_replaces_what_was_there_and_is_not_merged_into_it() -> None:
    agent = Agent(
        "critic", ScriptedModel(['{"verdict": "fine"}']), output_key="review", output_type=Review
    )
    state = AgentState(values={"review": {"verdict": "bad", "why": "long"}})
    outcome = completed(agent.execute_sync("judge", state=state))
    assert outcome.state.values == {"review": {"verdict": "fine", "score": 0}}


def test_a_failed_run_puts_nothing() -> None:
    agent = Agent("writer", ScriptedModel([ValueError("down")]), output_key="doc")
    outcome = agent.execute_sync("write")
    assert isinstance(outcome, Failed)
    assert outcome.state.values == {}


# ----------------------------------------------------------------------- output_type


def test_the_final_text_becomes_a_value_of_the_output_type() -> None:
    """W4: the outcome carries the value, the state its JSON, the model gets the schema."""
    model = ScriptedModel(['{"verdict": "fine", "score": 7}'])
    agent = Agent("critic", model, "Judge.", output_key="review", output_type=Review)
    outcome = completed(agent.execute_sync("judge"))
    assert outcome.output == Review(verdict="fine", score=7)
    assert outcome.state.values == {"review": {"verdict": "fine", "score": 7}}
    asked = model.requests[0].instructions
    assert asked.startswith("Judge.\n\n")
    assert '"verdict"' in asked


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (int | None, "null", None),
        (str, "as it is", "as it is"),
        (Review, '```json\n{"verdict": "fine"}\n```', Review(verdict="fine")),
    ],
)
def test_any_type_that_pydantic_reads_is_an_output_type(
    output_type: Any, text: str, value: Any
) -> None:
    agent = Agent("a", ScriptedModel([text]), output_key="out", output_type=output_type)
    outcome = completed(agent.execute_sync("go"))
    assert outcome.output == value
    stored = value.model_dump() if isinstance(value, BaseModel) else value
    assert outcome.state.values == {"out": stored}


def test_a_dataclass_is_an_output_type() -> None:
    @dataclass
    class Point:
        x: int

    agent = Agent("a", ScriptedModel(['{"x": 3}']), output_type=Point)
    outcome = completed(agent.execute_sync("go"))
    assert outcome.output == Point(3)
    assert outcome.state.values == {}


def test_an_answer_that_does_not_fit_goes_back_to_the_model_with_the_error() -> None:
    """W4: it costs a model call; nothing is put until it fits."""
    model = ScriptedModel(["It is fine.", '{"verdict": 3}', '{"verdict": "fine"}'])
    agent = Agent("critic", model, output_key="review", output_type=Review)
    outcome = completed(agent.execute_sync("judge"))
    assert outcome.output == Review(verdict="fine")
    assert outcome.usage.requests == 3
    assert "JSON" in told_by_users(model.requests[1])[-1]
    assert "verdict: Input should be a valid string" in told_by_users(model.requests[2])[-1]


@pytest.mark.parametrize("error", [ValueError, KeyError])
def test_whatever_a_validator_of_the_output_type_raises_the_answer_does_not_fit(
    error: type[Exception],
) -> None:
    """W4: it fails no run."""

    def check(number: int) -> int:
        if number < 3:
            raise error("far too small")
        return number

    model = ScriptedModel(["1", "3"])
    agent = Agent("a", model, output_type=Annotated[int, AfterValidator(check)])
    assert completed(agent.execute_sync("go")).output == 3
    assert "far too small" in model.requests[1].prompt


@pytest.mark.parametrize(
    ("output_type", "text", "right"),
    [
        (float, "NaN", "1.5"),
        (float, "1e999", "2"),
        (float | None, "-Infinity", "null"),
        (list[float], "[1, NaN]", "[1]"),
        (dict[str, Any], '{"x": [1e999]}', '{"x": [1]}'),
    ],
)
def test_an_answer_with_a_number_that_json_lacks_does_not_fit(
    output_type: Any, text: str, right: str
) -> None:
    """W4: another process would read another value."""
    model = ScriptedModel([text, right])
    agent = Agent("a", model, output_type=output_type, output_key="said")
    outcome = completed(agent.execute_sync("go"))
    if output_type == dict[str, Any]:  # there it is None, as in any value that has no type
        assert outcome.output == {"x": [None]}
    else:
        assert "must be finite" in model.requests[1].prompt
        assert outcome.output == json.loads(right)
    assert reloaded(outcome.state) == outcome.state
    assert outcome.state.values["said"] == outcome.output


def test_a_model_that_never_answers_as_asked_reaches_the_limit_of_the_run() -> None:
    """R1, W4."""
    agent = Agent("critic", ScriptedModel(["no"] * 9), output_type=Review, max_runs=3)
    outcome = agent.execute_sync("judge")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RunLimitExceeded)
    assert outcome.usage.requests == 3


def test_the_value_of_a_finished_run_is_there_again_from_its_state() -> None:
    """W4, I5: the same answer again gives the same outcome, its value rebuilt by its type."""

    def agent() -> Agent:
        return Agent(
            "critic",
            ScriptedModel([call("look", {"x": 1}), '{"verdict": "fine"}']),
            tools=[look],
            interrupt_on={"look": True},
            output_type=Review,
        )

    asked = agent().execute_sync("judge")
    assert isinstance(asked, Interrupted)
    answers = asked.decide(approve())
    resumed = Agent(
        "critic",
        ScriptedModel(['{"verdict": "fine"}']),
        tools=[look],
        interrupt_on={"look": True},
        output_type=Review,
    )
    outcome = completed(resumed.resume_sync(asked.state, answers))
    again = completed(agent().resume_sync(reloaded(outcome.state), answers))
    assert again.output == outcome.output == Review(verdict="fine")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"output_key": "two words"}, ["output_key", "two words"]),
        ({"output_key": ""}, ["output_key"]),
        ({"output_type": object()}, ["output_type"]),
        ({"output_type": lambda: 3}, ["output_type"]),
        ({"output_type": create_model("Open", **OPEN)}, ["output_type", "Open"]),
        ({"include_contents": "some"}, ["include_contents", "'none'"]),
    ],
)
def test_an_option_that_could_not_work_is_refused(options: dict[str, Any], told: list[str]) -> None:
    """R8."""
    with pytest.raises(UsageError) as raised:
        Agent("a", ScriptedModel([]), **options)
    assert all(word in str(raised.value) for word in ["'a'", *told])


def test_an_output_key_that_a_middleware_keeps_is_refused() -> None:
    class Notes(BaseModel):
        notes: list[str] = []  # Pydantic copies it

    class Keeper(Middleware):
        state_schema = Notes

    with pytest.raises(UsageError, match="'notes' is a value that Keeper keeps"):
        Agent("a", ScriptedModel([]), middleware=[Keeper()], output_key="notes")


# ---------------------------------------------------------------------- {key} in text


@pytest.mark.parametrize(
    ("instructions", "told"),
    [
        ("Judge {doc}!", "Judge A kettle.!"),
        ("Judge {doc} {more?}|", "Judge A kettle. |"),
        ("Say {{doc}} {{{doc}}}", "Say {doc} {A kettle.}"),
        (lambda state: "Say {doc} {{}} {missing}", "Say {doc} {{}} {missing}"),
        ("{count} {flags}", "3 ['a']"),
    ],
)
def test_instructions_read_the_values(instructions: Any, told: str) -> None:
    """W4: `{key}`, `{key?}`, literal braces; what a function gives is taken verbatim."""
    model = ScriptedModel(["ok"])
    values = {"doc": "A kettle.", "count": 3, "flags": ["a"]}
    Agent("a", model, instructions).execute_sync("go", state=AgentState(values=values))
    assert model.requests[0].instructions == told


def test_what_a_value_holds_is_not_read_as_instructions() -> None:
    """A value with braces in it reads no other value."""
    model = ScriptedModel(["ok"])
    values = {"doc": "{secret} {{x}}", "secret": "hidden"}
    Agent("a", model, "Judge {doc}").execute_sync("go", state=AgentState(values=values))
    assert model.requests[0].instructions == "Judge {secret} {{x}}"


def test_a_key_that_is_missing_is_an_error_that_names_key_and_agent() -> None:
    """W4."""
    model = ScriptedModel(["ok"])
    with pytest.raises(MissingValue, match=r"agent 'critic' read \{doc\}.*\{doc\?\}"):
        Agent("critic", model, "Judge {doc}").execute_sync("go")
    assert model.requests == []


# ------------------------------------------------------------------ include_contents


def test_an_agent_without_contents_sees_only_the_run_that_goes_on() -> None:
    """W5: what was said in earlier runs is kept, and not shown."""
    model = ScriptedModel(["one", call("look", {"x": 1}), "two"])
    agent = Agent("a", model, tools=[look], include_contents="none")
    first = agent.execute_sync("first")
    second = completed(agent.execute_sync("second", state=first.state))
    assert [told_by_users(request) for request in model.requests] == [
        ["first"],
        ["second"],
        ["second"],
    ]
    assert [len(request.messages) for request in model.requests] == [1, 1, 3]
    assert len(second.state.messages) == 6


def test_an_agent_without_contents_sees_only_the_run_that_goes_on_after_a_reload() -> None:
    model = ScriptedModel(["one", "two"])

    def agent() -> Agent:
        return Agent(
            "a", model, include_contents="none", pause_when=lambda: len(model.requests) > 1
        )

    first = agent().execute_sync("first")
    paused = agent().execute_sync("second", state=reloaded(first.state))
    outcome = agent().resume_sync(reloaded(paused.state))
    assert completed(outcome).text == "two"
    assert told_by_users(model.requests[1]) == ["second"]


def test_a_middleware_that_looks_on_changes_nothing_of_what_is_shown() -> None:
    """W5: a hook that only looks does not bring the hidden conversation back."""
    model = ScriptedModel(["one", "two"])
    agent = Agent("a", model, middleware=[Spy()], include_contents="none")
    first = agent.execute_sync("first")
    agent.execute_sync("second", state=first.state)
    assert told_by_users(model.requests[1]) == ["second"]


def test_a_summary_that_a_middleware_makes_is_shown_without_contents_too() -> None:
    class Summary(Middleware):
        async def before_model(self, run: Any, request: Any) -> None:
            async def shorten() -> None:
                await run.replace_history([ModelRequest(parts=[UserPromptPart("in short")])])

            await run.once("shorten", shorten)

    model = ScriptedModel(["one"])
    agent = Agent("a", model, middleware=[Summary()], include_contents="none")
    agent.execute_sync("first")
    assert told_by_users(model.requests[0]) == ["in short"]


def test_after_a_summary_all_that_is_left_is_shown_without_contents_too() -> None:
    """W5, J15: what a middleware put in the place of the history is meant to be seen."""

    class Summary(Middleware):
        async def before_model(self, run: Any, request: Any) -> None:
            async def shorten() -> None:
                kept = run.state.messages[-1]
                parts = [UserPromptPart("in short"), *kept.parts]
                await run.replace_history([ModelRequest(parts=parts)])

            if len(run.state.messages) > 1:
                await run.once("shorten", shorten)

    model = ScriptedModel(["one", "two"])
    agent = Agent("a", model, middleware=[Summary()], include_contents="none")
    first = agent.execute_sync("first")
    agent.execute_sync("second", state=first.state)
    assert told_by_users(model.requests[1]) == ["in short", "second"]


@pytest.mark.parametrize(
    ("last", "values"), [("In short.", {"doc": "In short."}), ("", {"doc": "good"})]
)
def test_an_early_answer_is_put_but_not_the_sentence_that_says_that_there_is_none(
    last: str, values: dict[str, Any]
) -> None:
    """R1, W4."""
    model = ScriptedModel([call("look", {"x": 1}), last])
    agent = Agent("a", model, tools=[look], output_key="doc", max_runs=1, early_stopping="generate")
    outcome = completed(agent.execute_sync("go", state=AgentState(values={"doc": "good"})))
    assert outcome.early_stopped
    assert outcome.state.values == values


def test_an_early_answer_that_does_not_fit_is_text_and_no_output() -> None:
    """R1: the model is not asked again."""
    model = ScriptedModel([call("look", {"x": 1}), "It is fine."])
    agent = Agent(
        "a",
        model,
        tools=[look],
        output_type=Review,
        output_key="review",
        max_runs=1,
        early_stopping="generate",
    )
    outcome = completed(agent.execute_sync("go"))
    assert (outcome.early_stopped, outcome.text, outcome.output) == (
        True,
        "It is fine.",
        None,
    )
    assert outcome.state.values == {}


@pytest.mark.parametrize("until", [True, False], ids=["until tool", "signal"])
def test_the_output_of_a_run_that_ends_without_a_final_text_is_none(until: bool) -> None:
    """W4: it is a value of the output type, or None."""
    options: dict[str, Any] = {"until_tool": "look"} if until else {}
    middleware = [] if until else [Content()]
    model = ScriptedModel([["Looking.", call("look", {"x": 1})]])
    agent = Agent("a", model, tools=[look], output_type=Review, middleware=middleware)
    outcome = completed(agent.execute_sync("go", **options))
    assert (outcome.text, outcome.output) == ("Looking.", None)


class Content(Middleware):
    """Is content with any reply."""

    async def after_step(self, run: Run) -> None:
        run.signal(StopSignal.completed("that will do"))


def finishing(text: str) -> ScriptedModel:
    return ScriptedModel([ModelResponse(parts=[TextPart(text)], finish_reason="length")])


@pytest.mark.parametrize("signals", [Limits(finish_reasons=["length"]), Content()])
def test_a_final_reply_that_a_finish_reason_ends_is_put(signals: Middleware) -> None:
    """P5, W4: it is a final reply, however the run came to its end."""
    agent = Agent("a", finishing("A kettle."), middleware=[signals], output_key="doc")
    outcome = completed(agent.execute_sync("go"))
    assert outcome.state.values == {"doc": "A kettle."}
    assert not outcome.early_stopped


def test_a_final_reply_that_a_finish_reason_ends_is_read_if_it_fits() -> None:
    """P5, W4: the model is not asked again; what does not fit is text, and no value."""
    values = []
    for text in ('{"verdict": "good"}', '{"verdict": "go'):
        limits = Limits(finish_reasons=["length"])
        agent = Agent(
            "a", finishing(text), middleware=[limits], output_type=Review, output_key="review"
        )
        outcome = completed(agent.execute_sync("go"))
        assert outcome.usage.requests == 1
        values.append((outcome.output, dict(outcome.state.values)))
    fits = {"verdict": "good", "score": 0}
    assert values == [(Review(verdict="good"), {"review": fits}), (None, {})]


def test_a_reply_with_tool_calls_that_a_finish_reason_ends_puts_nothing() -> None:
    """W4: it is not final."""
    reply = ModelResponse(
        parts=[TextPart("I look."), ToolCallPart("look", {"x": 1})], finish_reason="tool_call"
    )
    limits = Limits(finish_reasons=["tool_call"])
    agent = Agent("a", ScriptedModel([reply]), tools=[look], middleware=[limits], output_key="doc")
    outcome = completed(agent.execute_sync("go"))
    assert outcome.state.values == {}
    assert outcome.text == "I look."
