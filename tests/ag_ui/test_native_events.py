"""`NativeEvents`: replies in order, whatever a subscription brings, wherever it begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_ai.messages import (
    FunctionToolCallEvent,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from understudy import Agent, AgentState, ScriptedModel, call, events
from understudy.actors import EventsDropped
from understudy.ag_ui.native_events import Differs, NativeEvents, Piece, ReplyBegins

PATH = ("desk",)


def begins(run: str = "r", turn: int = 0) -> events.ReplyStarted:
    return events.ReplyStarted(agent_path=PATH, turn=turn, model="m", run_id=run)


def delta(text: str, n: int, part: int = 0, kind: Any = events.TextDelta) -> Any:
    return kind(agent_path=PATH, turn=0, attempt=1, n=n, text=text, run_id="r", part=part)


def ended(*parts: Any, turn: int = 0) -> events.ReplyEnded:
    return events.ReplyEnded(agent_path=PATH, turn=turn, response=ModelResponse(list(parts)))


def told(native: NativeEvents, *found: object) -> list[str]:
    """What is given out, in short."""
    return [short(given) for event in found for given in native.event(event)]


def short(given: object) -> str:
    match given:
        case ReplyBegins(number=number):
            return f"reply {number}"
        case Piece(event=PartStartEvent(part=TextPart() | ThinkingPart() as part)):
            return f"+{part.content}"
        case Piece(event=PartStartEvent(part=ToolCallPart() as call)):
            return f"+{call.tool_name}()"
        case Piece(event=PartDeltaEvent(delta=change)):
            return str(getattr(change, "content_delta", change))
        case Piece(event=PartEndEvent()):
            return "."
        case Piece(event=FunctionToolCallEvent(part=call)):
            return f"{call.tool_name}!"
        case Differs():
            return "differs"
        case _:
            return repr(given)


def texts(found: Iterable[str]) -> str:
    return "".join(found)


def test_a_part_begins_grows_and_ends() -> None:
    thought = [delta("hm", 0, 0, events.ThinkingDelta), delta("a", 1, 1), delta("b", 2, 1)]
    end = ended(ThinkingPart("hm"), TextPart("abc"), ToolCallPart("pay", {}))
    assert told(NativeEvents(None), begins(), *thought, end) == [
        *("reply 0", "+hm", "."),
        *("+a", "b", "c", "."),
        *("+pay()", ".", "pay!"),
    ]


def test_what_began_before_comes_whole_with_its_end() -> None:
    found = told(NativeEvents(None), delta("b", 1), delta("c", 2), ended(TextPart("abc")))
    assert found == ["reply 0", "+abc", "."]


def test_what_was_dropped_comes_with_the_end() -> None:
    lost = [begins(), delta("a", 0), EventsDropped(count=1), delta("c", 2)]
    assert told(NativeEvents(None), *lost, ended(TextPart("abc"))) == ["reply 0", "+a", "bc", "."]


def test_a_reply_of_another_model_makes_the_first_one_void() -> None:
    found = told(
        NativeEvents(None), begins(), delta("x", 0), begins(), delta("a", 0), ended(TextPart("a"))
    )
    assert found == ["reply 0", "+x", ".", "differs", "reply 0", "+a", "."]


def test_an_attempt_that_is_over_makes_its_text_void() -> None:
    over = events.AttemptDiscarded(agent_path=PATH, attempt=1)
    assert told(NativeEvents(None), begins(), delta("x", 0), over) == [
        "reply 0",
        "+x",
        ".",
        "differs",
    ]


def test_what_is_recorded_otherwise_differs() -> None:
    found = told(NativeEvents(None), begins(), delta("secret", 0), ended(TextPart("[hidden]")))
    assert found[-1] == "differs"
    found = told(
        NativeEvents(None), begins(), delta("a", 0), delta("b", 1, 1), ended(TextPart("a"))
    )
    assert found[-1] == "differs"


def test_what_the_client_has_does_not_come_again() -> None:
    reply = ModelResponse([TextPart("a")])
    state = AgentState([reply])
    known = events.ReplyEnded(agent_path=PATH, turn=0, response=reply)
    assert told(NativeEvents(state), known) == []
    assert told(NativeEvents(state), ended(TextPart("b"), turn=1)) == ["reply 1", "+b", "."]


def test_what_is_being_written_is_continued_by_what_is_recorded() -> None:
    """The outcome may come before the event with the whole reply."""

    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent("a", ScriptedModel([call("look"), "done"]), tools=[look])
    state = agent.execute_sync("go").state
    first, _ = (message for message in state.messages if isinstance(message, ModelResponse))
    native = NativeEvents(None)
    told(native, begins(), events.ReplyEnded(agent_path=PATH, turn=0, response=first))
    piece = events.TextDelta(agent_path=PATH, turn=1, attempt=1, n=0, text="do", run_id="r")
    assert told(native, begins(turn=1), piece) == ["reply 1", "+do"]
    rest = [short(given) for given in native.catch_up(state)]
    assert [given for given in rest if "seen" not in given] == ["ne", "."]


def test_what_is_being_written_and_was_never_recorded_is_ended() -> None:
    state = Agent("a", ScriptedModel(["done"])).execute_sync("go").state
    native = NativeEvents(None)
    assert told(native, begins(), delta("void", 0)) == ["reply 0", "+void"]
    assert [short(given) for given in native.catch_up(state)] == [".", "reply 0", "+done", "."]
