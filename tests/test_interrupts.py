"""Decisions: what may be answered, what an answer does, and what it holds for."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.agents import (
    FakeClock,
    Stage,
    assert_valid_history,
    by_turn,
    calls_made,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash
from understudy import (
    Agent,
    AgentState,
    Completed,
    Decision,
    DecisionError,
    Failed,
    Interrupted,
    NotInterrupted,
    Outcome,
    Paused,
    Request,
    Run,
    ScriptedModel,
    ToolContext,
    UnderstudyError,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.errors import AlreadyDecided
from understudy.interrupts import Interrupt, checked_decision
from understudy.journal import MemoryJournal
from understudy.middleware import Middleware
from understudy.state.fold import replay
from understudy.state.records import Record, record_from_dict, record_to_dict


class Shop:
    """Tools that tell what they really did."""

    def __init__(self, *, version: str = "") -> None:
        self.did: list[Any] = []
        did = self.did

        @tool(version=version)
        async def refund(order: str, amount: float = 5.0) -> str:
            """Refund an order."""
            did.append(("refund", order, amount))
            return f"refunded {order}"

        @tool
        async def mail(to: str) -> str:
            """Send a mail."""
            did.append(("mail", to))
            if to == "nobody":
                raise LookupError("no such address")
            return f"mailed {to}"

        @tool
        async def lookup(order: str) -> str:
            """Look an order up."""
            did.append(("lookup", order))
            return f"found {order}"

        self.tools = [refund, mail, lookup]


@pytest.fixture
def shop() -> Shop:
    return Shop()


GATED = {"refund": True, "mail": True}
REFUND = call("refund", {"order": "1"}, id="r1")
MAIL = call("mail", {"to": "a"}, id="m1")


def refunding(stage: Stage, shop: Shop, **options: Any) -> Interrupted:
    """A run that waits for an answer about one refund."""
    stage.cast(REFUND, tools=shop.tools, interrupt_on=GATED)
    return interrupted(stage.start(**options))


def three(stage: Stage, shop: Shop) -> Interrupted:
    """A run that waits for three answers, with one call between that needs none."""
    stage.cast(
        [REFUND, call("lookup", {"order": "2"}), MAIL, call("mail", {"to": "b"})],
        tools=shop.tools,
        interrupt_on=GATED,
    )
    return interrupted(stage.start())


# --------------------------------------------------------------------- what an answer does (I6)


async def test_only_of_a_tools_own_question_may_be_said_that_its_call_has_failed() -> None:
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        raise Interrupt("May I?", allowed=("approve", "reject"))

    failed = Decision(type="reject", origin="executor", message="No paint.")
    assert Decision.from_dict(failed.to_dict()) == failed
    assert not failed.same_as(reject("No paint."))
    agent = Agent("a", ScriptedModel([call("ask"), "ok"]), tools=[ask])
    outcome = interrupted(await agent.execute("go"))
    with pytest.raises(DecisionError, match="only the library sets `origin`"):
        await agent.resume(outcome.state, {outcome.requests[0].id: failed.to_dict()})
    agent = Agent("a", ScriptedModel([call("ask"), "ok"]), tools=[ask])
    outcome = interrupted(await agent.execute("go"))
    (request,) = outcome.requests
    refused = ((request, replace(failed, type="approve")), (replace(request, kind="halt"), failed))
    for asked, decision in refused:
        with pytest.raises(DecisionError, match="'executor' only to reject a question of a tool"):
            checked_decision(asked, decision)
    ended = completed(await agent.resume(outcome.state, {request.id: failed}))
    assert [(part.outcome, part.content) for part in results(ended.state)] == [
        ("failed", "No paint.")
    ]


def test_an_approved_call_runs_once_as_it_was_shown(stage: Stage, shop: Shop) -> None:
    """I3, I12."""
    outcome = refunding(stage, shop)
    end = completed(stage.resume(outcome, {outcome.requests[0].id: approve()}))
    assert end.text == "done"
    assert shop.did == [("refund", "1", 5.0)]
    assert [(part.content, part.outcome) for part in results(end.state)] == [
        ("refunded 1", "success")
    ]
    assert_valid_history(end.state)


def test_an_edit_replaces_the_arguments_as_a_whole(stage: Stage, shop: Shop) -> None:
    """I6: what the edit does not name gets its default, not what the model wrote."""
    stage.cast(call("refund", {"order": "1", "amount": 99}), tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(edit({"order": "2"}))))
    assert shop.did == [("refund", "2", 5.0)]
    assert calls_made(end.state)[0].args_as_dict() == {"order": "1", "amount": 99}, (
        "history keeps the model's own call"
    )
    told = json.dumps(results(end.state)[0].content)
    assert '"order": "2"' in told
    assert '"amount": 5.0' in told
    assert "refunded 2" in told
    assert_valid_history(end.state)


def test_the_result_of_an_edited_call_that_fails_says_what_was_run(
    stage: Stage, shop: Shop
) -> None:
    """I6: else the model believes that its own call failed."""
    stage.cast(MAIL, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(edit({"to": "nobody"}))))
    (part,) = results(end.state)
    assert part.outcome == "failed"
    told = json.dumps(part.content)
    assert "no such address" in told
    assert "nobody" in told


def test_rejecting_a_call_tells_the_model_and_runs_nothing(stage: Stage, shop: Shop) -> None:
    """I6."""
    outcome = refunding(stage, shop)
    end = completed(stage.resume(outcome, outcome.decide(reject("Ask the manager first."))))
    assert shop.did == []
    (part,) = results(end.state)
    assert part.outcome == "denied"
    assert "Ask the manager first." in str(part.content)
    assert "not try the same call again" in str(part.content)
    assert_valid_history(end.state)


def test_a_rejection_needs_no_message(stage: Stage, shop: Shop) -> None:
    """I3."""
    outcome = refunding(stage, shop)
    end = completed(stage.resume(outcome, outcome.decide(reject())))
    assert results(end.state)[0].outcome == "denied"
    assert "None" not in str(results(end.state)[0].content)


@pytest.mark.parametrize("value", ["done by hand", {"ok": [1, None]}, None, 0, []])
def test_a_response_is_the_result_and_the_tool_does_not_run(
    stage: Stage, shop: Shop, value: Any
) -> None:
    """I6."""
    outcome = refunding(stage, shop)
    end = completed(stage.resume(outcome, outcome.decide(respond(value))))
    assert shop.did == []
    assert [(part.content, part.outcome) for part in results(end.state)] == [(value, "success")]


def test_each_call_of_a_reply_gets_its_own_answer(stage: Stage, shop: Shop) -> None:
    """I3, I6, I9: results in call order, those of calls that nobody was asked about among them."""
    outcome = three(stage, shop)
    end = completed(
        stage.resume(outcome, outcome.decide(respond("by hand"), edit({"to": "c"}), reject("no")))
    )
    assert sorted(shop.did) == [("lookup", "2"), ("mail", "c")]
    assert [part.outcome for part in results(end.state)] == [
        "success",
        "success",
        "success",
        "denied",
    ]
    assert [part.tool_call_id for part in results(end.state)] == [
        part.tool_call_id for part in calls_made(end.state)
    ]
    assert_valid_history(end.state)


def test_going_on_from_an_outcome_leaves_its_usage_as_it_was() -> None:
    """I4: an outcome is a value, the counts that only one provider tells included."""

    def reply(part: TextPart | ToolCallPart) -> ModelResponse:
        return ModelResponse(parts=[part], usage=RequestUsage(details={"reasoning_tokens": 5}))

    model = by_turn(reply(ToolCallPart("mail", {"to": "a"})), reply(TextPart("done")))
    agent = Agent("support", model, tools=Shop().tools[1:2], interrupt_on={"mail": True})
    outcome = interrupted(agent.execute_sync("go"))
    end = completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
    assert outcome.usage.details == {"reasoning_tokens": 5}
    assert end.usage.details == {"reasoning_tokens": 10}


def test_the_model_is_asked_once_after_the_answers(stage: Stage, shop: Shop) -> None:
    """R2, I4: waiting, and answering in parts, costs no model call."""
    outcome = three(stage, shop)
    one, two, last = (request.id for request in outcome.requests)
    second = interrupted(stage.resume(outcome, {last: approve()}))
    third = interrupted(stage.resume(second, {one: reject()}))
    assert third.usage.requests == 1
    end = completed(stage.resume(third, {two: approve()}))
    assert end.usage.requests == 2
    assert len(end.state.messages) == 4


# ------------------------------------------------------------------ forms of an answer (I3)


@pytest.mark.parametrize(
    ("plain", "did", "outcome"),
    [
        ({"type": "approve"}, [("refund", "1", 5.0)], "success"),
        ({"type": "edit", "arguments": {"order": "2"}}, [("refund", "2", 5.0)], "success"),
        ({"type": "reject"}, [], "denied"),
        ({"type": "reject", "message": "no"}, [], "denied"),
        ({"type": "respond", "value": "x"}, [], "success"),
        ({"type": "respond", "value": None}, [], "success"),
        ({"type": "approve", "by": "ann", "note": "ok"}, [("refund", "1", 5.0)], "success"),
    ],
)
def test_a_decision_may_be_a_plain_dict(
    stage: Stage, shop: Shop, plain: dict[str, Any], did: list[Any], outcome: str
) -> None:
    """I3."""
    waiting = refunding(stage, shop)
    end = completed(stage.resume(waiting, {waiting.requests[0].id: plain}))
    assert shop.did == did
    assert results(end.state)[0].outcome == outcome


@pytest.mark.parametrize(
    "decision",
    [
        approve(),
        approve(always=True, by="ann", note="trusted"),
        edit({"order": "2", "amount": 1.5}),
        reject("no", always=True),
        respond({"a": [1, None]}),
        respond(None),
    ],
)
def test_a_decision_goes_through_json(decision: Decision) -> None:
    """I3."""
    assert Decision.from_dict(json.loads(json.dumps(decision.to_dict()))) == decision


def test_an_answer_of_null_is_written_and_one_without_value_that_was_stored_is_read(
    stage: Stage, shop: Shop
) -> None:
    """I3."""
    plain = respond(None).to_dict()
    assert plain == {"type": "respond", "value": None}
    waiting = refunding(stage, shop)
    end = completed(stage.resume(waiting, {waiting.requests[0].id: plain}))
    assert results(end.state)[0].outcome == "success"
    assert Decision.from_dict({"type": "respond"}) == respond(None)


def test_decide_pairs_decisions_with_requests_in_order(stage: Stage, shop: Shop) -> None:
    """I3."""
    outcome = three(stage, shop)
    decisions = outcome.decide(approve(), reject(), respond(1))
    assert list(decisions) == [request.id for request in outcome.requests]
    assert list(outcome) == list(outcome.requests)
    assert [decision.type for decision in decisions.values()] == ["approve", "reject", "respond"]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_decide_takes_exactly_one_decision_for_each_request(
    stage: Stage, shop: Shop, count: int
) -> None:
    """I5: a wrong length."""
    outcome = three(stage, shop)
    with pytest.raises(DecisionError, match=rf"3 requests.*{count}"):
        outcome.decide(*[approve()] * count)
    completed(stage.resume(outcome, outcome.decide(approve(), approve(), approve())))


# ------------------------------------------------------------------------ partial answers (I4)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_answers_may_come_one_by_one_in_any_order(
    stage: Stage, shop: Shop, order: tuple[int, ...]
) -> None:
    """I4: the rest is asked again, by the same ids; nothing starts until all are decided."""
    outcome = three(stage, shop)
    all_requests = outcome.requests
    answered: set[str] = set()
    now: Outcome = outcome
    for index in order:
        assert shop.did == []
        assert interrupted(now).requests == tuple(r for r in all_requests if r.id not in answered)
        now = stage.resume(now, {all_requests[index].id: approve()})
        answered.add(all_requests[index].id)
    end = completed(now)
    assert Counter(shop.did) == Counter(
        [("refund", "1", 5.0), ("lookup", "2"), ("mail", "a"), ("mail", "b")]
    )
    assert_valid_history(end.state)


def test_going_on_without_an_answer_asks_the_same_again(stage: Stage, shop: Shop) -> None:
    """I4: a resume without decisions decides nothing."""
    outcome = three(stage, shop)
    again = interrupted(stage.resume(outcome))
    assert again.requests == outcome.requests
    assert shop.did == []
    assert again.usage.requests == 1


def test_the_requests_are_in_the_state_as_well(stage: Stage, shop: Shop) -> None:
    """I9, J5."""
    outcome = three(stage, shop)
    assert stage.carried(outcome.state).requests == outcome.requests
    part = stage.resume(outcome, {outcome.requests[1].id: approve()})
    assert stage.carried(part.state).requests == (outcome.requests[0], outcome.requests[2])
    rest = {request.id: approve() for request in part.state.requests}
    assert completed(stage.resume(part, rest)).state.requests == ()


# ------------------------------------------------------------------------ wrong answers (I5)


BAD: list[tuple[Any, str]] = [
    ("approve", "approve"),
    (True, "True"),
    (None, "None"),
    (["approve"], "approve"),
    ({}, "type"),
    ({"type": "maybe"}, "maybe|type"),
    ({"type": "edit"}, "arguments"),
    ({"type": "edit", "arguments": None}, "arguments"),
    ({"type": "respond"}, "'respond' needs a `value`; write null"),
    ({"type": "edit", "arguments": ["1"]}, "arguments"),
    ({"type": "edit", "args": {"order": "2"}}, "arg"),
    ({"type": "approve", "arguments": {"order": "2"}}, "arguments"),
    ({"type": "approve", "allways": True}, "allways"),
    ({"type": "respond", "value": 1, "always": True}, "always"),
    ({"type": "edit", "arguments": {"order": "2"}, "always": True}, "always"),
    (Decision(type="edit"), "arguments"),
    (Decision(type="approve", arguments={"order": "2"}), "arguments"),
    (edit({}), "order"),
    (edit({"order": "2", "amount": "much"}), "amount"),
    (edit({"order": "2", "amount": object()}), "amount|arguments"),
    (edit({"order": "\ud800"}), "order|JSON"),
    (respond(object()), "JSON|value"),
    (Decision(type="maybe"), "maybe"),  # type: ignore[arg-type]  # what is refused
]


@pytest.mark.parametrize(("bad", "said"), BAD)
def test_a_wrong_decision_names_its_request_and_changes_nothing(
    stage: Stage, shop: Shop, bad: Any, said: str
) -> None:
    """I5: nothing ran, the interrupt still stands, a right answer still works."""
    outcome = refunding(stage, shop)
    before = outcome.state.to_dict()
    with pytest.raises(DecisionError, match=said) as caught:
        stage.resume(outcome, {outcome.requests[0].id: bad})
    assert outcome.requests[0].id in str(caught.value), "the error names the request"
    assert caught.value.request_id == outcome.requests[0].id
    assert shop.did == []
    assert outcome.state.to_dict() == before
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == [("refund", "1", 5.0)]


@pytest.mark.parametrize("bad", [[approve()], "approve", 3, {}])
def test_what_is_no_mapping_of_answers_is_refused(stage: Stage, shop: Shop, bad: Any) -> None:
    """I5: also a mapping with nothing in it, which nobody can have meant."""
    outcome = refunding(stage, shop)
    with pytest.raises(DecisionError):
        stage.resume(outcome, bad)
    completed(stage.resume(outcome, outcome.decide(approve())))


def test_edit_takes_a_mapping() -> None:
    """I5."""
    with pytest.raises(DecisionError, match="mapping"):
        edit(["1"])  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("unknown", ["nobody", "", "r1", 3])
def test_an_unknown_request_id_is_refused(stage: Stage, shop: Shop, unknown: Any) -> None:
    """I5, J5: a tool call's id is none either."""
    outcome = refunding(stage, shop)
    with pytest.raises(DecisionError, match="unknown") as caught:
        stage.resume(outcome, {unknown: approve()})
    assert outcome.requests[0].id in str(caught.value), "it says what stands"
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert len(shop.did) == 1


