"""What is accepted can be read again, by every path; what could not be read is refused (J16)."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from understudy import (
    Agent,
    AgentState,
    Decision,
    DecisionError,
    Failed,
    Interrupt,
    Request,
    Runtime,
    ToolResult,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
)
from understudy.approvals import Approval, Vote
from understudy.errors import RecordRefused
from understudy.journal.codec import decode, encode
from understudy.journal.readable import readable_data
from understudy.state import records as r
from understudy.state.files import FileChange, StoredFile
from understudy.state.plans import BackgroundCall, Occurrence, Schedule
from understudy.state.records import Record, Reply, record_from_dict, record_to_dict
from understudy.state.reviews import Review

NOW = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=timezone.utc)


def nested(levels: int) -> Any:
    value: Any = "core"
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


LONGEST = 10**4300 - 1
HOSTILE: list[Any] = [
    LONGEST,
    -LONGEST,
    LONGEST + 1,
    -LONGEST - 1,
    10**5000,
    2**63,
    1e308,
    5e-324,
    -0.0,
    float("nan"),
    float("inf"),
    "\ud800",
    "a\udfffb",
    "\0",
    "\U0010ffff",
    nested(49),
    nested(51),
    nested(99),
    nested(149),
    nested(190),
    nested(201),
    nested(230),
    nested(254),
    nested(5000),
    cyclic(),
    b"\xff",
    b"plain",
    object(),
    {1: "a", "1": "b"},
    {"\ud800": 1},
]
hostile = st.recursive(
    st.integers(0, len(HOSTILE) - 1).map(lambda index: HOSTILE[index])
    | st.integers()
    | st.floats()
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


def of_kinds(value: Any) -> list[Record]:
    """A record of every kind that holds anything from outside, with `value` in every place."""
    data: dict[str, Any] = {"x": value}
    text = value if isinstance(value, str) else "text"
    number = value if isinstance(value, int) else 1
    ask = ModelRequest(parts=[UserPromptPart(text, timestamp=NOW)], timestamp=NOW, metadata=data)
    response = ModelResponse(
        parts=[TextPart(text, provider_details=data), ToolCallPart("t", data, tool_call_id=text)],
        timestamp=NOW,
        metadata=data,
    )
    part = ToolReturnPart("t", value, tool_call_id="c", timestamp=NOW, metadata=value)
    end = r.End(outcome="completed", text=text, output=value, has_output=True, tool_arguments=data)
    request = Request(
        id="q",
        kind="approval",
        agent_id="a",
        run_id="r",
        agent_path=("a",),
        call_key="r.0.0",
        tool_call_id="c",
        tool_name=text,
        arguments=data,
        display=data,
        payload=value,
        created_at=NOW,
        fingerprint="f",
        digest="d",
    )
    decision = Decision(type="respond", value=value, note=text)
    decided = r.Decided(request_id="q", decision=decision, at=NOW)
    asked = Approval(ways=({text: 1},))
    vote = Vote(person=text, name=text, login=text, roles=(text,), type="approve", at=NOW)
    result = r.Result(call_key="k", part=part, value=value, value_is="separate", state=data)
    reply = r.Reply(turn=0, response=response, broken=data)
    schedule = Schedule(
        id=text,
        name=text,
        cron=text,
        timezone=text,
        message=ask,
        missed="one",
        overlap="skip",
        created_at=NOW,
        next_due=NOW,
    )
    background = BackgroundCall(
        code=text,
        agent_id=text,
        owner=text,
        call_key=text,
        tool_call_id=text,
        tool_name=text,
        arguments=data,
        agent_path=("a",),
        at=NOW,
    )
    state = AgentState()
    state.put({"x": value})
    return [
        r.BackgroundStarted(call=background, at=NOW),
        r.AgentCreated(values=data),
        r.Imported(at=NOW, agent_id=text, incarnation=number),
        r.StatusNoted(status=text, runs=number),
        r.ValuesMerged(delta=data, source=text),
        r.Quarantined(cause=text),
        r.Released(),
        r.RunStarted(
            run_id="r",
            agent="a",
            at=NOW,
            message=ask,
            until_tool=None,
            require_tool_success=False,
            max_runs=number,
            early_stopping="force",
            fingerprint="f",
            deps_given=False,
            pause_when_given=False,
            values=data,
        ),
        r.Attempt(number=1),
        r.AttemptClosed(),
        r.UserMessage(message=ask, by=text),
        r.MessageQueued(message_id=text, message=ask),
        r.MessageDue(message_id=text, at=NOW),
        r.MessagesArchived(runs={text: text}, at=NOW),
        r.MessageCancelled(message_id=text, at=NOW),
        r.MessageRefused(message_id=text, error=data, at=NOW),
        r.PauseRequested(reason=text, at=NOW),
        r.ScheduleSet(schedule=schedule, at=NOW),
        r.ScheduleRemoved(schedule_id=text, at=NOW),
        r.Occurred(occurrence=Occurrence(schedule_id=text, due=NOW), message_id=text, at=NOW),
        r.CancelRequested(signal=data),
        r.Signalled(turn=0, signal=data),
        r.Override(turn=0, source=text, prompt=text),
        r.EarlyStopBegun(turn=0, message=ask),
        r.TimeSpent(seconds=value if isinstance(value, float) else 1.0),
        r.HooksRan(),
        reply,
        r.PauseChecked(turn=0),
        r.ReplyHeld(turn=0, response=response),
        r.Paused(turn=0, reason=text),
        r.Unpaused(),
        r.Requested(request=request),
        r.InterruptsChecked(turn=0, requests=(request,), decided=(decided,)),
        r.Reminded(request_id=text, number=number, at=NOW),
        r.Escalated(request_id=text, number=number, audience=text, at=NOW),
        r.Voted(request_id="q", vote=vote, missing=text, approved_at=NOW),
        r.GlassBroken(review=Review.of(replace(request, approval=asked), vote)),
        r.ReviewClosed(review_id="q", person=text, by=text, note=text, at=NOW),
        decided,
        r.Revoked(grant_id=text),
        r.Started(call_key="k", tool_name="t", tool_call_id="c", attempt=1),
        result,
        r.Suspended(call_key="k"),
        r.PointReached(call_key="k", name=text, what="wait", at=NOW, due=NOW, reason=text),
        r.TokenMade(call_key="k", name=text, token_hash="ab", at=NOW),
        r.PointAnswered(
            call_key="k", name=text, what="wait", how="value", value=value, reason=text, at=NOW
        ),
        r.ChildRecord(child="k", name="a", record=result),
        r.ChildRecord(child="k", name="a", record=r.ChildRecord(child="k", name="a", record=reply)),
        r.FilesChanged(files=(FileChange(path=text, file=StoredFile(hash=text, size=1)),)),
        r.Settled(call_key="k", how=text),
        r.Propagated(turn=0, at=NOW),
        r.TurnClosed(turn=0, end=end, message=ask),
        r.SubRunEnded(child="k", agent="a", round=0, index=0, outcome="completed", at=NOW),
        r.HistoryReplaced(messages=(ask, response)),
        r.Once(key=text, value=value),
        r.ModelAsked(key=text, response=response, value=value),
        r.ModelGaveNoAnswer(key=text, response=response, error=text),
        r.Withdrawn(request_ids=("q",)),
        r.RunEnded(end=end, at=NOW),
        r.Snapshot(state=state.to_dict(), following=2),
        r.SnapshotMessages(messages=(ask, response)),
    ]


def test_each_kind_of_record_is_tried() -> None:
    assert {type(record) for record in of_kinds("x")} == set(get_args(Record))


def test_no_kind_of_record_is_decoded_to_know_that_it_can_be() -> None:
    """A question and its decision neither: what decodes is made by the first that need it."""
    assert [each.kind for each in of_kinds("x") if readable_data(each) is None] == []


def check_readable(record: Record) -> None:
    try:
        stored = encode(record)
    except RecordRefused:
        return
    again = decode(stored)
    assert decode(encode(again)) == again
    exported = json.dumps(record_to_dict(again))
    assert record_from_dict(json.loads(exported)) == again


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: type(value).__name__)
def test_a_record_that_is_accepted_can_be_read(value: Any) -> None:
    """J16."""
    for record in of_kinds(value):
        check_readable(record)


@pytest.mark.slow
@settings(max_examples=40)
@given(hostile)
def test_a_record_of_any_hostile_value_can_be_read_if_it_is_accepted(value: Any) -> None:
    for record in of_kinds(value):
        check_readable(record)


# ------------------------------------------------------- where values come from outside

UNSTORABLE: list[Any] = [
    10**5000,
    -(10**4300),
    "\ud800",
    {"\ud800": 1},
    nested(101),
    nested(5000),
    cyclic(),
    b"\xff",
    object(),
    {1: "a", "1": "b"},
]
unstorable = pytest.mark.parametrize("value", UNSTORABLE, ids=lambda value: type(value).__name__)


def ask(key: str) -> str:
    """Ask for a value."""
    return key


def gated(**options: Any) -> Agent:
    return Agent("desk", by_turn(call("ask", {"key": "x"})), tools=[ask], **options)


@unstorable
@pytest.mark.parametrize("runtime", [False, True])
async def test_an_answer_that_cannot_be_kept_is_refused_and_the_request_stays(
    value: Any, runtime: bool
) -> None:
    if runtime:
        async with Runtime() as actors:
            ref = actors.spawn(gated(interrupt_on={"ask": True}), "a")
            asked = interrupted(await ref.run("go"))
            with pytest.raises(DecisionError, match=asked.requests[0].id):
                await ref.resume(asked.decide(respond(value)))
            with pytest.raises(DecisionError, match=asked.requests[0].id):
                await ref.resume(asked.decide(edit({"key": value})))
            completed(await ref.resume(asked.decide(approve())))
        return
    agent = gated(interrupt_on={"ask": True})
    asked = interrupted(await agent.execute("go"))
    for answer in (respond(value), edit({"key": value}), {"type": "respond", "value": value}):
        with pytest.raises(DecisionError, match=asked.requests[0].id):
            await agent.resume(asked.state, asked.decide(answer))
    completed(await agent.resume(asked.state, asked.decide(approve())))


@pytest.mark.parametrize(
    "decision",
    [
        reject("\ud800"),
        approve(by="\udfff"),
        approve(note="\ud800"),
        Decision(type="reject", message=5),  # type: ignore[arg-type]
        Decision(type="approve", by=10**5000),  # type: ignore[arg-type]
        {"type": "approve", "what": 10**5000},
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_decision_whose_text_cannot_be_kept_is_refused(decision: Any) -> None:
    agent = gated(interrupt_on={"ask": True})
    asked = interrupted(await agent.execute("go"))
    with pytest.raises(DecisionError):
        await agent.resume(asked.state, asked.decide(decision))


@unstorable
def test_values_that_could_not_be_read_again_are_refused_at_once(value: Any) -> None:
    with pytest.raises(UsageError, match="'x', which cannot be stored as JSON"):
        AgentState(values={"x": value})
    with pytest.raises(UsageError, match="values"):
        AgentState(values=value if not isinstance(value, dict) else {"x": value})
    with Runtime() as runtime, pytest.raises(UsageError, match="values"):
        runtime.spawn(gated(), "a", values={"x": value})


@unstorable
async def test_a_question_whose_payload_cannot_be_kept_is_an_error_of_its_tool(value: Any) -> None:
    def ask_back() -> str:
        raise Interrupt({"why": value})

    agent = Agent("desk", by_turn(call("ask_back")), tools=[ask_back])
    (part,) = results(completed(await agent.execute("go")).state)

    assert part.outcome == "failed"
    assert "its question cannot be asked" in str(part.content)


@unstorable
async def test_a_delta_that_could_not_be_read_again_is_an_error_that_says_that_the_tool_ran(
    value: Any,
) -> None:
    def work() -> ToolResult[str]:
        return ToolResult("done", state={"x": value})

    agent = Agent("desk", by_turn(call("work")), tools=[work])
    outcome = completed(await agent.execute("go"))

    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "'work' ran, but" in str(part.content)
    assert reloaded(outcome.state) == outcome.state


@pytest.mark.parametrize("text", ["\ud800", ["look at", "\udfff"]])
async def test_an_input_that_is_not_valid_unicode_is_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="not valid Unicode"):
        await gated().execute(text)


@pytest.mark.parametrize("value", [10**5000, nested(160)], ids=["digits", "depth"])
async def test_arguments_of_a_model_that_no_store_could_keep_go_back_to_it(value: Any) -> None:
    agent = Agent("desk", by_turn(call("ask", {"key": value}), "done"), tools=[ask])
    outcome = completed(await agent.execute("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "Invalid arguments for 'ask'" in str(part.content)
    assert reloaded(outcome.state) == outcome.state


@pytest.mark.parametrize("value", [10**5000, nested(160)], ids=["digits", "depth"])
async def test_a_reply_that_no_store_could_keep_fails_its_run_alone(value: Any) -> None:
    reply = ModelResponse(parts=[TextPart("Yes.")], provider_details={"x": value})
    agent = Agent("desk", by_turn(reply), tools=[ask])
    outcome = await agent.execute("go")

    assert isinstance(outcome, Failed)
    assert reloaded(outcome.state) == outcome.state
    again = await agent.execute("go", state=AgentState.from_dict(outcome.state.to_dict()))
    assert again.state.run is not None


@pytest.mark.parametrize(
    "messages",
    [
        ["hi"],
        [None],
        [{"kind": "request"}],
        [ModelRequest(parts=[UserPromptPart("x", timestamp=NOW)], metadata={"x": 10**5000})],
        [ModelRequest(parts=[UserPromptPart("\ud800", timestamp=NOW)])],
        [ModelRequest(parts=[UserPromptPart("x", timestamp=NOW)], metadata={"x": nested(160)})],
    ],
    ids=["text", "none", "dict", "digits", "surrogate", "depth"],
)
def test_a_conversation_that_could_not_be_read_again_is_refused(messages: Any) -> None:
    with pytest.raises(UsageError, match="messages"):
        AgentState(messages=messages)


async def test_an_agent_whose_tools_return_long_numbers_is_read_by_the_next_process(
    tmp_path: Path,
) -> None:
    def count() -> int:
        return 10**5000

    def definition() -> Agent:
        return Agent("counter", by_turn(call("count"), "done", "again"), tools=[count])

    url = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime(store=url) as runtime:
        completed(await runtime.spawn(definition(), "a").run("go"))
    async with Runtime(store=url) as runtime:
        completed(await runtime.spawn(definition(), "a").run("go on"))
        assert json.loads(json.dumps(await runtime.export("a")))["agent_id"] == "a"


EXACT = Reply(
    turn=0,
    response=ModelResponse(
        parts=[TextPart("hi"), ThinkingPart("so"), ToolCallPart("t", {"a": 1}, tool_call_id="c")],
        usage=RequestUsage(input_tokens=3, details={"reasoning_tokens": 1}),
        timestamp=NOW,
    ),
)


def places(value: object) -> list[tuple[Any, str]]:
    """Every field of a dataclass and of those in it."""
    if isinstance(value, (list, tuple)):
        return [place for item in value for place in places(item)]
    if not is_dataclass(value):
        return []
    own = [(value, field.name) for field in fields(value)]
    return own + [place for holder, name in own for place in places(getattr(holder, name))]


WRONG: list[Any] = ["weird", "\ud800", 5, 10**5000, 1.5, True, None, [1], {"a": "b"}, (), NOW, b"x"]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("place", range(len(places(EXACT)) - 1))
def test_a_field_of_a_reply_with_a_value_of_a_wrong_type_is_refused_or_can_be_read(
    place: int,
) -> None:
    for wrong in WRONG:
        record = copy.deepcopy(EXACT)
        holder, name = [place for place in places(record) if place != (record, "kind")][place]
        object.__setattr__(holder, name, wrong)

        try:
            encoded = encode(record)
        except RecordRefused:
            continue
        decode(encoded)


@pytest.mark.parametrize("kind", ["reply", 5, None])
def test_a_record_of_another_kind_than_that_of_its_class_is_refused(kind: Any) -> None:
    with pytest.raises(RecordRefused, match="could not be read again"):
        encode(r.Released(kind=kind))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("gone", ["usage", "parts"])
def test_a_record_with_a_message_that_lacks_a_field_is_refused(gone: str, nested: bool) -> None:
    reply = copy.deepcopy(EXACT)
    delattr(reply.response, gone)
    record = r.ChildRecord(child="k", name="a", record=reply) if nested else reply

    with pytest.raises(RecordRefused, match="cannot be written as JSON"):
        encode(record)
