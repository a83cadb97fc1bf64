"""Calls that were started and whose outcome nobody knows (J3, J4, T6) (T16) (S4)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ToolReturnPart

from tests.support.agents import (
    Stage,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash
from tests.support.held_commits import turns
from tests.support.loops import never, skip, soon, until
from understudy import (
    Agent,
    AgentState,
    DecisionError,
    Interrupt,
    Outcome,
    Retry,
    Runtime,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import JournalFailed
from understudy.events import ToolEnded
from understudy.middleware import SubAgent
from understudy.state.fold import replay
from understudy.state.records import Record, Started, record_from_dict, record_to_dict
from understudy.tools import InvalidArguments, ToolFailed


class Disk:
    """Keeps records as JSON; after the n-th of a kind the process goes away."""

    def __init__(self, kind: str = "", count: int = 1) -> None:
        self.kind, self.left = kind, count
        self.lines: list[str] = []

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            if self.kind and self.left == 0:
                raise Crash
            self.lines.append(json.dumps(record_to_dict(record)))
            if record.kind == self.kind:
                self.left -= 1
                if self.left == 0:
                    raise Crash

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return

    def load(self) -> AgentState:
        return replay(record_from_dict(json.loads(line)) for line in self.lines)


class Bank:
    """Tools that tell what they really did, and with which key."""

    def __init__(self) -> None:
        self.did: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.dies_in: set[str] = set()
        """What a body is given when the process is to go away inside of it."""
        bank = self

        def enter(ctx: ToolContext, x: str) -> None:
            bank.did.append((ctx.tool_name, x))
            bank.keys.append(ctx.call_key)
            if x in bank.dies_in:
                bank.dies_in.discard(x)
                raise Crash

        @tool
        async def pay(ctx: ToolContext, x: str) -> str:
            enter(ctx, x)
            return f"paid {x}"

        @tool(sequential=True)
        async def pay_alone(ctx: ToolContext, x: str) -> str:
            enter(ctx, x)
            return f"paid {x}"

        @tool(idempotent=True)
        async def put(ctx: ToolContext, x: str) -> str:
            enter(ctx, x)
            return f"put {x}"

        @tool(on_unknown="ask")
        async def pay_asking(ctx: ToolContext, x: str) -> str:
            enter(ctx, x)
            return f"paid {x}"

        @tool(on_unknown="tell")
        async def pay_telling(ctx: ToolContext, x: str) -> str:
            enter(ctx, x)
            return f"paid {x}"

        @tool
        async def ask(ctx: ToolContext, x: str) -> str:
            enter(ctx, x)
            if ctx.resume_value is None:
                raise Interrupt(x)
            return f"answered {ctx.resume_value}"

        self.tools = [pay, pay_alone, put, pay_asking, pay_telling, ask]


@pytest.fixture
def bank() -> Bank:
    return Bank()


def cut(stage: Stage, kind: str = "started", count: int = 1, **options: Any) -> AgentState:
    """The state after the process went away right behind the n-th record of that kind."""
    disk = Disk(kind, count)
    with pytest.raises(Crash):
        stage.start(journal=disk, **options)
    return disk.load()


def died_inside(stage: Stage, bank: Bank, *inside: str, **options: Any) -> AgentState:
    """The state after the process went away inside of a tool's body."""
    disk = Disk()
    bank.dies_in = set(inside)
    with pytest.raises(Crash):
        stage.start(journal=disk, **options)
    return disk.load()


def pay(name: str, x: str = "1", **options: Any) -> Any:
    return call(name, {"x": x}, **options)


def unknown(content: Any) -> bool:
    """Whether the model learns that the outcome is unknown, and that it must not repeat the
    call.
    """
    return "unknown" in str(content) and "not repeat" in str(content)


# --------------------------------------------------------------------------- crashes (J3, J4)


@pytest.mark.parametrize("name", ["pay", "put"])
def test_a_call_that_was_never_started_runs(stage: Stage, bank: Bank, name: str) -> None:
    """J3."""
    stage.cast(pay(name), tools=bank.tools)
    state = cut(stage, "reply")
    assert bank.did == []
    end = completed(stage.resume(state))
    assert bank.did == [(name, "1")]
    assert results(end.state)[0].outcome == "success"
    assert end.state.doubts == {}