def test_one_wrong_answer_among_right_ones_records_none(stage: Stage, shop: Shop) -> None:
    """I5: all or nothing."""
    outcome = three(stage, shop)
    one, two, _ = (request.id for request in outcome.requests)
    journal = MemoryJournal()
    with pytest.raises(DecisionError) as caught:
        stage.resume(outcome, {one: approve(), two: edit({})}, journal=journal)
    assert caught.value.request_id == two
    assert journal.records == []
    assert interrupted(stage.resume(outcome)).requests == outcome.requests
    assert shop.did == []


def test_an_answer_to_an_earlier_run_is_stale(stage: Stage, shop: Shop) -> None:
    """I12, J5: a decision never outlives its run."""
    stage.cast(REFUND, "over", call("refund", {"order": "1"}), tools=shop.tools, interrupt_on=GATED)
    first = interrupted(stage.start())
    done = completed(stage.resume(first, first.decide(approve())))
    second = interrupted(stage.start("again", state=stage.carried(done.state)))
    for answer in (approve(), reject()):
        with pytest.raises((DecisionError, NotInterrupted)):
            stage.resume(second, {first.requests[0].id: answer})
    assert len(shop.did) == 1
    end = completed(stage.resume(second, second.decide(reject())))
    assert len(shop.did) == 1
    with pytest.raises((DecisionError, NotInterrupted)):
        stage.resume(end, {first.requests[0].id: approve()})


