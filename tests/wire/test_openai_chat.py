"""The whole way to a provider: the agent, Pydantic AI's OpenAI client, HTTP, and back.

What a scripted model cannot show is tested here: what stands on the wire, what the client does
about refusals, and how a connection breaks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections.abc import Callable, Coroutine
from itertools import repeat
from typing import Any, TypeVar

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.agents import results
from tests.support.wire.script import Answer, Cut, HttpError, Reply, WireCall, wire_call
from tests.support.wire.server import WireServer
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupted,
    ModelFailed,
    Outcome,
    StreamBroken,
    approve,
    tool,
)
from understudy.events import (
    Event,
    ReplyEnded,
    ReplyStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
)

T = TypeVar("T")

MODEL = "gpt-5-mini"
"""By its name it is known as a model whose requests need no preparation as open ones do."""
SPARE = "gpt-5-nano"
AT_ONCE = {"retry-after-ms": "1"}
"""Tells the client to try again at once; it takes `Retry-After: 0` as no advice and waits."""
OVERLOADED = HttpError(status=429, headers=AT_ONCE)
DOWN = HttpError(status=500, headers=AT_ONCE)
BROKEN = Cut("content", clean=False)
"""The connection closes after the last piece, with no end of the reply or body."""
SYSTEM = {"role": "system", "content": "You help customers of Acme."}


def wire_model(
    server: WireServer, name: str = MODEL, profile: OpenAIModelProfile | None = None
) -> OpenAIChatModel:
    provider = OpenAIProvider(base_url=server.base_url, api_key="test")
    return OpenAIChatModel(name, provider=provider, profile=profile)


def within(models: list[OpenAIChatModel], main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `main` returns, in a loop of its own, with the models' clients closed at its end."""

    async def inside() -> T:
        for model in models:
            await model.__aenter__()
        try:
            return await main()
        finally:
            for model in models:
                await model.__aexit__(None, None, None)

    return asyncio.run(inside())


class Desk:
    """A support agent at a server, and what its tools did."""

    def __init__(self, server: WireServer, **options: Any) -> None:
        self.looked_up: list[str] = []
        self.refunded: list[str] = []
        self.model = wire_model(server, profile=options.pop("profile", None))
        self.extra: list[OpenAIChatModel] = list(options.get("fallback_models", ()))

        def lookup(order: str) -> str:
            """Find an order."""
            self.looked_up.append(order)
            return f"order {order} is paid"

        def refund(order: str) -> str:
            """Pay an order back."""
            self.refunded.append(order)
            return f"order {order} is refunded"

        tools = [tool(lookup), tool(refund), *options.pop("tools", ())]
        self.agent = Agent("support", self.model, "You help customers of {shop}.", tools, **options)

    def ask(self, text: str, state: AgentState | None = None) -> Outcome:
        given = state or AgentState(values={"shop": "Acme"})
        return within([self.model, *self.extra], lambda: self.agent.execute(text, state=given))

    def stream(self, text: str, state: AgentState | None = None) -> tuple[list[Event], Outcome]:
        given = state or AgentState(values={"shop": "Acme"})

        async def main() -> list[Event | Outcome]:
            return [item async for item in self.agent.stream(text, state=given)]

        *events, outcome = within([self.model, *self.extra], main)
        assert isinstance(outcome, Outcome)
        return [event for event in events if not isinstance(event, Outcome)], outcome

    def resume(self, state: AgentState, answers: dict[str, Any]) -> Outcome:
        return within([self.model, *self.extra], lambda: self.agent.resume(state, answers))


def lookup_call(order: str, id: str) -> WireCall:
    return wire_call("lookup", {"order": order}, id=id)


def refund_call(order: str, id: str) -> WireCall:
    return wire_call("refund", {"order": order}, id=id)


