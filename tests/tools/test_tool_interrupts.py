"""Tools that ask a question of their own, by raising `Interrupt` (I8)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.agents import (
    FakeClock,
    Stage,
    assert_valid_history,
    completed,
    interrupted,
    results,
)
from understudy import (
    AgentState,
    Completed,
    DecisionError,
    Interrupt,
    NotInterrupted,
    Paused,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)


class Office:
    """Tools that ask, and tools that do not; `did` has every entry into a body."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        did = self.did

        @tool
        async def ask(ctx: ToolContext, question: str) -> str:
            did.append(("ask", question, ctx.resume_value))
            if ctx.resume_value is None:
                raise Interrupt({"question": question})
            return f"{question} {ctx.resume_value}"

        @tool
        def ask_plainly(ctx: ToolContext, question: str) -> str:
            did.append(("ask_plainly", question, ctx.resume_value))
            if ctx.resume_value is None:
                raise Interrupt(question, allowed=["respond", "approve", "reject"])
            return f"{question} {ctx.resume_value}"

        @tool
        async def ask_twice(ctx: ToolContext) -> str:
            did.append(("ask_twice", ctx.resume_value))
            if ctx.resume_value is None:
                raise Interrupt("first")
            if ctx.resume_value == "one":
                raise Interrupt("second")
            return f"last: {ctx.resume_value}"

        @tool
        async def note(text: str) -> ToolResult[str]:
            did.append(("note", text))
            return ToolResult(f"noted {text}", state={"notes": {text: True}})

        @tool
        async def fail() -> str:
            did.append(("fail",))
            raise LookupError("gone")

        self.tools: list[Any] = [ask, ask_plainly, ask_twice, note, fail]


@pytest.fixture
def office() -> Office:
    return Office()


ASK = call("ask", {"question": "who?"}, id="a1")


def test_a_tool_asks_and_runs_again_with_the_answer(stage: Stage, office: Office) -> None:
    """I8."""
    clock = FakeClock()
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start(clock=clock))
    (request,) = outcome.requests
    assert request.kind == "interrupt"
    assert request.payload == {"question": "who?"}
    assert request.allowed == ("respond", "reject")
    assert request.tool_name == "ask"
    assert request.tool_call_id == "a1"
    assert request.arguments == {"question": "who?"}
    assert request.agent_path == ("support",)
    assert request.run_id == outcome.run_id
    assert request.created_at == clock.time
    assert stage.carried(outcome.state).requests == (request,)
    end = completed(stage.resume(outcome, {request.id: respond("ann")}))
    assert office.did == [("ask", "who?", None), ("ask", "who?", "ann")]
    assert [(p.content, p.outcome) for p in results(end.state)] == [("who? ann", "success")]
    assert end.usage.requests == 2
    assert_valid_history(end.state)


def test_a_plain_tool_in_a_thread_may_ask_as_well(stage: Stage, office: Office) -> None:
    """I8; approve() is the answer True."""
    stage.cast(call("ask_plainly", {"question": "sure?"}), tools=office.tools)
    outcome = interrupted(stage.start())
    assert outcome.requests[0].allowed == ("respond", "approve", "reject")
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    assert results(end.state)[0].content == "sure? True"


@pytest.mark.parametrize("answer", ["x", 3, False, 0, "", [], {"deep": [1, {"x": None}]}])
def test_any_json_value_may_be_the_answer(stage: Stage, answer: Any) -> None:
    """I8."""
    seen = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        seen.append(ctx.resume_value)
        if len(seen) == 1:
            raise Interrupt
        return "ok"

    stage.cast(call("ask"), tools=[ask])
    outcome = interrupted(stage.start())
    assert outcome.requests[0].payload is None
    completed(stage.resume(outcome, outcome.decide(respond(answer))))
    assert seen == [None, answer]
    assert type(seen[1]) is type(answer)


def test_rejecting_a_question_ends_the_call_without_running_it_again(
    stage: Stage, office: Office
) -> None:
    """I8, I6."""
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(reject("not your business"))))
    assert office.did == [("ask", "who?", None)]
    (part,) = results(end.state)
    assert part.outcome == "denied"
    assert "not your business" in str(part.content)
    assert_valid_history(end.state)