def test_an_answer_to_a_withdrawn_request_is_stale(stage: Stage, shop: Shop) -> None:
    """J5: a new message took the question back."""
    stage.cast(REFUND, "moved on", tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.start("never mind", state=stage.carried(outcome.state)))
    with pytest.raises((DecisionError, NotInterrupted)):
        stage.resume(end, {outcome.requests[0].id: approve()})
    assert shop.did == []
    assert [part.outcome for part in results(end.state)] == ["denied"]
    assert_valid_history(end.state)


def test_a_request_of_another_conversation_is_unknown(stage: Stage, shop: Shop) -> None:
    """J5."""
    one, other = refunding(stage, shop), refunding(stage, shop)
    with pytest.raises(DecisionError, match="unknown"):
        stage.resume(one, other.decide(approve()))
    assert shop.did == []


# ------------------------------------------------------------------- the same answer again (I5)


ANSWERS: list[Decision] = [
    approve(),
    reject("no"),
    edit({"order": "2"}),
    edit({"order": "2", "amount": 1}),
    respond(("a", 1)),
    respond({"x": (1, 2)}),
]


@pytest.mark.parametrize("decision", ANSWERS)
def test_the_identical_answer_again_returns_the_same_run(
    stage: Stage, shop: Shop, decision: Decision
) -> None:
    """I5, J5: the host may not know whether its first answer arrived."""
    outcome = refunding(stage, shop)
    answers = outcome.decide(decision)
    end = completed(stage.resume(outcome, answers))
    did = list(shop.did)
    again = completed(stage.resume(end, answers))
    assert (again.text, again.run_id) == (end.text, end.run_id)
    assert again.state.to_dict() == end.state.to_dict()
    assert shop.did == did
    assert len(end.state.decisions) == 1


def test_the_identical_answer_again_while_others_stand(stage: Stage, shop: Shop) -> None:
    """I5, I4."""
    outcome = three(stage, shop)
    first = {outcome.requests[0].id: approve(by="ann")}
    part = interrupted(stage.resume(outcome, first))
    again = interrupted(stage.resume(part, {outcome.requests[0].id: approve(by="bob")}))
    assert again.requests == part.requests
    assert [line.decision.by for line in again.state.decisions] == ["ann"]
    assert shop.did == []
    rest = {request.id: approve() for request in part.requests}
    completed(stage.resume(again, {**first, **rest}))
    assert len(shop.did) == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (approve(), reject()),
        (approve(), approve(always=True)),
        (reject("no"), reject("never")),
        (edit({"order": "2"}), edit({"order": "3"})),
        (edit({"order": "2", "amount": 1}), edit({"order": "2", "amount": 1.5})),
        (respond(1), respond(True)),
        (respond("a"), approve()),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_another_answer_to_an_answered_request_is_refused(
    stage: Stage, shop: Shop, first: Decision, second: Decision, finished: bool
) -> None:
    """I5: the first answer stands."""
    stage.cast([REFUND] if finished else [REFUND, MAIL], tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    after = stage.resume(outcome, {outcome.requests[0].id: first})
    did = list(shop.did)
    with pytest.raises(AlreadyDecided, match="answered before"):
        stage.resume(after, {outcome.requests[0].id: second})
    assert shop.did == did
    if not finished:
        end = completed(stage.resume(after, interrupted(after).decide(reject())))
        stands = end.state.decisions[0].decision
        assert stands.type == first.type
        assert (stands.message, stands.value) == (first.message, first.value)
        if first.arguments is not None:  # as they were run: with defaults filled in
            assert first.arguments.items() <= (stands.arguments or {}).items()


def test_there_is_nothing_to_answer_without_a_run(stage: Stage) -> None:
    """I5."""
    stage.cast(tools=())
    stage.agent = stage.build()
    with pytest.raises(DecisionError):
        stage.resume(AgentState(), {"x": approve()})
    with pytest.raises(NotInterrupted):
        stage.resume(AgentState())


def test_a_finished_run_cannot_be_resumed(stage: Stage, shop: Shop) -> None:
    """I5."""
    stage.cast("hello", tools=shop.tools)
    end = completed(stage.start())
    with pytest.raises(NotInterrupted):
        stage.resume(end)
    with pytest.raises(DecisionError):
        stage.resume(end, {"x": approve()})


# -------------------------------------------------------------------------- grants for all (I3)


def test_an_approval_for_always_answers_later_requests(stage: Stage, shop: Shop) -> None:
    """I3: journalled and listable; it holds in later turns and later runs."""
    again = call("refund", {"order": "2"})
    stage.cast(REFUND, again, "over", again, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve(always=True, by="ann"))))
    assert shop.did == [("refund", "1", 5.0), ("refund", "2", 5.0)]
    (grant,) = end.state.grants.values()
    assert (grant.tool_name, grant.type, grant.by, grant.used) == ("refund", "approve", "ann", 1)
    assert [(line.decision.by_grant, line.decision.type) for line in end.state.decisions] == [
        (None, "approve"),
        (grant.id, "approve"),
    ]
    assert end.state.decisions[1].request.arguments == {"order": "2", "amount": 5.0}
    completed(stage.start("again", state=stage.carried(end.state)))
    assert len(shop.did) == 3


