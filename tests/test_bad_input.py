"""A caller's mistake is reported at once: the culprit, the remedy, and no model call (R8).

Rules: A10.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic_ai.messages import ImageUrl

from understudy import (
    Agent,
    AgentState,
    Completed,
    DecisionError,
    Interrupted,
    NotInterrupted,
    Paused,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    WouldDeadlock,
    approve,
    call,
    tool,
)
from understudy.errors import MissingValue, SchemaVersionError
from understudy.middleware import HumanInTheLoop, Middleware, Prepared
from understudy.modes import Mode
from understudy.tools import Tool

HALF = "half \ud800"
"""Text that is not valid Unicode, as that of an undecodable file name."""


def note(text: str) -> str:
    return text


class Adds(Middleware):
    def __init__(self, instructions: Any = "", tools: Any = ()) -> None:
        self.added = Prepared(instructions=instructions, tools=tools)

    def prepare(self, definition: Any) -> Prepared:
        return self.added


class Unprepared(Middleware):
    def prepare(self, definition: Any) -> Prepared:
        return None  # type: ignore[return-value]  # the mistake that is tested


class NotAsync(Middleware):
    def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        return next(call)


class NotPlain(Middleware):
    async def transform_display_message(self, message: Any) -> Any:  # type: ignore[override]  # the mistake that is tested
        return message


# ------------------------------------------------------------------------- Agent(...)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("model", 3, ["model", "3", "openai:gpt-5-mini"]),
        ("model", None, ["model", "None"]),
        ("model", "", ["model", "''"]),
        ("instructions", 3, ["instructions", "3", "text or a function"]),
        ("instructions", None, ["instructions", "None"]),
        ("instructions", "Use {", ["'{'", "'{{'"]),
        ("instructions", "Use }", ["'}'", "'}}'"]),
        ("instructions", "Use {a b}", ["'{'", "'{{'"]),
        ("tools", note, ["tools", "list"]),
        ("tools", tool(note), ["tools", "list"]),
        ("tools", "note", ["tools", "list"]),
        ("tools", {"note": note}, ["tools", "list"]),
        ("tools", [3], ["tools", "3", "functions"]),
        ("tools", ["note"], ["tools", "'note'", "functions"]),
        ("tools", [dict], ["tools", "dict", "functions"]),
        ("tools", [note, note], ["'note'", "two tools", "@tool(name=...)"]),
        ("middleware", Adds(), ["middleware", "list"]),
        ("middleware", 3, ["middleware", "list", "3"]),
        ("middleware", [object()], ["object", "middleware", "instances of subclasses"]),
        ("middleware", ["todo"], ["'todo'", "middleware", "instances of subclasses"]),
        ("middleware", [HumanInTheLoop], ["HumanInTheLoop", "instances of subclasses"]),
        ("middleware", [Adds(tools=[note, note])], ["'note'", "Adds", "rename"]),
        ("middleware", [Adds(tools=note)], ["Adds", "list"]),
        ("middleware", [Adds(tools=[3])], ["3", "functions"]),
        ("middleware", [Adds(instructions=3)], ["instructions", "3"]),
        ("middleware", [Unprepared()], ["Unprepared.prepare", "Prepared"]),
        ("middleware", [NotAsync()], ["NotAsync.wrap_tool_call", "async"]),
        ("middleware", [NotPlain()], ["NotPlain.transform_display_message", "plain"]),
        ("mode", "loop", ["mode", "'loop'", "AgentExecution()"]),
        ("description", 3, ["description", "3", "text"]),
        ("max_runs", 0, ["max_runs", "0", "at least 1"]),
        ("max_runs", -1, ["max_runs", "-1"]),
        ("max_runs", "5", ["max_runs", "'5'"]),
        ("max_runs", 2.0, ["max_runs", "2.0"]),
        ("max_runs", True, ["max_runs", "True"]),
        ("max_runs", None, ["max_runs", "None"]),
        ("early_stopping", "Generate", ["early_stopping", "'generate'", "'force'"]),
        ("early_stopping_prompt", HALF, ["early_stopping_prompt", "valid Unicode"]),
        ("max_overrides", -1, ["max_overrides", "-1", "at least 0"]),
        ("max_overrides", True, ["max_overrides", "True", "at least 0"]),
        ("early_stopping", "never", ["early_stopping", "'never'", "'force'"]),
        ("early_stopping", None, ["early_stopping", "None", "'force'"]),
        ("fallback_models", "openai:gpt-5-mini", ["fallback_models", "list"]),
        ("fallback_models", ScriptedModel([]), ["fallback_models", "list"]),
        ("fallback_models", None, ["fallback_models", "list", "None"]),
        ("fallback_models", [3], ["model", "3"]),
        ("model_settings", "hot", ["model_settings", "'hot'"]),
        ("model_settings", ["temperature"], ["model_settings"]),
        ("retry", 3, ["retry", "3", "AsyncRetrying"]),
        ("interrupt_on", "note", ["'note'", "mapping"]),
        ("interrupt_on", {"note": 3}, ["'note'", "3", "True"]),
        ("interrupt_on", {"nope": True}, ["'nope'", "'note'"]),
        ("interrupt_on", {"note": []}, ["'note'", "empty"]),
        ("interrupt_on", {"note": ["aprove"]}, ["'aprove'", "approve"]),
        ("pause_when", True, ["pause_when", "True", "function"]),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_when_the_agent_is_made(
    option: str, value: Any, told: list[str]
) -> None:
    """R8: naming the culprit and what would be right."""
    options: dict[str, Any] = {"model": ScriptedModel([]), "tools": [note], option: value}
    with pytest.raises(UsageError) as raised:
        Agent("support", **options)
    message = str(raised.value)
    assert all(word in message for word in told), message


def test_tools_of_the_agent_and_of_a_middleware_must_not_share_a_name() -> None:
    """R8."""

    @tool(name="note")
    def other(text: str) -> str:
        return text

    with pytest.raises(UsageError, match=r"'support'.*'note'.*Adds.*rename"):
        Agent("support", ScriptedModel([]), tools=[note], middleware=[Adds(tools=[other])])


def test_tools_of_two_middlewares_must_not_share_a_name() -> None:
    """R8."""
    with pytest.raises(UsageError, match=r"'note'.*rename"):
        Agent("a", ScriptedModel([]), middleware=[Adds(tools=[note]), Adds(tools=[note])])


def test_an_option_that_does_not_exist_is_refused() -> None:
    """R8."""
    options: dict[str, Any] = {"max_steps": 3}
    with pytest.raises(TypeError, match="max_steps"):
        Agent("a", ScriptedModel([]), **options)


# ------------------------------------------------------------------------- tools


def test_a_tool_without_annotations_is_refused_naming_the_parameter() -> None:
    """T8."""

    def lookup(order, shop: str):  # type: ignore[no-untyped-def]  # the mistake that is tested
        return order

    for make in (tool, lambda f: Agent("a", ScriptedModel([]), tools=[f])):
        with pytest.raises(UsageError, match=r"'lookup'.*'order'.*[Aa]nnotat"):
            make(lookup)


def many(*numbers: int) -> int:
    return sum(numbers)


async def keywords(first: int, **others: str) -> str:
    return f"{first} {others}"


def unannotated(*args, **kwargs):  # type: ignore[no-untyped-def]  # as of a bare decorator
    return args, kwargs


def contexts(*contexts: ToolContext) -> str:
    return str(contexts)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (many, r"'many'.*\*numbers takes.*list\[int\]"),
        (keywords, r"'keywords'.*\*\*others takes.*dict\[str, int\]"),
        (functools.partial(keywords, 1), r"\*\*others takes.*dict\[str, int\]"),
        (unannotated, r"'unannotated'.*\*args.*functools.wraps"),
        (contexts, r"'contexts'.*\*contexts"),
    ],
    ids=["args", "kwargs", "partial", "wrapper", "contexts"],
)
def test_a_tool_that_takes_any_number_of_arguments_is_refused(function: Any, told: str) -> None:
    """T8."""
    for make in (tool, lambda f: Agent("a", ScriptedModel([]), tools=[f])):
        with pytest.raises(UsageError, match=told):
            make(function)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": ""}, ["name", "1 to 500"]),
        ({"name": 3}, ["name", "3"]),
        ({"name": HALF}, ["name", "1 to 500"]),
        ({"timeout": 0}, ["timeout", "above 0"]),
        ({"timeout": -1}, ["timeout", "-1"]),
        ({"timeout": "5"}, ["timeout", "'5'"]),
        ({"timeout": True}, ["timeout", "True"]),
        ({"on_unknown": "guess"}, ["on_unknown", "'guess'", "'ask' or 'tell'"]),
    ],
)
def test_a_tools_option_of_the_wrong_kind_is_refused(
    options: dict[str, Any], told: list[str]
) -> None:
    """R8."""
    with pytest.raises(UsageError) as raised:
        tool(**options)(note)
    assert all(word in str(raised.value) for word in told)
    assert "name" in options or "'note'" in str(raised.value)


def test_an_async_tool_cannot_be_inline() -> None:
    """R8."""

    async def fetch(url: str) -> str:
        return url

    with pytest.raises(UsageError, match=r"'fetch'.*inline"):
        tool(inline=True)(fetch)


def test_a_tool_whose_types_have_no_schema_is_refused() -> None:
    """R8."""

    class Live:
        pass

    def use(live: Live) -> str:
        return "x"

    with pytest.raises(UsageError, match="'use'"):
        tool(use)


# ------------------------------------------------------------------------- execute(...)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"until_tool": "nope"}, ["'nope'", "'support'", "'note'"]),
        ({"until_tool_success": ["note", "nope"]}, ["'nope'", "'note'"]),
        ({"until_tool": []}, ["until_tool", "non-empty list"]),
        ({"until_tool": 3}, ["until_tool", "3"]),
        ({"max_runs": 0}, ["max_runs", "0"]),
        ({"max_runs": "5"}, ["max_runs", "'5'"]),
        ({"max_runs": True}, ["max_runs", "True"]),
        ({"state": {"schema_version": 1}}, ["state", "AgentState.from_dict"]),
        ({"state": "talk"}, ["state", "'talk'", "AgentState"]),
        ({"state": []}, ["state", "AgentState"]),
        ({"pause_when": True}, ["pause_when", "True", "function"]),
        ({"clock": 3}, ["clock", "3"]),
        ({"new_id": "id"}, ["new_id", "'id'"]),
        ({"journal": []}, ["journal"]),
    ],
)
@pytest.mark.parametrize("how", ["execute", "execute_sync", "stream"])
def test_an_option_of_the_wrong_kind_is_refused_before_any_model_call(
    how: str, options: dict[str, Any], told: list[str]
) -> None:
    """R8."""
    model = ScriptedModel(["done"])
    agent = Agent("support", model, tools=[note])
    with pytest.raises(UsageError) as raised:
        start(agent, how, "go", options)
    assert all(word in str(raised.value) for word in told), str(raised.value)
    assert model.requests == []


@pytest.mark.parametrize("how", ["execute", "execute_sync"])
def test_a_listener_that_cannot_be_called_is_refused_before_any_model_call(how: str) -> None:
    """R8."""
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError, match=r"on_event.*3"):
        start(Agent("a", model), how, "go", {"on_event": 3})
    assert model.requests == []


def start(agent: Agent, how: str, given: Any, options: dict[str, Any]) -> None:
    async def streamed() -> None:
        async for _ in agent.stream(given, **options):
            pass

    if how == "execute":
        asyncio.run(agent.execute(given, **options))
    elif how == "execute_sync":
        agent.execute_sync(given, **options)
    else:
        asyncio.run(streamed())


@pytest.mark.parametrize("given", ["", "  \n", [], ()])
@pytest.mark.parametrize("how", ["execute", "execute_sync", "stream"])
def test_an_empty_prompt_is_refused(how: str, given: Any) -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError, match=r"input is empty.*say what"):
        start(Agent("a", model), how, given, {})
    assert model.requests == []


@pytest.mark.parametrize("given", [None, 3, b"go", {"text": "go"}, ["go", 3], [None]])
@pytest.mark.parametrize("how", ["execute", "execute_sync"])
def test_a_prompt_of_the_wrong_kind_is_refused(how: str, given: Any) -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError, match="input"):
        start(Agent("a", model), how, given, {})
    assert model.requests == []


def test_text_with_an_image_is_a_prompt() -> None:
    model = ScriptedModel(["a cat"])
    given: list[Any] = ["What is this?", ImageUrl("https://example.org/cat.png")]
    assert isinstance(Agent("a", model).execute_sync(given), Completed)


def test_a_stream_needs_an_input_or_a_state() -> None:
    with pytest.raises(UsageError, match="input, or a state"):
        start(Agent("a", ScriptedModel([])), "stream", None, {})


def test_a_stream_takes_no_input_beside_decisions() -> None:
    with pytest.raises(UsageError, match="not both"):
        start(Agent("a", ScriptedModel([])), "stream", "go", {"decisions": {}})


@pytest.mark.parametrize("agents", [Agent("a", ScriptedModel([])), None, 5])
def test_a_runtime_of_something_else_than_a_list_is_refused(agents: Any) -> None:
    with pytest.raises(
        UsageError, match=r"`agents` must be a list of agents: Runtime\(\[agent\]\)"
    ):
        Runtime(agents)


@pytest.mark.parametrize("replies", ["Hello.", call("search", {}), None])
def test_a_script_of_one_reply_is_refused(replies: Any) -> None:
    """A text would be one reply for each of its letters."""
    with pytest.raises(UsageError, match=r"`replies` must be a list of replies, such as \['Hello"):
        ScriptedModel(replies)


@pytest.mark.parametrize("what", ["execute", "resume"])
async def test_the_sync_forms_on_the_loop_of_a_runtime_say_what_to_await(what: str) -> None:
    """The agents of the runtime would stand still."""
    model = ScriptedModel(["done"])
    agent = Agent("a", model)
    given: Any = "go" if what == "execute" else AgentState()
    async with Runtime():
        with pytest.raises(WouldDeadlock, match=rf"{what}_sync.*await agent\.{what}\("):
            getattr(agent, f"{what}_sync")(given)
    assert model.requests == []


# ------------------------------------------------------------------------- models


def test_an_unknown_fallback_is_an_error_before_the_model_is_asked() -> None:
    """R8: not only when the fallback is due."""
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError, match="'nonsense:model'"):
        Agent("a", model, fallback_models=["nonsense:model"]).execute_sync("go")
    assert model.requests == []


def test_a_model_without_its_api_key_is_an_error_that_names_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent can be defined without the key; it is missed when the agent runs."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = Agent("a", "openai:gpt-5-mini")
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        agent.execute_sync("go")


# ------------------------------------------------------------------------- instructions


def of_agent(model: ScriptedModel) -> Agent:
    return Agent("support", model, "You help customers of {shop}.")


def of_middleware(model: ScriptedModel) -> Agent:
    return Agent("support", model, middleware=[Adds("You help customers of {shop}.")])


@pytest.mark.parametrize("make", [of_agent, of_middleware])
def test_a_key_that_the_values_lack_is_an_error_naming_key_and_agent(
    make: Callable[[ScriptedModel], Agent],
) -> None:
    """R8, W4: with both remedies."""
    model = ScriptedModel(["done", "done"])
    agent = make(model)
    with pytest.raises(MissingValue) as raised:
        agent.execute_sync("go", state=AgentState(values={"store": "Ann's"}))
    assert (raised.value.key, raised.value.agent) == ("shop", "support")
    message = str(raised.value)
    assert all(word in message for word in ("'support'", "{shop}", "values=", "{shop?}"))
    assert model.requests == []

    agent.execute_sync("go", state=AgentState(values={"shop": "Ann's"}))
    assert model.requests[0].instructions == "You help customers of Ann's."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Say {word?}.", "Say ."),
        ("Say {{word}}.", "Say {word}."),
        ("Say {number}.", "Say 3."),
        ("Say {{{number}}}.", "Say {3}."),
    ],
)
def test_optional_keys_and_literal_braces_are_no_error(text: str, shown: str) -> None:
    """W4."""
    model = ScriptedModel(["done"])
    Agent("a", model, text).execute_sync("go", state=AgentState(values={"number": 3}))
    assert model.requests[0].instructions == shown


def test_a_functions_text_is_taken_verbatim() -> None:
    """W4: braces and all."""
    model = ScriptedModel(["done"])
    Agent("a", model, lambda state: "Use {this} and }").execute_sync("go")
    assert model.requests[0].instructions == "Use {this} and }"


# ------------------------------------------------------------------------- states


def stored() -> dict[str, Any]:
    return Agent("a", ScriptedModel(["done"])).execute_sync("go").state.to_dict()


@pytest.mark.parametrize("version", [2, 99, "next"])
def test_a_state_of_an_unknown_schema_version_is_refused(version: Any) -> None:
    with pytest.raises(SchemaVersionError) as raised:
        AgentState.from_dict({**stored(), "schema_version": version})
    assert raised.value.version == version
    assert repr(version) in str(raised.value)
    assert "upgrade" in str(raised.value)


@pytest.mark.parametrize("given", [{}, {"messages": []}, None, "text", []])
def test_what_is_no_stored_state_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="not a stored AgentState"):
        AgentState.from_dict(given)


@pytest.mark.parametrize("damage", [{"messages": 3}, {"run": {"run_id": 3}}, {"values": None}])
def test_a_damaged_stored_state_is_refused(damage: Mapping[str, Any]) -> None:
    (name,) = damage
    with pytest.raises(UsageError, match=name):
        AgentState.from_dict({**stored(), **damage})


@pytest.mark.parametrize("name", ["messages", "values", "run", "decisions"])
def test_a_stored_state_that_is_not_whole_is_refused(name: str) -> None:
    data = stored()
    del data[name]
    with pytest.raises(UsageError, match=name):
        AgentState.from_dict(data)


@pytest.mark.parametrize("values", [{"db": object()}, {3: "x"}, ["x"]])
def test_values_that_cannot_be_stored_are_refused(values: Any) -> None:
    with pytest.raises(UsageError, match="values"):
        AgentState(values=values)


# ------------------------------------------------------------------------- resume(...)


def test_a_state_without_a_run_cannot_be_resumed() -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(NotInterrupted, match=r"no run.*execute\("):
        Agent("a", model).resume_sync(AgentState())
    assert model.requests == []


def test_a_run_that_is_over_cannot_be_resumed() -> None:
    model = ScriptedModel(["done", "never said"])
    agent = Agent("a", model)
    outcome = agent.execute_sync("go")
    with pytest.raises(NotInterrupted, match=r"over.*execute\("):
        agent.resume_sync(outcome.state)
    with pytest.raises(DecisionError, match=r"'r-1'.*pending: none"):
        agent.resume_sync(outcome.state, {"r-1": approve()})
    assert len(model.requests) == 1


def test_a_paused_run_takes_no_decision() -> None:
    agent = Agent("a", ScriptedModel(["done"]), pause_when=lambda: True)
    paused = agent.execute_sync("go")
    assert isinstance(paused, Paused)
    with pytest.raises(DecisionError, match=r"'r-1'.*pending: none"):
        agent.resume_sync(paused.state, {"r-1": approve()})
    assert isinstance(agent.resume_sync(paused.state), Completed)


@pytest.mark.parametrize("decisions", [[], [approve()], "approve", 3, {}])
def test_decisions_of_the_wrong_kind_are_refused_and_a_right_answer_still_works(
    decisions: Any,
) -> None:
    """R8, I5."""
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    agent = Agent("a", model, tools=[note], interrupt_on={"note": True})
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    with pytest.raises(DecisionError, match="resume"):
        agent.resume_sync(interrupted.state, decisions)
    assert len(model.requests) == 1
    assert isinstance(
        agent.resume_sync(interrupted.state, interrupted.decide(approve())), Completed
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pause_when": True}, ["pause_when"]),
        ({"clock": 3}, ["clock"]),
        ({"new_id": "id"}, ["new_id"]),
        ({"journal": []}, ["journal"]),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_before_a_run_goes_on(
    options: dict[str, Any], told: list[str]
) -> None:
    """R8."""
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    agent = Agent("a", model, tools=[note], interrupt_on={"note": True})
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    with pytest.raises(UsageError) as raised:
        agent.resume_sync(interrupted.state, interrupted.decide(approve()), **options)
    assert all(word in str(raised.value) for word in told)
    assert len(model.requests) == 1


@pytest.mark.parametrize("state", [None, {"schema_version": 1}, "talk"])
def test_only_an_agent_state_can_be_resumed(state: Any) -> None:
    with pytest.raises(UsageError, match="AgentState"):
        Agent("a", ScriptedModel([])).resume_sync(state)


# ------------------------------------------------------------------------- modes


async def step(run: Any) -> None: ...


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Mode([], name="mine"), ["'mine'", "no steps"]),
        (lambda: Mode(["call_llm"], name="mine"), ["'mine'", "'call_llm'", "async function"]),  # type: ignore[list-item]  # the mistake that is tested
        (lambda: Mode([step, step], name="mine"), ["'mine'", "two steps", "'step'"]),
    ],
)
def test_a_mode_that_cannot_work_is_refused(make: Callable[[], Mode], told: list[str]) -> None:
    """R8."""
    with pytest.raises(UsageError) as raised:
        make()
    assert all(word in str(raised.value) for word in told)


@pytest.mark.parametrize("store", [None, 7, "", "support.db"])
def test_what_names_no_store_is_refused_with_the_names_that_there_are(store: Any) -> None:
    """None is what an environment variable that is not set gives."""
    with pytest.raises(UsageError, match=r"`store` must be 'memory:', 'sqlite:///path'.*, got"):
        Runtime([Agent("a", ScriptedModel(["hi"]))], store=store)


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (
            "postgresql+psycopg://u:pw17@h/x",
            "'postgresql+psycopg://...@h/x'. Write 'postgresql://'",
        ),
        ("postgresql+asyncpg://h/x", "'postgresql+asyncpg://h/x'. Write 'postgresql://'"),
        ("PostgreSQL://u:pw17@h/x", "'PostgreSQL://...@h/x'. Write 'postgresql://'"),
        ("sqlite+aiosqlite:///a.db", "'sqlite+aiosqlite:///a.db'. Write 'sqlite://' in"),
        ("sqlite+pysqlite://a.db", "'sqlite+pysqlite://a.db'. Write 'sqlite:///' in"),
        ("mysql://u:pw17@h/x", "'mysql://...@h/x'"),
        ("u:pw17://17@h/x", "'...@h/x'"),
        ("u:pw17@h/x", "'...@h/x'"),
    ],
)
def test_a_store_of_another_scheme_is_refused_with_its_scheme_and_what_to_write(
    store: str, told: str
) -> None:
    """The secrets of the URL are in no message, wherever they stand."""
    with pytest.raises(UsageError) as raised:
        Runtime([Agent("a", ScriptedModel(["hi"]))], store=store)
    assert f"got {told}" in str(raised.value)
    assert "17" not in str(raised.value)


@pytest.mark.parametrize("given", ["no", "yes", 1, None])
async def test_a_message_whose_steer_is_no_bool_is_refused_and_not_queued(given: Any) -> None:
    model = ScriptedModel(["Hello."])
    async with Runtime([Agent("desk", model)]) as runtime:
        ref = runtime.spawn("desk", id="1")
        with pytest.raises(UsageError, match=r"send\(steer=...\) must be True or False"):
            ref.send("hi", steer=given)
        assert not (await ref.state()).queue
    assert model.requests == []


def test_a_lambda_is_no_tool_without_a_name() -> None:
    """`<lambda>` is none that a provider takes."""
    with pytest.raises(UsageError, match=r"A lambda has no name.*name="):
        Agent("a", ScriptedModel(["hi"]), tools=[lambda: "x"])
    assert Tool(lambda: "x", name="other").name == "other"