def test_an_idempotent_call_runs_again_with_the_same_key(stage: Stage, bank: Bank) -> None:
    """J4."""
    stage.cast(pay("put"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    end = completed(stage.resume(state))
    assert bank.did == [("put", "1"), ("put", "1")]
    assert bank.keys[0] == bank.keys[1]
    assert [(p.content, p.outcome) for p in results(end.state)] == [("put 1", "success")]
    assert end.state.doubts == {}
    assert end.usage.requests == 2
    assert_valid_history(end.state)


@pytest.mark.parametrize("entered", [True, False])
def test_any_other_call_is_in_doubt_and_never_repeated(
    stage: Stage, bank: Bank, entered: bool
) -> None:
    """J4: nobody can know whether the body was entered before the process went away."""
    stage.cast(pay("pay", "17", id="p1"), tools=bank.tools)
    state = died_inside(stage, bank, "17") if entered else cut(stage)
    end = completed(stage.resume(state))
    assert bank.did == ([("pay", "17")] if entered else [])
    (part,) = results(end.state)
    assert part.outcome == "interrupted", "not an error, which a model would retry"
    assert unknown(part.content)
    assert_valid_history(end.state)
    for seen in (end.state, stage.carried(end.state)):
        (doubt,) = seen.doubts.values()
        assert doubt.tool_name == "pay"
        assert doubt.arguments == {"x": "17"}
        assert doubt.tool_call_id == "p1"
        assert doubt.reason
        assert list(seen.doubts) == [doubt.call_key]


def test_the_model_is_told_of_the_doubt(stage: Stage, bank: Bank) -> None:
    """J4: in its very next request."""
    stage.cast(pay("pay"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    completed(stage.resume(state))
    (request,) = stage.model.requests[-1:]
    (part,) = request.messages[-1].parts
    assert isinstance(part, ToolReturnPart)
    assert unknown(part.content)


def test_a_run_that_is_resumed_twice_repeats_nothing(stage: Stage, bank: Bank) -> None:
    """J4: from the same facts, again and again."""
    stage.cast(pay("pay"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    for _ in range(3):
        completed(stage.resume(state))
    assert bank.did == [("pay", "1")]


def test_a_call_that_is_cut_off_again_and_again_keeps_its_key(bank: Bank) -> None:
    """J4."""
    agent = Agent("support", by_turn(pay("put")), tools=bank.tools)
    stage = Stage(elsewhere=True)
    stage.cast(pay("put"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    for _ in range(3):
        disk = Disk()
        bank.dies_in = {"1"}
        with pytest.raises(Crash):
            agent.resume_sync(state, journal=disk)
        state = disk.load()
    completed(agent.resume_sync(state))
    assert len(bank.did) == 5
    assert len(set(bank.keys)) == 1


def test_finished_siblings_are_kept_and_unstarted_ones_run(stage: Stage, bank: Bank) -> None:
    """J3, J4: only the call in between is in doubt."""
    stage.cast([pay("pay_alone", "a"), pay("pay_telling", "b"), pay("put", "c")], tools=bank.tools)
    # The first is alone in its batch; the process goes away when the other two have begun.
    state = cut(stage, "started", 3)
    assert bank.did == [("pay_alone", "a")]
    end = completed(stage.resume(state))
    assert bank.did == [("pay_alone", "a"), ("put", "c")]
    assert [p.outcome for p in results(end.state)] == ["success", "interrupted", "success"]
    assert_valid_history(end.state)


def test_a_call_whose_tool_is_gone_is_in_doubt_too(stage: Stage, bank: Bank) -> None:
    """J4: the definition may have changed meanwhile; the effect may have been all the same."""
    stage.cast(pay("pay"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    stage.cast(pay("pay"), tools=bank.tools[2:3])
    stage.agent = stage.build()
    end = completed(stage.resume(state))
    assert unknown(results(end.state)[0].content)
    assert len(end.state.doubts) == 1


def test_a_tool_that_became_idempotent_since_is_in_doubt(stage: Stage, bank: Bank) -> None:
    """J4, T13: of the declaration of then and that of now, the one that allows less holds."""
    stage.cast(pay("pay"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    safer = tool(name="pay", idempotent=True)(bank.tools[0].function)
    stage.cast(pay("pay"), tools=[safer])
    stage.agent = stage.build()
    end = completed(stage.resume(state))
    assert bank.did == [("pay", "1")]
    assert unknown(results(end.state)[0].content)
    assert len(end.state.doubts) == 1


def test_a_question_of_a_tool_leaves_no_doubt(stage: Stage, bank: Bank) -> None:
    """I8, J3: it was started and it came back, with a question."""
    stage.cast(pay("ask", "who?"), tools=bank.tools)
    state = cut(stage, "requested")
    outcome = interrupted(stage.resume(state))
    assert [request.kind for request in outcome.requests] == ["interrupt"]
    assert bank.did == [("ask", "who?")]
    end = completed(stage.resume(outcome, outcome.decide(respond("ann"))))
    assert results(end.state)[0].content == "answered ann"


def test_a_new_message_after_a_crash_leaves_the_call_in_doubt(stage: Stage, bank: Bank) -> None:
    """J4: moving on does not undo what may have happened."""
    stage.cast(pay("pay"), "moved on", pay("pay"), tools=bank.tools)
    state = died_inside(stage, bank, "1")
    end = completed(stage.start("never mind", state=stage.carried(state)))
    (part,) = results(end.state)
    assert part.outcome == "interrupted"
    assert unknown(part.content)
    assert_valid_history(end.state)
    again = interrupted(stage.start("pay", state=stage.carried(end.state)))
    assert len(again.requests[0].doubts) == 1
    assert bank.did == [("pay", "1")]


# ------------------------------------------------------- later calls of that tool (J4)


def doubtful(stage: Stage, bank: Bank, *turns: Any, **options: Any) -> Any:
    """A run whose first turn's call, of `pay`, is in doubt; its outcome after the crash."""
    stage.cast(pay("pay", "1", id="p1"), *turns, tools=bank.tools, **options)
    return stage.resume(died_inside(stage, bank, "1"))


def test_while_a_doubt_stands_an_equal_call_needs_a_person(stage: Stage, bank: Bank) -> None:
    """J4: also where the tool has no gate; the person sees the doubtful call beside it."""
    outcome = interrupted(
        doubtful(stage, bank, [pay("pay", "1", id="p2"), pay("pay", "2"), pay("put", "3")])
    )
    (request,) = outcome.requests
    assert request.tool_call_id == "p2"
    assert request.arguments == {"x": "1"}
    (doubt,) = request.doubts
    assert (doubt.tool_name, doubt.tool_call_id, doubt.arguments) == ("pay", "p1", {"x": "1"})
    assert stage.carried(outcome.state).requests == (request,)
    assert bank.did == [("pay", "1")], "nothing of that reply has started (I2)"
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    assert sorted(bank.did) == [("pay", "1"), ("pay", "1"), ("pay", "2"), ("put", "3")]
    assert_valid_history(end.state)


def test_while_a_doubt_stands_a_different_call_of_that_tool_needs_nobody(
    stage: Stage, bank: Bank
) -> None:
    """J4: a search that was stopped does not make each later search ask."""
    end = completed(doubtful(stage, bank, [pay("pay", "2"), pay("pay", "3")], pay("pay", "4")))
    assert sorted(bank.did) == [("pay", "1"), ("pay", "2"), ("pay", "3"), ("pay", "4")]
    assert len(end.state.doubts) == 1


def test_a_rejected_repetition_does_not_run(stage: Stage, bank: Bank) -> None:
    """J4."""
    outcome = interrupted(doubtful(stage, bank, pay("pay", "1")))
    end = completed(stage.resume(outcome, outcome.decide(reject("it went through"))))
    assert bank.did == [("pay", "1")]
    assert [part.outcome for part in results(end.state)] == ["interrupted", "denied"]


def test_other_tools_need_nobody(stage: Stage, bank: Bank) -> None:
    """J4."""
    completed(doubtful(stage, bank, pay("put", "2"), pay("pay_telling", "3")))
    assert bank.did[1:] == [("put", "2"), ("pay_telling", "3")]


def test_a_doubt_outlives_its_run(stage: Stage, bank: Bank) -> None:
    """J4."""
    end = completed(doubtful(stage, bank, "over", [pay("pay", "1", id="p2"), pay("pay", "2")]))
    again = interrupted(stage.start("again", state=stage.carried(end.state)))
    assert [request.tool_call_id for request in again.requests] == ["p2"]
    assert [doubt.arguments for doubt in again.requests[0].doubts] == [{"x": "1"}]


@pytest.mark.parametrize("x", ["1", "2"], ids=["an equal call", "another call"])
def test_while_a_doubt_stands_each_call_of_a_tool_that_a_gate_names_needs_a_person(
    stage: Stage, bank: Bank, x: str
) -> None:
    """J4: also where the gate says that it needs nobody: its `when` does not know of the doubt."""
    outcome = doubtful(
        stage,
        bank,
        pay("pay", x),
        interrupt_on={"pay": {"when": lambda arguments, ctx: False}},
    )
    assert len(interrupted(outcome).requests[0].doubts) == 1
    assert bank.did == [("pay", "1")]


def test_a_gated_tool_shows_the_doubt_in_its_own_request(stage: Stage, bank: Bank) -> None:
    """J4: one request, with the gate's own choices, and the doubt in it."""
    stage.cast(
        pay("pay_telling", "1"),
        pay("pay_telling", "2"),
        tools=bank.tools,
        interrupt_on={"pay_telling": ["approve", "reject"]},
    )
    outcome = interrupted(stage.start())
    disk = Disk()
    bank.dies_in = {"1"}
    with pytest.raises(Crash):
        stage.resume(outcome, outcome.decide(approve()), journal=disk)
    again = interrupted(stage.resume(disk.load()))
    (request,) = again.requests
    assert request.allowed == ("approve", "reject")
    assert request.arguments == {"x": "2"}
    assert [doubt.arguments for doubt in request.doubts] == [{"x": "1"}]


@pytest.mark.parametrize("grant", [approve(always=True), reject(always=True)])
def test_grants_do_not_count_while_a_doubt_stands(stage: Stage, bank: Bank, grant: Any) -> None:
    """J4: an answer given before the doubt was none about it."""
    stage.cast(
        pay("pay_telling", "1"),
        pay("pay_telling", "2"),
        "over",
        pay("pay_telling", "3"),
        tools=bank.tools,
        interrupt_on={"pay_telling": True},
    )
    outcome = interrupted(stage.start())
    disk = Disk()
    if grant.type == "approve":
        bank.dies_in = {"2"}  # the first is approved for always; the second dies
        with pytest.raises(Crash):
            stage.resume(outcome, outcome.decide(grant), journal=disk)
        end = completed(stage.resume(disk.load()))
        assert [each.tool_name for each in end.state.grants.values()] == ["pay_telling"]
        ran = 2
    else:
        bank.dies_in = {"1"}
        with pytest.raises(Crash):
            stage.resume(outcome, outcome.decide(approve()), journal=disk)
        again = interrupted(stage.resume(disk.load()))
        end = completed(stage.resume(again, again.decide(grant)))
        ran = 1
    after = interrupted(stage.start("again", state=stage.carried(end.state)))
    assert len(after.requests[0].doubts) == 1
    assert len(bank.did) == ran


def test_an_equal_sibling_that_was_not_started_needs_a_person(stage: Stage, bank: Bank) -> None:
    """J4: a call of the same reply that had not begun, too; a different call continues."""
    turn = [pay("pay_alone", "1"), pay("pay_alone", "1"), pay("pay_alone", "2")]
    stage.cast(turn, tools=bank.tools)
    state = died_inside(stage, bank, "1")
    outcome = stage.resume(state)
    assert bank.did == [("pay_alone", "1"), ("pay_alone", "2")]
    (request,) = interrupted(outcome).requests
    assert request.arguments == {"x": "1"}
    assert [doubt.arguments for doubt in request.doubts] == [{"x": "1"}]
    end = completed(stage.resume(outcome, {request.id: approve()}))
    assert bank.did == [("pay_alone", "1"), ("pay_alone", "2"), ("pay_alone", "1")]
    assert_valid_history(end.state)


def test_an_approved_sibling_of_the_same_tool_is_asked_about_again(
    stage: Stage, bank: Bank
) -> None:
    """J4: it was approved by somebody who saw no doubt."""
    gate = {"pay_alone": True}
    stage.cast([pay("pay_alone", "1"), pay("pay_alone", "2")], tools=bank.tools, interrupt_on=gate)
    outcome = interrupted(stage.start())
    disk = Disk()
    bank.dies_in = {"1"}
    with pytest.raises(Crash):
        stage.resume(outcome, outcome.decide(approve(), approve()), journal=disk)
    again = interrupted(stage.resume(disk.load()))
    assert bank.did == [("pay_alone", "1")]
    assert "doubt" in {request.kind for request in again.requests}


# ------------------------------------------------------------------- who settles it (J4)


def gated_doubt(stage: Stage, bank: Bank, *turns: Any, name: str = "pay", **options: Any) -> Any:
    """A gated call that was approved and cut off, as it is asked about afterwards."""
    stage.cast(
        pay(name, "1", id="p1"), *turns, tools=bank.tools, interrupt_on={name: True}, **options
    )
    outcome = interrupted(stage.start())
    disk = Disk()
    bank.dies_in = {"1"}
    with pytest.raises(Crash):
        stage.resume(outcome, outcome.decide(approve()), journal=disk)
    return stage.resume(disk.load())


def test_a_gated_call_in_doubt_is_put_to_a_person(stage: Stage, bank: Bank) -> None:
    """J4: the default for gated tools; a request of kind `doubt`, and no model call before it."""
    outcome = interrupted(gated_doubt(stage, bank))
    (request,) = outcome.requests
    assert request.kind == "doubt"
    assert request.tool_call_id == "p1"
    assert request.arguments == {"x": "1"}
    assert "edit" not in request.allowed
    assert outcome.usage.requests == 1
    assert bank.did == [("pay", "1")]
    assert stage.carried(outcome.state).requests == outcome.requests


def test_a_person_says_that_it_happened(stage: Stage, bank: Bank) -> None:
    """J4: happened, with this result; then no doubt is left."""
    outcome = interrupted(gated_doubt(stage, bank, "over", pay("pay", "2")))
    end = completed(stage.resume(outcome, outcome.decide(respond("receipt 4711"))))
    assert bank.did == [("pay", "1")]
    assert [(p.content, p.outcome) for p in results(end.state)] == [("receipt 4711", "success")]
    assert end.state.doubts == {}
    after = interrupted(stage.start("again", state=stage.carried(end.state)))
    assert after.requests[0].doubts == ()
    assert_valid_history(end.state)


def test_a_person_says_that_it_did_not_happen_and_lets_it_run(stage: Stage, bank: Bank) -> None:
    """J4: by a person's word alone it runs again, with the same key."""
    outcome = interrupted(gated_doubt(stage, bank))
    end = completed(stage.resume(outcome, outcome.decide(approve(by="ann"))))
    assert bank.did == [("pay", "1")] * 2
    assert len(set(bank.keys)) == 1
    assert results(end.state)[0].content == "paid 1"
    assert end.state.doubts == {}
    assert [line.request.kind for line in end.state.decisions] == ["approval", "doubt"]


def test_a_person_says_that_it_did_not_happen_and_shall_not(stage: Stage, bank: Bank) -> None:
    """J4, I6: that settles it as well."""
    outcome = interrupted(gated_doubt(stage, bank))
    end = completed(stage.resume(outcome, outcome.decide(reject("call them instead"))))
    assert bank.did == [("pay", "1")]
    (part,) = results(end.state)
    assert part.outcome == "denied"
    assert "call them instead" in str(part.content)
    assert end.state.doubts == {}


@pytest.mark.parametrize("grant", [approve(always=True), reject(always=True)])
def test_the_answer_to_a_doubt_is_no_grant(stage: Stage, bank: Bank, grant: Any) -> None:
    """J4, I3."""
    outcome = interrupted(gated_doubt(stage, bank))
    with pytest.raises(DecisionError, match="always"):
        stage.resume(outcome, {outcome.requests[0].id: grant})
    assert bank.did == [("pay", "1")]


def test_a_doubt_that_is_not_settled_is_asked_again(stage: Stage, bank: Bank) -> None:
    """J4, I4."""
    outcome = interrupted(gated_doubt(stage, bank))
    again = interrupted(stage.resume(outcome))
    assert again.requests == outcome.requests
    assert bank.did == [("pay", "1")]


def test_a_gated_idempotent_call_runs_again_by_its_approval(stage: Stage, bank: Bank) -> None:
    """J4, I12: it is the same call, and was approved."""
    end = completed(gated_doubt(stage, bank, name="put"))
    assert bank.did == [("put", "1")] * 2
    assert len(set(bank.keys)) == 1
    assert len(end.state.decisions) == 1


def test_on_unknown_ask_asks_without_a_gate(stage: Stage, bank: Bank) -> None:
    """J4."""
    stage.cast(pay("pay_asking"), tools=bank.tools)
    outcome = interrupted(stage.resume(died_inside(stage, bank, "1")))
    assert [request.kind for request in outcome.requests] == ["doubt"]
    end = completed(stage.resume(outcome, outcome.decide(respond("it did"))))
    assert results(end.state)[0].content == "it did"
    assert bank.did == [("pay_asking", "1")]


def test_on_unknown_tell_tells_the_model_of_a_gated_call_too(stage: Stage, bank: Bank) -> None:
    """J4."""
    end = completed(gated_doubt(stage, bank, name="pay_telling"))
    assert unknown(results(end.state)[0].content)
    assert len(end.state.doubts) == 1
    assert bank.did == [("pay_telling", "1")]


def test_siblings_of_a_call_in_doubt_finish_before_it_is_asked_about(
    stage: Stage, bank: Bank
) -> None:
    """J4, I8."""
    stage.cast([pay("pay_asking", "1"), pay("put", "2")], tools=bank.tools)
    outcome = interrupted(stage.resume(cut(stage, "started", 2)))
    assert bank.did == [("put", "2")]
    end = completed(stage.resume(outcome, outcome.decide(respond("did"))))
    assert bank.did == [("put", "2")]
    assert [part.content for part in results(end.state)] == ["did", "put 2"]


# ----------------------------------------------------------------------------- timeouts (T6)


LIMIT = 10.0
"""Seconds that a thread has: more than it takes to begin. The loop skips them when it has."""


class Slow:
    """Tools that never come back, or only when they are let."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.let_go = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        did, let_go = self.did, self.let_go

        async def hang(x: str) -> str:
            did.append(x)
            try:
                await never()
            finally:
                did.append(f"{x} cancelled")
            return x

        def block(x: str) -> str:
            did.append(x)
            if x == "late":
                assert self.loop is not None
                skip(self.loop, LIMIT)
                let_go.wait(60)
            return f"did {x}"

        self.pay = tool(name="pay", timeout=0.01)(hang)
        self.put = tool(name="put", timeout=0.01, idempotent=True)(hang)
        self.look = tool(name="look", timeout=0.01, read_only=True)(hang)
        self.block = tool(name="block", timeout=LIMIT)(block)
        self.tools = [self.pay, self.put, self.look, self.block]


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_a_tool_that_only_looks_and_takes_too_long_gets_an_error(stage: Stage, slow: Slow) -> None:
    """T6: naming the limit; the model may try again, and nobody is asked."""
    stage.cast(pay("look"), pay("look"), tools=slow.tools)
    end = completed(stage.start())
    assert [part.outcome for part in results(end.state)] == ["failed", "failed"]
    assert "0.01" in str(results(end.state)[0].content)
    assert end.state.doubts == {}
    assert slow.did == ["1", "1 cancelled"] * 2


@pytest.mark.usefixtures("repeats_at_once")
def test_an_idempotent_tool_that_takes_too_long_is_tried_again_and_then_in_doubt(
    stage: Stage, slow: Slow
) -> None:
    """T6, J28: under the same key; the model's own next call would have another one."""
    stage.cast(pay("put", "1"), pay("put", "1"), tools=slow.tools)
    outcome = interrupted(stage.start())
    assert slow.did == ["1", "1 cancelled"] * 3
    (part,) = results(outcome.state)
    assert part.outcome == "interrupted"
    assert unknown(part.content)
    assert "0.01" in str(part.content)
    assert [doubt.arguments for doubt in outcome.requests[0].doubts] == [{"x": "1"}]


def test_any_other_tool_that_takes_too_long_is_in_doubt(stage: Stage, slow: Slow) -> None:
    """T6, J4: never an error, which the model would retry."""
    stage.cast(pay("pay", "1"), pay("pay", "1"), tools=slow.tools)
    outcome = interrupted(stage.start())
    state = stage.carried(outcome.state)
    (part,) = results(state)
    assert part.outcome == "interrupted"
    assert unknown(part.content)
    assert "0.01" in str(part.content)
    assert [doubt.arguments for doubt in outcome.requests[0].doubts] == [{"x": "1"}]
    assert slow.did == ["1", "1 cancelled"]
    end = completed(stage.resume(outcome, outcome.decide(reject())))
    assert slow.did == ["1", "1 cancelled"]
    assert_valid_history(end.state)


def test_a_gated_tool_that_takes_too_long_is_put_to_a_person(stage: Stage, slow: Slow) -> None:
    """T6, J4."""
    stage.cast(pay("pay", "1"), tools=slow.tools, interrupt_on={"pay": True})
    outcome = interrupted(stage.start())
    doubt = interrupted(stage.resume(outcome, outcome.decide(approve())))
    assert [request.kind for request in doubt.requests] == ["doubt"]
    assert len(slow.did) == 2
    end = completed(stage.resume(doubt, doubt.decide(respond("it did"))))
    assert results(end.state)[0].content == "it did"
    assert len(slow.did) == 2


async def test_a_plain_tool_that_gets_no_thread_within_its_limit_is_not_in_doubt() -> None:
    """T6, J4: it did not run, so the model may call it again."""
    release = threading.Event()
    did: list[str] = []

    @tool
    def blocks() -> str:
        release.wait(60)
        return "released"

    @tool(timeout=0.05)
    def limited() -> str:
        did.append("limited")
        return "ran"

    async def main() -> Outcome:
        model = ScriptedModel([[call("blocks"), call("limited")], "done"])
        agent = Agent("a", model, tools=[blocks, limited])
        async with Runtime(agents=[agent], max_threads=1) as runtime:
            ref = runtime.spawn("a", id="one")
            events = ref.events()
            future = ref.run("go")
            async for told in events:
                if isinstance(told.event, ToolEnded) and told.event.tool_name == "limited":
                    break
            events.close()
            release.set()
            return await soon(future)

    try:
        end = completed(await main())
    finally:
        release.set()
    assert did == []
    assert [part.outcome for part in results(end.state)] == ["success", "failed"]
    assert "no thread" in str(results(end.state)[1].content)
    assert end.state.doubts == {}


def test_a_sibling_that_waits_its_turn_needs_a_person_after_a_timeout(stage: Stage) -> None:
    """T6, J4: the second equals a call in doubt by then; the third does not."""
    did: list[str] = []

    @tool(timeout=0.01, sequential=True)
    async def alone(x: str) -> str:
        did.append(x)
        if len(did) == 1:
            await never()
        return x

    stage.cast([pay("alone", "1"), pay("alone", "1"), pay("alone", "2")], tools=[alone])
    outcome = interrupted(stage.start())
    assert did == ["1", "2"]
    assert [doubt.arguments for doubt in outcome.requests[0].doubts] == [{"x": "1"}]
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert did == ["1", "2", "1"]


def test_a_timeout_error_of_the_tool_itself_is_a_doubt(stage: Stage) -> None:
    """T2, T6: the tool came back, and does not know itself what its server did."""

    @tool(timeout=60)
    async def connect() -> str:
        raise TimeoutError("the server is slow")

    stage.cast(call("connect"), tools=[connect])
    end = completed(stage.start())
    (part,) = results(end.state)
    assert part.outcome == "interrupted"
    assert unknown(part.content)
    assert "the server is slow" in str(part.content)
    assert [doubt.tool_name for doubt in end.state.doubts.values()] == ["connect"]


class Watching:
    """A journal in which one can wait for a record of some kind."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.waiting: list[tuple[str, asyncio.Event]] = []

    def append(self, records: Sequence[Record]) -> None:
        self.records.extend(records)
        for kind, event in self.waiting:
            if any(record.kind == kind for record in records):
                event.set()

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return

    async def came(self, kind: str) -> None:
        if not any(record.kind == kind for record in self.records):
            self.waiting.append((kind, event := asyncio.Event()))
            await soon(event.wait())


async def test_a_late_result_settles_the_doubt(slow: Slow) -> None:
    """J4: what an abandoned call brings after all; then the tool needs nobody any more."""
    journal = Watching()
    slow.loop = asyncio.get_running_loop()
    doubts: list[int] = []

    async def let_it_come(request: Any) -> Any:
        doubts.append(len(replay(journal.records).doubts))
        slow.let_go.set()
        await journal.came("settled")
        return pay("block", "2")

    model = ScriptedModel([pay("block", "late"), let_it_come, "done"])
    agent = Agent("support", model, tools=slow.tools)
    end = completed(await agent.execute("go", journal=journal))
    assert doubts == [1], "in between it was in doubt"
    assert slow.did == ["late", "2"]
    assert [part.outcome for part in results(end.state)] == ["interrupted", "success"]
    for state in (end.state, reloaded(end.state), replay(journal.records)):
        assert state.doubts == {}


async def test_a_late_result_settles_a_doubt_that_is_to_be_asked_about(slow: Slow) -> None:
    """J4: it comes while a sibling still runs, so nobody need be asked."""
    loop = asyncio.get_running_loop()

    @tool(timeout=LIMIT, on_unknown="ask")
    def late(x: str) -> str:
        skip(loop, LIMIT)
        slow.let_go.wait(60)
        return x

    journal = Watching()

    @tool
    async def sibling() -> str:
        await journal.came("requested")
        slow.let_go.set()
        await journal.came("result")
        return "ok"

    model = ScriptedModel([[pay("late", "1"), call("sibling")], "done"])
    agent = Agent("support", model, tools=[late, sibling])
    end = completed(await agent.execute("go", journal=journal))
    assert [part.outcome for part in results(end.state)] == ["success", "success"]
    assert end.state.doubts == {}


async def test_a_late_failure_of_an_abandoned_call_settles_nothing() -> None:
    """J4: what it did is still not known; and nothing is raised on the loop."""
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    let_go = threading.Event()
    loop = asyncio.get_running_loop()

    @tool(timeout=LIMIT)
    def late() -> str:
        skip(loop, LIMIT)
        let_go.wait(60)
        raise ValueError("too late")

    async def let_it_come(_: object) -> str:
        let_go.set()
        await until(lambda: runtime.status().abandoned_threads == 0)
        await turns()
        return "done"

    agent = Agent("support", ScriptedModel([call("late"), let_it_come]), tools=[late])
    async with Runtime([agent]) as runtime:
        end = completed(await soon(runtime.spawn("support").run("go")))
    assert len(end.state.doubts) == 1
    assert raised == []


# ------------------------------------------------- errors after something was done (J4, T11)


def act(body: Any, **options: Any) -> Any:
    """How the call of a tool with this body ends: its part, and the doubts."""

    @tool(**options)
    async def act(ctx: ToolContext) -> Any:
        return await body(ctx)

    agent = Agent("desk", by_turn(call("act")), tools=[act])
    end = completed(agent.execute_sync("go"))
    (part,) = results(end.state)
    return part, [doubt.tool_name for doubt in end.state.doubts.values()]


@pytest.mark.parametrize(
    ("error", "is_doubt"),
    [
        (ValueError("no receipt"), True),
        (InvalidArguments("no such order"), True),
        (Retry("again"), False),
        (ToolFailed("no"), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_after_something_is_done_once_each_error_but_the_tools_own_is_a_doubt(
    error: Exception, is_doubt: bool
) -> None:
    """J4, T11: and what is done is reported."""

    async def pays(ctx: ToolContext) -> None:
        await ctx.once("pay", lambda: "paid")
        raise error

    part, doubts = act(pays)
    assert part.outcome == ("interrupted" if is_doubt else "failed")
    assert doubts == ["act"] * is_doubt
    assert ("it had done this: 'pay' once" in str(part.content)) is is_doubt


def test_what_was_not_done_makes_no_doubt() -> None:
    """J4, T11: what `ctx.once` calls has raised."""

    def raises() -> None:
        raise ValueError("no money")

    async def pays(ctx: ToolContext) -> None:
        await ctx.once("pay", raises)

    part, doubts = act(pays)
    assert (part.outcome, doubts) == ("failed", [])


def test_an_error_after_something_is_done_is_one_of_a_tool_that_only_looks() -> None:
    """J4, T13."""

    async def looks(ctx: ToolContext) -> None:
        await ctx.once("look", lambda: "seen")
        raise ValueError("not found")

    part, doubts = act(looks, read_only=True)
    assert (part.outcome, doubts) == ("failed", [])


@pytest.mark.parametrize("read_only", [False, True])
def test_after_an_agent_inside_has_done_something_an_error_is_a_doubt(read_only: bool) -> None:
    """J4, S6: of the tools inside, those with effects count."""

    @tool(read_only=read_only)
    async def pay(amount: int) -> str:
        return "paid"

    inner = Agent("inner", by_turn(call("pay", {"amount": 17})), tools=[pay])

    async def runs(ctx: ToolContext) -> None:
        completed(await ctx.run_agent(inner, "go"))
        raise ValueError("no receipt")

    part, doubts = act(runs)
    assert part.outcome == ("failed" if read_only else "interrupted")
    assert doubts == ([] if read_only else ["act"])
    if not read_only:
        assert "it had done this: inner: pay(" in str(part.content)
        assert "17" in str(part.content)


def test_the_failed_outcome_of_an_agent_is_no_doubt() -> None:
    """J4, S3: neither where a tool returns it, nor where `task` has it; it tells what was done."""

    def fails(request: Any) -> Any:
        if len(request.messages) > 1:
            raise ValueError("the model is down")
        return call("pay", {"x": "1"})

    inner = Agent("inner", ScriptedModel(fails), tools=Bank().tools)

    async def returns(ctx: ToolContext) -> Any:
        return await ctx.run_agent(inner, "go")

    part, doubts = act(returns)
    assert (part.outcome, doubts) == ("failed", [])
    assert "pay" in str(part.content)
    task = call("task", {"task_name": "inner", "instructions": "go"})
    stack = [SubAgent([inner], general_purpose=False)]
    end = completed(Agent("desk", by_turn(task), middleware=stack).execute_sync("go"))
    (part,) = results(end.state)
    assert part.outcome == "failed"
    assert "pay" in str(part.content)
    assert end.state.doubts == {}


@pytest.mark.parametrize("where", ["tool", "agent", "runtime"])
def test_errors_that_leave_open_what_happened_are_added_at_each_place(where: str) -> None:
    """J4: per tool, agent and runtime; and taken away by the tool."""

    def doubts(options: dict[str, Any], agent: dict[str, Any], runtime: dict[str, Any]) -> int:
        @tool(**options)
        async def pay() -> str:
            raise KeyError("perhaps")

        desk = Agent("desk", by_turn(call("pay")), tools=[pay], **agent)
        with Runtime([desk], **runtime) as here:
            return len(completed(here.spawn("desk").run("go").get(timeout=60)).state.doubts)

    given: list[dict[str, Any]] = [{}, {}, {}]
    place = ["tool", "agent", "runtime"].index(where)
    assert doubts(*given) == 0
    given[place] = {"unknown_after": LookupError}
    assert doubts(*given) == 1
    given[place] = {"unknown_after": "builtins.KeyError"}
    assert doubts(*given) == 1
    given[place] = {"unknown_after": [OSError]}
    assert doubts(*given) == 0
    given[place] = {"unknown_after": LookupError}
    given[0] = {**given[0], "nothing_happened": KeyError}
    assert doubts(*given) == 0, "the more specific one counts"


# ------------------------------------------------------------------------ write-ahead (J3)


class Lagging:
    """A journal whose records become durable only when it is waited for."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.pending: list[Record] = []

    def append(self, records: Sequence[Record]) -> None:
        self.pending.extend(records)

    @property
    def has_unflushed(self) -> bool:
        return bool(self.pending)

    async def durable(self) -> None:
        self.log.extend(record.kind for record in self.pending)
        self.pending.clear()


@pytest.mark.parametrize("gated", [False, True])
def test_a_call_is_durably_started_before_its_body_is_entered(gated: bool) -> None:
    """J3, J4: else a crash could repeat it."""
    log: list[str] = []

    @tool
    async def act(x: str) -> str:
        log.append(f"body {x}")
        return x

    journal = Lagging(log)
    agent = Agent(
        "support",
        by_turn([pay("act", "1"), pay("act", "2")]),
        tools=[act],
        interrupt_on={"act": True} if gated else None,
    )
    outcome = agent.execute_sync("go", journal=journal)
    if gated:
        waiting = interrupted(outcome)
        assert "body 1" not in log
        outcome = agent.resume_sync(
            waiting.state, waiting.decide(approve(), approve()), journal=journal
        )
        assert log.index("decided") < log.index("started")
    completed(outcome)
    assert log.count("started") == 2
    before = log[: log.index("body 1")]
    assert before.count("started") == 2
    assert not journal.pending


class Refusing:
    """A journal that refuses one kind of record."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind

    def append(self, records: Sequence[Record]) -> None:
        if any(isinstance(record, self.kind) for record in records):
            raise OSError("the disk is full")

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return


def test_a_further_attempt_is_durably_recorded_before_anything_runs() -> None:
    """J10: else a run that ends its process each time would never be quarantined."""
    log: list[str] = []
    disk = Disk("attempt")
    with pytest.raises(Crash):
        Agent("a", ScriptedModel(["never"])).execute_sync("go", journal=disk)

    def reply(_: Any) -> str:
        log.append("model")
        return "done"

    completed(Agent("a", ScriptedModel([reply])).resume_sync(disk.load(), journal=Lagging(log)))
    assert log.index("attempt") < log.index("model")


def test_a_start_that_cannot_be_recorded_is_no_start(bank: Bank) -> None:
    """J3: the run stops at the caller; the body is not entered."""
    stage = Stage(elsewhere=False)
    stage.cast(pay("pay"), tools=bank.tools)
    with pytest.raises(JournalFailed, match="disk is full"):
        stage.start(journal=Refusing(Started))
    assert bank.did == []


@pytest.mark.parametrize("name", ["pay", "put", "pay_alone", "pay_asking"])
def test_no_finished_call_runs_again_wherever_it_is_cut(name: str) -> None:
    """J3, J4: the process goes away after each record in turn."""
    turns = [[pay(name, "1"), pay(name, "2")], [pay(name, "3")]]
    whole = Disk()
    agent = Agent("support", by_turn(*turns), tools=Bank().tools)
    completed(agent.execute_sync("go", journal=whole))
    for limit in range(1, len(whole.lines)):
        bank = Bank()
        agent = Agent("support", by_turn(*turns), tools=bank.tools)
        disk = Disk()
        disk.lines = whole.lines[:limit]
        finished = {
            line["call_key"] for line in map(json.loads, disk.lines) if line["kind"] == "result"
        }
        started = {
            line["call_key"] for line in map(json.loads, disk.lines) if line["kind"] == "started"
        }
        outcome = agent.resume_sync(disk.load())
        ran = set(bank.keys)
        assert len(bank.keys) == len(ran), "each at most once"
        assert not finished & ran, f"cut after {limit}"
        if name != "put":
            assert not started & ran, f"cut after {limit}"
        assert outcome.state.run is not None