def test_a_rejection_for_always_answers_later_requests(stage: Stage, shop: Shop) -> None:
    """I3."""
    stage.cast(REFUND, call("refund", {"order": "2"}), tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(reject("closed", always=True))))
    assert shop.did == []
    assert ["closed" in str(part.content) for part in results(end.state)] == [True, True]


def test_a_grant_holds_for_its_tool_alone(stage: Stage, shop: Shop) -> None:
    """I3."""
    stage.cast(REFUND, MAIL, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    mail = interrupted(stage.resume(outcome, outcome.decide(approve(always=True))))
    assert [request.tool_name for request in mail.requests] == ["mail"]


def test_an_exact_decision_beats_a_grant(stage: Stage, shop: Shop) -> None:
    """I3: what is answered beside it, and before, is answered by itself."""
    stage.cast(
        [REFUND, call("refund", {"order": "2"})],
        call("refund", {"order": "3"}),
        tools=shop.tools,
        interrupt_on=GATED,
    )
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve(always=True), reject())))
    assert shop.did == [("refund", "1", 5.0), ("refund", "3", 5.0)]
    assert [part.outcome for part in results(end.state)] == ["success", "denied", "success"]


def test_a_revoked_grant_decides_no_more(stage: Stage, shop: Shop) -> None:
    """I3, I14."""
    stage.cast(REFUND, "over", REFUND, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve(always=True))))
    (granted,) = end.state.grants
    state = stage.agent.revoke(stage.carried(end.state), granted)
    assert state.grants == {}
    assert list(end.state.grants) == [granted], "the given state is left alone"
    assert len(state.decisions) == 1, "the audit stays"
    interrupted(stage.start("again", state=stage.carried(state)))
    assert len(shop.did) == 1
    with pytest.raises(UsageError, match=f"no grant {granted!r}"):
        stage.agent.revoke(state, granted)


def test_a_grant_ends_with_the_tool_that_it_was_given_for(stage: Stage) -> None:
    """I12: another version of the tool is another tool."""
    shop, changed = Shop(), Shop(version="2")
    stage.cast(REFUND, "over", REFUND, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve(always=True))))
    stage.cast(REFUND, "over", REFUND, tools=changed.tools, interrupt_on=GATED)
    interrupted(stage.start("again", state=stage.carried(end.state)))
    assert changed.did == []


def test_a_grant_that_the_gate_no_longer_allows_does_not_count(stage: Stage) -> None:
    """I3, I1."""
    shop = Shop()
    stage.cast(REFUND, "over", REFUND, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve(always=True))))
    stage.cast(REFUND, "over", REFUND, tools=shop.tools, interrupt_on={"refund": ["reject"]})
    interrupted(stage.start("again", state=stage.carried(end.state)))
    assert len(shop.did) == 1


# ------------------------------------------------------------------------------ audit (I14)


def test_the_audit_says_who_decided_what_when_and_why(stage: Stage, shop: Shop) -> None:
    """I14: and the model sees none of it."""
    clock = FakeClock()
    stage.cast([REFUND, MAIL, call("mail", {"to": "b"})], tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start(clock=clock))
    asked_at = clock.time
    clock.advance(30)
    one, two, last = outcome.requests
    part = stage.resume(outcome, {two.id: edit({"to": "c"}, by="ann", note="typo")}, clock=clock)
    clock.advance(30)
    end = completed(
        stage.resume(
            part,
            {one.id: reject("no", by="bob", note="secret"), last.id: approve(by="bob")},
            clock=clock,
        )
    )
    lines = stage.carried(end.state).decisions
    assert [(line.request, line.decision.type, line.decision.by) for line in lines] == [
        (two, "edit", "ann"),
        (one, "reject", "bob"),
        (last, "approve", "bob"),
    ]
    assert [(line.at - asked_at).total_seconds() for line in lines] == [30, 60, 60]
    assert [line.decision.note for line in lines] == ["typo", "secret", None]
    assert not any(line.decision.by_grant for line in lines)
    assert "secret" not in str(end.state.to_dict()["messages"])


def test_the_audit_goes_on_through_later_runs(stage: Stage, shop: Shop) -> None:
    """I14."""
    stage.cast(REFUND, "over", MAIL, tools=shop.tools, interrupt_on=GATED)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    second = interrupted(stage.start("again", state=stage.carried(end.state)))
    end = completed(stage.resume(second, second.decide(reject())))
    lines = end.state.decisions
    assert [line.decision.type for line in lines] == ["approve", "reject"]
    assert [line.request.run_id for line in lines] == [outcome.run_id, second.run_id]


# --------------------------------------------------------------------- nobody inside (I13)


class Inside:
    """Tries to answer from inside of a run, and keeps what it got for it."""

    def __init__(self) -> None:
        self.agent: Agent | None = None
        self.waiting: Interrupted | None = None
        self.caught: list[BaseException] = []

    async def answer(self) -> None:
        assert self.agent is not None
        assert self.waiting is not None
        try:
            await self.agent.resume(self.waiting.state, self.waiting.decide(approve()))
        except UnderstudyError as error:
            self.caught.append(error)

    def answer_sync(self) -> None:
        asyncio.run(self.answer())


class Meddling(Middleware):
    def __init__(self, inside: Inside, hook: str) -> None:
        self.inside, self.hook = inside, hook

    async def on_run_start(self, run: Run) -> None:
        if self.hook == "on_run_start":
            await self.inside.answer()

    def before_model(self, run: Run, request: Any) -> Any:
        if self.hook == "before_model":
            self.inside.answer_sync()

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        if self.hook == "after_model":
            await self.inside.answer()
        return None

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        if self.hook == "on_run_end":
            await self.inside.answer()