@pytest.mark.parametrize(
    "bad", [approve(), edit({"question": "x"}), respond("x", by="a").to_dict() | {"always": True}]
)
def test_only_the_allowed_answers_are_taken(stage: Stage, office: Office, bad: Any) -> None:
    """I5, I8."""
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start())
    with pytest.raises(DecisionError) as caught:
        stage.resume(outcome, {outcome.requests[0].id: bad})
    assert caught.value.request_id == outcome.requests[0].id
    assert len(office.did) == 1
    completed(stage.resume(outcome, outcome.decide(respond("ann"))))


def test_an_answer_to_a_question_cannot_stick() -> None:
    """I3: always=True is for approvals; a question is asked each time."""
    stage, office = Stage(elsewhere=False), Office()
    stage.cast(call("ask_plainly", {"question": "sure?"}), tools=office.tools)
    outcome = interrupted(stage.start())
    for decision in (approve(always=True), reject(always=True)):
        with pytest.raises(DecisionError, match="always"):
            stage.resume(outcome, outcome.decide(approve()) | {outcome.requests[0].id: decision})


def test_siblings_finish_and_are_recorded_before_the_question_is_told(
    stage: Stage, office: Office
) -> None:
    """I8: and do not run again; nor does the model see a half turn."""
    stage.cast(
        [
            call("note", {"text": "a"}, id="n1"),
            ASK,
            call("fail", id="f1"),
            call("note", {"text": "b"}, id="n2"),
        ],
        tools=office.tools,
    )
    outcome = interrupted(stage.start())
    assert sorted(item[0] for item in office.did) == ["ask", "fail", "note", "note"]
    assert results(outcome.state) == [], "the message of the turn waits for the last result"
    assert outcome.state.values == {}, "and so do the deltas"
    end = completed(stage.resume(outcome, outcome.decide(respond("ann"))))
    assert office.did[4:] == [("ask", "who?", "ann")], "that tool alone"
    assert [part.tool_call_id for part in results(end.state)] == ["n1", "a1", "f1", "n2"]
    assert [p.outcome for p in results(end.state)] == ["success", "success", "failed", "success"]
    assert end.state.values == {"notes": {"a": True, "b": True}}
    assert_valid_history(end.state)


def test_a_sibling_that_is_still_running_is_waited_for(stage: Stage) -> None:
    """I8: the question does not cut it off."""
    asked = asyncio.Event()
    finished = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        if ctx.resume_value is None:
            asked.set()
            raise Interrupt("?")
        return "ok"

    @tool
    async def slow() -> str:
        await asked.wait()
        for _ in range(10):
            await _soon()
        finished.append("slow")
        return "slow"

    stage.cast([call("ask"), call("slow")], tools=[ask, slow])
    outcome = interrupted(stage.start())
    assert finished == ["slow"]
    completed(stage.resume(outcome, outcome.decide(respond(1))))
    assert finished == ["slow"]


async def _soon() -> None:
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


def test_sequential_siblings_behind_a_question_still_run(stage: Stage, office: Office) -> None:
    """I8, T1: a question of the first keeps the second from nothing."""
    did: list[str] = []

    @tool(sequential=True)
    async def first(ctx: ToolContext) -> str:
        did.append("first")
        if ctx.resume_value is None:
            raise Interrupt("?")
        return "first"

    @tool(sequential=True)
    async def second() -> str:
        did.append("second")
        return "second"

    stage.cast([call("first"), call("second")], tools=[first, second])
    outcome = interrupted(stage.start())
    assert did == ["first", "second"]
    end = completed(stage.resume(outcome, outcome.decide(respond(1))))
    assert did == ["first", "second", "first"]
    assert [part.content for part in results(end.state)] == ["first", "second"]