def asked(*calls: tuple[str, str, dict[str, str]], content: str | None = None) -> dict[str, Any]:
    """An assistant's message on the wire, of (id, tool, arguments)."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": id,
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": json.dumps(arguments, separators=(",", ":")),
                },
            }
            for id, name, arguments in calls
        ],
    }


def answered(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def said(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assert_well_formed(messages: list[dict[str, Any]]) -> None:
    """As providers check it: each call has an id of its own and its result right behind it."""
    seen: set[str] = set()
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert open_ids, f"a result of no call: {message}"
            assert message["tool_call_id"] == open_ids.pop(0)
            continue
        assert not open_ids, f"calls without results: {open_ids}"
        open_ids = [call["id"] for call in message.get("tool_calls", ())]
        assert all(open_ids), f"an empty id: {message}"
        assert len(set(open_ids)) == len(open_ids)
        assert not seen & set(open_ids)
        seen.update(open_ids)
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
    assert not open_ids, f"calls without results: {open_ids}"


def replies(state: AgentState) -> list[ModelResponse]:
    return [message for message in state.messages if isinstance(message, ModelResponse)]


def text_of(events: list[Event], turn: int | None = None) -> str:
    return "".join(
        event.text
        for event in events
        if isinstance(event, TextDelta) and turn in (None, event.turn)
    )


# --------------------------------------------------------------------------- plain runs


def test_a_plain_reply_completes_the_run_with_its_text_and_usage() -> None:
    with WireServer([Reply(text="Hello!")]) as server:
        outcome = Desk(server).ask("Hi")
    assert isinstance(outcome, Completed)
    assert outcome.text == "Hello!"
    assert server.conversations == [[SYSTEM, said("Hi")]]
    assert (outcome.usage.requests, outcome.usage.input_tokens) == (1, 7)
    assert outcome.usage.output_tokens == 3


def test_a_tool_call_goes_round_over_the_wire() -> None:
    with WireServer(
        [Reply(calls=(lookup_call("17", "call_a"),)), Reply(text="It is paid.")]
    ) as server:
        desk = Desk(server)
        outcome = desk.ask("What of order 17?")
    assert isinstance(outcome, Completed)
    assert outcome.text == "It is paid."
    assert desk.looked_up == ["17"]
    assert server.conversations[1] == [
        SYSTEM,
        said("What of order 17?"),
        asked(("call_a", "lookup", {"order": "17"})),
        answered("call_a", "order 17 is paid"),
    ]
    offered = [each["function"]["name"] for each in server.requests[0]["tools"]]
    assert offered == ["lookup", "refund"]


def test_the_system_prompt_is_sent_once_in_each_request_and_kept_in_no_message() -> None:
    """R3."""
    with WireServer(
        [Reply(calls=(lookup_call("1", "call_a"),)), Reply(text="Paid."), Reply(text="Yes.")]
    ) as server:
        desk = Desk(server)
        first = desk.ask("What of order 1?")
        second = desk.ask("Sure?", first.state)
    assert isinstance(second, Completed)
    assert len(server.conversations) == 3
    for conversation in server.conversations:
        assert [message for message in conversation if message["role"] == "system"] == [SYSTEM]
        assert conversation[0] == SYSTEM
    for message in second.state.messages:
        assert not any(isinstance(part, SystemPromptPart) for part in message.parts)
        assert not isinstance(message, ModelRequest) or message.instructions is None


def test_parallel_calls_are_answered_in_call_order_however_they_finish() -> None:
    """T1."""

    second_done = asyncio.Event()

    async def slow() -> str:
        """Be last."""
        await second_done.wait()
        return "slow"

    async def quick() -> str:
        """Be first."""
        second_done.set()
        return "quick"

    calls = (wire_call("slow", {}, id="call_s"), wire_call("quick", {}, id="call_q"))
    with WireServer([Reply(calls=calls), Reply(text="Both.")]) as server:
        outcome = Desk(server, tools=[slow, quick]).ask("Go")
    assert isinstance(outcome, Completed)
    assert server.conversations[1][2:] == [
        asked(("call_s", "slow", {}), ("call_q", "quick", {})),
        answered("call_s", "slow"),
        answered("call_q", "quick"),
    ]


# --------------------------------------------------------------------------- streaming


def test_streamed_text_comes_in_order_and_adds_up_to_the_final_text() -> None:
    with WireServer([Reply(text=("It ", "is ", "all ", "paid."))]) as server:
        events, outcome = Desk(server).stream("Hi")
    assert isinstance(outcome, Completed)
    assert server.requests[0]["stream"] is True
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [delta.text for delta in deltas] == ["It ", "is ", "all ", "paid."]
    assert [delta.n for delta in deltas] == [0, 1, 2, 3]
    assert text_of(events) == outcome.text == "It is all paid."
    assert replies(outcome.state)[0].text == outcome.text
    assert outcome.usage.output_tokens == 3


def test_tool_calls_streamed_in_pieces_are_put_together() -> None:
    script = [
        Reply(
            text=("Let me ", "look."), calls=(lookup_call("17", "call_a"), lookup_call("4", "b"))
        ),
        Reply(text=("Both ", "are paid.")),
    ]
    with WireServer(script) as server:
        desk = Desk(server)
        events, outcome = desk.stream("What of 17 and 4?")
    assert isinstance(outcome, Completed)
    assert sorted(desk.looked_up) == ["17", "4"]
    assert text_of(events, turn=0) == "Let me look."
    assert text_of(events, turn=1) == outcome.text == "Both are paid."
    assert server.conversations[1][2:] == [
        asked(
            ("call_a", "lookup", {"order": "17"}),
            ("b", "lookup", {"order": "4"}),
            content="Let me look.",
        ),
        answered("call_a", "order 17 is paid"),
        answered("b", "order 4 is paid"),
    ]
    assert len([event for event in events if isinstance(event, ReplyEnded)]) == 2
    assert len([event for event in events if isinstance(event, ToolEnded)]) == 2


def test_streamed_and_whole_replies_leave_the_same_conversation() -> None:
    script = [Reply(text="So.", calls=(lookup_call("1", "call_a"),)), Reply(text="Paid.")]
    with WireServer(script) as whole, WireServer(script) as streamed:
        Desk(whole).ask("Hi")
        Desk(streamed).stream("Hi")
    assert whole.conversations == streamed.conversations


# --------------------------------------------------------------------------- refusals


def test_a_rate_limit_is_retried_by_the_client_and_leaves_one_recorded_reply() -> None:
    """R5."""
    with WireServer([OVERLOADED, Reply(text="Now.")]) as server:
        outcome = Desk(server).ask("Hi")
    assert isinstance(outcome, Completed)
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]
    assert [reply.text for reply in replies(outcome.state)] == ["Now."]
    assert outcome.usage.requests == 1


def test_a_rate_limit_is_retried_by_the_client_when_streaming_too() -> None:
    """R5."""
    with WireServer([OVERLOADED, Reply(text=("N", "ow."))]) as server:
        events, outcome = Desk(server).stream("Hi")
    assert isinstance(outcome, Completed)
    assert text_of(events) == "Now."
    assert len([event for event in events if isinstance(event, ReplyStarted)]) == 1


def test_a_server_that_stays_down_fails_the_run_naming_the_model() -> None:
    """R5."""
    with WireServer(repeat(DOWN)) as server:
        outcome = Desk(server).ask("Hi")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    assert [failure["model"] for failure in outcome.error.failures] == [MODEL]
    assert MODEL in str(outcome.error)
    assert "500" in str(outcome.error)
    assert len(server.requests) == 3, "the client's own retries, multiplied by nothing"
    assert replies(outcome.state) == []


def test_a_failed_run_keeps_its_finished_turns_and_the_next_one_goes_on_from_them() -> None:
    """R5."""
    asks = Reply(calls=(lookup_call("1", "call_a"),))
    script: list[Answer] = [asks, DOWN, DOWN, DOWN, Reply(text="Paid.")]
    with WireServer(script) as server:
        desk = Desk(server)
        failed = desk.ask("What of 1?")
        outcome = desk.ask("And now?", failed.state)
    assert isinstance(failed, Failed)
    assert isinstance(outcome, Completed)
    assert desk.looked_up == ["1"]
    assert server.conversations[-1] == [
        SYSTEM,
        said("What of 1?"),
        asked(("call_a", "lookup", {"order": "1"})),
        answered("call_a", "order 1 is paid"),
        said("And now?"),
    ]


def test_the_fallback_answers_the_call_that_failed_and_no_other() -> None:
    """R5."""
    asks = Reply(calls=(lookup_call("1", "call_a"),))
    first: list[Answer] = [asks, DOWN, DOWN, DOWN, Reply(text="Paid.")]
    second = [Reply(calls=(lookup_call("2", "call_b"),))]
    with WireServer(first) as server, WireServer(second) as spare:
        desk = Desk(server, fallback_models=[wire_model(spare, SPARE)])
        outcome = desk.ask("What of them?")
    assert isinstance(outcome, Completed)
    assert outcome.text == "Paid."
    assert desk.looked_up == ["1", "2"]
    assert len(spare.requests) == 1
    assert spare.requests[0]["model"] == SPARE
    assert spare.conversations[0] == server.conversations[1]
    assert server.conversations[-1][2:] == [
        asked(("call_a", "lookup", {"order": "1"})),
        answered("call_a", "order 1 is paid"),
        asked(("call_b", "lookup", {"order": "2"})),
        answered("call_b", "order 2 is paid"),
    ]


def test_when_the_fallback_fails_too_the_error_names_both_models_in_order() -> None:
    """R5."""
    with WireServer(repeat(DOWN)) as server, WireServer(repeat(DOWN)) as spare:
        outcome = Desk(server, fallback_models=[wire_model(spare, SPARE)]).ask("Hi")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    named = [failure["model"] for failure in outcome.error.failures]
    assert named == [MODEL, SPARE]


# --------------------------------------------------------------------------- broken replies


def test_a_stream_that_breaks_keeps_its_text_once_and_runs_none_of_its_calls() -> None:
    """R6."""
    broken = Reply(text=("I will ", "look"), calls=(lookup_call("1", "call_a"),), cut=BROKEN)
    with WireServer([broken]) as server, WireServer([Reply(text="Sorry!")]) as spare:
        desk = Desk(server, fallback_models=[wire_model(spare, SPARE)])
        events, outcome = desk.stream("What of 1?")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StreamBroken)
    assert outcome.error.model == MODEL
    assert spare.requests == [], "what a person saw already is not said again by another"
    assert text_of(events) == "I will look"
    ended = [event for event in events if isinstance(event, ReplyEnded)]
    assert [event.response.text for event in ended] == ["I will look"]
    assert [(reply.text, reply.state) for reply in replies(outcome.state)] == [
        ("I will look", "interrupted")
    ]
    assert not any(isinstance(event, ToolStarted) for event in events)
    assert desk.looked_up == []
    assert [(part.tool_call_id, part.outcome) for part in results(outcome.state)] == [
        ("call_a", "interrupted")
    ]


@pytest.mark.parametrize(
    "calls",
    [
        (),
        (lookup_call("1", "call_a"),),
        (lookup_call("1", "call_a"), wire_call("lookup", '{"order": "2', id="call_b")),
        (wire_call("lookup", "", id="call_a"),),
    ],
    ids=["text only", "a whole call", "half a call", "a call without arguments yet"],
)
def test_after_a_broken_stream_the_conversation_goes_on_over_the_wire(
    calls: tuple[WireCall, ...],
) -> None:
    """R6."""
    script = [Reply(text="I will look", calls=calls, cut=BROKEN), Reply(text="Here I am.")]
    with WireServer(script) as server:
        desk = Desk(server)
        _, failed = desk.stream("What of 1?")
        assert isinstance(failed, Failed)
        stored = AgentState.from_dict(json.loads(json.dumps(failed.state.to_dict())))
        outcome = desk.ask("Are you there?", stored)
    assert isinstance(outcome, Completed)
    assert outcome.text == "Here I am."
    assert desk.looked_up == []
    assert_well_formed(server.conversations[1])
    sent = server.conversations[1]
    assert [message["role"] for message in sent] == [
        "system",
        "user",
        "assistant",
        *["tool"] * len(calls),
        "user",
    ]
    assert sent[2]["content"] == "I will look"


def test_a_stream_that_breaks_before_its_first_word_is_a_failure_that_a_fallback_answers() -> None:
    """R5: nobody has seen anything of that reply."""
    with (
        WireServer([Reply(cut=BROKEN)]) as server,
        WireServer([Reply(text="I am here.")]) as spare,
    ):
        desk = Desk(server, fallback_models=[wire_model(spare, SPARE)])
        events, outcome = desk.stream("Hi")
    assert isinstance(outcome, Completed)
    assert outcome.text == text_of(events) == "I am here."
    assert [reply.text for reply in replies(outcome.state)] == ["I am here."]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_calls_of_a_reply_cut_by_its_length_are_not_run_and_the_model_is_told(
    streaming: bool,
) -> None:
    """R6."""
    calls = (lookup_call("1", "call_a"), wire_call("refund", '{"order": "1', id="call_b"))
    script = [Reply(text="I", calls=calls, finish_reason="length"), Reply(text="Shorter.")]
    with WireServer(script) as server:
        desk = Desk(server)
        outcome = desk.stream("Hi")[1] if streaming else desk.ask("Hi")
    assert isinstance(outcome, Completed)
    assert outcome.text == "Shorter."
    assert desk.looked_up == desk.refunded == []
    assert [part.outcome for part in results(outcome.state)] == ["interrupted"] * 2
    assert_well_formed(server.conversations[1])
    assert [message["role"] for message in server.conversations[1]][2:] == [
        "assistant",
        "tool",
        "tool",
    ]
    assert "Not executed" in server.conversations[1][-1]["content"]


# --------------------------------------------------------------------------- what models get wrong


@pytest.mark.parametrize("arguments", ['{"order": ', "[1]", '{"number": 1}', "order 1", "null"])
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_arguments_that_do_not_fit_go_back_to_the_model_and_the_run_goes_on(
    arguments: str, streaming: bool
) -> None:
    """T2."""
    script = [
        Reply(calls=(wire_call("lookup", arguments, id="call_a"),)),
        Reply(calls=(lookup_call("1", "call_b"),)),
        Reply(text="Paid."),
    ]
    with WireServer(script) as server:
        desk = Desk(server)
        outcome = desk.stream("Hi")[1] if streaming else desk.ask("Hi")
    assert isinstance(outcome, Completed)
    assert desk.looked_up == ["1"]
    assert [part.outcome for part in results(outcome.state)] == ["failed", "success"]
    told = server.conversations[1][-1]
    assert told["role"] == "tool"
    assert told["tool_call_id"] == "call_a"
    assert "Invalid arguments for 'lookup'" in told["content"]
    assert_well_formed(server.conversations[2])


def test_a_tool_that_does_not_exist_is_an_error_result_naming_those_that_do() -> None:
    """T2."""
    script = [Reply(calls=(wire_call("erase", {}, id="call_a"),)), Reply(text="I cannot.")]
    with WireServer(script) as server:
        outcome = Desk(server).ask("Erase all")
    assert isinstance(outcome, Completed)
    assert outcome.text == "I cannot."
    told = server.conversations[1][-1]
    assert told["tool_call_id"] == "call_a"
    assert "'erase'" in told["content"]
    assert "lookup, refund" in told["content"]
    assert [part.outcome for part in results(outcome.state)] == ["failed"]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_call_ids_that_repeat_or_cannot_be_used_are_replaced_before_they_are_recorded(
    streaming: bool,
) -> None:
    """T7."""
    script = [
        Reply(calls=(lookup_call("1", "same"), lookup_call("2", "same"))),
        Reply(calls=(lookup_call("3", "same"), lookup_call("4", "a/b"), lookup_call("5", ""))),
        Reply(text="All paid."),
    ]
    with WireServer(script) as server:
        desk = Desk(server)
        outcome = desk.stream("Hi")[1] if streaming else desk.ask("Hi")
    assert isinstance(outcome, Completed)
    last = server.conversations[-1]
    assert_well_formed(last)
    ids = [call["id"] for message in last for call in message.get("tool_calls", ())]
    assert ids[0] == "same", "the first of its kind may stay"
    assert len(ids) == 5
    assert not any("/" in id for id in ids)
    orders = [f"order {n} is paid" for n in range(1, 6)]
    assert [message["content"] for message in last if message["role"] == "tool"] == orders
    recorded = [part.tool_call_id for reply in replies(outcome.state) for part in reply.tool_calls]
    assert recorded == ids
    assert [part.tool_call_id for part in results(outcome.state)] == ids


# ---------------------------------------------------------------- what providers cannot take


def test_a_file_that_the_model_cannot_read_is_named_instead_of_sent() -> None:
    """A provider refuses the whole request for one file that it cannot read."""

    def photograph() -> BinaryContent:
        """Take a picture."""
        return BinaryContent(b"\x89PNG", media_type="image/png", identifier="photo-1")

    script = [Reply(calls=(wire_call("photograph", {}, id="call_a"),)), Reply(text="Seen.")]
    with WireServer(script) as server:
        desk = Desk(
            server, tools=[photograph], profile=OpenAIModelProfile(supports_image_input=False)
        )
        outcome = desk.ask("Look")
    assert isinstance(outcome, Completed)
    sent = json.dumps(server.conversations[1])
    assert "photo-1" in sent
    assert "image_url" not in sent


def test_call_ids_longer_than_the_model_takes_are_sent_in_a_shorter_form() -> None:
    """T7: a fallback of another provider must be able to read what the first one began."""
    asks = Reply(calls=(lookup_call("1", "call_that_is_long"),))
    first: list[Answer] = [asks, DOWN, DOWN, DOWN]
    with WireServer(first) as server, WireServer([Reply(text="Paid.")]) as spare:
        narrow = wire_model(spare, SPARE, OpenAIModelProfile(tool_call_id_length=9))
        outcome = Desk(server, fallback_models=[narrow]).ask("What of 1?")
    assert isinstance(outcome, Completed)
    assert_well_formed(spare.conversations[0])
    (call,) = spare.conversations[0][2]["tool_calls"]
    assert len(call["id"]) == 9
    assert replies(outcome.state)[0].tool_calls[0].tool_call_id == "call_that_is_long"


# --------------------------------------------------------------------------- going on elsewhere


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_an_approval_is_resumed_from_json_by_a_new_agent_with_a_new_client(
    streaming: bool,
) -> None:
    """I2, I3."""
    asks = Reply(text="Both.", calls=(lookup_call("1", "call_a"), refund_call("1", "call_b")))
    with WireServer([asks]) as here:
        desk = Desk(here, interrupt_on={"refund": True})
        interrupted = desk.stream("Refund 1")[1] if streaming else desk.ask("Refund 1")
    assert isinstance(interrupted, Interrupted)
    assert desk.looked_up == desk.refunded == []
    written = json.dumps(interrupted.state.to_dict())

    with WireServer([Reply(text="Done.")]) as there:
        other = Desk(there, interrupt_on={"refund": True})
        state = AgentState.from_dict(json.loads(written))
        (request,) = state.requests
        assert (request.tool_name, request.tool_call_id) == ("refund", "call_b")
        outcome = other.resume(state, {request.id: approve()})
    assert isinstance(outcome, Completed)
    assert outcome.text == "Done."
    assert (other.looked_up, other.refunded) == (["1"], ["1"])
    assert there.conversations == [
        [
            SYSTEM,
            said("Refund 1"),
            asked(
                ("call_a", "lookup", {"order": "1"}),
                ("call_b", "refund", {"order": "1"}),
                content="Both.",
            ),
            answered("call_a", "order 1 is paid"),
            answered("call_b", "order 1 is refunded"),
        ]
    ]


def test_execute_sync_works_again_and_again_with_one_model_object() -> None:
    """Each call has an event loop of its own, and a kept-alive connection belongs to one loop."""
    script = [
        Reply(text="One."),
        Reply(calls=(lookup_call("1", "call_a"),)),
        Reply(text="Two."),
        Reply(text="Three."),
    ]
    with WireServer(script) as server, warnings.catch_warnings():
        # What becomes of the connections is the next test's matter.
        warnings.simplefilter("ignore", ResourceWarning)
        agent = Desk(server).agent
        state = AgentState(values={"shop": "Acme"})
        texts = []
        for question in ("first", "second", "third"):
            outcome = agent.execute_sync(question, state=state)
            assert isinstance(outcome, Completed), outcome
            texts.append(outcome.text)
            state = outcome.state
        del agent
        gc.collect()
    assert texts == ["One.", "Two.", "Three."]
    assert [m["content"] for m in server.conversations[-1] if m["role"] == "user"] == [
        "first",
        "second",
        "third",
    ]


@pytest.mark.slow
def test_execute_sync_leaves_no_connection_open() -> None:
    with WireServer(repeat(Reply(text="Hello!"))) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # told by the assertion instead
        agent = Desk(server).agent
        agent.execute_sync("Hi", state=AgentState(values={"shop": "Acme"}))
        hung_up = server.all_hung_up(timeout=0.5)
        del agent
        gc.collect()
    assert hung_up, "the client of a loop that is gone still holds its connection"