@pytest.mark.parametrize(
    "place",
    [
        "tool",
        "plain tool",
        "tool's task",
        "on_run_start",
        "before_model",
        "after_model",
        "on_run_end",
        "model",
        "pause_when",
    ],
)
def test_nothing_inside_a_run_can_answer(stage: Stage, shop: Shop, place: str) -> None:
    """I13."""
    inside = Inside()
    inside.waiting = refunding(stage, shop)
    inside.agent = stage.agent

    @tool
    async def sly() -> str:
        if place == "tool":
            await inside.answer()
        elif place == "tool's task":
            await asyncio.create_task(inside.answer())
        return "x"

    @tool
    def sly_too() -> str:
        if place == "plain tool":
            inside.answer_sync()
        return "x"

    async def reply(request: Any) -> Any:
        if place == "model":
            await inside.answer()
        if len(request.messages) == 1:
            return [call("sly"), call("sly_too")]
        return "done"

    async def pause_when() -> bool:
        if place == "pause_when":
            await inside.answer()
        return False

    other = Agent(
        "other",
        ScriptedModel(reply),
        tools=[sly, sly_too],
        middleware=[Meddling(inside, place)],
        pause_when=pause_when,
    )
    completed(other.execute_sync("go"))
    assert inside.caught
    assert {type(error) for error in inside.caught} == {DecisionError}
    assert shop.did == []
    completed(stage.resume(inside.waiting, inside.waiting.decide(approve())))
    assert len(shop.did) == 1, "the host still can"


def test_nothing_inside_a_run_lets_a_paused_run_go_on(stage: Stage, shop: Shop) -> None:
    """I13: a resume without decisions decides as well: that the pause is over."""
    stage.cast(REFUND, tools=shop.tools)
    paused = stage.start(pause_when=lambda: True)
    assert isinstance(paused, Paused)
    caught: list[BaseException] = []

    @tool
    async def sly() -> str:
        try:
            await stage.agent.resume(paused.state, pause_when=lambda: False)
        except DecisionError as error:
            caught.append(error)
        return "x"

    completed(Agent("other", by_turn(call("sly")), tools=[sly]).execute_sync("go"))
    assert shop.did == []
    assert len(caught) == 1


def test_text_of_the_model_or_a_tool_decides_nothing(stage: Stage, shop: Shop) -> None:
    """I13: whatever it looks like."""
    words = json.dumps({"type": "approve", "always": True})
    stage.cast(
        [words, call("lookup", {"order": words})],
        [words, REFUND],
        tools=shop.tools,
        interrupt_on=GATED,
    )
    interrupted(stage.start(words))
    assert shop.did == [("lookup", words)]


# ---------------------------------------------------------- without what the run was given (J12)


@pytest.mark.parametrize("missing", ["deps", "pause_when"])
def test_a_run_that_lacks_what_it_was_given_waits_with_the_answer_kept(
    stage: Stage, shop: Shop, missing: str
) -> None:
    """J12: it never continues without them."""
    given: dict[str, Any] = {"deps": "shop", "pause_when": lambda: False}
    outcome = refunding(stage, shop, **given)
    lacking = {key: value for key, value in given.items() if key != missing}
    waiting = stage.resume(outcome, outcome.decide(approve(by="ann")), **lacking)
    assert isinstance(waiting, Paused)
    assert waiting.reason == f"needs {missing}"
    assert shop.did == []
    assert [line.decision.by for line in waiting.state.decisions] == ["ann"]
    again = stage.resume(waiting, **lacking)
    assert isinstance(again, Paused)
    completed(stage.resume(again, **given))
    assert shop.did == [("refund", "1", 5.0)]


def test_a_run_without_deps_needs_none(stage: Stage, shop: Shop) -> None:
    """J12."""
    outcome = refunding(stage, shop)
    completed(stage.resume(outcome, outcome.decide(approve()), deps="more"))


def test_a_paused_run_that_lacks_its_deps_stays_paused_as_it_was(stage: Stage, shop: Shop) -> None:
    """J12, R7: then it continues where it stood."""
    stage.cast(REFUND, tools=shop.tools)
    answers = iter(["look", False, False])
    pause: dict[str, Any] = {"pause_when": lambda: next(answers)}
    outcome = stage.start(deps="shop", **pause)
    assert isinstance(outcome, Paused)
    lacking = stage.resume(outcome, **pause)
    assert isinstance(lacking, Paused)
    assert lacking.reason == "needs deps"
    assert shop.did == []
    completed(stage.resume(lacking, deps="shop", **pause))
    assert len(shop.did) == 1


# ------------------------------------------------------------------------- bound (I12, J5)


def waiting_for_deps(agent: Agent, answers: Callable[[Interrupted], Any]) -> AgentState:
    """A state in which everything is decided and nothing has run."""
    outcome = interrupted(agent.execute_sync("go", deps="shop"))
    paused = agent.resume_sync(outcome.state, answers(outcome))
    assert isinstance(paused, Paused)
    return paused.state


def refund_of(
    version: str = "", name: str = "refund", extra: bool = False
) -> tuple[Any, list[Any]]:
    """The tool, or one that differs from it in one thing."""
    did: list[Any] = []

    async def plain(order: str, amount: float = 5.0) -> str:
        did.append((order, amount))
        return "ok"

    async def more(order: str, amount: float = 5.0, force: bool = False) -> str:
        did.append((order, amount, force))
        return "ok"

    return tool(name=name, version=version)(more if extra else plain), did


@pytest.mark.parametrize("decision", [approve(), edit({"order": "2"}), approve(always=True)])
@pytest.mark.parametrize("change", [{"version": "2"}, {"extra": True}])
def test_an_approval_does_not_hold_for_a_changed_tool(
    stage: Stage, decision: Decision, change: dict[str, Any]
) -> None:
    """I12: the schema and the author's version are part of what was shown."""
    before, did_before = refund_of()
    after, did_after = refund_of(**change)
    stage.cast(REFUND, tools=[before], interrupt_on={"refund": True})
    state = waiting_for_deps(stage.build(), lambda outcome: outcome.decide(decision))
    old = state.decisions[0].request
    stage.cast(REFUND, tools=[after], interrupt_on={"refund": True})
    stage.agent = stage.build()
    again = interrupted(stage.resume(state, deps="shop"))
    assert did_before == did_after == []
    assert again.requests[0].id != old.id
    assert again.requests[0].fingerprint != old.fingerprint
    end = completed(stage.resume(again, again.decide(approve()), deps="shop"))
    assert len(did_after) == 1
    assert_valid_history(end.state)


def test_an_approval_does_not_hold_for_a_tool_of_another_name(stage: Stage) -> None:
    """I12: the call fails, as an unknown tool does; no other tool runs in its place."""
    before, did_before = refund_of()
    after, did_after = refund_of(name="payback")
    stage.cast(REFUND, tools=[before], interrupt_on={"refund": True})
    state = waiting_for_deps(stage.build(), lambda outcome: outcome.decide(approve()))
    stage.cast(REFUND, tools=[after], interrupt_on={"payback": True})
    stage.agent = stage.build()
    end = completed(stage.resume(state, deps="shop"))
    assert did_before == did_after == []
    assert results(end.state)[0].outcome == "failed"


