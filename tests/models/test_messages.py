"""`Messages`: views of one list that only grows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from understudy import Agent, AgentState, Completed, Failed, Interrupted, ScriptedModel, call
from understudy.models.messages import Messages


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def said(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


A, B, C, D = asked("a"), said("b"), asked("c"), said("d")


def note(text: str) -> str:
    return f"noted {text}"


# ------------------------------------------------------------------------- growing


def listed(view: Messages) -> list[ModelMessage]:
    """The list that a model would get."""
    with view.borrowed() as messages:
        return messages


def test_appending_gives_a_longer_view_and_leaves_the_view_as_it_was() -> None:
    one = Messages([A])
    two = one.appending(B)
    assert list(one) == [A]
    assert list(two) == [A, B]
    assert list(two.appending(C, D)) == [A, B, C, D]


def test_appending_to_the_newest_view_shares_the_list() -> None:
    """DESIGN 3: O(1), nothing is copied."""
    one = Messages([A])
    shared = listed(one)
    two = one.appending(B)
    three = two.appending(C)
    assert listed(two) is not shared, "no longer the newest"
    assert listed(three) is shared
    assert shared == [A, B, C]


def test_appending_through_an_older_view_forks() -> None:
    """DESIGN 3: neither line sees the other's messages."""
    base = Messages([A])
    left = base.appending(B)
    right = base.appending(C)
    assert list(base) == [A]
    assert list(left) == [A, B]
    assert list(right) == [A, C]
    assert listed(right) is not listed(left)
    assert list(left.appending(D)) == [A, B, D]
    assert list(right.appending(D)) == [A, C, D]
    assert list(left) == [A, B]


def test_a_fork_forgets_the_call_ids_of_the_line_it_left() -> None:
    """T7: `has_call_id` of a fork speaks of the fork."""
    base = Messages([A])
    left = base.appending(ModelResponse(parts=[ToolCallPart("note", {}, tool_call_id="c-1")]))
    right = base.appending(B)
    assert left.has_call_id("c-1")
    assert not right.has_call_id("c-1")


def test_the_list_that_views_are_made_of_is_a_copy() -> None:
    given: list[ModelMessage] = [A]
    view = Messages(given)
    given.append(B)
    assert list(view) == [A]


def test_a_view_is_read_to_its_own_end_while_the_list_grows() -> None:
    view = Messages([A, B])
    seen = []
    grown = view
    for message in view:
        seen.append(message)
        grown = grown.appending(C)
    assert seen == [A, B]
    assert len(grown) == 4


def test_two_runs_from_one_state_never_see_each_others_messages() -> None:
    """DESIGN 3."""
    model = ScriptedModel(lambda request: f"{len(request.messages)} messages")
    agent = Agent("a", model)
    base = agent.execute_sync("base").state
    left = agent.execute_sync("left", state=base)
    right = agent.execute_sync("right", state=base)
    assert isinstance(left, Completed)
    assert isinstance(right, Completed)
    assert left.text == right.text == "3 messages"
    assert len(base.messages) == 2
    assert [model.requests[n].prompt for n in (1, 2)] == ["left", "right"]
    assert "left" not in str(right.state.messages)
    assert "right" not in str(left.state.messages)


# ------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "index",
    [0, 1, 2, -1, -3, slice(None), slice(1, None), slice(-2, None), slice(None, None, -1),
     slice(0, 99), slice(5, 9), slice(None, -1, 2)],
)  # fmt: skip
def test_indexing_and_slicing_are_those_of_a_list_of_the_views_length(index: Any) -> None:
    view = Messages([A, B, C])
    view.appending(D)
    assert view[index] == [A, B, C][index]


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_beyond_the_view_is_an_error_though_the_list_is_longer(index: int) -> None:
    view = Messages([A, B, C])
    view.appending(D)
    with pytest.raises(IndexError):
        view[index]


