"""J16: text that is not valid Unicode is refused, or replaced, where it enters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.native_tools import WebSearchTool

from tests.support.agents import calls_made, completed, reloaded, results
from tests.support.wire.providers import (
    ANTHROPIC,
    GOOGLE,
    OPENAI_CHAT,
    PROVIDERS,
    Provider,
    Told,
    Way,
    run,
)
from tests.support.wire.script import Reply, Thinking, wire_call
from tests.support.wire.server import WireServer
from understudy import Agent, Failed, MiddlewareError, ModelRefused, ScriptedModel, UsageError
from understudy.events import TextDelta, ThinkingDelta
from understudy.middleware import Middleware, ModelInput, Prepared, SubAgent

HALF = "\ud83d"
PENCIL = wire_call("note", {"text": "a pencil \ud83d here"}, id="call_a")


def deltas(told: Told, kind: type[TextDelta] | type[ThinkingDelta]) -> str:
    return "".join(event.text for event in told.events if isinstance(event, kind))


# ---------------------------------------------------------------------- the model's own text


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ((f"a {HALF} b",), "a \ufffd b"),
        (("an end ", HALF), "an end \ufffd"),
        (("a pencil: \ud83d", "\ude00."), "a pencil: \U0001f600."),
        (("\ud83d", "\ude00"), "\U0001f600"),
        (("\ude00", "\ud83d", "!"), "\ufffd\ufffd!"),
    ],
    ids=["inside", "at the end", "split", "split alone", "the wrong way round"],
)
async def test_half_a_character_of_a_reply_is_replaced_and_two_halves_are_joined(
    provider: Provider, way: Way, pieces: tuple[str, ...], kept: str
) -> None:
    with WireServer([Reply(text=pieces), Reply(text="Yes.")]) as server:
        told = await run(way, provider.model(server))
        later = await run(way, provider.model(server), state=reloaded(told.outcome.state))
    assert completed(told.outcome).text == kept
    assert completed(later.outcome).text == "Yes."
    if way == "stream":
        assert deltas(told, TextDelta) == kept
    for event in told.events:
        str(getattr(event, "text", "")).encode()


@pytest.mark.parametrize("provider", [ANTHROPIC, GOOGLE], ids=str)
async def test_so_is_that_of_its_thinking(provider: Provider, way: Way) -> None:
    with WireServer([Reply(thinking=Thinking(f"Hm {HALF}"), text="Yes.")]) as server:
        told = await run(way, provider.model(server))
    reply = completed(told.outcome).state.messages[-1]
    assert isinstance(reply, ModelResponse)
    assert [p.content for p in reply.parts if isinstance(p, ThinkingPart)] == ["Hm \ufffd"]
    if way == "stream":
        assert deltas(told, ThinkingDelta) == "Hm \ufffd"


@pytest.mark.parametrize("later", PROVIDERS, ids=str)
async def test_a_call_with_half_a_character_goes_back_to_the_model_and_runs_with_nothing_else(
    provider: Provider, way: Way, later: Provider
) -> None:
    noted: list[str] = []

    def note(text: str) -> str:
        """Note a text."""
        noted.append(text)
        return "noted"

    with WireServer([Reply(calls=(PENCIL,)), Reply(text="I cannot.")]) as server:
        told = await run(way, provider.model(server), tools=[note])
    completed(told.outcome)
    assert noted == []
    (part,) = results(told.outcome.state)
    assert part.outcome == "failed"
    assert "Invalid arguments" in str(part.content)
    (call,) = calls_made(told.outcome.state)
    assert "ud83d" in call.args_as_json_str(), "it is kept as it was"

    with WireServer([Reply(text="Yes.")]) as server:
        state = reloaded(told.outcome.state)
        again = await run(way, later.model(server), tools=[note], state=state)
    assert completed(again.outcome).text == "Yes."


async def test_a_name_of_a_tool_with_half_a_character_is_an_unknown_tool(
    provider: Provider, way: Way
) -> None:
    calls = (wire_call(f"note{HALF}", {}, id="call_a"),)
    with WireServer([Reply(calls=calls), Reply(text="I cannot.")]) as server:
        told = await run(way, provider.model(server), tools=[plain])
    completed(told.outcome)
    (part,) = results(told.outcome.state)
    assert "Unknown tool" in str(part.content)


async def test_a_refusal_with_half_a_character_is_a_refusal(provider: Provider, way: Way) -> None:
    with WireServer([Reply(refusal=f"No {HALF}")]) as server:
        told = await run(way, provider.model(server))
    assert isinstance(told.outcome, Failed)
    assert isinstance(told.outcome.error, ModelRefused)
    told.outcome.explain().encode()


async def test_what_a_hook_makes_of_a_reply_is_treated_alike() -> None:
    class Halves(Middleware):
        async def after_model(self, run: Any, response: ModelResponse) -> ModelResponse:
            return ModelResponse(parts=[TextPart(f"half {HALF}")])

    with WireServer([Reply(text="Hi")]) as server:
        told = await run("stream", OPENAI_CHAT.model(server), middleware=[Halves()])
    assert completed(told.outcome).text == "half \ufffd"
    assert deltas(told, TextDelta) == "half \ufffd"


# --------------------------------------------------------- what is given is refused unpaid


@pytest.mark.parametrize(
    "item",
    [
        HALF,
        TextContent(HALF),
        TextContent("a", metadata={"source": [HALF]}),
        ImageUrl(f"https://example.com/{HALF}", media_type="image/png"),
        BinaryContent(b"x", media_type="image/png", identifier=HALF),
    ],
    ids=["text", "text content", "metadata", "url", "identifier"],
)
async def test_an_input_is_refused_whatever_of_it_is_invalid(item: Any) -> None:
    with WireServer([]) as server:
        with pytest.raises(UsageError, match="input is not valid Unicode"):
            await run("execute", OPENAI_CHAT.model(server), input=["look at", item])
        assert server.requests == []


class Described(BaseModel):
    text: str = Field(description=HALF)


class Tells(Middleware):
    def prepare(self, definition: Any) -> Prepared:
        return Prepared(instructions=HALF)


def documented() -> str:
    return "x"


def described(text: Annotated[str, Field(description=HALF)]) -> str:
    """Take a text."""
    return text


def plain() -> str:
    return "x"


documented.__doc__ = HALF
MODEL = ScriptedModel([])


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"instructions": HALF}, "instructions"),
        ({"middleware": [Tells()]}, "instructions"),
        ({"description": HALF}, "description"),
        ({"early_stopping_prompt": HALF}, "early_stopping_prompt"),
        ({"model_settings": {"stop_sequences": [HALF]}}, "model_settings"),
        ({"output_type": Described}, "output_type"),
        ({"tools": [documented]}, "Tool 'documented'"),
        ({"tools": [described]}, "Tool 'described'"),
        ({"middleware": [SubAgent([{"name": "b", "description": HALF}])]}, "description"),
    ],
    ids=[
        "instructions",
        "of a middleware",
        "description",
        "early stop",
        "settings",
        "output",
        "docstring",
        "parameter",
        "child",
    ],
)
def test_an_agent_whose_texts_could_not_be_sent_is_refused_when_it_is_made(
    options: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(UsageError, match=f"{culprit}.*not valid Unicode"):
        Agent("a", MODEL, **options)


async def test_a_prompt_for_one_run_is_refused_before_it() -> None:
    with pytest.raises(UsageError, match=r"early_stopping_prompt.*not valid Unicode"):
        await Agent("a", MODEL).execute("Hi", early_stopping_prompt=HALF)


ADDS = "before_model of middleware 'Adds' raised UsageError: what it returned as"


class Adds(Middleware):
    """Changes what the model is asked."""

    def __init__(self, change: Callable[[ModelInput], dict[str, Any]]) -> None:
        self.change = change

    async def before_model(self, run: Any, input: ModelInput) -> ModelInput:
        return input.replace(**self.change(input))


class Rewrites(Middleware):
    """Changes the conversation itself."""

    async def before_model(self, run: Any, input: ModelInput) -> None:
        await run.replace_history([ModelRequest(parts=[UserPromptPart(HALF)])])


def with_message(text: str) -> Adds:
    message = ModelRequest(parts=[UserPromptPart(text)])
    return Adds(lambda before: {"messages": [*before.messages, message]})


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"instructions": lambda state: HALF}, "the function of `instructions`"),
        ({"middleware": [Adds(lambda _: {"instructions": HALF})]}, f"{ADDS} instructions"),
        ({"middleware": [with_message(HALF)]}, f"{ADDS} messages"),
        ({"middleware": [Adds(lambda _: {"settings": {"user": HALF}})]}, f"{ADDS} settings"),
        (
            {
                "middleware": [
                    Adds(lambda _: {"native_tools": (WebSearchTool(user_location={"city": HALF}),)})
                ]
            },
            f"{ADDS} native tools",
        ),
        ({"middleware": [Rewrites()]}, "before_model of middleware 'Rewrites'"),
    ],
    ids=["function", "instructions", "messages", "settings", "native tools", "history"],
)
async def test_what_is_made_in_the_run_fails_it_unpaid_and_names_its_maker(
    options: dict[str, Any], culprit: str
) -> None:
    model = ScriptedModel(["never"])
    outcome = await Agent("a", model, **options).execute("Hi")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, (UsageError, MiddlewareError))
    assert culprit in str(outcome.error)
    assert model.requests == []


async def test_messages_that_a_hook_adds_are_sent_where_they_are_valid() -> None:
    model = ScriptedModel(["Yes."])
    completed(await Agent("a", model, middleware=[with_message("Is it so? 😀")]).execute("Hi"))
    assert model.requests[0].prompt == "Is it so? 😀"


@pytest.mark.parametrize(
    "made",
    [
        lambda: HALF,
        lambda: {"text": [HALF]},
        lambda: {HALF: 1},
        lambda: ["a", HALF, BinaryContent(b"x", media_type="image/png")],
        lambda: BinaryContent(b"x", media_type="image/png", identifier=HALF),
    ],
    ids=["text", "value", "key", "beside a file", "of a file"],
)
async def test_a_result_that_could_not_be_sent_is_an_error_that_says_that_the_tool_ran(
    made: Callable[[], Any],
) -> None:
    """J18."""

    def look() -> Any:
        """Look."""
        return made()

    script = [Reply(calls=(wire_call("look", {}, id="call_a"),)), Reply(text="I see.")]
    with WireServer([*script, Reply(text="Yes.")]) as server:
        told = await run("execute", OPENAI_CHAT.model(server), tools=[look])
        later = await run("execute", OPENAI_CHAT.model(server), state=told.outcome.state)
    (part,) = results(told.outcome.state)
    assert "'look' ran, but" in str(part.content)
    assert completed(later.outcome).text == "Yes."
    json.dumps(server.requests).encode()