def test_a_rejection_holds_for_a_changed_tool(stage: Stage) -> None:
    """I12: what does not run needs no second look, or a second look and then does not run."""
    before, _ = refund_of()
    after, did = refund_of(version="2")
    stage.cast(REFUND, tools=[before], interrupt_on={"refund": True})
    state = waiting_for_deps(stage.build(), lambda outcome: outcome.decide(reject()))
    stage.cast(REFUND, tools=[after], interrupt_on={"refund": True})
    stage.agent = stage.build()
    outcome = stage.resume(state, deps="shop")
    if isinstance(outcome, Interrupted):
        outcome = stage.resume(outcome, outcome.decide(reject()), deps="shop")
    completed(outcome)
    assert did == []


def test_arguments_that_the_host_changes_behind_the_question_are_asked_again(shop: Shop) -> None:
    """I12: a request is frozen, but what is in it is a dict."""
    stage = Stage(elsewhere=False)
    outcome = refunding(stage, shop)
    outcome.requests[0].arguments["order"] = "666"
    answers = outcome.decide(approve())
    again = interrupted(stage.resume(outcome, answers))
    assert shop.did == []
    assert again.requests[0].id not in answers


def test_an_approval_is_compared_right_before_the_body(shop: Shop) -> None:
    """I12: not only when the run is taken up; here a sibling that runs first changes the next."""
    stage = Stage(elsewhere=False)
    waiting: list[Interrupted] = []

    @tool(sequential=True)
    async def first() -> str:
        waiting[0].requests[0].arguments["order"] = "666"
        return "x"

    stage.cast([call("first"), REFUND], tools=[*shop.tools, first], interrupt_on=GATED)
    waiting.append(interrupted(stage.start()))
    again = interrupted(stage.resume(waiting[0], waiting[0].decide(approve())))
    assert shop.did == []
    assert again.requests[0].id != waiting[0].requests[0].id


def test_numbers_that_json_lacks_are_approved_like_others(stage: Stage) -> None:
    """I12: not a number, in an argument of any type, is still what was shown."""
    did: list[str] = []

    @tool
    async def plot(data: dict[str, Any]) -> str:
        did.append(str(data))
        return "ok"

    stage.cast(
        call("plot", '{"data": {"x": NaN, "y": 1}}'), tools=[plot], interrupt_on={"plot": True}
    )
    outcome = stage.start()
    if isinstance(outcome, Interrupted):  # or it is refused as an argument, before anybody is asked
        assert stage.carried(outcome.state).requests[0].to_dict() == outcome.requests[0].to_dict()
        completed(stage.resume(outcome, outcome.decide(approve())))
        assert did == [str(outcome.requests[0].arguments["data"])]
    else:
        assert results(outcome.state)[0].outcome == "failed"


SETS = """
import json, sys
from understudy import Agent, AgentState, ScriptedModel, approve, call, tool
from understudy import Interrupted
did = []
@tool
async def label(tags: set[str]) -> str:
    did.append(sorted(tags))
    return "ok"
reply = lambda request: "done" if len(request.messages) > 1 else call(
    "label", {"tags": [f"tag{i}" for i in range(12)]})
agent = Agent("a", ScriptedModel(reply), tools=[label], interrupt_on={"label": True})
if sys.argv[1] == "ask":
    print(json.dumps(agent.execute_sync("go").state.to_dict()))
else:
    state = AgentState.from_dict(json.load(sys.stdin))
    outcome = agent.resume_sync(state, {r.id: approve() for r in state.requests})
    print(json.dumps([type(outcome).__name__, did]))
"""


@pytest.mark.slow
def test_arguments_without_an_order_are_the_same_in_another_process() -> None:
    """I12: a set is shown in an order that hangs on the process; the approval must not."""

    def process(what: str, seed: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-c", SETS, what],
            input=given,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p or "." for p in sys.path)},
        )
        return done.stdout

    state = process("ask", "1")
    name, did = json.loads(process("approve", "2", state))
    assert (name, len(did)) == ("Completed", 1)


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value in some JSON data is, the names of mappings' keys among them."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*path, ("key", key))
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    if not isinstance(data, dict | list) or not data:
        yield path