def test_a_view_is_a_sequence() -> None:
    view = Messages([A, B, C])
    assert len(view) == 3
    assert B in view
    assert D not in view
    assert view.index(C) == 2
    assert list(reversed(view)) == [C, B, A]
    assert not Messages()


def test_views_are_equal_by_content() -> None:
    base = Messages([A])
    assert base.appending(B) == Messages([A, B])
    assert base == Messages([A])
    assert base != Messages([B])
    assert base != Messages([A, B])
    assert base != [A]
    with pytest.raises(TypeError):
        hash(base)


def test_a_view_cannot_be_written_to() -> None:
    view: Any = Messages([A])
    with pytest.raises(TypeError):
        view[0] = B
    with pytest.raises(AttributeError):
        view.append(B)


def test_a_model_that_appends_to_the_conversation_it_was_given_does_not_change_it() -> None:
    """The list is shared, so that a call costs the same at message 10 and 1,000."""

    class Greedy(ScriptedModel):
        async def request(self, messages: list[ModelMessage], *args: Any) -> ModelResponse:
            messages.append(D)
            return await super().request(messages, *args)

    outcome = Agent("a", Greedy(["done"], name="greedy")).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert "greedy" in str(outcome.error)
    assert "copy" in str(outcome.error)
    assert len(outcome.state.messages) == 1


# ------------------------------------------------------------------------- imported histories


def calling(*ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("note", {"text": i}, tool_call_id=i) for i in ids])


def answering(*ids: str) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart("note", "ok", tool_call_id=i) for i in ids])


def unanswered(messages: Any) -> set[str]:
    """Ids of calls without a result and of results without a call."""
    calls, results = set(), set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                calls.add(part.tool_call_id)
            elif isinstance(part, ToolReturnPart):
                results.add(part.tool_call_id)
    return calls ^ results


@pytest.mark.parametrize(
    "history",
    [
        [A, calling("c-1")],
        [A, calling("c-1", "c-2"), answering("c-2"), D],
        [A, answering("c-9"), B],
    ],
)
def test_an_imported_history_is_made_valid_on_entry(history: list[ModelMessage]) -> None:
    """DESIGN 7: dangling calls get a result, orphaned results go."""
    state = AgentState(messages=history)
    assert unanswered(state.messages) == set()
    model = ScriptedModel(["done"])
    Agent("a", model, tools=[note]).execute_sync("go", state=state)
    assert unanswered(model.requests[0].messages) == set()


def test_a_valid_history_is_taken_as_it_is() -> None:
    """DESIGN 7."""
    history: list[ModelMessage] = [A, calling("c-1"), answering("c-1"), D]
    given = list(history)
    assert list(AgentState(messages=history).messages) == given
    assert history == given


def test_messages_of_an_interrupted_state_are_made_valid_like_any_other_history() -> None:
    """DESIGN 7: a new state knows nothing of the question that the old one waits for."""
    model = ScriptedModel([call("note", {"text": "x"}, id="c-1"), "done"])
    agent = Agent("a", model, tools=[note], interrupt_on={"note": True})
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    fresh = AgentState(messages=interrupted.state.messages)
    assert unanswered(fresh.messages) == set()
    agent.execute_sync("something else", state=fresh)
    assert unanswered(model.requests[1].messages) == set()


def test_messages_go_through_json_without_loss() -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    state = Agent("a", model, tools=[note]).execute_sync("go").state
    again = AgentState.from_dict(state.to_dict())
    assert again.messages == state.messages
    assert again == state


# --------------------------------------------------------------- a packed beginning (A13)


def packed(*segments: list[ModelMessage]) -> Messages:
    count = sum(map(len, segments))
    return Messages.packed(list(map(ModelMessagesTypeAdapter.dump_json, segments)), count)


def unreadable(count: int) -> Messages:
    """Whatever decodes it fails."""
    return Messages.packed([b"not JSON"], count)


