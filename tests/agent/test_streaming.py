"""`agent.stream`: the events of a run while it is open (R6, J15, J17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

from tests.support.loops import own_tasks
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Run,
    ScriptedModel,
    Stopped,
    StreamBroken,
    ToolContext,
    Waiting,
    approve,
    call,
)
from understudy.events import (
    AttemptDiscarded,
    Event,
    ReplyEnded,
    ReplyStarted,
    RequestMade,
    TextDelta,
    ThinkingDelta,
    ToolCallAnnounced,
    ToolEmitted,
    ToolEnded,
    ToolStarted,
)
from understudy.journal import MemoryJournal, replay
from understudy.middleware import Middleware

OUTCOMES = (Completed, Failed, Interrupted, Paused, Stopped, Waiting)


async def told(stream: AsyncIterator[Event | Outcome]) -> tuple[list[Event], Outcome]:
    """The events of a stream and its outcome, which comes last and once."""
    events: list[Event] = []
    outcomes: list[Outcome] = []
    async for item in stream:
        assert not outcomes, f"{item!r} came after the outcome"
        if isinstance(item, OUTCOMES):
            outcomes.append(item)
        else:
            events.append(item)
    (outcome,) = outcomes
    return events, outcome


def stream(agent: Agent, *args: Any, **options: Any) -> tuple[list[Event], Outcome]:
    async def main() -> tuple[list[Event], Outcome]:
        return await told(agent.stream(*args, **options))

    return asyncio.run(main())


def deltas(events: list[Event]) -> list[TextDelta]:
    return [event for event in events if isinstance(event, TextDelta)]


async def note(ctx: ToolContext, text: str) -> str:
    ctx.emit({"noting": text})
    return f"noted {text}"


def noting(*last: Any) -> ScriptedModel:
    first: list[Any] = ["I will note it", call("note", {"text": "x"}, id="c-1")]
    return ScriptedModel([first, *(last or ("it is done",))], name="fake", delta_size=5)


async def others_are_done() -> None:
    """Every task but this one has come to its end."""
    await asyncio.gather(*own_tasks(), return_exceptions=True)
    assert not own_tasks()


# ------------------------------------------------------------------------- order


def test_events_come_in_the_order_in_which_things_happen_and_the_outcome_last() -> None:
    events, outcome = stream(Agent("desk", noting(), tools=[note]), "go")
    kinds = [event.kind for event in events]
    assert kinds == [
        "reply_started", "text_delta", "text_delta", "text_delta", "tool_call_announced",
        "reply_ended",
        "tool_started", "tool_emitted", "tool_ended",
        "reply_started", "text_delta", "text_delta", "reply_ended", "run_finished",
    ]  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.text == "it is done"
    assert all(event.agent_path == ("desk",) for event in events)


def test_events_tell_what_they_are_about() -> None:
    events, outcome = stream(Agent("a", noting(), tools=[note]), "go")
    key = f"{outcome.run_id}.0.0"
    started = [event for event in events if isinstance(event, ReplyStarted)]
    assert [(event.turn, event.model) for event in started] == [(0, "fake"), (1, "fake")]
    ended = [event for event in events if isinstance(event, ReplyEnded)]
    assert [event.turn for event in ended] == [0, 1]
    assert [event.response for event in ended] == [
        message for message in outcome.state.messages if isinstance(message, ModelResponse)
    ]
    calls = [e for e in events if isinstance(e, (ToolStarted, ToolEmitted, ToolEnded))]
    assert {(e.call_key, e.tool_call_id, e.tool_name) for e in calls} == {(key, "c-1", "note")}
    assert calls[-1] == ToolEnded(
        agent_path=("a",),
        call_key=key,
        tool_call_id="c-1",
        tool_name="note",
        outcome="success",
        content="noted x",
    )


def test_deltas_are_numbered_in_each_turn_and_make_up_the_text() -> None:
    """J17."""
    events, _ = stream(Agent("a", noting(), tools=[note]), "go")
    told = [(delta.turn, delta.attempt, delta.n) for delta in deltas(events)]
    assert told == [(0, 1, 0), (0, 1, 1), (0, 1, 2), (1, 1, 0), (1, 1, 1)]
    texts = ["".join(d.text for d in deltas(events) if d.turn == turn) for turn in (0, 1)]
    assert texts == ["I will note it", "it is done"]


def test_a_stream_gives_the_outcome_that_execute_gives() -> None:
    agent = Agent("a", ScriptedModel(lambda request: "done"), tools=[note])
    _, outcome = stream(agent, "go")
    plain = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert isinstance(plain, Completed)
    assert outcome.text == plain.text
    assert outcome.usage == plain.usage


def test_execute_tells_a_listener_what_a_stream_tells() -> None:
    heard: list[Event] = []
    outcome = Agent("a", noting(), tools=[note]).execute_sync("go", on_event=heard.append)
    assert isinstance(outcome, Completed)
    events, _ = stream(Agent("a", noting(), tools=[note]), "go")
    assert [event.kind for event in heard] == [event.kind for event in events]


async def test_deltas_are_told_while_the_model_still_writes() -> None:
    """The consumer has the first before the reply is over."""
    got_first = asyncio.Event()
    order: list[str] = []

    class Waits(Middleware):
        stream_safe: ClassVar[bool] = True

        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            async with asyncio.timeout(60):
                await got_first.wait()
            order.append("reply is over")

    agent = Agent("a", ScriptedModel(["a longer text"]), middleware=[Waits()])
    async for event in agent.stream("go"):
        if isinstance(event, TextDelta):
            order.append("delta")
            got_first.set()
    assert order[0] == "delta"
    assert "reply is over" in order


# ------------------------------------------------------------------------- interrupts


def test_a_stream_tells_whom_it_waits_for_and_goes_on_from_there() -> None:
    """I2, J17: a resumed run is a new attempt, and no turn is emitted twice."""
    agent = Agent("a", noting(), tools=[note], interrupt_on={"note": True})
    events, interrupted = stream(agent, "go")
    assert isinstance(interrupted, Interrupted)
    assert events[-1] == RequestMade(agent_path=("a",), request=interrupted.requests[0])
    assert not any(isinstance(event, ToolStarted) for event in events)

    stored = AgentState.from_dict(interrupted.state.to_dict())
    events, outcome = stream(agent, state=stored, decisions=interrupted.decide(approve()))
    assert isinstance(outcome, Completed)
    assert [event.kind for event in events][:4] == [
        "tool_started",
        "tool_emitted",
        "tool_ended",
        "reply_started",
    ]
    assert {(delta.turn, delta.attempt) for delta in deltas(events)} == {(1, 2)}


def test_a_paused_run_is_streamed_on_by_its_state_alone() -> None:
    """R7."""
    agent = Agent("a", ScriptedModel(["done"]), pause_when=lambda: True)
    _, paused = stream(agent, "go")
    assert isinstance(paused, Paused)
    events, outcome = stream(agent, state=paused.state)
    assert isinstance(outcome, Completed)
    assert [event.kind for event in events] == ["run_finished"], "the reply was told before"


# ------------------------------------------------------------------------- leaving early


@pytest.mark.parametrize("close", [False, True], ids=["break", "aclose"])
async def test_leaving_the_loop_early_cancels_the_run_and_leaves_no_task(close: bool) -> None:
    cancelled = asyncio.Event()

    async def hang(ctx: ToolContext) -> str:
        try:
            ctx.emit("hanging")
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    model = ScriptedModel([[call("hang"), call("hang")], "never said"])
    events: Any = Agent("a", model, tools=[hang]).stream("go")
    async for event in events:
        if isinstance(event, ToolEmitted):
            break
    if close:
        await events.aclose()
        assert not own_tasks()
    del events
    async with asyncio.timeout(60):
        await cancelled.wait()
        await others_are_done()
    assert len(model.requests) == 1


async def test_leaving_the_loop_while_the_model_is_asked_cancels_the_request() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(request: Any) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    events: Any = Agent("a", ScriptedModel([hang])).stream("go")
    async for event in events:
        assert isinstance(event, ReplyStarted)
        await asked.wait()
        break
    await events.aclose()
    assert cancelled.is_set()
    assert not own_tasks()


async def test_cancelling_the_task_that_reads_a_stream_cancels_the_run() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    agent = Agent("a", ScriptedModel([call("hang")]), tools=[hang])
    reader = asyncio.ensure_future(told(agent.stream("go")))
    await entered.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    async with asyncio.timeout(60):
        await cancelled.wait()
        await others_are_done()


async def test_a_stream_that_is_never_begun_runs_nothing() -> None:
    model = ScriptedModel(["done"])
    events: Any = Agent("a", model).stream("go")
    await events.aclose()
    assert model.requests == []
    assert not own_tasks()


# ------------------------------------------------------------------------- held back


class Censors(Middleware):
    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse:
        return ModelResponse(parts=[TextPart((reply.text or "").replace("secret", "***"))])


class Watches(Middleware):
    stream_safe: ClassVar[bool] = True

    async def after_model(self, run: Run, reply: ModelResponse) -> None:
        return None


def test_text_is_held_back_until_an_after_model_that_may_rewrite_it_has_seen_it() -> None:
    """J15."""
    model = ScriptedModel(["the secret word"], delta_size=3)
    events, outcome = stream(Agent("a", model, middleware=[Watches(), Censors()]), "go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "the *** word"
    assert "".join(delta.text for delta in deltas(events)) == "the *** word"
    assert [delta.n for delta in deltas(events)] == list(range(len(deltas(events))))
    assert "secret" not in str(events)


def test_thinking_is_held_back_too() -> None:
    """J15."""
    reply = ModelResponse(parts=[ThinkingPart("the secret"), TextPart("done")])
    events, _ = stream(Agent("a", ScriptedModel([reply]), middleware=[Censors()]), "go")
    assert not any(isinstance(event, ThinkingDelta) for event in events)
    assert "secret" not in str(events)


def test_text_is_told_as_it_comes_where_every_after_model_is_stream_safe() -> None:
    """J15."""
    model = ScriptedModel(["the secret word"], delta_size=3)
    events, _ = stream(Agent("a", model, middleware=[Watches(), Watches()]), "go")
    assert len(deltas(events)) == 5


# ------------------------------------------------------------------------- broken streams


def test_a_stream_that_breaks_tells_the_text_so_far_once_and_then_the_failure() -> None:
    """R6."""
    model = ScriptedModel([["some text", ConnectionError("x")]])
    events, outcome = stream(Agent("a", model), "go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StreamBroken)
    assert "ConnectionError" in str(outcome.error)
    assert "".join(delta.text for delta in deltas(events)) == "some text"
    (ended,) = [event for event in events if isinstance(event, ReplyEnded)]
    assert events[-2] is ended
    assert events[-1].kind == "run_finished"
    assert ended.response.text == "some text"
    assert ended.response.state == "interrupted"
    kept = outcome.state.messages[-1]
    assert kept == ended.response
    again = AgentState.from_dict(outcome.state.to_dict()).messages[-1]
    assert isinstance(again, ModelResponse)
    assert (again.text, again.state) == ("some text", "interrupted")


def test_a_stream_that_ends_before_the_reply_does_is_a_broken_one() -> None:
    """R6: a provider that closes the connection early raises nothing."""

    class Short(ScriptedModel):
        @asynccontextmanager
        async def request_stream(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
            async with super().request_stream(*args, **options) as response:
                response.state = "incomplete"  # as OpenAI's does without its last event
                yield response

    model = Short([["some text", call("note", {"text": "x"})], "never said"])
    _, outcome = stream(Agent("a", model, tools=[note]), "go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StreamBroken)
    assert "it ended before the reply did" in str(outcome.error)
    (reply,) = [m for m in outcome.state.messages if isinstance(m, ModelResponse)]
    assert (reply.text, reply.state) == ("some text", "interrupted")
    assert len(model.requests) == 1


def test_a_broken_stream_keeps_the_turns_before_it_and_can_be_gone_on_with() -> None:
    """R5, R6."""
    agent = Agent("a", noting(["half of", ConnectionError("x")], "the whole"), tools=[note])
    _, failed = stream(agent, "go")
    assert isinstance(failed, Failed)
    assert [message.kind for message in failed.state.messages] == [
        "request",
        "response",
        "request",
        "response",
    ]
    _, outcome = stream(agent, "once more", state=failed.state)
    assert isinstance(outcome, Completed)
    assert outcome.text == "the whole"


def test_text_that_was_held_back_when_the_stream_broke_is_not_told_as_deltas() -> None:
    """J15, R6: no `after_model` has seen the whole of it."""
    model = ScriptedModel([["the secret", ConnectionError("x")]])
    events, outcome = stream(Agent("a", model, middleware=[Censors()]), "go")
    assert isinstance(outcome, Failed)
    assert deltas(events) == []


def whole_reply(messages: list[ModelMessage], info: object) -> ModelResponse:
    if len(messages) > 1:
        return ModelResponse([ThinkingPart("Hm."), TextPart("Noted."), TextPart("Good.")])
    return ModelResponse([ToolCallPart("note", {"text": "a"})])


class WithoutStreams(Model):
    """As a model whose class has no `request_stream`."""

    model_name = "without-streams"
    system = "test"

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        return whole_reply(messages, None)


class Refusing(WithoutStreams):
    """As a model that says only when it is asked that it has no streams."""

    @asynccontextmanager
    async def request_stream(self, *_: Any) -> Any:
        raise NotImplementedError("no streams")
        yield


WHOLE: list[Model] = [
    FunctionModel(whole_reply),
    WithoutStreams(),
    Refusing(),
    WrapperModel(FunctionModel(whole_reply)),
    WrapperModel(Refusing()),
    FallbackModel(FunctionModel(whole_reply), FunctionModel(whole_reply)),
    FallbackModel(WithoutStreams(), ScriptedModel([])),
]


@pytest.mark.parametrize("model", WHOLE, ids=lambda model: type(model).__name__)
def test_a_model_without_streams_answers_a_run_that_is_followed_and_its_reply_comes_whole(
    model: Model,
) -> None:
    events, outcome = stream(Agent("desk", model, tools=[note]), "Note it.")
    assert isinstance(outcome, Completed)
    assert [each.text for each in deltas(events)] == ["Noted.", "Good."]
    assert [each.text for each in events if isinstance(each, ThinkingDelta)] == ["Hm."]
    announced = [each for each in events if isinstance(each, ToolCallAnnounced)]
    assert [each.tool_name for each in announced] == ["note"]
    assert outcome.usage.requests == 2


def test_a_reply_without_a_stream_that_is_no_answer_is_not_told() -> None:
    def refusing(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("Never.")], finish_reason="content_filter")

    agent = Agent("desk", FunctionModel(refusing), fallback_models=[ScriptedModel(["Yes."])])
    events, outcome = stream(agent, "Go.")
    assert isinstance(outcome, Completed)
    assert [each.text for each in deltas(events)] == ["Yes."]


def test_a_run_cut_off_while_the_model_was_asked_declares_its_deltas_void() -> None:
    """J17: of a turn that was recorded nothing is void."""
    journal = MemoryJournal()
    agent = Agent("a", noting(), tools=[note])
    agent.execute_sync("go", journal=journal)
    kinds = [record.kind for record in journal.records]
    asked_first, asked_again = kinds.index("attempt"), kinds.index("result")
    for cut, void in ((asked_first, True), (asked_again, True), (kinds.index("reply"), False)):
        left = replay(journal.records[: cut + 1])
        done = asyncio.run(told(Agent("a", noting(), tools=[note]).stream(state=left)))[0]
        discarded = [event for event in done if isinstance(event, AttemptDiscarded)]
        assert [event.attempt for event in discarded] == ([1] if void else [])
        assert not void or done[0] is discarded[0], "before any delta of the new attempt"