def holder(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data


class Mutator:
    """Changes one leaf, or one key, of some JSON data."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def mutate(self, data: Any, path: tuple[Any, ...]) -> None:
        inside, last = holder(data, path), path[-1]
        if isinstance(last, tuple):
            name = last[1]
            fresh = self.other(name) if self.random.random() < 0.8 else None
            value = inside.pop(name)
            if isinstance(fresh, str):
                inside[fresh] = value
        else:
            inside[last] = self.other(inside[last])

    def other(self, value: Any) -> Any:
        """Something else: near the old value, or of another type."""
        choices: list[Any] = [None, True, False, 0, 1, 5, -1, 2.5, "", "x", "1", [], {}, ["x"]]
        if isinstance(value, str):
            at = self.random.randrange(len(value) + 1)
            choices += [
                value + "0",
                value[:at] + self.random.choice("0aZ .\u0000é") + value[at + 1 :],
                value[:at] + value[at + 1 :],
                value.upper(),
                value + " ",
                " " + value,
                value.replace("1", "2"),
                value.replace("5", "500"),
            ] * 2
        elif isinstance(value, bool):
            choices += [not value] * 6
        elif isinstance(value, int | float):
            choices += [value + 1, -value, value * 10, value + 0.5, str(value)] * 3
        choices = [choice for choice in choices if json.dumps(choice) != json.dumps(value)]
        return copy.deepcopy(self.random.choice(choices))


SEED = 20261121


def mutable_agents(did: list[Any]) -> Agent:
    @tool
    async def pay(ctx: ToolContext, order: str, amount: float, lines: list[dict[str, Any]]) -> str:
        did.append({"order": order, "amount": amount, "lines": lines})
        return "paid"

    arguments = {"order": "17", "amount": 5.5, "lines": [{"sku": "a1", "n": 1}, {"sku": "b"}]}
    model = by_turn([call("pay", json.dumps(arguments), id="p1"), call("pay", arguments, id="p2")])
    return Agent("support", model, tools=[pay], interrupt_on={"pay": True})


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_500, pytest.param(10_000, marks=pytest.mark.faults)])
def test_a_changed_stored_call_never_runs_as_approved(count: int) -> None:
    """I12, J5: whatever one thing is changed in the stored calls, what was not shown never runs.

    Each change makes the load fail, or the call is asked again, or nothing runs; where what was
    changed is no part of what was approved, the call runs exactly as it was shown.
    """
    did: list[Any] = []
    agent = mutable_agents(did)
    edited = {"order": "18", "amount": 7.0, "lines": [{"sku": "c"}]}

    def answers(outcome: Interrupted) -> dict[str, Decision]:
        shown.append(outcome.requests[0].arguments)
        return outcome.decide(approve(), edit(edited))

    shown: list[Any] = [edited]
    stored = waiting_for_deps(agent, answers).to_dict()
    text = json.dumps(stored)
    completed(agent.resume_sync(AgentState.from_dict(json.loads(text)), deps="shop"))
    assert len(did) == 2, "unchanged, both run"
    assert all(call in did for call in shown)

    root = ("run", "turn", "calls")
    run = json.loads(text)["run"]
    paths = [(*root, *path) for path in leaves(run["turn"]["calls"]) if path]
    paths += [("run", "run_id")] * 20
    # Forging a decision is not changing a call: what a person answered is not part of this test.
    paths = [path for path in paths if path[4:5] != ("decisions",)]

    mutator = Mutator(SEED)
    kinds: Counter[str] = Counter()
    violations = []

    async def main() -> None:
        for number in range(count):
            path = paths[number % len(paths)]
            data = json.loads(text)
            mutator.mutate(data, path)
            did.clear()
            try:
                outcome = await agent.resume(AgentState.from_dict(data), deps="shop")
                kinds[type(outcome).__name__] += 1
            except (UsageError, ValueError) as error:
                kinds[type(error).__name__] += 1
                outcome = None
            wrong = [call for call in did if json.dumps(call) not in [json.dumps(s) for s in shown]]
            again = len(did) > len({json.dumps(call) for call in did})
            # (A call that is said to have been started is in doubt: see test_doubt.)
            ran_and_asked = isinstance(outcome, Interrupted) and did and path[-1] != "running"
            if wrong or again or ran_and_asked:
                violations.append((path, holder(data, path), outcome, list(did)))

    asyncio.run(main())
    print(f"seed {SEED}: {count} mutations, {dict(kinds)}, {len(violations)} violations")  # noqa: T201  # shown where the test fails
    assert not violations, Counter(v[0][4:] for v in violations)
    assert kinds["Interrupted"] > count / 10, "many are asked again"
    assert kinds["Completed"] < count * 0.7


def test_every_bound_fact_of_a_call_is_looked_at() -> None:
    """I12, J5: each of these alone, changed, takes the approval away from that call."""
    did: list[Any] = []
    agent = mutable_agents(did)
    text = json.dumps(
        waiting_for_deps(agent, lambda outcome: outcome.decide(approve(), reject())).to_dict()
    )
    run = json.loads(text)["run"]
    key = next(iter(run["turn"]["calls"]))
    request_id = next(iter(run["turn"]["calls"][key]["requests"]))
    the_call = ("run", "turn", "calls", key)
    request = (*the_call, "requests", request_id)
    bound: list[tuple[tuple[Any, ...], Any]] = [
        ((*request, "arguments", "order"), "18"),
        ((*request, "arguments", "amount"), 5),
        ((*request, "arguments", "lines", 0, "sku"), "z"),
        ((*request, "arguments", "lines", 0, "n"), True),
        ((*request, "arguments", "lines"), []),
        ((*request, "tool_call_id"), "p2"),
        ((*request, "tool_name"), "pay2"),
        ((*request, "fingerprint"), "0" * 64),
        ((*request, "digest"), "0" * 64),
        ((*request, "display"), "It costs nothing"),
        ((*request, "payload"), {"question": "another"}),
        ((*request, "allowed"), ["approve"]),
        ((*request, "kind"), "review"),
        ((*request, "schema"), {"type": "integer"}),
        ((*request, "run_id"), "0" * 32),
        ((*request, "call_key"), key[:-1] + "1"),
        ((*request, "id"), "0" * 32),
        ((*the_call, "key"), key[:-1] + "7"),
        ((*the_call, "part", "tool_call_id"), "p9"),
        ((*the_call, "part", "tool_name"), "pay2"),
        ((*the_call, "part", "args"), "{}"),
        (("run", "run_id"), "0" * 32),
    ]
    for path, value in bound:
        data = json.loads(text)
        holder(data, path)[path[-1]] = value
        did.clear()
        try:
            outcome = agent.resume_sync(AgentState.from_dict(data), deps="shop")
        except (UsageError, ValueError):
            continue
        assert did == [], f"{path} was not looked at"
        assert isinstance(outcome, Interrupted | Failed | Completed)
    for path in ((*request, "created_at"), (*request, "asked_again")):
        data = json.loads(text)
        holder(data, path)[path[-1]] = "2020-01-01T00:00:00Z"
        did.clear()
        completed(agent.resume_sync(AgentState.from_dict(data), deps="shop"))
        assert len(did) == 1, "what was not approved does not ask again"


# ------------------------------------------------------------------------------ any decisions


OFFERS = ("gated", "also_gated", "free")
an_answer = st.sampled_from(["approve", "edit", "reject", "respond"])
plans = st.lists(
    st.tuples(st.sampled_from(OFFERS), st.integers(0, 9), an_answer), min_size=1, max_size=6
)


ANY_CALLS = given(
    turns=st.lists(plans, min_size=1, max_size=2),
    shuffle=st.randoms(use_true_random=False),
    elsewhere=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=30, derandomize=True)
@ANY_CALLS
def test_any_calls_with_any_answers_in_any_order(
    turns: list[list[tuple[str, int, str]]], shuffle: random.Random, elsewhere: bool
) -> None:
    """I2, I4, I6, I12: nothing starts early; each call runs as decided, once, or not at all."""
    check_calls(turns, shuffle, elsewhere)


@pytest.mark.slow
@pytest.mark.faults
@settings(max_examples=150, derandomize=True)
@ANY_CALLS
def test_many_calls_with_any_answers_in_any_order(
    turns: list[list[tuple[str, int, str]]], shuffle: random.Random, elsewhere: bool
) -> None:
    check_calls(turns, shuffle, elsewhere)


def check_calls(
    turns: list[list[tuple[str, int, str]]], shuffle: random.Random, elsewhere: bool
) -> None:
    stage = Stage(elsewhere=elsewhere)
    did: list[tuple[str, int]] = []

    @tool
    async def gated(ctx: ToolContext, x: int) -> int:
        did.append((ctx.tool_call_id, x))
        return x

    @tool
    async def also_gated(ctx: ToolContext, x: int, y: int = 1) -> int:
        did.append((ctx.tool_call_id, x))
        return x

    @tool(inline=True)
    def free(ctx: ToolContext, x: int) -> int:
        did.append((ctx.tool_call_id, x))
        return x

    answers = {f"t{t}c{c}": plan for t, turn in enumerate(turns) for c, plan in enumerate(turn)}
    stage.cast(
        *(
            [call(name, {"x": x}, id=f"t{t}c{c}") for c, (name, x, _) in enumerate(turn)]
            for t, turn in enumerate(turns)
        ),
        tools=[gated, also_gated, free],
        interrupt_on={"gated": True, "also_gated": True},
    )

    def decision(request: Request) -> Decision:
        _, x, kind = answers[request.tool_call_id]
        return {
            "approve": approve(),
            "edit": edit({"x": x + 100}),
            "reject": reject(),
            "respond": respond("by hand"),
        }[kind]

    outcome = stage.start()
    turn = -1
    while isinstance(outcome, Interrupted):
        here = {request.tool_call_id[:2] for request in outcome.requests}
        assert len(here) == 1
        turn = int(here.pop()[1:])
        assert not [item for item in did if item[0].startswith(f"t{turn}")], "nothing started yet"
        asked = list(outcome.requests)
        order = [r.tool_call_id for r in asked]
        assert order == sorted(order), "in call order"
        chosen = shuffle.sample(asked, shuffle.randint(1, len(asked)))
        outcome = stage.resume(outcome, {request.id: decision(request) for request in chosen})
    end = completed(outcome)

    expected = []
    for call_id, (name, x, kind) in answers.items():
        if name == "free" or kind == "approve":
            expected.append((call_id, x))
        elif kind == "edit":
            expected.append((call_id, x + 100))
    assert sorted(did) == sorted(expected)
    assert_valid_history(end.state)
    outcomes = {part.tool_call_id: part.outcome for part in results(end.state)}
    for call_id, (name, _, kind) in answers.items():
        denied = name != "free" and kind == "reject"
        assert outcomes[call_id] == ("denied" if denied else "success")


# ------------------------------------------------------------------- cut off while asking (J5, I7)


class CutAfter:
    """Keeps so many records; then the process goes away."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.records: list[Record] = []

    def append(self, records: Any) -> None:
        for record in records:
            if self.limit is not None and len(self.records) >= self.limit:
                raise Crash
            self.records.append(record_from_dict(json.loads(json.dumps(record_to_dict(record)))))

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return


def test_a_run_cut_off_while_it_asks_asks_each_question_once(shop: Shop) -> None:
    """I7, J5: after any record, each gated call ends with one question, and `when` is bound."""

    def build() -> Agent:
        return Agent(
            "support",
            by_turn([REFUND, MAIL, call("mail", {"to": "b"}, id="m2")]),
            tools=shop.tools,
            interrupt_on=GATED,
        )

    whole = CutAfter(None)
    interrupted(build().execute_sync("go", journal=whole))
    for limit in range(1, len(whole.records)):
        disk = CutAfter(limit)
        with pytest.raises(Crash):
            build().execute_sync("go", journal=disk)
        again = interrupted(build().resume_sync(replay(disk.records)))
        assert [r.tool_call_id for r in again.requests] == [
            "r1",
            "m1",
            again.requests[2].tool_call_id,
        ]
        assert len(again.requests) == 3, f"cut after {limit}"


def test_an_answer_is_recorded_before_anything_is_done_about_it(shop: Shop) -> None:
    """J5: a process that goes away right after the answer loses it not."""
    stage = Stage(elsewhere=False)
    outcome = refunding(stage, shop)
    for limit in range(2, 5):
        disk = CutAfter(limit)  # the snapshot, the decision, …
        with pytest.raises(Crash):
            stage.agent.resume_sync(outcome.state, outcome.decide(approve()), journal=disk)
        state = replay(disk.records)
        assert [line.decision.type for line in state.decisions] == ["approve"]
        assert state.requests == ()


def test_a_state_in_the_middle_of_an_interrupt_is_the_same_after_json(shop: Shop) -> None:
    """J5."""
    stage = Stage(elsewhere=False)
    outcome = three(stage, shop)
    part = stage.resume(outcome, {outcome.requests[1].id: edit({"to": "z"}, by="ann")})
    for state in (outcome.state, part.state):
        assert reloaded(state) == state


def test_resuming_leaves_the_given_state_alone(shop: Shop) -> None:
    """J5: the same stored state may be read by many, who must see the same."""
    stage = Stage(elsewhere=False)
    outcome = three(stage, shop)
    before = outcome.state.to_dict()
    stage.resume(outcome, outcome.decide(approve(), reject(), respond(1)))
    assert outcome.state.to_dict() == before


@tool(name="pay")
def pay_at_once() -> str:
    return "paid"


def gated_payer() -> Agent:
    model = by_turn(call("pay"), "done")
    return Agent("a", model, tools=[pay_at_once], interrupt_on={"pay": True})


@pytest.mark.parametrize("name", ["checked", "library", "expired"])
async def test_a_person_of_any_name_decides_and_is_not_taken_for_the_library(name: str) -> None:
    """I14: a person who was named `expiry` left no trace, as if nobody had answered."""
    agent = gated_payer()
    asked = interrupted(await agent.execute("Go."))
    end = await agent.resume(asked.state, {asked.requests[0].id: approve(by=name)})
    (line,) = end.state.decisions
    assert (line.decision.by, line.decision.origin) == (name, "person")


@pytest.mark.parametrize("origin", ["expiry", "executor"])
async def test_nobody_says_that_no_person_decided_but_the_library(origin: Any) -> None:
    """I14."""
    agent = gated_payer()
    asked = interrupted(await agent.execute("Go."))
    given: Any = {"type": "reject", "origin": origin}
    for decision in (given, Decision(type="reject", origin=origin)):
        with pytest.raises(DecisionError, match="only the library sets `origin`"):
            await agent.resume(asked.state, {asked.requests[0].id: decision})


async def test_the_digest_covers_whatever_is_shown() -> None:
    """I12: the words of a question, or what the application said of a call, could change unseen."""
    found: dict[str, str] = {}

    class Asks(Middleware):
        async def check_tool_calls(self, run: Run, calls: Any) -> list[Request]:
            def digest_of(**more: Any) -> str:
                return str(calls[0].request(**more).digest)

            first, second = calls[0].request(), calls[0].request()
            assert first.digest != second.digest, "a guess of what is hidden would show in it"
            run.new_id = lambda: "same"
            found["as it is"] = digest_of()
            found["display"] = digest_of(display="Pays 5")
            found["other display"] = digest_of(display={"Pays": 5})
            found["payload"] = digest_of(payload={"question": "Now?"})
            found["other payload"] = digest_of(payload={"question": "Later?"})
            found["allowed"] = digest_of(allowed=["approve", "reject"])
            found["kind"] = digest_of(kind="review")
            found["schema"] = digest_of(schema={"type": "integer"})
            assert digest_of(display="Pays 5") == found["display"]
            return [calls[0].request(display="Pays 5")]

    agent = Agent("a", by_turn(call("pay"), "done"), tools=[pay_at_once], middleware=[Asks()])
    asked = interrupted(await agent.execute("Go."))
    assert len(set(found.values())) == len(found)
    assert asked.requests[0].digest == found["display"]
    # What was stored is compared by the same digest.
    end = await agent.resume(reloaded(asked.state), {asked.requests[0].id: approve()})
    assert completed(end).text == "done"


async def test_a_request_that_shows_something_else_than_was_made_is_refused() -> None:
    class Lies(Middleware):
        async def check_tool_calls(self, run: Run, calls: Any) -> list[Request]:
            return [dataclasses.replace(calls[0].request(), display="It costs nothing")]

    agent = Agent("a", by_turn(call("pay"), "done"), tools=[pay_at_once], middleware=[Lies()])
    outcome = await agent.execute("Go.")
    assert isinstance(outcome, Failed)
    assert "which no call.request(...) of these made" in str(outcome.error)