def test_packed_messages_are_those_that_were_packed() -> None:
    view = packed([A, B], [C])
    assert (len(view), list(view)) == (3, [A, B, C])
    longer = packed([A, B], [C]).appending(D)
    assert (len(longer), longer[-1], longer[:2]) == (4, D, [A, B])
    assert longer == Messages([A, B, C, D])
    assert listed(packed([A]).appending(B, C)) == [A, B, C]
    assert packed([A, B]).plain


def test_appending_and_counting_decode_nothing() -> None:
    view = unreadable(3)
    longer = view.appending(C).appending(D)
    assert (len(view), len(longer)) == (3, 5)
    assert longer.since(3) == [C, D]
    assert longer.since(4) == [D]
    assert longer.since(5) == []
    assert longer.lineage is view.lineage
    with pytest.raises(ValueError, match="JSON"):
        longer[-1]


def test_views_of_packed_messages_are_apart() -> None:
    view = packed([A, B])
    one, other = view.appending(C), view.appending(D)
    assert (list(view), list(one), list(other)) == ([A, B], [A, B, C], [A, B, D])
    assert one.lineage is other.lineage
    assert Messages([A, B]).lineage is not view.lineage


def test_the_ids_of_packed_calls_are_known() -> None:
    called = ModelResponse(parts=[ToolCallPart("note", {}, tool_call_id="c1")])
    later = ModelResponse(parts=[ToolCallPart("note", {}, tool_call_id="c2")])
    view = packed([A, called]).appending(later)
    assert view.has_call_id("c1")
    assert view.has_call_id("c2")
    assert not view.has_call_id("c3")


def test_messages_are_decoded_once_while_others_are_appended() -> None:
    """An outcome is read in one thread while the agent continues in another."""
    pair: list[ModelMessage] = [A, B]
    for _ in range(20):
        view = newest = packed(*[pair] * 50)
        begin = threading.Barrier(3)
        with ThreadPoolExecutor(2) as threads:
            found = [threads.submit(read_after, begin, view) for _ in range(2)]
            begin.wait(timeout=60)
            for _ in range(50):
                newest = newest.appending(C)
            assert [each.result(timeout=60) for each in found] == [[A, B] * 50] * 2
        assert list(newest) == [A, B] * 50 + [C] * 50


def read_after(begin: threading.Barrier, view: Messages) -> list[ModelMessage]:
    begin.wait(timeout=60)
    return list(view)


def texts(count: int) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for number in range(count // 2):
        found += [
            ModelRequest(parts=[UserPromptPart(f"question {number}")]),
            ModelResponse(parts=[ToolCallPart("note", {}, tool_call_id=f"c{number}")]),
        ]
    return found


def test_packed_messages_are_read_in_pieces_of_a_segment() -> None:
    given = texts(600)
    view = packed(given[:200], given[200:400], given[400:])
    assert view.is_unread
    pieces = 1 + sum(1 for _ in view.reading())
    assert not view.is_unread
    assert 3 <= pieces <= 3 + 600 // 100 + 1  # the segments, and the look whether they are plain
    assert list(view) == given
    assert view.has_call_id("c299")


def test_what_comes_while_packed_messages_are_read_is_behind_them() -> None:
    given = texts(600)
    newest = packed(given[:200], given[200:400], given[400:])
    reading, other = newest.reading(), newest.reading()
    later: list[ModelMessage] = []
    while next(reading, "over") != "over":
        next(other, None)  # who else reads them takes part in it
        call: ModelMessage = ModelResponse(
            parts=[ToolCallPart("note", {}, tool_call_id=f"later{len(later)}")]
        )
        later.append(call)
        newest = newest.appending(call)
    assert list(newest) == [*given, *later]
    assert newest.has_call_id("c0")
    assert newest.has_call_id("later0")
    assert newest.has_call_id(f"later{len(later) - 1}")


def test_a_look_at_packed_messages_that_are_being_read_has_all_of_them() -> None:
    given = texts(400)
    view = packed(given[:200], given[200:])
    reading = view.reading()
    next(reading)
    assert list(view) == given
    for _ in reading:
        pass
    assert list(view) == given