def test_several_tools_ask_in_one_reply(stage: Stage, office: Office) -> None:
    """I8, I9: each has a request of its own, in call order."""
    stage.cast(
        [
            call("ask", {"question": "a?"}),
            call("note", {"text": "n"}),
            call("ask_plainly", {"question": "b?"}),
            call("ask", {"question": "a?"}),
        ],
        tools=office.tools,
    )
    outcome = interrupted(stage.start())
    assert [request.payload for request in outcome.requests] == [
        {"question": "a?"},
        "b?",
        {"question": "a?"},
    ]
    assert len({request.id for request in outcome.requests}) == 3
    entered = len(office.did)
    end = completed(stage.resume(outcome, outcome.decide(respond("1"), respond("2"), reject("no"))))
    assert sorted(office.did[entered:]) == [("ask", "a?", "1"), ("ask_plainly", "b?", "2")]
    assert [p.outcome for p in results(end.state)] == ["success", "success", "success", "denied"]
    assert [p.content for p in results(end.state)[:3]] == ["a? 1", "noted n", "b? 2"]
    assert_valid_history(end.state)


@pytest.mark.parametrize("first", [0, 1])
def test_questions_may_be_answered_one_by_one(stage: Stage, office: Office, first: int) -> None:
    """I4: no tool of the reply continues until all are decided."""
    stage.cast(
        [call("ask", {"question": "a?"}), call("ask", {"question": "b?"})], tools=office.tools
    )
    outcome = interrupted(stage.start())
    entered = len(office.did)
    one, other = outcome.requests[first], outcome.requests[1 - first]
    again = interrupted(stage.resume(outcome, {one.id: respond("x")}))
    assert again.requests == (other,)
    assert len(office.did) == entered
    assert again.usage.requests == 1
    end = completed(stage.resume(again, {other.id: respond("y")}))
    assert len(office.did) == entered + 2
    wanted = ["a? x", "b? y"] if first == 0 else ["a? y", "b? x"]
    assert [part.content for part in results(end.state)] == wanted


def test_a_tool_may_ask_again_and_sees_only_the_last_answer(stage: Stage, office: Office) -> None:
    """I8: it runs from its start each time."""
    stage.cast(call("ask_twice"), tools=office.tools)
    first = interrupted(stage.start())
    second = interrupted(stage.resume(first, first.decide(respond("one"))))
    assert [request.payload for request in second.requests] == ["second"]
    assert second.requests[0].id != first.requests[0].id
    with pytest.raises(NotInterrupted):
        stage.resume(second, {first.requests[0].id: respond("two")})
    end = completed(stage.resume(second, second.decide(respond("two"))))
    assert office.did == [("ask_twice", None), ("ask_twice", "one"), ("ask_twice", "two")]
    assert results(end.state)[0].content == "last: two"
    assert [line.decision.value for line in end.state.decisions] == ["one", "two"]
    assert_valid_history(end.state)


def test_the_identical_answer_to_a_question_again_returns_the_same_run(
    stage: Stage, office: Office
) -> None:
    """I5."""
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start())
    answers = outcome.decide(respond({"name": ["ann", "bob"]}))
    end = completed(stage.resume(outcome, answers))
    again = completed(stage.resume(end, answers))
    assert again.text == end.text
    assert len(office.did) == 2
    with pytest.raises(NotInterrupted):
        stage.resume(end, outcome.decide(respond("carl")))


# ----------------------------------------------------------------------- beside approvals (I9)


def test_questions_and_approvals_are_asked_one_after_the_other(
    stage: Stage, office: Office
) -> None:
    """I2, I9: no tool has started when an approval is asked, so none could ask of its own yet."""
    stage.cast([ASK, call("note", {"text": "x"})], tools=office.tools, interrupt_on={"note": True})
    outcome = interrupted(stage.start())
    assert [request.kind for request in outcome.requests] == ["approval"]
    assert office.did == []
    question = interrupted(stage.resume(outcome, outcome.decide(approve())))
    assert [request.kind for request in question.requests] == ["interrupt"]
    assert ("note", "x") in office.did
    end = completed(stage.resume(question, question.decide(respond("ann"))))
    assert office.did.count(("note", "x")) == 1
    assert [part.content for part in results(end.state)] == ["who? ann", "noted x"]
    assert_valid_history(end.state)


def test_a_gated_tool_may_ask_a_question_of_its_own(stage: Stage, office: Office) -> None:
    """I8, I12: it was approved already, and is not asked for again."""
    stage.cast(ASK, tools=office.tools, interrupt_on={"ask": True})
    outcome = interrupted(stage.start())
    assert office.did == []
    question = interrupted(stage.resume(outcome, outcome.decide(approve())))
    assert [request.kind for request in question.requests] == ["interrupt"]
    end = completed(stage.resume(question, question.decide(respond("ann"))))
    assert office.did == [("ask", "who?", None), ("ask", "who?", "ann")]
    assert results(end.state)[0].content == "who? ann"
    assert [line.request.kind for line in end.state.decisions] == ["approval", "interrupt"]


def test_an_edited_call_keeps_its_arguments_when_it_asks(stage: Stage, office: Office) -> None:
    """I6, I8: the question shows what runs, and the answer goes to the same."""
    stage.cast(ASK, tools=office.tools, interrupt_on={"ask": True})
    outcome = interrupted(stage.start())
    question = interrupted(stage.resume(outcome, outcome.decide(edit({"question": "when?"}))))
    assert question.requests[0].arguments == {"question": "when?"}
    assert question.requests[0].payload == {"question": "when?"}
    end = completed(stage.resume(question, question.decide(respond("now"))))
    assert office.did == [("ask", "when?", None), ("ask", "when?", "now")]
    told = json.dumps(results(end.state)[0].content)
    assert "when? now" in told


def test_a_rejected_question_of_an_approved_call_is_denied(stage: Stage, office: Office) -> None:
    """I6, I8."""
    stage.cast(ASK, tools=office.tools, interrupt_on={"ask": True})
    outcome = interrupted(stage.start())
    question = interrupted(stage.resume(outcome, outcome.decide(approve())))
    end = completed(stage.resume(question, question.decide(reject())))
    assert len(office.did) == 1
    assert results(end.state)[0].outcome == "denied"


def test_a_question_holds_for_the_tool_that_asked_it(stage: Stage, office: Office) -> None:
    """I12: a changed tool does not get the answer to the old one's question."""
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start(deps="d"))
    waiting = stage.resume(outcome, outcome.decide(respond("ann")))
    assert isinstance(waiting, Paused)
    changed = Office()
    changed.tools[0] = tool(name="ask", version="2")(changed.tools[0].function)
    stage.cast(ASK, tools=changed.tools)
    stage.agent = stage.build()
    again = interrupted(stage.resume(waiting, deps="d"))
    assert again.requests[0].id != outcome.requests[0].id
    assert again.requests[0].payload == {"question": "who?"}
    assert changed.did == []
    completed(stage.resume(again, again.decide(respond("bob")), deps="d"))
    assert changed.did == [("ask", "who?", "bob")]


# ----------------------------------------------------------------------- what it runs with


def test_the_tool_runs_again_from_its_start_with_its_own_arguments(stage: Stage) -> None:
    """I8: what the body did to its arguments before it asked is no part of the question."""
    seen = []

    @tool
    async def pick(ctx: ToolContext, items: list[str]) -> str:
        seen.append(list(items))
        items.pop()
        if ctx.resume_value is None:
            raise Interrupt("which?")
        return "ok"

    stage.cast(call("pick", {"items": ["a", "b", "c"]}), tools=[pick])
    outcome = interrupted(stage.start())
    assert outcome.requests[0].arguments == {"items": ["a", "b", "c"]}
    completed(stage.resume(outcome, outcome.decide(respond("a"))))
    assert seen == [["a", "b", "c"], ["a", "b", "c"]]


def test_the_call_key_is_the_same_when_it_runs_again(stage: Stage) -> None:
    """I8, J4: so that what is before the question can be made idempotent."""
    keys = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        keys.append((ctx.call_key, ctx.tool_call_id, ctx.run_id, ctx.deps))
        if ctx.resume_value is None:
            raise Interrupt
        return "ok"

    stage.cast([call("ask", id="1"), call("ask", id="2")], tools=[ask])
    outcome = interrupted(stage.start(deps="d"))
    completed(stage.resume(outcome, outcome.decide(respond(1), respond(2)), deps="d"))
    assert keys[:2] == keys[2:]
    assert len({key for key, *_ in keys}) == 2


def test_the_answer_to_one_call_is_not_seen_by_the_next(stage: Stage, office: Office) -> None:
    """I8."""
    stage.cast(ASK, call("ask", {"question": "who?"}), tools=office.tools)
    outcome = interrupted(stage.start())
    second = interrupted(stage.resume(outcome, outcome.decide(respond("ann"))))
    assert office.did[-1] == ("ask", "who?", None)
    assert second.requests[0].id != outcome.requests[0].id


def test_an_until_tool_that_asks_ends_the_run_with_its_last_result(
    stage: Stage, office: Office
) -> None:
    """U4, U1: the interrupt is reported first."""
    stage.cast([call("note", {"text": "x"}), ASK], tools=office.tools)
    outcome = interrupted(stage.start(until_tool="ask"))
    end = completed(stage.resume(outcome, outcome.decide(respond("ann"))))
    assert end.tool_result is not None
    assert end.tool_result.value == "who? ann"
    assert end.tool_result.arguments == {"question": "who?"}
    assert end.usage.requests == 1


# --------------------------------------------------------------------------- what is no question


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ([], "empty"),
        (["maybe"], "maybe"),
        ("respond", "string"),
        (["edit", "respond"], "edit"),
    ],
)
def test_a_question_that_nobody_could_answer_is_an_error_of_the_tool(
    stage: Stage, allowed: Any, said: str
) -> None:
    """I1, I8: it goes to the model as any error of the tool does; the run does not hang."""
    with pytest.raises(UsageError, match=said):
        Interrupt("?", allowed=allowed)

    @tool
    async def ask() -> str:
        raise Interrupt("?", allowed=allowed)

    stage.cast(call("ask"), tools=[ask])
    end = completed(stage.start())
    (part,) = results(end.state)
    assert part.outcome == "failed"
    assert said in str(part.content)


def test_a_payload_that_cannot_be_stored_is_an_error_of_the_tool(stage: Stage) -> None:
    """I8: a question is plain data."""

    @tool
    async def ask() -> str:
        raise Interrupt({"connection": object()})

    stage.cast(call("ask"), tools=[ask])
    end = completed(stage.start())
    assert results(end.state)[0].outcome == "failed"
    assert "JSON" in str(results(end.state)[0].content)


def test_a_new_message_takes_the_question_back(stage: Stage, office: Office) -> None:
    """J5: the call gets a result that says so, and those of its siblings stay."""
    stage.cast([ASK, call("note", {"text": "x"})], "moved on", tools=office.tools)
    outcome = interrupted(stage.start())
    end = completed(stage.start("never mind", state=stage.carried(outcome.state)))
    assert [part.outcome for part in results(end.state)] == ["denied", "success"]
    assert end.state.values == {"notes": {"x": True}}
    assert_valid_history(end.state)
    with pytest.raises((DecisionError, NotInterrupted)):
        stage.resume(end, outcome.decide(respond("ann")))
    assert len(office.did) == 2


def test_an_answered_question_waits_in_the_state_as_plain_data(office: Office) -> None:
    """I8: what stands in the state after the answer is enough for another process."""
    stage = Stage(elsewhere=True)
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start(deps="d"))
    waiting = stage.resume(outcome, outcome.decide(respond({"name": "ann"})))
    assert isinstance(waiting, Paused)
    state = AgentState.from_dict(json.loads(json.dumps(waiting.state.to_dict())))
    end = stage.resume(state, deps="d")
    assert isinstance(end, Completed)
    assert office.did[-1] == ("ask", "who?", {"name": "ann"})


def test_a_dict_with_the_words_of_a_decision_is_just_a_value(stage: Stage, office: Office) -> None:
    """I13: an answer's value decides nothing."""
    stage.cast(ASK, tools=office.tools)
    outcome = interrupted(stage.start())
    value = approve(always=True).to_dict()
    end = completed(stage.resume(outcome, outcome.decide(respond(value))))
    assert office.did[-1] == ("ask", "who?", value)
    assert end.state.grants == {}
